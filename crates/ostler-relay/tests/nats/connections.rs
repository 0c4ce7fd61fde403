//! Start and end of connections.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ostler_relay::broker::nats::{NatsBroker, NatsOptions};
use ostler_relay::broker::{Broker as _, BrokerConnectError, LinkError};
use ostler_relay::{LinkReport, LinkState, Reconnector};
use ostler_testkit::{NatsServer, eventually};

use super::tcp_proxy::HoldableProxy;
use super::{BOTH, PATIENCE, at, connect, in_time, message, next, publish, round_trip, subscribe};

/// Time after which unanswered pings could have ended a link.
const UNANSWERED_PINGS: Duration = Duration::from_secs(6);

#[tokio::test]
async fn a_killed_broker_ends_the_link_at_once_and_for_good() {
    for which in BOTH {
        let mut server = NatsServer::start_default(which).await;
        let link = connect(at(&server)).await;
        let mut received = subscribe(&link, "a").await;
        round_trip(&link, "settle").await;
        let began = Instant::now();
        server.kill();
        assert_eq!(in_time(link.ended()).await, "the broker is gone");
        assert!(began.elapsed() < UNANSWERED_PINGS, "{:?}", began.elapsed());
        assert_eq!(in_time(received.next()).await, None);
        assert_eq!(link.publish(message("a", "late")).await, Err(LinkError::Closed));
        assert_eq!(link.subscribe("a", None).await.err(), Some(LinkError::Closed));
        assert_eq!(link.flush().await, Err(LinkError::Closed));
        server.restart().await;
        assert_eq!(link.publish(message("a", "late")).await, Err(LinkError::Closed));
    }
}

/// The server stays up, so a client that reconnected by itself would find it.
#[tokio::test]
async fn nothing_that_was_handed_over_before_a_cut_is_delivered_after_it() {
    for which in BOTH {
        let server = NatsServer::start_default(which).await;
        let proxy = HoldableProxy::in_front_of(server.port()).await;
        let listener = connect(at(&server)).await;
        let mut received = subscribe(&listener, "a").await;
        round_trip(&listener, "settle").await;
        let link = connect(NatsOptions::new(vec![proxy.url()])).await;
        round_trip(&link, "settle.too").await;
        proxy.hold();
        let body = "x".repeat(100_000);
        let mut handed_over = 0;
        // As much as sockets and the client's own queue take.
        while tokio::time::timeout(Duration::from_millis(300), link.publish(message("a", &body)))
            .await
            .is_ok()
        {
            handed_over += 1;
        }
        assert!(handed_over > 500, "{handed_over}");
        proxy.cut();
        in_time(link.ended()).await;
        // Longer than the client library waits before a reconnect.
        let late = tokio::time::timeout(Duration::from_secs(1), received.next()).await;
        assert!(late.is_err(), "it came late");
        assert_eq!(proxy.connections(), 1, "the client has come again");
    }
}

/// Returns the number of connections at the server.
fn clients(server: &NatsServer) -> usize {
    let text = std::fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    let port = format!(":{:04X}", server.port());
    let is_open = |line: &&str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.len() > 3 && fields[1].ends_with(&port) && fields[3] == "01"
    };
    text.lines().filter(is_open).count()
}

#[tokio::test]
async fn a_broker_that_says_nothing_any_more_is_given_up_within_ten_seconds() {
    let server = NatsServer::start_default(BOTH[0]).await;
    let link = connect(at(&server)).await;
    round_trip(&link, "settle").await;
    server.freeze().await;
    let began = Instant::now();
    let limit = Duration::from_secs(15);
    assert!(tokio::time::timeout(limit, link.ended()).await.is_ok());
    assert!(began.elapsed() < Duration::from_secs(11), "{:?}", began.elapsed());
    server.thaw();
}

#[tokio::test]
async fn a_closed_link_leaves_after_its_last_words() {
    for which in BOTH {
        let server = NatsServer::start_default(which).await;
        let (one, two) = (connect(at(&server)).await, connect(at(&server)).await);
        let mut received = subscribe(&two, "a").await;
        round_trip(&two, "settle").await;
        // An unread subscription must not keep the link open.
        let unread = subscribe(&one, "b").await;
        publish(&one, message("a", "last words")).await;
        one.close();
        assert_eq!(next(&mut received).await.body, "last words");
        assert_eq!(in_time(one.ended()).await, "it was closed");
        eventually("one connection is left", PATIENCE, || clients(&server) == 1).await;
        drop(unread);
        drop(two);
        eventually("no connection is left", PATIENCE, || clients(&server) == 0).await;
    }
}

#[tokio::test]
async fn nothing_runs_on_after_links_have_ended() {
    let mut server = NatsServer::start_default(BOTH[0]).await;
    let metrics = tokio::runtime::Handle::current().metrics();
    let before = metrics.num_alive_tasks();
    for round in 0..10 {
        let link = connect(at(&server)).await;
        let unread = subscribe(&link, "a").await;
        match round % 3 {
            0 => server.restart().await,
            1 => link.close(),
            _ => drop(Arc::clone(&link)),
        }
        drop((link, unread));
    }
    eventually("all tasks have ended", PATIENCE, || metrics.num_alive_tasks() == before).await;
}

#[tokio::test]
async fn a_reconnector_makes_a_new_link_when_the_broker_is_back() {
    let mut server = NatsServer::start_default(BOTH[0]).await;
    let reports = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&reports);
    let status_sink = Arc::new(move |report: &LinkReport| {
        sink.lock().unwrap_or_else(|error| panic!("{error}")).push(report.to_string());
    });
    let broker = Arc::new(NatsBroker::new(at(&server)));
    let reconnector = Reconnector::start(broker, fastrand::Rng::with_seed(7), status_sink);
    let mut link_state = reconnector.watch_state();
    for epoch in 1..=3 {
        let is_there = |link_state: &LinkState| matches!(link_state, LinkState::Connected(connection) if connection.epoch == epoch);
        assert!(in_time(link_state.wait_for(is_there)).await.is_ok());
        server.kill();
        let is_lost = |link_state: &LinkState| matches!(link_state, LinkState::Disconnected { .. });
        assert!(in_time(link_state.wait_for(is_lost)).await.is_ok());
        server.restart().await;
    }
    let address = server.url();
    let (connected, lost) = (
        format!("connected to the broker at {address}"),
        format!("the connection to the broker at {address} was lost: the broker is gone"),
    );
    let reports = reports.lock().unwrap_or_else(|error| panic!("{error}")).clone();
    assert_eq!(reports[..5], [connected.clone(), lost.clone(), connected.clone(), lost, connected]);
}

#[tokio::test]
async fn a_broker_that_is_not_there_is_away_and_it_is_said_why() {
    let mut server = NatsServer::start_default(BOTH[0]).await;
    server.kill();
    let refused = NatsBroker::new(at(&server)).connect().await.err();
    assert_eq!(refused, Some(BrokerConnectError::Unreachable("Connection refused (os error 111)".into())));
}

#[tokio::test]
async fn the_other_server_is_taken_when_one_is_away() {
    let (mut gone, there) =
        (NatsServer::start_default(BOTH[0]).await, NatsServer::start_default(BOTH[0]).await);
    gone.kill();
    let mut options = at(&gone);
    options.servers.push(there.url());
    for _ in 0..8 {
        let link = connect(options.clone()).await;
        round_trip(&link, "settle").await;
    }
}

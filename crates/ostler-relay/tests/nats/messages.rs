//! Messages between two connections.

use std::collections::BTreeSet;

use ostler_core::server_name::ServerName;
use ostler_relay::broker::{BrokerMessage, LinkError};
use ostler_relay::envelope::{CallHead, RelayHeaders, header};
use ostler_relay::{CallId, Instance};
use ostler_testkit::{NatsServer, NatsSetup};

use super::{BOTH, at, connect, in_time, message, next, publish, round_trip, subscribe};

#[tokio::test]
async fn a_message_arrives_whole() {
    for which in BOTH {
        let server = NatsServer::start_default(which).await;
        let (one, two) = (connect(at(&server)).await, connect(at(&server)).await);
        let mut received = subscribe(&two, "a.*").await;
        round_trip(&two, "settle").await;
        let head = CallHead {
            call: CallId::new(1, &[7; 10]),
            instance: Instance(3),
            server: ServerName::new("s").unwrap(),
            begin_by: 5,
            deadline: u64::MAX,
            manifest: Some("m".into()),
            trace: Some("00-ä: x-01".into()),
        };
        let sent = BrokerMessage::new("a.b".into(), head.headers(), vec![0, 13, 10, 255])
            .with_reply_to("_INBOX.x".into());
        publish(&one, sent.clone()).await;
        let incoming = next(&mut received).await;
        assert_eq!(
            (&incoming.subject, &incoming.reply_to, &incoming.body),
            (&sent.subject, &sent.reply_to, &sent.body)
        );
        assert_eq!(CallHead::read(&incoming.headers), Ok(head));
        assert!(!incoming.is_no_responders);
    }
}

#[tokio::test]
async fn one_of_a_queue_gets_each_message() {
    for which in BOTH {
        let server = NatsServer::start_default(which).await;
        let (one, two) = (connect(at(&server)).await, connect(at(&server)).await);
        let mut queues = Vec::new();
        for link in [&one, &two] {
            let queue = link.subscribe("a", Some("hosts")).await;
            queues.push(queue.unwrap_or_else(|error| panic!("{error}")));
        }
        round_trip(&two, "settle").await;
        for number in 0..100 {
            publish(&one, message("a", &number.to_string())).await;
        }
        let mut received = BTreeSet::new();
        let [first, second] = &mut queues[..] else { panic!("two queues") };
        for _ in 0..100 {
            let incoming = in_time(async {
                tokio::select! {
                    incoming = first.next() => incoming,
                    incoming = second.next() => incoming,
                }
            });
            let incoming = incoming.await.unwrap_or_else(|| panic!("the connection is over"));
            assert!(received.insert(incoming.body.clone()), "{incoming:?} came twice");
        }
    }
}

#[tokio::test]
async fn a_question_that_nobody_hears_comes_back_at_once() {
    for which in BOTH {
        let server = NatsServer::start_default(which).await;
        let link = connect(at(&server)).await;
        let mut inbox = subscribe(&link, "_INBOX_w.*").await;
        publish(&link, message("nobody", "?").with_reply_to("_INBOX_w.1".into())).await;
        let incoming = next(&mut inbox).await;
        assert_eq!(incoming.subject, "_INBOX_w.1");
        assert!(incoming.is_no_responders);
        assert_eq!(incoming.headers, RelayHeaders::new());
    }
}

#[tokio::test]
async fn a_message_that_the_broker_does_not_take_is_not_sent() {
    for which in BOTH {
        let config = "max_payload: 2000\n".into();
        let server = NatsServer::start(NatsSetup { version: which, config, ..NatsSetup::default() }).await;
        let link = connect(at(&server)).await;
        assert_eq!(link.broker_info().max_payload, 2_000);
        assert!(!link.broker_info().requires_credentials);
        assert!(link.broker_info().is_loopback);
        let mut received = subscribe(&link, "a").await;
        // Headers count too.
        let headers = RelayHeaders::new().with(header::MANIFEST, "m".repeat(100));
        let sent = link.publish(BrokerMessage::new("a".into(), headers, vec![b'x'; 1_900])).await;
        assert_eq!(sent, Err(LinkError::TooLong { limit: 2_000 }));
        publish(&link, message("a", "short")).await;
        assert_eq!(next(&mut received).await.body, "short");
    }
}

#[tokio::test]
async fn who_stops_listening_hears_nothing_and_is_not_counted() {
    let server = NatsServer::start_default(BOTH[0]).await;
    let link = connect(at(&server)).await;
    let received = subscribe(&link, "a").await;
    drop(received);
    let mut inbox = subscribe(&link, "_INBOX_w.*").await;
    publish(&link, message("a", "?").with_reply_to("_INBOX_w.1".into())).await;
    assert!(next(&mut inbox).await.is_no_responders);
}

/// Four times the backlog of a subscription.
#[tokio::test]
async fn what_comes_faster_than_it_is_read_is_dropped_and_the_rest_still_comes() {
    let server = NatsServer::start_default(BOTH[1]).await;
    let (one, two) = (connect(at(&server)).await, connect(at(&server)).await);
    let mut slow = subscribe(&two, "a").await;
    round_trip(&two, "settle").await;
    for number in 0..16_384 {
        publish(&one, message("a", &number.to_string())).await;
    }
    let mut other = subscribe(&two, "b").await;
    round_trip(&two, "settle").await;
    publish(&one, message("b", "last")).await;
    assert_eq!(next(&mut other).await.body, "last");
    let mut count = 0;
    while let Ok(Some(_)) = tokio::time::timeout(std::time::Duration::from_millis(100), slow.next()).await {
        count += 1;
    }
    assert_eq!(count, 4_096);
    publish(&one, message("a", "more")).await;
    assert_eq!(next(&mut slow).await.body, "more");
}

#[tokio::test]
async fn who_stops_listening_still_gets_what_it_was_chosen_for() {
    for which in BOTH {
        let server = NatsServer::start_default(which).await;
        let (one, two) = (connect(at(&server)).await, connect(at(&server)).await);
        let mut queues = Vec::new();
        for link in [&one, &two] {
            let queue = link.subscribe("a", Some("hosts")).await;
            queues.push(queue.unwrap_or_else(|error| panic!("{error}")));
            round_trip(link, "settle").await;
        }
        let (mut second, mut first) = (queues.remove(1), queues.remove(0));
        let sender = connect(at(&server)).await;
        let (stopped, has_stopped) = tokio::sync::oneshot::channel();
        let sending = tokio::spawn(async move {
            for number in 0..3_000 {
                publish(&sender, message("a", &number.to_string())).await;
            }
            // An earlier message could be routed to the first subscription as well.
            let _ = has_stopped.await;
            publish(&sender, message("a", "last")).await;
            // Dropping it would end the connection.
            sender
        });
        let mut received = 0;
        for _ in 0..100 {
            next(&mut first).await;
            received += 1;
        }
        first.drain().await;
        while in_time(first.next()).await.is_some() {
            received += 1;
        }
        let _ = stopped.send(());
        while next(&mut second).await.body != "last" {
            received += 1;
        }
        assert_eq!(received, 3_000);
        drop(sending);
    }
}

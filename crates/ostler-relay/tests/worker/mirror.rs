//! Server mirror: a host with the servers of the manifest.

use std::sync::Arc;

use ostler_host::{Caller, Host, HostOptions};
use ostler_relay::ManifestServer;
use ostler_relay::broker::Broker;
use ostler_relay::broker::memory::{BrokerPermissions, MemoryBroker};
use ostler_relay::worker::Worker;
use tokio::time::Instant;

use crate::harness::*;

fn names(host: &Host) -> Vec<String> {
    host.servers(&Caller::local()).iter().map(ToString::to_string).collect()
}

fn begin(door: Arc<dyn Broker>) -> (Worker, Host) {
    (worker(door), Host::new(HostOptions { cache_bytes: 0, ..HostOptions::default() }))
}

#[tokio::test(start_paused = true)]
async fn servers_come_and_go_with_the_manifest() {
    let broker = MemoryBroker::new();
    let manifest_host = ManifestHost::connect(&broker, vec![listed("a", &["x"]), listed("b", &["y"])]).await;
    let (worker, host) = begin(broker.for_user("worker", BrokerPermissions::all()));
    let mirror = worker.mirror(host.clone());
    mirror.readiness()().unwrap().await.unwrap();
    assert_eq!(names(&host), ["a", "b"]);
    assert!(mirror.readiness()().is_none(), "nobody waits any more");

    manifest_host.set(Ok(vec![listed("b", &["y"]), listed("c", &["z"])]));
    manifest_host.push().await;
    wait_until(|| names(&host) == ["b", "c"]).await;
    assert_eq!(host.tools(&Caller::local(), "c").await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_with_other_limits_is_another_one_and_one_with_other_tools_is_not() {
    let broker = MemoryBroker::new();
    let manifest_host = ManifestHost::connect(&broker, vec![listed("a", &["x"])]).await;
    let (worker, host) = begin(broker.for_user("worker", BrokerPermissions::all()));
    let mirror = worker.mirror(host.clone());
    mirror.readiness()().unwrap().await.unwrap();
    assert_eq!(host.call_timeouts("a"), Some((secs(62), secs(602))));

    let mut events = host.notifications();
    manifest_host.set(Ok(vec![listed("a", &["x", "y"])]));
    manifest_host.push().await;
    events.recv().await.unwrap();
    assert_eq!(host.tools(&Caller::local(), "a").await.unwrap().len(), 2);
    assert_eq!(host.call_timeouts("a"), Some((secs(62), secs(602))));

    manifest_host.set(Ok(vec![ManifestServer { call_timeout: 1_000, ..listed("a", &["x"]) }]));
    manifest_host.push().await;
    wait_until(|| host.call_timeouts("a") == Some((secs(3), secs(602)))).await;
}

#[tokio::test(start_paused = true)]
async fn a_call_through_the_mirror_reads_like_any_other() {
    let broker = MemoryBroker::new();
    let _manifest_host = ManifestHost::connect(&broker, vec![listed("a", &["x"])]).await;
    let mut manual_host = ManualHost::connect_with_heartbeat(&broker, "h").await;
    let (worker, host) = begin(broker.for_user("worker", BrokerPermissions::all()));
    let mirror = worker.mirror(host.clone());
    mirror.readiness()().unwrap().await.unwrap();
    let caller = host.clone();
    let call =
        tokio::spawn(
            async move { caller.call(&Caller::local(), "a", "x", serde_json::json!({"n": 1})).await },
        );
    let received = manual_host.next_call().await;
    assert_eq!(received.body["params"]["arguments"], serde_json::json!({"n": 1}));
    assert!(received.head.manifest.is_some());
    manual_host.accept(&received).await;
    manual_host.answer(&received, r#"{"content":[{"type":"text","text":"hello"}]}"#).await;
    assert_eq!(call.await.unwrap().unwrap().text(), "hello");
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_the_broker_is_waited_through_by_whoever_calls() {
    let broker = MemoryBroker::new();
    let _manifest_host = ManifestHost::connect(&broker, vec![listed("a", &["x"])]).await;
    let (worker, host) = begin(broker.for_user("worker", BrokerPermissions::all()));
    let mirror = worker.mirror(host.clone());
    mirror.readiness()().unwrap().await.unwrap();
    broker.go_down();
    let caller = host.clone();
    let call = tokio::spawn(async move {
        caller.call(&Caller::local(), "a", "x", ostler_host::CallArguments::none()).await
    });
    tokio::time::sleep(secs(20)).await;
    broker.come_up();
    let mut manual_host = ManualHost::connect_with_heartbeat(&broker, "h").await;
    let received = manual_host.next_call().await;
    manual_host.answer(&received, r#"{"content":[]}"#).await;
    call.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn who_comes_before_the_manifest_waits_ten_seconds_and_is_told_why_there_is_none() {
    let (down, up) = (MemoryBroker::new(), MemoryBroker::new());
    down.go_down();
    for (door, why) in [
        (down.for_user("worker", BrokerPermissions::all()), "can't be reached: the broker is down"),
        (up.for_user("worker", BrokerPermissions::all()), "no host answers"),
    ] {
        let (worker, host) = begin(door);
        let mirror = worker.mirror(host);
        let began = Instant::now();
        let error = mirror.readiness()().unwrap().await.unwrap_err();
        assert_eq!(began.elapsed(), secs(10));
        assert!(error.render().contains(why), "{}", error.render());
        assert_eq!(error.code(), "server-unavailable");
        assert!(worker.problem().unwrap().contains(why));
    }
}

#[tokio::test(start_paused = true)]
async fn whom_the_broker_refuses_is_told_at_once_every_time() {
    let broker = MemoryBroker::new();
    let _manifest_host = ManifestHost::connect(&broker, vec![listed("a", &["x"])]).await;
    let mute = BrokerPermissions { publish: vec![], ..BrokerPermissions::all() };
    let deaf = BrokerPermissions { subscribe: vec![], ..BrokerPermissions::all() };
    for (door, why) in [
        (broker.with_bad_credentials("worker"), "does not accept the credentials"),
        (broker.for_user("worker", mute), "does not let this worker publish to ostler.acme.manifest.dev.w1"),
        (broker.for_user("worker", deaf), "does not let this worker listen to"),
    ] {
        let (worker, host) = begin(door);
        let mirror = worker.mirror(host);
        for _ in 0..5 {
            let began = Instant::now();
            let error = mirror.readiness()().unwrap().await.unwrap_err();
            assert!(began.elapsed() < ms(20), "{:?}: {why}", began.elapsed());
            assert!(error.render().contains(why), "{}", error.render());
            assert_eq!(error.code(), "server-unavailable");
            tokio::time::sleep(secs(7)).await;
        }
        assert!(worker.problem().unwrap().contains(why));
    }
}

#[tokio::test(start_paused = true)]
async fn a_role_that_the_host_takes_away_leaves_nothing_and_is_told_why_at_once() {
    let broker = MemoryBroker::new();
    let manifest_host = ManifestHost::connect(&broker, vec![listed("a", &["x"])]).await;
    let (worker, host) = begin(broker.for_user("worker", BrokerPermissions::all()));
    let mirror = worker.mirror(host.clone());
    mirror.readiness()().unwrap().await.unwrap();

    manifest_host.set(Err(r#"{"code":-31005,"message":"the host is busy"}"#));
    manifest_host.push().await;
    wait_until(|| worker.problem().is_some()).await;
    assert_eq!(names(&host), ["a"], "a host that can't say has taken nothing back");

    manifest_host.set(Err(r#"{"code":-32602,"message":"the host has no role `dev`"}"#));
    manifest_host.push().await;
    wait_until(|| names(&host).is_empty()).await;
    let began = Instant::now();
    let error = mirror.readiness()().unwrap().await.unwrap_err();
    assert_eq!(began.elapsed(), secs(0));
    assert!(error.render().contains("the host has no role `dev`"), "{}", error.render());

    manifest_host.set(Ok(vec![listed("a", &["x"])]));
    manifest_host.push().await;
    wait_until(|| names(&host) == ["a"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_mirror_that_is_dropped_follows_no_more() {
    let broker = MemoryBroker::new();
    let manifest_host = ManifestHost::connect(&broker, vec![listed("a", &["x"])]).await;
    let (worker, host) = begin(broker.for_user("worker", BrokerPermissions::all()));
    let mirror = worker.mirror(host.clone());
    mirror.readiness()().unwrap().await.unwrap();
    drop(mirror);
    manifest_host.set(Ok(vec![]));
    manifest_host.push().await;
    let mut manifest = worker.manifest();
    let is_empty = |manifest: &Option<Arc<ostler_relay::Manifest>>| {
        manifest.as_ref().is_some_and(|manifest| manifest.servers.is_empty())
    };
    manifest.wait_for(is_empty).await.unwrap();
    tokio::time::sleep(secs(5)).await;
    assert_eq!(names(&host), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_was_there_before_stays() {
    let broker = MemoryBroker::new();
    let manifest_host = ManifestHost::connect(&broker, vec![listed("a", &["x"]), listed("b", &["y"])]).await;
    let (worker, host) = begin(broker.for_user("worker", BrokerPermissions::all()));
    let own = ostler_host::ServerSpec::stdio(ostler_host::ServerName::new("a").unwrap(), "true").lazy();
    host.spawn(&Caller::operator(), own.clone()).await.unwrap();
    let mirror = worker.mirror(host.clone());
    mirror.readiness()().unwrap().await.unwrap();
    assert_eq!(names(&host), ["a", "b"]);
    assert_eq!(host.spawn(&Caller::operator(), own).await.unwrap(), ostler_host::SpawnOutcome::Unchanged);
    manifest_host.set(Ok(vec![]));
    manifest_host.push().await;
    wait_until(|| names(&host) == ["a"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_reaches_nobody_says_so_and_that_it_was_not_sent() {
    let broker = MemoryBroker::new();
    let _manifest_host = ManifestHost::connect(&broker, vec![listed("a", &["x"])]).await;
    let (worker, host) = begin(broker.for_user("worker", BrokerPermissions::all()));
    let mirror = worker.mirror(host.clone());
    mirror.readiness()().unwrap().await.unwrap();
    broker.go_down();
    let began = Instant::now();
    let error = host.call(&Caller::local(), "a", "x", ostler_host::CallArguments::none()).await.unwrap_err();
    assert_eq!(began.elapsed(), secs(62), "as long as there was time");
    let expected = "error: server `a` is out of reach\n  cause: the broker at memory can't be reached: \
                    the broker is down\n  hint: try again when the cause is gone";
    assert_eq!(error.render(), expected);
    assert_eq!(error.delivery(), Some(ostler_core::fault::Delivery::NotSent));
}

//! What the worker may use.

use ostler_core::error::CallError;
use ostler_host::upstream::ServerNotification;
use ostler_host::{Caller, Kind};
use ostler_relay::Instance;

use crate::harness::*;

async fn tools(stage: &WorkerHarness) -> Result<Vec<String>, CallError> {
    let tools = stage.host.tools(&Caller::local(), "s").await?;
    Ok(tools.iter().map(|tool| tool.tool.name.to_string()).collect())
}

#[tokio::test(start_paused = true)]
async fn tools_are_listed_from_the_manifest_without_a_message() {
    let stage = WorkerHarness::new().await;
    let peer = ManualHost::connect_with_heartbeat(&stage.broker, "h").await;
    let registrar =
        ManifestHost::connect(&stage.broker, vec![listed("s", &["a", "b"]), listed("t", &[])]).await;
    assert_eq!(tools(&stage).await.unwrap(), ["a", "b"]);
    assert_eq!(registrar.request_count(), 1);
    peer.assert_no_call().await;
}

#[tokio::test(start_paused = true)]
async fn without_a_manifest_a_list_is_an_error_that_says_why() {
    let stage = WorkerHarness::new().await;
    let error = tools(&stage).await.unwrap_err();
    assert!(error.render().contains("no host answers at the broker at memory"), "{}", error.render());
    let registrar = ManifestHost::connect(&stage.broker, vec![]).await;
    let _peer = ManualHost::connect_with_heartbeat(&stage.broker, "h").await;
    registrar.set(Err(r#"{"code":-32602,"message":"the host has no role `dev`"}"#));
    wait_until(|| registrar.request_count() > 0).await;
    let error = tools(&stage).await.unwrap_err();
    assert!(error.render().contains("the host has no role `dev`"), "{}", error.render());
    assert!(stage.worker.problem().unwrap().contains("the host has no role `dev`"));
}

#[tokio::test(start_paused = true)]
async fn a_server_whose_tools_are_not_known_has_an_error_and_no_empty_list() {
    let stage = WorkerHarness::new().await;
    let error =
        serde_json::value::RawValue::from_string(r#"{"code":-31002,"message":"it is ejected"}"#.into());
    let broken = ostler_relay::ManifestServer { error: Some(error.unwrap()), ..listed("s", &[]) };
    let registrar = ManifestHost::connect(&stage.broker, vec![broken.clone()]).await;
    let error = tools(&stage).await.unwrap_err();
    assert!(matches!(&error, CallError::Rpc(answer) if answer.code == -31_002), "{error:?}");
    // The last known ones are better than none.
    registrar.set(Ok(vec![ostler_relay::ManifestServer { error: broken.error, ..listed("s", &["a"]) }]));
    registrar.push().await;
    wait_until(|| registrar.request_count() > 1).await;
    assert_eq!(tools(&stage).await.unwrap(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_a_busy_host_could_not_list_is_asked_for_again_soon() {
    let stage = WorkerHarness::new().await;
    let busy = serde_json::value::RawValue::from_string(r#"{"code":-31005,"message":"full"}"#.into());
    let busy = ostler_relay::ManifestServer { error: Some(busy.unwrap()), ..listed("s", &[]) };
    let registrar = ManifestHost::connect(&stage.broker, vec![busy]).await;
    let error = tools(&stage).await.unwrap_err();
    assert!(matches!(&error, CallError::Rpc(answer) if answer.code == -31_005), "{error:?}");
    registrar.set(Ok(vec![listed("s", &["a"])]));
    tokio::time::sleep(secs(5)).await;
    assert_eq!(tools(&stage).await.unwrap(), ["a"]);
    let asked = registrar.request_count();
    tokio::time::sleep(secs(50)).await;
    assert_eq!(registrar.request_count(), asked, "a whole manifest is good for a minute");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_not_offered_is_refused() {
    let stage = WorkerHarness::new().await;
    let _registrar = ManifestHost::connect(&stage.broker, vec![listed("t", &["a"])]).await;
    let error = tools(&stage).await.unwrap_err();
    assert!(error.render().contains("no host has this server"), "{}", error.render());
}

#[tokio::test(start_paused = true)]
async fn a_change_that_is_pushed_is_told_and_listed() {
    let stage = WorkerHarness::new().await;
    let registrar = ManifestHost::connect(&stage.broker, vec![listed("s", &["a"])]).await;
    assert_eq!(tools(&stage).await.unwrap(), ["a"]);
    let mut events = stage.host.notifications();
    registrar.set(Ok(vec![listed("s", &["a", "b"])]));
    registrar.push().await;
    let mut told = Vec::new();
    while told.len() < 3 {
        let event = tokio::time::timeout(secs(5), events.recv()).await.unwrap().unwrap();
        told.push(event.notification);
    }
    assert_eq!(
        told,
        [
            ServerNotification::ToolsChanged,
            ServerNotification::PromptsChanged,
            ServerNotification::ResourcesChanged
        ]
    );
    assert_eq!(tools(&stage).await.unwrap(), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn a_host_that_pushes_without_end_is_asked_twice_a_second_and_its_last_push_counts() {
    let stage = WorkerHarness::new().await;
    let registrar = ManifestHost::connect(&stage.broker, vec![listed("s", &["a"])]).await;
    assert_eq!(tools(&stage).await.unwrap(), ["a"]);
    let asked = registrar.request_count();
    for _ in 0..5_000 {
        registrar.push().await;
        tokio::time::sleep(ms(1)).await;
    }
    let asked = registrar.request_count() - asked;
    assert!((5..=12).contains(&asked), "{asked} questions in 5 s");
    registrar.set(Ok(vec![listed("s", &["a", "b"])]));
    registrar.push().await;
    tokio::time::sleep(secs(1)).await;
    assert_eq!(tools(&stage).await.unwrap(), ["a", "b"]);
    let asked = registrar.request_count();
    tokio::time::sleep(secs(10)).await;
    assert_eq!(registrar.request_count(), asked, "no push is left");
}

#[tokio::test(start_paused = true)]
async fn a_change_that_could_not_be_asked_about_at_once_is_told_later() {
    let stage = WorkerHarness::new().await;
    let registrar = ManifestHost::connect(&stage.broker, vec![listed("s", &["a"])]).await;
    assert_eq!(tools(&stage).await.unwrap(), ["a"]);
    let mut events = stage.host.notifications();
    registrar.set(Err(r#"{"code":-32603,"message":"not now"}"#));
    registrar.push().await;
    wait_until(|| registrar.request_count() == 2).await;
    registrar.set(Ok(vec![listed("s", &["a"])]));
    let event = tokio::time::timeout(secs(5), events.recv()).await.unwrap().unwrap();
    assert_eq!(event.notification, ServerNotification::PromptsChanged);
}

#[tokio::test(start_paused = true)]
async fn what_may_be_used_is_asked_every_minute_and_after_every_reconnect() {
    let stage = WorkerHarness::new().await;
    let registrar = ManifestHost::connect(&stage.broker, vec![listed("s", &["a"])]).await;
    wait_until(|| registrar.request_count() == 1).await;
    tokio::time::sleep(secs(59)).await;
    assert_eq!(registrar.request_count(), 1);
    tokio::time::sleep(secs(2)).await;
    assert_eq!(registrar.request_count(), 2);
    stage.broker.disconnect("worker");
    tokio::time::sleep(secs(6)).await;
    assert_eq!(registrar.request_count(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_new_life_of_a_host_makes_the_worker_ask_at_once() {
    let stage = WorkerHarness::new().await;
    let peer = ManualHost::connect_with_heartbeat(&stage.broker, "h").await;
    let registrar = ManifestHost::connect(&stage.broker, vec![listed("s", &["a"])]).await;
    assert_eq!(tools(&stage).await.unwrap(), ["a"]);
    tokio::time::sleep(secs(5)).await;
    assert_eq!(registrar.request_count(), 1, "heartbeats of the same life ask nothing");

    registrar.set(Ok(vec![listed("s", &["a", "b"])]));
    drop(peer);
    let mut peer = ManualHost::connect(&stage.broker, "h").await;
    peer.generation = Instance(peer.generation.0 + 1);
    peer.start_heartbeat();
    tokio::time::sleep(secs(1)).await;
    assert_eq!(registrar.request_count(), 2);
    assert_eq!(tools(&stage).await.unwrap(), ["a", "b"]);
    tokio::time::sleep(secs(5)).await;
    assert_eq!(registrar.request_count(), 2, "a life is asked about once");
}

#[tokio::test(start_paused = true)]
async fn prompts_are_asked_for_over_the_relay() {
    let stage = WorkerHarness::new().await;
    let mut peer = ManualHost::connect_with_heartbeat(&stage.broker, "h").await;
    let host = stage.host.clone();
    let listing = tokio::spawn(async move {
        ostler_testkit::list_one(&host, &Caller::local(), "s", Kind::Prompts, secs(10)).await
    });
    let came = peer.next_call().await;
    assert_eq!(came.body["method"], "prompts/list");
    peer.answer(&came, r#"{"prompts":[{"name":"p"}]}"#).await;
    let offer = listing.await.unwrap().unwrap();
    assert_eq!(offer.items.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_session_lives_through_hours_without_a_broker() {
    let stage = WorkerHarness::new().await;
    stage.broker.go_down();
    for _ in 0..3 {
        let (fault, _) = stage.call("echo").fault().await;
        assert!(fault.to_string().contains("can't be reached"), "{fault}");
    }
    tokio::time::sleep(secs(7_200)).await;
    let status = stage.host.status_of("s").unwrap();
    assert_eq!(status.generation, 1, "{status:?}");
    stage.broker.come_up();
    let mut peer = ManualHost::connect_with_heartbeat(&stage.broker, "h").await;
    let call = stage.call("echo");
    let came = peer.next_call().await;
    peer.answer(&came, "{}").await;
    assert_eq!(call.result().await, "{}");
}

//! Manifest and tool lists on the worker.

use ostler_core::error::CallError;
use ostler_host::upstream::ServerNotification;
use ostler_host::{Caller, Kind};
use ostler_relay::Instance;

use crate::harness::*;

async fn tools(harness: &WorkerHarness) -> Result<Vec<String>, CallError> {
    let tools = harness.host.tools(&Caller::local(), "s").await?;
    Ok(tools.iter().map(|tool| tool.tool.name.to_string()).collect())
}

#[tokio::test(start_paused = true)]
async fn tools_are_listed_from_the_manifest_without_a_message() {
    let harness = WorkerHarness::new().await;
    let manual_host = ManualHost::connect_with_heartbeat(&harness.broker, "h").await;
    let manifest_host =
        ManifestHost::connect(&harness.broker, vec![listed("s", &["a", "b"]), listed("t", &[])]).await;
    assert_eq!(tools(&harness).await.unwrap(), ["a", "b"]);
    assert_eq!(manifest_host.request_count(), 1);
    manual_host.assert_no_call().await;
}

#[tokio::test(start_paused = true)]
async fn without_a_manifest_a_list_is_an_error_that_says_why() {
    let harness = WorkerHarness::new().await;
    let error = tools(&harness).await.unwrap_err();
    assert!(error.render().contains("no host answers at the broker at memory"), "{}", error.render());
    let manifest_host = ManifestHost::connect(&harness.broker, vec![]).await;
    let _manual_host = ManualHost::connect_with_heartbeat(&harness.broker, "h").await;
    manifest_host.set(Err(r#"{"code":-32602,"message":"the host has no role `dev`"}"#));
    wait_until(|| manifest_host.request_count() > 0).await;
    let error = tools(&harness).await.unwrap_err();
    assert!(error.render().contains("the host has no role `dev`"), "{}", error.render());
    assert!(harness.worker.problem().unwrap().contains("the host has no role `dev`"));
}

#[tokio::test(start_paused = true)]
async fn a_server_whose_tools_are_not_known_has_an_error_and_no_empty_list() {
    let harness = WorkerHarness::new().await;
    let error =
        serde_json::value::RawValue::from_string(r#"{"code":-31002,"message":"it is ejected"}"#.into());
    let broken = ostler_relay::ManifestServer { error: Some(error.unwrap()), ..listed("s", &[]) };
    let manifest_host = ManifestHost::connect(&harness.broker, vec![broken.clone()]).await;
    let error = tools(&harness).await.unwrap_err();
    assert!(matches!(&error, CallError::Rpc(answer) if answer.code == -31_002), "{error:?}");
    // Stale tools are better than none.
    manifest_host.set(Ok(vec![ostler_relay::ManifestServer { error: broken.error, ..listed("s", &["a"]) }]));
    manifest_host.push().await;
    wait_until(|| manifest_host.request_count() > 1).await;
    assert_eq!(tools(&harness).await.unwrap(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_a_busy_host_could_not_list_is_asked_for_again_soon() {
    let harness = WorkerHarness::new().await;
    let busy = serde_json::value::RawValue::from_string(r#"{"code":-31005,"message":"full"}"#.into());
    let busy = ostler_relay::ManifestServer { error: Some(busy.unwrap()), ..listed("s", &[]) };
    let manifest_host = ManifestHost::connect(&harness.broker, vec![busy]).await;
    let error = tools(&harness).await.unwrap_err();
    assert!(matches!(&error, CallError::Rpc(answer) if answer.code == -31_005), "{error:?}");
    manifest_host.set(Ok(vec![listed("s", &["a"])]));
    tokio::time::sleep(secs(5)).await;
    assert_eq!(tools(&harness).await.unwrap(), ["a"]);
    let requests = manifest_host.request_count();
    tokio::time::sleep(secs(50)).await;
    assert_eq!(manifest_host.request_count(), requests, "a whole manifest is good for a minute");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_not_offered_is_refused() {
    let harness = WorkerHarness::new().await;
    let _manifest_host = ManifestHost::connect(&harness.broker, vec![listed("t", &["a"])]).await;
    let error = tools(&harness).await.unwrap_err();
    assert!(error.render().contains("no host has this server"), "{}", error.render());
}

#[tokio::test(start_paused = true)]
async fn a_change_that_is_pushed_is_told_and_listed() {
    let harness = WorkerHarness::new().await;
    let manifest_host = ManifestHost::connect(&harness.broker, vec![listed("s", &["a"])]).await;
    assert_eq!(tools(&harness).await.unwrap(), ["a"]);
    let mut events = harness.host.notifications();
    manifest_host.set(Ok(vec![listed("s", &["a", "b"])]));
    manifest_host.push().await;
    let mut notifications = Vec::new();
    while notifications.len() < 3 {
        let event = tokio::time::timeout(secs(5), events.recv()).await.unwrap().unwrap();
        notifications.push(event.notification);
    }
    assert_eq!(
        notifications,
        [
            ServerNotification::ToolsChanged,
            ServerNotification::PromptsChanged,
            ServerNotification::ResourcesChanged
        ]
    );
    assert_eq!(tools(&harness).await.unwrap(), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn a_host_that_pushes_without_end_is_asked_twice_a_second_and_its_last_push_counts() {
    let harness = WorkerHarness::new().await;
    let manifest_host = ManifestHost::connect(&harness.broker, vec![listed("s", &["a"])]).await;
    assert_eq!(tools(&harness).await.unwrap(), ["a"]);
    let requests = manifest_host.request_count();
    for _ in 0..5_000 {
        manifest_host.push().await;
        tokio::time::sleep(ms(1)).await;
    }
    let requests = manifest_host.request_count() - requests;
    assert!((5..=12).contains(&requests), "{requests} questions in 5 s");
    manifest_host.set(Ok(vec![listed("s", &["a", "b"])]));
    manifest_host.push().await;
    tokio::time::sleep(secs(1)).await;
    assert_eq!(tools(&harness).await.unwrap(), ["a", "b"]);
    let requests = manifest_host.request_count();
    tokio::time::sleep(secs(10)).await;
    assert_eq!(manifest_host.request_count(), requests, "no push is left");
}

#[tokio::test(start_paused = true)]
async fn a_change_that_could_not_be_asked_about_at_once_is_told_later() {
    let harness = WorkerHarness::new().await;
    let manifest_host = ManifestHost::connect(&harness.broker, vec![listed("s", &["a"])]).await;
    assert_eq!(tools(&harness).await.unwrap(), ["a"]);
    let mut events = harness.host.notifications();
    manifest_host.set(Err(r#"{"code":-32603,"message":"not now"}"#));
    manifest_host.push().await;
    wait_until(|| manifest_host.request_count() == 2).await;
    manifest_host.set(Ok(vec![listed("s", &["a"])]));
    let event = tokio::time::timeout(secs(5), events.recv()).await.unwrap().unwrap();
    assert_eq!(event.notification, ServerNotification::PromptsChanged);
}

#[tokio::test(start_paused = true)]
async fn what_may_be_used_is_asked_every_minute_and_after_every_reconnect() {
    let harness = WorkerHarness::new().await;
    let manifest_host = ManifestHost::connect(&harness.broker, vec![listed("s", &["a"])]).await;
    wait_until(|| manifest_host.request_count() == 1).await;
    tokio::time::sleep(secs(59)).await;
    assert_eq!(manifest_host.request_count(), 1);
    tokio::time::sleep(secs(2)).await;
    assert_eq!(manifest_host.request_count(), 2);
    harness.broker.disconnect("worker");
    tokio::time::sleep(secs(6)).await;
    assert_eq!(manifest_host.request_count(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_new_life_of_a_host_makes_the_worker_ask_at_once() {
    let harness = WorkerHarness::new().await;
    let manual_host = ManualHost::connect_with_heartbeat(&harness.broker, "h").await;
    let manifest_host = ManifestHost::connect(&harness.broker, vec![listed("s", &["a"])]).await;
    assert_eq!(tools(&harness).await.unwrap(), ["a"]);
    tokio::time::sleep(secs(5)).await;
    assert_eq!(manifest_host.request_count(), 1, "heartbeats of the same life ask nothing");

    manifest_host.set(Ok(vec![listed("s", &["a", "b"])]));
    drop(manual_host);
    let mut manual_host = ManualHost::connect(&harness.broker, "h").await;
    manual_host.generation = Instance(manual_host.generation.0 + 1);
    manual_host.start_heartbeat();
    tokio::time::sleep(secs(1)).await;
    assert_eq!(manifest_host.request_count(), 2);
    assert_eq!(tools(&harness).await.unwrap(), ["a", "b"]);
    tokio::time::sleep(secs(5)).await;
    assert_eq!(manifest_host.request_count(), 2, "a life is asked about once");
}

#[tokio::test(start_paused = true)]
async fn prompts_are_asked_for_over_the_relay() {
    let harness = WorkerHarness::new().await;
    let mut manual_host = ManualHost::connect_with_heartbeat(&harness.broker, "h").await;
    let host = harness.host.clone();
    let listing = tokio::spawn(async move {
        ostler_testkit::list_one(&host, &Caller::local(), "s", Kind::Prompts, secs(10)).await
    });
    let received = manual_host.next_call().await;
    assert_eq!(received.body["method"], "prompts/list");
    manual_host.answer(&received, r#"{"prompts":[{"name":"p"}]}"#).await;
    let offer = listing.await.unwrap().unwrap();
    assert_eq!(offer.items.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_session_lives_through_hours_without_a_broker() {
    let harness = WorkerHarness::new().await;
    harness.broker.go_down();
    for _ in 0..3 {
        let (fault, _) = harness.call("echo").fault().await;
        assert!(fault.to_string().contains("can't be reached"), "{fault}");
    }
    tokio::time::sleep(secs(7_200)).await;
    let status = harness.host.status_of("s").unwrap();
    assert_eq!(status.generation, 1, "{status:?}");
    harness.broker.come_up();
    let mut manual_host = ManualHost::connect_with_heartbeat(&harness.broker, "h").await;
    let call = harness.call("echo");
    let received = manual_host.next_call().await;
    manual_host.answer(&received, "{}").await;
    assert_eq!(call.result().await, "{}");
}

//! Server notifications over real pipes.

use std::time::Duration;

use ostler_core::config::Role;
use ostler_host::upstream::ServerNotification;
use ostler_host::{Caller, HostNotification, Kind, LogLevel, Rules};
use ostler_testkit::{Reconfigure, eventually};
use serde_json::{Value, json};
use tokio::sync::broadcast::Receiver;

use crate::fixture::{LONG, ProcessFixture, none};
use crate::observers::RecordingObserver;

async fn next(events: &mut Receiver<HostNotification>) -> ServerNotification {
    tokio::time::timeout(LONG, events.recv()).await.expect("an event comes").unwrap().notification
}

/// Returns the subscriptions that the server has recorded.
async fn recorded_subscriptions(stage: &ProcessFixture) -> Value {
    serde_json::from_str(&stage.text("fake", "news", none()).await).unwrap()
}

async fn until_subscriptions(stage: &ProcessFixture, is_so: impl Fn(&Value) -> bool) -> Value {
    let deadline = tokio::time::Instant::now() + LONG;
    loop {
        let wishes = recorded_subscriptions(stage).await;
        if is_so(&wishes) {
            return wishes;
        }
        assert!(tokio::time::Instant::now() < deadline, "{wishes}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn every_list_is_read_from_a_real_server() {
    for era in ["legacy", "modern"] {
        let stage = ProcessFixture::guarded();
        stage.spawn_fake("fake", &["--era", era, "--shelf", "5"]).await;
        for (kind, first, last) in [
            (Kind::Prompts, "greet", "prompt_5"),
            (Kind::Resources, "fake://static", "fake://item/5"),
            (Kind::Templates, "fake://item/{id}", "fake://5/{id}"),
        ] {
            let offer = ostler_testkit::list_one(&stage.host, &stage.me, "fake", kind, LONG).await.unwrap();
            let names: Vec<&str> = offer.items.iter().map(|item| &*item.item.name).collect();
            assert_eq!((names.len(), names[0], names[5]), (6, first, last), "{era} {kind:?}");
        }
        stage.close().await;
    }
}

#[tokio::test]
async fn the_state_of_a_task_is_told_to_no_call_and_to_no_listener() {
    let stage = ProcessFixture::guarded();
    stage.spawn_fake("fake", &[]).await;
    let mut events = stage.host.notifications();
    let status = |method: &str| json!({"method": method, "params": {"taskId": "1"}});
    let ann = RecordingObserver::answering("none");
    stage
        .spawn_observed_call("fake", "notify", status("notifications/tasks/status"), &ann)
        .await
        .unwrap()
        .unwrap();
    stage.text("fake", "notify", status("notifications/tasks/status")).await;
    stage.text("fake", "notify", status("notifications/odd")).await;
    assert_eq!(ann.notifications(), []);
    let odd = ServerNotification::Other {
        method: "notifications/odd".into(),
        params: Some(r#"{"taskId":"1"}"#.into()),
    };
    assert_eq!(next(&mut events).await, odd);
    stage.close().await;
}

#[tokio::test]
async fn the_log_goes_to_the_only_call_that_listens_else_to_everybody() {
    let stage = ProcessFixture::guarded();
    stage.spawn_fake("fake", &["--ledger", &stage.path("ledger")]).await;
    let mut events = stage.host.notifications();
    let line = r#"{"level":"info","data":"said"}"#;
    let (ann, bob) = (RecordingObserver::answering("none"), RecordingObserver::answering("none"));
    stage.spawn_observed_call("fake", "notify", none(), &ann).await.unwrap().unwrap();
    assert_eq!(ann.notifications(), [("notifications/message".to_owned(), line.to_owned())]);
    assert!(events.try_recv().is_err());

    stage.text("fake", "notify", none()).await;
    assert_eq!(next(&mut events).await, ServerNotification::Log(line.into()));
    let odd = json!({"method": "notifications/odd", "params": {"x": 1}});
    stage.text("fake", "notify", odd).await;
    let told =
        ServerNotification::Other { method: "notifications/odd".into(), params: Some(r#"{"x":1}"#.into()) };
    assert_eq!(next(&mut events).await, told);

    let hanging = stage.spawn_observed_call("fake", "hang", none(), &bob);
    stage.until_lines("ledger", 4).await;
    stage.spawn_observed_call("fake", "notify", none(), &ann).await.unwrap().unwrap();
    assert_eq!(next(&mut events).await, ServerNotification::Log(line.into()), "it could be either's");
    assert_eq!((ann.notifications().len(), bob.notifications().len()), (1, 0));
    hanging.abort();
    stage.close().await;
}

#[tokio::test]
async fn a_late_line_of_another_callers_call_is_not_taken_for_a_restricted_callers() {
    let mut stage = ProcessFixture::guarded();
    stage.spawn_fake("fake", &["--ledger", &stage.path("ledger")]).await;
    let role = |allow: &[&str]| {
        let allow = allow.iter().map(|rule| (*rule).into()).collect();
        Role { allow, deny: Vec::new(), budget: None, max_in_flight: None }
    };
    let roles = [("all", role(&["*"])), ("few", role(&["fake/hang", "fake/notify"]))];
    stage.host.set_rules(Rules::from_roles(&roles.map(|(name, role)| (name.to_owned(), role)).into())).await;
    let (ann, bob) = (Caller::new("ann", "all"), Caller::new("bob", "few"));
    let (to_ann, to_bob) = (RecordingObserver::answering("none"), RecordingObserver::answering("none"));
    let late = || json!({"when": "after"});

    stage.me = bob.clone();
    stage.spawn_observed_call("fake", "notify", none(), &to_bob).await.unwrap().unwrap();
    assert_eq!(to_bob.notifications().len(), 1, "no other caller has used the server");
    let hanging = stage.spawn_observed_call("fake", "hang", none(), &to_bob);
    stage.until_lines("ledger", 2).await;

    let mut events = stage.host.notifications();
    stage.me = ann.clone();
    stage.spawn_observed_call("fake", "notify", late(), &to_ann).await.unwrap().unwrap();
    let heard = tokio::time::timeout(LONG, events.recv()).await.expect("it is nobody's").unwrap();
    assert_eq!(to_bob.notifications().len(), 1, "it may be about the call of another");
    assert!(stage.host.may_receive(&ann, &heard) && !stage.host.may_receive(&bob, &heard));
    hanging.abort();
    stage.close().await;
}

#[tokio::test]
async fn a_legacy_server_tells_of_what_was_subscribed_to_also_after_a_restart() {
    let stage = ProcessFixture::guarded();
    stage.spawn_fake("fake", &["--era", "legacy"]).await;
    stage.host.request_log_level(&stage.me, "fake", LogLevel::Notice);
    let mut events = stage.host.notifications();
    let held = stage.host.subscribe(&stage.me, "fake", "fake://static").await.unwrap();
    let forbidden = stage.host.subscribe(&stage.me, "fake", "fake://forbidden").await.unwrap_err();
    assert_eq!(forbidden.rpc_code(), -32602);
    let told = until_subscriptions(&stage, |wishes| wishes["level"] == "info").await;
    assert_eq!(told["uris"], json!(["fake://static"]));

    let updated = json!({"method": "notifications/resources/updated", "params": {"uri": "fake://static"}});
    stage.text("fake", "notify", updated).await;
    assert_eq!(
        next(&mut events).await,
        ServerNotification::ResourceUpdated(r#"{"uri":"fake://static"}"#.into())
    );

    stage.process("fake").kill();
    stage.until("fake", "is up again", |status| status.generation == 2 && status.active).await;
    let again = |wishes: &Value| wishes["level"] == "info" && wishes["uris"] == json!(["fake://static"]);
    until_subscriptions(&stage, again).await;
    drop(held);
    until_subscriptions(&stage, |wishes| wishes["uris"] == json!([])).await;
    stage.close().await;
}

#[tokio::test]
async fn a_modern_server_is_listened_to_and_asked_anew_when_the_wishes_change() {
    let stage = ProcessFixture::guarded();
    stage.spawn_fake("fake", &["--era", "modern", "--listen", "--frames", &stage.path("frames")]).await;
    let first = until_subscriptions(&stage, |wishes| wishes["filter"] != Value::Null).await;
    assert_eq!(
        first["filter"],
        json!({"toolsListChanged": true}),
        "what it does not announce is not asked for"
    );
    let held = stage.host.subscribe(&stage.me, "fake", "fake://static").await.unwrap();
    let second =
        until_subscriptions(&stage, |wishes| wishes["filter"]["resourceSubscriptions"] != Value::Null).await;
    assert_eq!(second["filter"]["resourceSubscriptions"], json!(["fake://static"]));
    let replaced = format!(r#""requestId":{}"#, first["listen"]);
    let is_cancelled = || stage.lines("frames").iter().any(|frame| frame.contains(&replaced));
    eventually("the first request is taken back", LONG, is_cancelled).await;
    assert_eq!(recorded_subscriptions(&stage).await["listen"], second["listen"], "the second one stays");
    drop(held);
    until_subscriptions(&stage, |wishes| wishes["filter"] == json!({"toolsListChanged": true})).await;
    assert_eq!((stage.status("fake").in_flight, stage.status("fake").leases), (0, 0), "listening is no call");
    stage.close().await;
}

#[tokio::test]
async fn a_list_of_a_modern_server_is_good_until_it_says_otherwise_if_it_can_say_so() {
    for (args, is_heard) in [(vec!["--era", "modern", "--listen"], true), (vec!["--era", "modern"], false)] {
        let stage = ProcessFixture::guarded();
        let requests = stage.path("requests");
        stage.spawn_fake("fake", &[&args[..], &["--requests", &requests]].concat()).await;
        if is_heard {
            until_subscriptions(&stage, |wishes| wishes["listen"] != Value::Null).await;
        }
        let mut events = stage.host.notifications();
        stage.host.tools(&stage.me, "fake").await.unwrap();
        let before = lists(&stage);
        for _ in 0..3 {
            stage.host.tools(&stage.me, "fake").await.unwrap();
        }
        assert_eq!(lists(&stage) - before, if is_heard { 0 } else { 3 }, "{args:?}");
        stage.text("fake", "list_changed", json!({"count": 1})).await;
        assert_eq!(next(&mut events).await, ServerNotification::ToolsChanged);
        stage.host.tools(&stage.me, "fake").await.unwrap();
        assert_eq!(lists(&stage) - before, if is_heard { 1 } else { 4 }, "{args:?}");
        stage.close().await;
    }
}

#[tokio::test]
async fn a_modern_server_that_stops_telling_is_taken_for_changed_and_listed_every_time() {
    let stage = ProcessFixture::guarded();
    let requests = stage.path("requests");
    stage.spawn_fake("fake", &["--era", "modern", "--listen", "--requests", &requests]).await;
    let listen =
        until_subscriptions(&stage, |wishes| wishes["listen"] != Value::Null).await["listen"].clone();
    stage.host.tools(&stage.me, "fake").await.unwrap();
    let mut events = stage.host.notifications();
    let end = json!({"method": "notifications/cancelled", "params": {"requestId": listen}});
    stage.text("fake", "notify", end).await;
    assert_eq!(next(&mut events).await, ServerNotification::ToolsChanged);
    let before = lists(&stage);
    for _ in 0..3 {
        stage.host.tools(&stage.me, "fake").await.unwrap();
    }
    assert_eq!(lists(&stage) - before, 3);
    stage.close().await;
}

fn lists(stage: &ProcessFixture) -> usize {
    stage.lines("requests").iter().filter(|line| line.starts_with("tools/list")).count()
}

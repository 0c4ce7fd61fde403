//! Methods of legacy clients only: log level and subscriptions.

use bytes::Bytes;
use ostler_gateway::{Gateway, Scope};
use ostler_host::Caller;
use ostler_host::upstream::ServerNotification;
use ostler_testkit::{Script, ScriptedReply, TestHost, run_until_stalled};
use ostler_wire::Era;
use serde_json::{Value, json};

use crate::client::{Client, gateway, server_scope};

fn script() -> Script {
    Script::echo()
        .capabilities(r#"{"tools":{"listChanged":true},"logging":{},"resources":{"subscribe":true}}"#)
        .on("resources/list", |_| ScriptedReply::result(r#"{"resources":[{"uri":"a:1","name":"1"}]}"#))
        .on("resources/templates/list", |_| ScriptedReply::result(r#"{"resourceTemplates":[]}"#))
        .on("resources/subscribe", |_| ScriptedReply::result("{}"))
        .on("resources/unsubscribe", |_| ScriptedReply::result("{}"))
        .on("logging/setLevel", |_| ScriptedReply::result("{}"))
}

async fn world() -> (TestHost, Gateway) {
    let world = TestHost::new().server_with("a", script(), |spec| spec.lazy = false).start().await;
    let gateway = gateway(&world, |_| {});
    (world, gateway)
}

/// Returns the client's messages until a ping is answered.
async fn drain_messages(client: &mut Client) -> Vec<Value> {
    run_until_stalled().await;
    client.received.clear();
    client.request("ping", json!({})).await;
    std::mem::take(&mut client.received)
}

fn log(level: &str) -> ServerNotification {
    ServerNotification::Log(Bytes::from(json!({"level": level, "data": "x"}).to_string()))
}

fn resource_updated(uri: &str) -> ServerNotification {
    ServerNotification::ResourceUpdated(Bytes::from(json!({"uri": uri}).to_string()))
}

#[tokio::test(start_paused = true)]
async fn a_level_is_asked_of_the_server_and_kept_for_the_session() {
    let (world, gateway) = world().await;
    let mut client = Client::legacy(&gateway, Scope::All, json!({})).await;
    let mut other = Client::legacy(&gateway, Scope::All, json!({})).await;
    let set = client.request("logging/setLevel", json!({"level": "warning"})).await;
    assert_eq!(set["result"], json!({}), "{set}");
    run_until_stalled().await;
    assert_eq!(world.server("a").count("logging/setLevel"), 1);
    world.server("a").emit(log("info"));
    world.server("a").emit(log("error"));
    let told = drain_messages(&mut client).await;
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0]["params"]["level"], "error");
    assert!(
        drain_messages(&mut other).await.is_empty(),
        "who set no level hears no log that belongs to no call"
    );
}

#[tokio::test(start_paused = true)]
async fn what_one_client_sets_neither_adds_to_nor_takes_from_what_another_hears() {
    let reply =
        || ScriptedReply::text("done").logging("debug", "x").logging("info", "x").logging("error", "x");
    let logging = r#"{"tools":{},"logging":{}}"#;
    let script = Script::new().tool_replying("t", reply()).capabilities(logging);
    let script = script.on("logging/setLevel", |_| ScriptedReply::result("{}"));
    let world = TestHost::new().server_with("a", script, |spec| spec.lazy = false).start().await;
    let gateway = gateway(&world, |_| {});
    let mut other = Client::legacy(&gateway, Scope::All, json!({})).await;
    let mut levels = async || -> Vec<String> {
        other.received.clear();
        other.call("a__t", json!({})).await;
        let level = |told: &Value| told["params"]["level"].as_str().unwrap().to_owned();
        other.received.iter().map(level).collect()
    };
    assert_eq!(levels().await, ["debug", "info", "error"], "the server decides");
    for (set, asked) in [("error", r#"{"level":"info"}"#), ("debug", r#"{"level":"debug"}"#)] {
        let mut client = Client::legacy(&gateway, Scope::All, json!({})).await;
        client.request("logging/setLevel", json!({"level": set})).await;
        run_until_stalled().await;
        assert_eq!(world.server("a").requests_for("logging/setLevel").last().unwrap().params, asked);
        assert_eq!(levels().await, ["info", "error"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_level_that_does_not_exist_is_refused() {
    let (_world, gateway) = world().await;
    let mut client = Client::legacy(&gateway, Scope::All, json!({})).await;
    let refused = client.request("logging/setLevel", json!({"level": "loud"})).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
}

#[tokio::test(start_paused = true)]
async fn updates_go_to_subscribers_only() {
    let (world, gateway) = world().await;
    for face in [Scope::All, server_scope("a")] {
        let mut client = Client::legacy(&gateway, face.clone(), json!({})).await;
        let mut other = Client::legacy(&gateway, face, json!({})).await;
        let done = client.request("resources/subscribe", json!({"uri": "a:1"})).await;
        assert_eq!(done["result"], json!({}), "{done}");
        world.server("a").emit(resource_updated("a:1"));
        world.server("a").emit(resource_updated("a:2"));
        let told = drain_messages(&mut client).await;
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(told[0]["params"]["uri"], "a:1");
        assert!(drain_messages(&mut other).await.is_empty());
        client.request("resources/unsubscribe", json!({"uri": "a:1"})).await;
        world.server("a").emit(resource_updated("a:1"));
        assert!(drain_messages(&mut client).await.is_empty(), "it has unsubscribed");
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_session_unsubscribes_once_nobody_is_left() {
    let (world, gateway) = world().await;
    let mut clients = Vec::new();
    for _ in 0..2 {
        let mut client = Client::legacy(&gateway, Scope::All, json!({})).await;
        client.request("resources/subscribe", json!({"uri": "a:1"})).await;
        clients.push(client);
    }
    assert_eq!(world.server("a").count("resources/subscribe"), 1, "the server is asked once");
    for left in [0, 1] {
        let mut client = clients.pop().unwrap();
        client.close_input().await;
        client.wait_for_end().await;
        run_until_stalled().await;
        assert_eq!(world.server("a").count("resources/unsubscribe"), left);
    }
}

#[tokio::test(start_paused = true)]
async fn a_resource_that_nobody_has_can_not_be_subscribed_to() {
    let (_world, gateway) = world().await;
    let mut client = Client::legacy(&gateway, Scope::All, json!({})).await;
    let refused = client.request("resources/subscribe", json!({"uri": "nobody:1"})).await;
    assert_eq!(refused["error"]["code"], -32002, "{refused}");
}

#[tokio::test(start_paused = true)]
async fn sessions_that_lost_events_are_told_that_lists_may_have_changed() {
    let (world, gateway) = world().await;
    let mut client = Client::legacy(&gateway, Scope::All, json!({})).await;
    client.request("resources/subscribe", json!({"uri": "a:1"})).await;
    for _ in 0..3_000 {
        world.server("a").emit(resource_updated("a:2"));
    }
    let told = drain_messages(&mut client).await;
    let methods: Vec<_> = told.iter().map(|message| message["method"].as_str().unwrap()).collect();
    assert!(methods.contains(&"notifications/tools/list_changed"), "{methods:?}");
    assert!(methods.contains(&"notifications/resources/updated"), "{methods:?}");
}

#[tokio::test(start_paused = true)]
async fn the_sessions_of_one_caller_subscribe_to_so_many_bytes_of_uris() {
    let (_world, gateway) = world().await;
    // 512 subscriptions fill the 4 MiB, though the server announces only sixteen resources.
    let uris: Vec<_> = (0..16).map(|n| format!("a:{n:0>8188}")).collect();
    let mut clients = Vec::new();
    for _ in 0..32 {
        let mut client = Client::legacy(&gateway, server_scope("a"), json!({})).await;
        for uri in &uris {
            let done = client.request("resources/subscribe", json!({"uri": uri})).await;
            assert_eq!(done["result"], json!({}), "{}", clients.len());
        }
        clients.push(client);
    }
    let mut late = Client::legacy(&gateway, server_scope("a"), json!({})).await;
    let subscribe = json!({"uri": uris[0]});
    let refused = late.request("resources/subscribe", subscribe.clone()).await;
    assert_eq!(refused["error"]["data"]["code"], "overloaded", "{}", refused["error"]);
    let other = Caller::new("other", Caller::local().role());
    let mut other = Client::for_caller(other, &gateway, server_scope("a"), Era::Legacy).await;
    let done = other.request("resources/subscribe", subscribe.clone()).await;
    assert_eq!(done["result"], json!({}), "{}", done["error"]);
    let mut first = clients.swap_remove(0);
    first.close_input().await;
    first.wait_for_end().await;
    let done = late.request("resources/subscribe", subscribe).await;
    assert_eq!(done["result"], json!({}), "{}", done["error"]);
}

//! Listens of modern clients.

use std::time::Duration;

use bytes::Bytes;
use ostler_gateway::{Gateway, Scope};
use ostler_host::upstream::ServerNotification;
use ostler_testkit::{Script, ScriptedReply, TestHost, run_until_stalled};
use serde_json::{Value, json};

use crate::client::{Client, gateway, server_scope};

const TOOLS: &str = "notifications/tools/list_changed";
const UPDATED: &str = "notifications/resources/updated";

fn script() -> Script {
    Script::echo()
        .capabilities(r#"{"tools":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true}}"#)
        .on("resources/list", |_| {
            ScriptedReply::result(r#"{"resources":[{"uri":"a:1","name":"1"},{"uri":"a:2","name":"2"}]}"#)
        })
        .on("resources/templates/list", |_| ScriptedReply::result(r#"{"resourceTemplates":[]}"#))
        .on("resources/subscribe", |_| ScriptedReply::result("{}"))
        .on("resources/unsubscribe", |_| ScriptedReply::result("{}"))
}

/// Returns a running server and its gateway.
async fn world() -> (TestHost, Gateway) {
    let world = TestHost::new().server_with("a", script(), |spec| spec.lazy = false).start().await;
    let gateway = gateway(&world, |_| {});
    (world, gateway)
}

/// Returns a listening client, the id of its listen, and the acknowledgement.
async fn open_listen(gateway: &Gateway, face: Scope, notifications: Value) -> (Client, u64, Value) {
    let mut client = Client::modern(gateway, face, json!({}));
    let id = client.send_request("subscriptions/listen", json!({"notifications": notifications})).await;
    let acknowledged = client.receive().await;
    assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged", "{acknowledged}");
    assert_eq!(subscription(&acknowledged), id);
    (client, id, acknowledged)
}

fn subscription(message: &Value) -> &Value {
    &message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"]
}

fn resource_updated(uri: &str) -> ServerNotification {
    ServerNotification::ResourceUpdated(Bytes::from(json!({"uri": uri}).to_string()))
}

/// Returns the client's messages until a ping is answered.
async fn drain_messages(client: &mut Client) -> Vec<Value> {
    client.received.clear();
    client.request("tools/list", json!({})).await;
    std::mem::take(&mut client.received)
}

#[tokio::test(start_paused = true)]
async fn a_listen_is_acknowledged_first_and_every_message_says_whose_it_is() {
    let (world, gateway) = world().await;
    let wanted = json!({"toolsListChanged": true, "promptsListChanged": false});
    let (mut client, id, acknowledged) = open_listen(&gateway, Scope::All, wanted).await;
    assert_eq!(acknowledged["params"]["notifications"], json!({"toolsListChanged": true}));
    world.server("a").emit(ServerNotification::ToolsChanged);
    world.server("a").emit(ServerNotification::PromptsChanged);
    let changed = client.receive().await;
    assert_eq!((&changed["method"], subscription(&changed)), (&json!(TOOLS), &json!(id)));
    assert!(drain_messages(&mut client).await.is_empty(), "prompts were not asked for");
}

#[tokio::test(start_paused = true)]
async fn a_list_that_changes_all_the_time_is_said_to_once_a_second() {
    let (world, gateway) = world().await;
    let (mut client, ..) = open_listen(&gateway, Scope::All, json!({"toolsListChanged": true})).await;
    for _ in 0..50 {
        world.server("a").emit(ServerNotification::ToolsChanged);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    world.advance(Duration::from_secs(2)).await;
    let count = drain_messages(&mut client).await.len();
    assert!((3..=4).contains(&count), "{count}: the first, one for each second, and the last");
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_lost_events_is_told_of_everything() {
    let (world, gateway) = world().await;
    let wanted =
        json!({"toolsListChanged": true, "resourcesListChanged": true, "resourceSubscriptions": ["a:1"]});
    let (mut client, id, _) = open_listen(&gateway, Scope::All, wanted).await;
    // More at once than a listener may lag behind.
    for _ in 0..3_000 {
        world.server("a").emit(resource_updated("a:2"));
    }
    run_until_stalled().await;
    let heard = drain_messages(&mut client).await;
    let methods: Vec<_> = heard.iter().map(|message| message["method"].as_str().unwrap()).collect();
    for method in [TOOLS, "notifications/resources/list_changed", UPDATED] {
        assert!(methods.contains(&method), "{methods:?}");
    }
    assert!(heard.iter().all(|message| *subscription(message) == id));
}

#[tokio::test(start_paused = true)]
async fn only_subscribed_resources_are_told_of() {
    let (world, gateway) = world().await;
    for face in [Scope::All, server_scope("a")] {
        let wanted = json!({"resourceSubscriptions": ["a:1", "nobody:1"]});
        let (mut client, id, acknowledged) = open_listen(&gateway, face.clone(), wanted).await;
        if face == Scope::All {
            let held = &acknowledged["params"]["notifications"]["resourceSubscriptions"];
            assert_eq!(*held, json!(["a:1"]), "what nobody has is not acknowledged");
        }
        world.server("a").emit(resource_updated("a:2"));
        world.server("a").emit(resource_updated("a:1"));
        let told = client.receive().await;
        assert_eq!((&told["method"], &told["params"]["uri"]), (&json!(UPDATED), &json!("a:1")));
        assert_eq!(*subscription(&told), id);
        assert!(drain_messages(&mut client).await.is_empty());
        client.close_input().await;
        client.wait_for_end().await;
    }
    run_until_stalled().await;
    assert!(
        world.server("a").count("resources/unsubscribe") >= 1,
        "a listen that ended gives back what it held"
    );
}

#[tokio::test(start_paused = true)]
async fn a_listen_of_one_server_hears_nothing_of_another() {
    let world = TestHost::new()
        .server_with("a", script(), |spec| spec.lazy = false)
        .server_with("b", script(), |spec| spec.lazy = false)
        .start()
        .await;
    let gateway = gateway(&world, |_| {});
    let (mut client, ..) = open_listen(&gateway, server_scope("a"), json!({"toolsListChanged": true})).await;
    world.server("b").emit(ServerNotification::ToolsChanged);
    run_until_stalled().await;
    assert!(drain_messages(&mut client).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_drained_gateway_ends_its_listens_with_a_result() {
    let (_world, gateway) = world().await;
    let (mut client, id, _) = open_listen(&gateway, Scope::All, json!({"toolsListChanged": true})).await;
    gateway.drain();
    let ended = client.wait_for_answer(id).await;
    assert_eq!(ended["result"]["resultType"], "complete", "{ended}");
    assert_eq!(ended["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"], id);
    assert!(client.call("a__echo", json!({})).await.get("result").is_some(), "requests are still answered");
}

#[tokio::test(start_paused = true)]
async fn a_listen_that_names_nothing_readable_is_refused() {
    let (_world, gateway) = world().await;
    let mut client = Client::modern(&gateway, Scope::All, json!({}));
    let many: Vec<String> = (0..1_025).map(|n| format!("a:{n}")).collect();
    let bad =
        [json!({}), json!({"notifications": 1}), json!({"notifications": {"resourceSubscriptions": many}})];
    for params in bad {
        let refused = client.request("subscriptions/listen", params).await;
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
    }
}

//! Shadowed resources: a URI that several servers claim belongs to one of them, by a rule that no server can influence.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use ostler_core::config::Role;
use ostler_gateway::{Gateway, Scope};
use ostler_host::upstream::ServerNotification;
use ostler_host::{Caller, Rules};
use ostler_testkit::{Reconfigure, Script, ScriptedReply, TestHost, run_until_stalled};
use ostler_wire::Era;
use serde_json::{Value, json};

use crate::client::{Client, gateway};

/// Lists of a server, which a test may change.
#[derive(Clone, Default)]
struct ResourceLists(Arc<Mutex<[Vec<&'static str>; 2]>>);

impl ResourceLists {
    fn new(resources: &[&'static str], templates: &[&'static str]) -> Self {
        Self(Arc::new(Mutex::new([resources.to_vec(), templates.to_vec()])))
    }

    fn result(&self, member: &str, key: &str, which: usize) -> ScriptedReply {
        let all = self.0.lock().unwrap()[which].clone();
        let items: Vec<Value> = all.iter().map(|uri| json!({key: uri, "name": uri})).collect();
        ScriptedReply::result(json!({member: items}).to_string())
    }

    /// Returns a server with these lists, which names itself in its answers.
    fn script(&self, name: &'static str) -> Script {
        let (resources, templates) = (self.clone(), self.clone());
        let text = json!({"contents": [{"uri": "x", "text": name}]}).to_string();
        Script::new()
            .capabilities(r#"{"resources":{"subscribe":true,"listChanged":true},"completions":{}}"#)
            .on("resources/list", move |_| resources.result("resources", "uri", 0))
            .on("resources/templates/list", move |_| templates.result("resourceTemplates", "uriTemplate", 1))
            .on("resources/read", move |_| ScriptedReply::result(text.clone()))
            .on("resources/subscribe", |_| ScriptedReply::result("{}"))
            .on("completion/complete", |_| ScriptedReply::result(r#"{"completion":{"values":["x"]}}"#))
    }
}

/// Returns the server `docs`, which is registered first, and `aaa`, whose name sorts before it.
async fn world(docs: &ResourceLists, aaa: &ResourceLists) -> (TestHost, Gateway) {
    let world =
        TestHost::new().server("docs", docs.script("docs")).server("aaa", aaa.script("aaa")).start().await;
    let gateway = gateway(&world, |_| {});
    (world, gateway)
}

async fn read(client: &mut Client, uri: &str) -> Value {
    let answer = client.request("resources/read", json!({"uri": uri})).await;
    match answer["result"]["contents"][0]["text"].clone() {
        Value::Null => answer["error"]["code"].clone(),
        server => server,
    }
}

/// Returns the number of a server's requests that name a URI.
fn request_count(world: &TestHost, server: &str) -> usize {
    let methods = ["resources/read", "resources/subscribe", "completion/complete"];
    methods.iter().map(|method| world.server(server).count(method)).sum()
}

#[tokio::test(start_paused = true)]
async fn the_server_that_was_registered_first_answers_for_a_uri_that_both_list() {
    let both = ResourceLists::new(&["docs://board"], &["page://{id}"]);
    let (world, gateway) = world(&both, &both).await;
    for era in [Era::Modern, Era::Legacy] {
        let mut client = Client::for_caller(Caller::local(), &gateway, Scope::All, era).await;
        assert_eq!(read(&mut client, "docs://board").await, "docs");
        assert_eq!(read(&mut client, "page://7").await, "docs");
        let reference = json!({"type": "ref/resource", "uri": "page://{id}"});
        let argument = json!({"name": "id", "value": "1"});
        client.request("completion/complete", json!({"ref": reference, "argument": argument})).await;
        if era == Era::Legacy {
            client.request("resources/subscribe", json!({"uri": "docs://board"})).await;
        }
    }
    assert_eq!(request_count(&world, "aaa"), 0, "it hears of no URI");
}

#[tokio::test(start_paused = true)]
async fn a_template_takes_no_uri_that_another_server_lists_and_a_listing_none_that_another_has_a_template_for()
 {
    for (docs, aaa) in [
        (ResourceLists::new(&["docs://board"], &[]), ResourceLists::new(&[], &["{+any}", "docs://{id}"])),
        (ResourceLists::new(&[], &["docs://{id}"]), ResourceLists::new(&["docs://board"], &[])),
    ] {
        let (world, gateway) = world(&docs, &aaa).await;
        let mut client = Client::modern(&gateway, Scope::All, json!({}));
        assert_eq!(read(&mut client, "docs://board").await, "docs");
        assert_eq!(request_count(&world, "aaa"), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_takes_nothing_over_that_another_one_had_first() {
    let (first, later) = (ResourceLists::new(&["own://1"], &[]), ResourceLists::new(&["docs://board"], &[]));
    let world = TestHost::new().server("first", first.script("first")).server("later", later.script("later"));
    let world = world.start().await;
    let gateway = gateway(&world, |_| {});
    let mut client = Client::modern(&gateway, Scope::All, json!({}));
    assert_eq!(read(&mut client, "docs://board").await, "later");
    first.0.lock().unwrap()[0].push("docs://board");
    first.0.lock().unwrap()[1].push("docs://{id}");
    world.server("first").emit(ServerNotification::ResourcesChanged);
    run_until_stalled().await;
    let list = client.request("resources/list", json!({})).await;
    client.request("resources/templates/list", json!({})).await;
    assert_eq!(list["result"]["resources"].as_array().unwrap().len(), 2, "{list}");
    assert_eq!(read(&mut client, "docs://board").await, "later");
    assert_eq!(request_count(&world, "first"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_replaced_keeps_its_place() {
    let both = ResourceLists::new(&["docs://board"], &[]);
    let (mut world, gateway) = world(&both, &both).await;
    let mut client = Client::modern(&gateway, Scope::All, json!({}));
    assert_eq!(read(&mut client, "docs://board").await, "docs");
    let mut spec = TestHost::spec("docs");
    spec.keep_alive = std::time::Duration::from_secs(77);
    world.spawn(spec, both.script("docs")).await.unwrap();
    client.request("resources/list", json!({})).await;
    assert_eq!(read(&mut client, "docs://board").await, "docs");
    assert_eq!(request_count(&world, "aaa"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_uri_that_no_server_offers_is_told_to_none() {
    let (docs, aaa) = (
        ResourceLists::new(&["docs://board"], &[]),
        ResourceLists::new(&["docs://other"], &["docs://x/{id}"]),
    );
    let (world, gateway) = world(&docs, &aaa).await;
    let mut modern = Client::modern(&gateway, Scope::All, json!({}));
    let mut legacy = Client::legacy(&gateway, Scope::All, json!({})).await;
    assert_eq!(read(&mut modern, "docs://unlisted").await, -32602);
    assert_eq!(read(&mut legacy, "docs://unlisted").await, -32002);
    let refused = legacy.request("resources/subscribe", json!({"uri": "docs://unlisted"})).await;
    assert_eq!(refused["error"]["code"], -32002, "{refused}");
    let reference = json!({"type": "ref/resource", "uri": "docs://{unlisted}"});
    modern
        .request("completion/complete", json!({"ref": reference, "argument": {"name": "a", "value": ""}}))
        .await;
    assert_eq!(request_count(&world, "docs") + request_count(&world, "aaa"), 0);
}

#[tokio::test(start_paused = true)]
async fn the_only_server_there_is_is_asked_for_what_it_does_not_list() {
    let docs = ResourceLists::new(&[], &[]);
    let world = TestHost::new().server("docs", docs.script("docs")).start().await;
    let mut client = Client::modern(&gateway(&world, |_| {}), Scope::All, json!({}));
    assert_eq!(read(&mut client, "docs://unlisted").await, "docs");
}

#[tokio::test(start_paused = true)]
async fn a_list_shows_a_uri_once_and_names_the_servers_that_claim_it_too() {
    let both = ResourceLists::new(&["docs://board", "docs://plan"], &["page://{id}"]);
    let (_world, gateway) = world(&both, &both).await;
    let mut client = Client::modern(&gateway, Scope::All, json!({}));
    for (method, member, first) in [
        ("resources/list", "resources", "docs://board"),
        ("resources/templates/list", "resourceTemplates", "page://{id}"),
    ] {
        let list = client.request(method, json!({})).await;
        let shadowed = &list["result"]["_meta"]["dev.ostler/shadowed"];
        let row = json!({"uri": first, "server": "aaa", "owner": "docs"});
        assert_eq!(shadowed[0], row, "{list}");
        let count = list["result"][member].as_array().unwrap().len();
        assert_eq!(shadowed.as_array().unwrap().len(), count, "{list}");
    }
}

#[tokio::test(start_paused = true)]
async fn for_a_caller_that_may_not_use_the_first_servers_item_the_second_ones_is_its_own() {
    let both = ResourceLists::new(&["docs://board"], &[]);
    let (world, gateway) = world(&both, &both).await;
    let role = Role { allow: vec!["aaa/*".into()], deny: Vec::new(), budget: None, max_in_flight: None };
    world.host.set_rules(Rules::from_roles(&BTreeMap::from([("r".to_owned(), role)]))).await;
    let mut client = Client::for_caller(Caller::new("x", "r"), &gateway, Scope::All, Era::Modern).await;
    assert_eq!(read(&mut client, "docs://board").await, "aaa");
    let list = client.request("resources/list", json!({})).await;
    assert_eq!(list["result"]["_meta"], Value::Null, "it does not learn of the other: {list}");
    assert_eq!(request_count(&world, "docs"), 0);
}

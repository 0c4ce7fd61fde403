//! Resources of many servers on one endpoint: their URIs stay as they are.

use ostler_gateway::{Gateway, Scope};
use ostler_testkit::{Script, ScriptedReply, TestHost};
use serde_json::{Value, json};

use crate::client::{Client, gateway};

/// Returns a server with these resources and templates, which names itself in its answers.
fn script(name: &str, uris: &[&str], templates: &[&str]) -> Script {
    let list = |key: &str, member: &str, all: &[&str]| {
        let items: Vec<Value> = all.iter().map(|uri| json!({member: uri, "name": uri})).collect();
        json!({key: items}).to_string()
    };
    let (resources, templates) =
        (list("resources", "uri", uris), list("resourceTemplates", "uriTemplate", templates));
    let text = json!({"contents": [{"uri": "x", "text": name}]}).to_string();
    Script::new()
        .capabilities(r#"{"resources":{}}"#)
        .on("resources/list", move |_| ScriptedReply::result(resources.clone()))
        .on("resources/templates/list", move |_| ScriptedReply::result(templates.clone()))
        .on("resources/read", move |asked| match asked.name.as_deref() {
            Some(uri) if uri.ends_with("missing") => ScriptedReply::error(-32002, "Resource not found"),
            _ => ScriptedReply::result(text.clone()),
        })
}

async fn world() -> (TestHost, Gateway) {
    let world = TestHost::new()
        .server("a", script("a", &["file:///1", "same:1"], &["item://{id}/text"]))
        .server("b", script("b", &["file:///2", "same:1"], &["page://{+path}"]))
        .start()
        .await;
    let gateway = gateway(&world, |_| {});
    (world, gateway)
}

async fn read(client: &mut Client, uri: &str) -> Value {
    client.request("resources/read", json!({"uri": uri})).await
}

#[tokio::test(start_paused = true)]
async fn a_resource_is_read_from_the_server_that_lists_it() {
    let (world, gateway) = world().await;
    let mut client = Client::modern(&gateway, Scope::All, json!({}));
    for (uri, server) in [("file:///1", "a"), ("file:///2", "b")] {
        let answer = read(&mut client, uri).await;
        assert_eq!(answer["result"]["contents"][0]["text"], server, "{uri}: {answer}");
    }
    assert_eq!(world.server("b").requests_for("resources/read")[0].name.as_deref(), Some("file:///2"));
    assert_eq!(world.server("a").count("resources/read"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_template_tells_whose_resource_it_is() {
    let (_world, gateway) = world().await;
    let mut client = Client::legacy(&gateway, Scope::All, json!({})).await;
    for (uri, server) in [("item://7/text", "a"), ("page://x/y/z", "b")] {
        let answer = read(&mut client, uri).await;
        assert_eq!(answer["result"]["contents"][0]["text"], server, "{uri}: {answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_server_wins_a_uri_that_two_have() {
    let (world, gateway) = world().await;
    let mut client = Client::modern(&gateway, Scope::All, json!({}));
    let list = client.request("resources/list", json!({})).await;
    let uris: Vec<_> = list["result"]["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["uri"].as_str().unwrap())
        .collect();
    assert_eq!(uris.iter().filter(|uri| **uri == "same:1").count(), 1, "{uris:?}");
    let answer = read(&mut client, "same:1").await;
    assert_eq!(answer["result"]["contents"][0]["text"], "a");
    assert_eq!(world.server("b").count("resources/read"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_resource_that_nobody_has_is_not_found_in_the_words_of_the_era() {
    let (world, gateway) = world().await;
    let mut modern = Client::modern(&gateway, Scope::All, json!({}));
    let mut legacy = Client::legacy(&gateway, Scope::All, json!({})).await;
    assert_eq!(read(&mut modern, "nobody:1").await["error"]["code"], -32602);
    assert_eq!(read(&mut legacy, "nobody:1").await["error"]["code"], -32002);
    assert_eq!(world.server("a").count("resources/read") + world.server("b").count("resources/read"), 0);
    assert_eq!(
        read(&mut legacy, "file:///missing").await["error"]["code"],
        -32002,
        "no scheme is guessed by"
    );
    assert_eq!(world.server("a").count("resources/read") + world.server("b").count("resources/read"), 0);
    assert_eq!(
        read(&mut legacy, "page://missing").await["error"]["code"],
        -32002,
        "in the server's own words"
    );
    assert_eq!(
        (world.server("a").count("resources/read"), world.server("b").count("resources/read")),
        (0, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn a_hostile_template_costs_nobody_anything() {
    let template = format!("x:{}", "{+a}-".repeat(40));
    let world = TestHost::new().server("a", script("a", &[], &[&template])).start().await;
    let mut client = Client::modern(&gateway(&world, |_| {}), Scope::All, json!({}));
    let began = std::time::Instant::now();
    read(&mut client, &format!("x:{}!", "-".repeat(1_000))).await;
    assert!(began.elapsed() < std::time::Duration::from_secs(5));
}

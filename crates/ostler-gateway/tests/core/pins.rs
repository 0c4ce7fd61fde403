//! Unapproved definitions: they do not reach clients, on either endpoint.

use ostler_core::config::PinMode;
use ostler_core::pins::{LockFile, LockedServer, Pin, PinPolicy};
use ostler_gateway::Scope;
use ostler_host::ServerName;
use ostler_testkit::{Reconfigure, Script, TestHost};
use serde_json::{Value, json};

use crate::client::{Client, gateway, server_scope};

fn pins(definitions: &[Value]) -> Option<PinPolicy> {
    let tools = definitions.iter().map(|tool| {
        (
            tool["name"].as_str().unwrap().to_owned(),
            Pin::from_definition(tool.to_string().as_bytes()).unwrap(),
        )
    });
    let locked = LockedServer::with_tools("", tools.collect());
    let lock = LockFile { servers: [(ServerName::new("a").unwrap(), locked)].into() };
    Some(PinPolicy::new(PinMode::Enforce, lock))
}

async fn tool_names(client: &mut Client) -> Vec<String> {
    let answer = client.request("tools/list", json!({})).await;
    let tools = answer["result"]["tools"].as_array().unwrap().iter();
    tools.map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

async fn call_error_code(client: &mut Client, tool: &str) -> Value {
    let answer = client.request("tools/call", json!({"name": tool, "arguments": {}})).await;
    answer["error"]["code"].clone()
}

#[tokio::test(start_paused = true)]
async fn a_changed_and_a_new_tool_are_hidden_and_refused_until_they_are_approved() {
    let (good, old) = (json!({"name": "good"}), json!({"name": "evil", "description": "kind"}));
    let evil = json!({"name": "evil", "description": "kind\u{200b}"});
    let new = json!({"name": "new"});
    for (face, prefix) in [(Scope::All, "a__"), (server_scope("a"), "")] {
        let offered = [good.clone(), evil.clone(), new.clone()];
        let script = offered.iter().fold(Script::new(), |script, tool| script.definition(tool.clone()));
        let world = TestHost::new().server("a", script).start().await;
        world.host.set_pins(pins(&[good.clone(), old.clone()])).await;
        let gateway = gateway(&world, |_| {});
        let exposed = |tool: &str| format!("{prefix}{tool}");
        let mut clients = [
            Client::modern(&gateway, face.clone(), json!({})),
            Client::legacy(&gateway, face.clone(), json!({})).await,
        ];
        for client in &mut clients {
            assert_eq!(call_error_code(client, &exposed("evil")).await, -31006, "before anything is listed");
            assert_eq!(tool_names(client).await, [exposed("good")]);
            for tool in ["evil", "new"] {
                assert_eq!(call_error_code(client, &exposed(tool)).await, -31006, "{face:?} {tool}");
            }
            assert_eq!(call_error_code(client, &exposed("good")).await, Value::Null);
            assert_eq!(call_error_code(client, &exposed("nwe")).await, -32602);
        }
        world.host.set_pins(pins(&offered)).await;
        for client in &mut clients {
            assert_eq!(tool_names(client).await, ["good", "evil", "new"].map(exposed));
            assert_eq!(call_error_code(client, &exposed("evil")).await, Value::Null);
        }
        let [_, legacy] = &mut clients;
        let is_told = |message: &Value| message["method"] == "notifications/tools/list_changed";
        while !legacy.received.iter().any(is_told) {
            let message = legacy.receive().await;
            legacy.received.push(message);
        }
        assert_eq!(world.server("a").count("evil"), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_is_listed_twice_is_hidden_also_at_the_endpoint_of_its_server() {
    let tool = json!({"name": "t"});
    let script = Script::new().definition(tool.clone()).definition(json!({"name": "t", "title": "x"}));
    for (face, exposed) in [(Scope::All, "a__t"), (server_scope("a"), "t")] {
        let world = TestHost::new().server("a", script.clone()).start().await;
        world.host.set_pins(pins(std::slice::from_ref(&tool))).await;
        let mut client = Client::modern(&gateway(&world, |_| {}), face, json!({}));
        assert_eq!(
            call_error_code(&mut client, exposed).await,
            -31006,
            "the server is up, so its own list counts"
        );
        assert!(tool_names(&mut client).await.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn an_unknown_name_is_not_answered_with_one_that_is_hidden() {
    let world = TestHost::new().server("a", Script::new().tool("sens")).start().await;
    world.host.set_pins(pins(&[])).await;
    let mut client = Client::modern(&gateway(&world, |_| {}), Scope::All, json!({}));
    tool_names(&mut client).await;
    let answer = client.request("tools/call", json!({"name": "a__senx", "arguments": {}})).await;
    assert_eq!(answer["error"]["code"], -32602);
    assert!(!answer.to_string().contains("a__sens\""), "{answer}");
}

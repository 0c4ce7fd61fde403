//! Definitions that violate the schema of MCP: at `/mcp` they are completed or left out, elsewhere they pass.

use std::collections::BTreeMap;
use std::time::Duration;

use ostler_core::config::{PinMode, Role};
use ostler_core::pins::{LockFile, LockedServer, Pin, PinPolicy};
use ostler_gateway::Scope;
use ostler_host::{Caller, Rules, ServerName};
use ostler_testkit::{Reconfigure, Script, ScriptedReply, TestHost};
use ostler_wire::Era;
use serde_json::{Value, json};

use crate::client::{Client, gateway, server_scope};

/// Valid, completed and left out, in this order.
const TOOLS: &str = concat!(
    r#"[{"name": "good", "inputSchema":{"type":"object","x":1.50}, "later":[1, 2]},"#,
    r#"{"name":"bare","description":5},{"name":"odd","inputSchema":{"type":"string"}},"#,
    r#"{"name":"rows","inputSchema":{"type":"object"},"outputSchema":{"type":"array"}}]"#
);

fn script() -> Script {
    let listed = format!(r#"{{"tools":{TOOLS}}}"#);
    let list = Script::new().tool("good").tool("bare").tool("odd").tool("rows");
    list.on("tools/list", move |_| ScriptedReply::result(listed.clone()))
}

fn named<'a>(answer: &'a Value, name: &str) -> Option<&'a Value> {
    answer["result"]["tools"].as_array()?.iter().find(|tool| tool["name"] == name)
}

#[tokio::test(start_paused = true)]
async fn an_odd_tool_is_completed_or_left_out_and_a_good_one_stays_byte_for_byte() {
    let world = TestHost::new().server("a", script()).start().await;
    let gateway = gateway(&world, |_| {});
    let mut modern = Client::modern(&gateway, Scope::All, json!({}));
    let mut legacy = Client::legacy(&gateway, Scope::All, json!({})).await;
    for (client, is_modern) in [(&mut modern, true), (&mut legacy, false)] {
        client.send_request("tools/list", json!({})).await;
        let line = client.receive_line().await;
        let good = r#"{"name":"a__good","inputSchema":{"type":"object","x":1.50},"later":[1, 2]}"#;
        assert!(line.contains(good), "{line}");
        let answer: Value = serde_json::from_str(&line).unwrap();
        let bare = json!({"name": "a__bare", "inputSchema": {"type": "object"}});
        assert_eq!(named(&answer, "a__bare"), Some(&bare));
        assert_eq!(named(&answer, "a__odd"), None);
        // Only the modern schema allows results of other types.
        let rows = named(&answer, "a__rows").unwrap();
        assert_eq!(rows.get("outputSchema").is_some(), is_modern, "{rows}");
        let told = answer["result"]["_meta"]["dev.ostler/invalid"].as_array().unwrap();
        assert_eq!(told.len(), if is_modern { 2 } else { 3 }, "{told:?}");
        let odd = json!({"server": "a", "name": "odd", "problem": "`inputSchema.type` is not \"object\"", "leftOut": true});
        assert_eq!(told[1], odd);
    }
}

#[tokio::test(start_paused = true)]
async fn the_endpoint_of_one_server_gives_what_the_server_gives() {
    let world = TestHost::new().server("a", script()).start().await;
    let mut client = Client::modern(&gateway(&world, |_| {}), server_scope("a"), json!({}));
    client.send_request("tools/list", json!({})).await;
    let line = client.receive_line().await;
    assert!(line.contains(TOOLS), "{line}");
}

#[tokio::test(start_paused = true)]
async fn a_completed_tool_and_one_that_is_left_out_can_be_called() {
    let world = TestHost::new().server("a", script()).start().await;
    let mut client = Client::modern(&gateway(&world, |_| {}), Scope::All, json!({}));
    for tool in ["a__bare", "a__odd"] {
        let answer = client.request("tools/call", json!({"name": tool, "arguments": {}})).await;
        assert!(answer["result"].is_object(), "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn pins_compare_what_the_server_gives_and_not_what_was_completed() {
    let tools: Vec<Value> = serde_json::from_str(TOOLS).unwrap();
    let world = TestHost::new().server("a", script()).start().await;
    let bare = &tools[1];
    let pin = |tool: &Value| Pin::from_definition(tool.to_string().as_bytes()).unwrap();
    let pins = |pin: Pin| {
        let locked = LockedServer::with_tools("", [("bare".to_owned(), pin)].into());
        let servers = [(ServerName::new("a").unwrap(), locked)].into();
        Some(PinPolicy::new(PinMode::Enforce, LockFile { servers }))
    };
    let mut client = Client::modern(&gateway(&world, |_| {}), Scope::All, json!({}));
    let call = json!({"name": "a__bare", "arguments": {}});
    world.host.set_pins(pins(pin(bare))).await;
    let answer = client.request("tools/call", call.clone()).await;
    assert!(answer["result"].is_object(), "{answer}");
    let answer = client.request("tools/list", json!({})).await;
    assert!(named(&answer, "a__bare").is_some(), "{answer}");
    world.host.set_pins(pins(pin(&json!({"name": "bare", "inputSchema": {"type": "object"}})))).await;
    let answer = client.request("tools/call", call).await;
    assert_eq!(answer["error"]["code"], -31006, "{answer}");
    let answer = client.request("tools/list", json!({})).await;
    assert_eq!(named(&answer, "a__bare"), None, "{answer}");
}

#[tokio::test(start_paused = true)]
async fn the_status_counts_and_names_invalid_definitions() {
    let world = TestHost::new().server("a", script()).start().await;
    let mut client = Client::modern(&gateway(&world, |_| {}), Scope::All, json!({}));
    client.request("tools/list", json!({})).await;
    let status = serde_json::to_value(world.host.status_of("a").unwrap()).unwrap();
    let invalid = &status["invalid_definitions"];
    assert_eq!((&invalid["completed"], &invalid["left_out"]), (&json!(2), &json!(1)), "{invalid}");
    let names: Vec<_> =
        invalid["first"].as_array().unwrap().iter().map(|item| item["name"].clone()).collect();
    assert_eq!(names, ["bare", "odd", "rows"]);
}

#[tokio::test(start_paused = true)]
async fn resources_prompts_and_templates_are_completed_too() {
    let lists = [
        ("resources/list", "resources", r#"[{"uri":"a:b","size":"5"}]"#),
        ("prompts/list", "prompts", r#"[{"name":"p","arguments":null},{"name":"q","arguments":"x"}]"#),
        ("resources/templates/list", "resourceTemplates", r#"[{"uriTemplate":"a:{b}","annotations":[]}]"#),
    ];
    let able = Script::echo().capabilities(r#"{"tools":{},"prompts":{},"resources":{}}"#);
    let script = lists.into_iter().fold(able, |script, (method, member, items)| {
        script.on(method, move |_| ScriptedReply::result(format!(r#"{{"{member}":{items}}}"#)))
    });
    let world = TestHost::new().server("a", script).start().await;
    let mut client = Client::modern(&gateway(&world, |_| {}), Scope::All, json!({}));
    let expected = [
        json!([{"uri": "a:b", "name": "a:b"}]),
        json!([{"name": "a__p"}]),
        json!([{"uriTemplate": "a:{b}", "name": "a:{b}"}]),
    ];
    for ((method, member, _), expected) in lists.into_iter().zip(expected) {
        let answer = client.request(method, json!({})).await;
        assert_eq!(answer["result"][member], expected, "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_page_holds_thousands_of_tools_and_is_cut_by_bytes_alone() {
    let long = "x".repeat(1_000);
    let tool =
        |n: usize| json!({"name": format!("t{n}"), "description": long, "inputSchema": {"type": "object"}});
    let many = (0..1_500).fold(Script::new(), |script, n| script.definition(tool(n)));
    let world =
        TestHost::new().server("a", many.clone()).server("b", many.clone()).server("c", many).start().await;
    let mut client = Client::modern(&gateway(&world, |_| {}), Scope::All, json!({}));
    let first = client.request("tools/list", json!({})).await;
    let tools = first["result"]["tools"].as_array().unwrap();
    let size: usize = tools.iter().map(|tool| tool.to_string().len()).sum();
    assert!(tools.len() > 3_500 && size <= 4 << 20, "{} tools of {size} bytes", tools.len());
    let rest = client.request("tools/list", json!({"cursor": first["result"]["nextCursor"]})).await;
    assert_eq!(rest["result"]["nextCursor"], json!(null));
    let mut names: Vec<_> = [&first, &rest]
        .iter()
        .flat_map(|page| page["result"]["tools"].as_array().unwrap())
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!((count, names.len()), (4_500, 4_500), "each tool comes once");
}

#[tokio::test(start_paused = true)]
async fn a_definition_above_the_page_limit_has_a_page_of_its_own() {
    let long = "x".repeat(200);
    let tool =
        |n: usize| json!({"name": format!("t{n}"), "description": long, "inputSchema": {"type": "object"}});
    let script = (0..3).fold(Script::new(), |script, n| script.definition(tool(n)));
    let world = TestHost::new().server("a", script).start().await;
    let mut client =
        Client::modern(&gateway(&world, |options| options.page_bytes = 100), Scope::All, json!({}));
    let mut cursor = json!(null);
    for page in 0..3 {
        let params = if cursor.is_null() { json!({}) } else { json!({"cursor": cursor}) };
        let answer = client.request("tools/list", params).await;
        assert_eq!(answer["result"]["tools"].as_array().unwrap().len(), 1, "page {page}");
        cursor = answer["result"]["nextCursor"].clone();
    }
    assert!(cursor.is_null());
}

#[tokio::test(start_paused = true)]
async fn the_status_resource_tells_what_a_client_misses_and_nothing_that_is_hidden_from_it() {
    let world = TestHost::new().server("a", script()).server("b", Script::new()).start().await;
    let gateway = gateway(&world, |_| {});
    let read = json!({"uri": "ostler://status"});
    for is_modern in [true, false] {
        let mut client = match is_modern {
            true => Client::modern(&gateway, Scope::All, json!({})),
            false => Client::legacy(&gateway, Scope::All, json!({})).await,
        };
        client.request("tools/list", json!({})).await;
        let answer = client.request("resources/read", read.clone()).await;
        assert_eq!(answer["result"]["resultType"].as_str(), is_modern.then_some("complete"));
        let text = answer["result"]["contents"][0]["text"].as_str().unwrap();
        let status: Value = serde_json::from_str(text).unwrap();
        let names: Vec<&str> =
            status["servers"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
        assert_eq!((names, &status["servers"][0]["state"]), (vec!["a", "b"], &json!("ready")));
        assert_eq!(status["servers"][0]["invalidDefinitions"]["left_out"], 1, "{status}");
        assert_eq!(status["servers"][0]["invalidDefinitions"]["completed"], 2, "{status}");
        assert!(!text.contains("pid") && !text.contains("stderr"), "{text}");
    }
    let some = Role { allow: vec!["a/good".into()], deny: Vec::new(), budget: None, max_in_flight: None };
    world.host.set_rules(Rules::from_roles(&BTreeMap::from([("some".to_owned(), some)]))).await;
    for (role, seen) in [("some", json!([{"name": "a", "state": "ready"}])), ("none", json!([]))] {
        let mut client = Client::for_caller(Caller::new("x", role), &gateway, Scope::All, Era::Modern).await;
        let answer = client.request("resources/read", read.clone()).await;
        let text = answer["result"]["contents"][0]["text"].as_str().unwrap();
        assert_eq!(serde_json::from_str::<Value>(text).unwrap()["servers"], seen, "{role}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_gone_while_a_list_waits_is_not_listed_under_a_bare_name() {
    let slow = Script::new().tool("late").on("tools/list", |_| {
        ScriptedReply::result(r#"{"tools":[{"name":"late","inputSchema":{"type":"object"}}]}"#)
            .after(Duration::from_secs(5))
    });
    let world = TestHost::new().server("gone", Script::echo()).server("slow", slow).start().await;
    let gateway = gateway(&world, |_| {});
    let mut client = Client::modern(&gateway, Scope::All, json!({}));
    client.send_request("tools/list", json!({})).await;
    world.advance(Duration::from_secs(1)).await;
    world.host.remove("gone").await.unwrap();
    let answer: Value = serde_json::from_str(&client.receive_line().await).unwrap();
    let names: Vec<&str> = answer["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["slow__late"]);
}

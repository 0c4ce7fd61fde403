//! Lists over all servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ostler_gateway::Scope;
use ostler_testkit::{Script, ScriptedReply, TestHost};
use serde_json::json;

use crate::client::{Client, gateway, server_scope};

#[tokio::test(start_paused = true)]
async fn a_list_comes_in_pages_and_every_tool_comes_once() {
    let many = (0..7).fold(Script::new(), |script, n| script.tool(&format!("t{n}")));
    let world =
        TestHost::new().server("a", many).server("b", Script::new().tool("x").tool("y")).start().await;
    let mut client = Client::modern(&gateway(&world, |options| options.page_size = 3), Scope::All, json!({}));
    let (mut found, mut cursor) = (Vec::new(), json!(null));
    let mut pages = 0;
    loop {
        let params = if cursor.is_null() { json!({}) } else { json!({"cursor": cursor}) };
        let answer = client.request("tools/list", params).await;
        let tools = answer["result"]["tools"].as_array().unwrap().clone();
        assert!(tools.len() <= 3);
        found.extend(tools.into_iter().map(|tool| tool["name"].as_str().unwrap().to_owned()));
        pages += 1;
        cursor = answer["result"]["nextCursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    let expected: Vec<String> =
        (0..7).map(|n| format!("a__t{n}")).chain(["b__x".into(), "b__y".into()]).collect();
    assert_eq!((found, pages), (expected, 3));
}

#[tokio::test(start_paused = true)]
async fn a_cursor_that_is_none_of_ours_is_refused() {
    let world = TestHost::new().server("a", Script::echo()).start().await;
    let mut client = Client::modern(&gateway(&world, |_| {}), Scope::All, json!({}));
    let answer = client.request("tools/list", json!({"cursor": "o1.AAAA"})).await;
    assert_eq!(answer["error"]["code"], -32602);
}

#[tokio::test(start_paused = true)]
async fn a_dead_and_a_slow_server_spoil_nothing() {
    let dead = Script::echo().failing_starts(|_| true);
    let slow = Script::echo().on("tools/list", |_| ScriptedReply::never());
    let world = TestHost::new()
        .server("dead", dead)
        .server("good", Script::echo())
        .server("slow", slow)
        .start()
        .await;
    let gateway = gateway(&world, |options| options.list_patience = Duration::from_secs(5));
    let mut client = Client::modern(&gateway, Scope::All, json!({}));
    let began = tokio::time::Instant::now();
    let answer = client.request("tools/list", json!({})).await;
    assert!(began.elapsed() <= Duration::from_secs(6), "{:?}", began.elapsed());
    let result = &answer["result"];
    assert_eq!(result["tools"].as_array().unwrap().len(), 1, "{answer}");
    let sick = result["_meta"]["dev.ostler/unavailable"].as_array().unwrap();
    let servers: Vec<_> = sick.iter().map(|entry| entry["server"].as_str().unwrap()).collect();
    assert_eq!(servers, ["dead", "slow"]);
}

#[tokio::test(start_paused = true)]
async fn no_empty_list_when_every_server_fails() {
    let world = TestHost::new().server("dead", Script::echo().failing_starts(|_| true)).start().await;
    let mut client = Client::modern(&gateway(&world, |_| {}), Scope::All, json!({}));
    let answer = client.request("tools/list", json!({})).await;
    assert_eq!(answer["error"]["data"]["code"], "server-unavailable", "{answer}");
}

#[tokio::test(start_paused = true)]
async fn the_definitions_of_one_server_stay_byte_for_byte() {
    let tool = r#"{ "name":"t","inputSchema":{"type":"object","x":1e400},"later":[1, 2]}"#;
    let raw = format!(r#"{{ "tools" : [{tool}] ,"extra":null,"_meta":{{}}}}"#);
    let script = Script::new().on("tools/list", move |_| ScriptedReply::result(raw.clone()));
    let world = TestHost::new().server("a", script).start().await;
    let mut client = Client::legacy(&gateway(&world, |_| {}), server_scope("a"), json!({})).await;
    let id = client.send_request("tools/list", json!({})).await;
    let line = client.receive_line().await;
    assert_eq!(line, format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"tools":[{tool}]}}}}"#));
}

#[tokio::test(start_paused = true)]
async fn the_list_of_one_server_is_everybodys_if_it_says_so_and_callers_are_not_told_apart() {
    let script = Script::new().modern().on("tools/list", |_| {
        let tool = json!({"name": "t", "inputSchema": {"type": "object"}});
        ScriptedReply::result(json!({"tools": [tool], "ttlMs": 60_000, "cacheScope": "public"}).to_string())
    });
    let world = TestHost::new().server("a", script).start().await;
    let gateway = gateway(&world, |_| {});
    let scope = async |face: Scope| {
        let mut client = Client::modern(&gateway, face, json!({}));
        let answer = client.request("tools/list", json!({})).await;
        assert!(answer["result"]["ttlMs"].as_u64().unwrap() > 0, "{answer}");
        answer["result"]["cacheScope"].as_str().unwrap().to_owned()
    };
    assert_eq!(
        (scope(server_scope("a")).await, scope(Scope::All).await),
        ("public".into(), "private".into())
    );
    world.host.set_policy_hook(Some(Box::new(|_, _, _| ostler_host::Verdict::Allow)));
    assert_eq!(scope(server_scope("a")).await, "private");
}

#[tokio::test(start_paused = true)]
async fn a_malformed_tool_is_left_out_alone() {
    let script = Script::new().tool("good").definition(json!({"title": "no name"})).tool("better");
    let world = TestHost::new().server("a", script).start().await;
    let gateway = gateway(&world, |_| {});
    for (face, expected) in [(Scope::All, ["a__good", "a__better"]), (server_scope("a"), ["good", "better"])]
    {
        let mut client = Client::modern(&gateway, face, json!({}));
        let answer = client.request("tools/list", json!({})).await;
        let tools = answer["result"]["tools"].as_array().unwrap();
        let names: Vec<_> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        assert_eq!(names, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_ready_after_a_reload_is_listed_and_called_at_once() {
    let is_broken = Arc::new(AtomicBool::new(true));
    let broken = Arc::clone(&is_broken);
    let script = Script::echo().failing_starts(move |_| broken.load(Ordering::Relaxed));
    let world = TestHost::new().server("a", script).start().await;
    let mut client = Client::modern(&gateway(&world, |_| {}), Scope::All, json!({}));
    let call = json!({"name": "a__echo", "arguments": {}});
    let answer = client.request("tools/call", call.clone()).await;
    assert_eq!(answer["error"]["data"]["code"], "server-unavailable", "{answer}");
    is_broken.store(false, Ordering::Relaxed);
    world.host.reload("a").await.unwrap();
    let answer = client.request("tools/call", call).await;
    assert!(answer["result"].is_object(), "{answer}");
    let answer = client.request("tools/list", json!({})).await;
    assert_eq!(answer["result"]["tools"][0]["name"], "a__echo", "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_reload_brings_the_new_list_whatever_the_old_one_was_good_for() {
    let lists = AtomicUsize::new(0);
    let script = Script::new().tool("one").tool("two").modern().on("tools/list", move |_| {
        let name = if lists.fetch_add(1, Ordering::Relaxed) == 0 { "one" } else { "two" };
        let tool = json!({"name": name, "inputSchema": {"type": "object"}});
        ScriptedReply::result(
            json!({"tools": [tool], "ttlMs": 3_600_000, "cacheScope": "public"}).to_string(),
        )
    });
    let world = TestHost::new().server("a", script).start().await;
    let mut client = Client::modern(&gateway(&world, |_| {}), Scope::All, json!({}));
    let answer = client.request("tools/list", json!({})).await;
    assert_eq!(answer["result"]["tools"][0]["name"], "a__one", "{answer}");
    world.host.reload("a").await.unwrap();
    let answer = client.request("tools/call", json!({"name": "a__two", "arguments": {}})).await;
    assert!(answer["result"].is_object(), "{answer}");
    let answer = client.request("tools/list", json!({})).await;
    assert_eq!(answer["result"]["tools"][0]["name"], "a__two", "{answer}");
}

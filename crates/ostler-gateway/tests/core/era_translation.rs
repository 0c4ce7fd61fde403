//! Translation of server answers for clients of the other era.

use ostler_core::caller::Caller;
use ostler_gateway::Scope;
use ostler_testkit::{Script, ScriptedReply, TestHost};
use serde_json::json;

use crate::client::{Client, gateway, server_scope};

#[tokio::test(start_paused = true)]
async fn a_modern_client_reads_complete_results_of_a_legacy_server() {
    let world = TestHost::new().server("a", Script::echo()).start().await;
    let gateway = gateway(&world, |_| {});
    let mut client = Client::modern(&gateway, server_scope("a"), json!({}));
    let answer = client.call("echo", json!({})).await;
    assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
    let list = client.request("tools/list", json!({})).await;
    assert_eq!(list["result"]["resultType"], "complete");
    assert_eq!((&list["result"]["ttlMs"], &list["result"]["cacheScope"]), (&json!(0), &json!("private")));
}

#[tokio::test(start_paused = true)]
async fn a_legacy_client_reads_nothing_modern() {
    let script = Script::new().tool_replying(
        "t",
        ScriptedReply::result(r#"{"content":[],"resultType":"complete","ttlMs":5,"cacheScope":"public"}"#),
    );
    let world = TestHost::new().server("a", script).start().await;
    let mut client = Client::legacy(&gateway(&world, |_| {}), Scope::All, json!({})).await;
    let answer = client.call("a__t", json!({})).await;
    assert_eq!(answer["result"], json!({"content": []}));
}

#[tokio::test(start_paused = true)]
async fn a_servers_own_error_passes_unchanged() {
    let script = Script::new().tool_replying("t", ScriptedReply::error(-32042, "not today"));
    let world = TestHost::new().server("a", script).start().await;
    let mut client = Client::modern(&gateway(&world, |_| {}), Scope::All, json!({}));
    let answer = client.call("a__t", json!({})).await;
    assert_eq!(answer["error"], json!({"code": -32042, "message": "not today"}));
}

#[tokio::test(start_paused = true)]
async fn a_missing_resource_has_the_code_of_the_clients_era() {
    let script = Script::new().on("resources/read", |_| ScriptedReply::error(-32002, "Resource not found"));
    let world = TestHost::new().server("a", script).start().await;
    let gateway = gateway(&world, |_| {});
    let mut modern = Client::modern(&gateway, server_scope("a"), json!({}));
    let mut legacy = Client::legacy(&gateway, server_scope("a"), json!({})).await;
    assert_eq!(modern.request("resources/read", json!({"uri": "x:y"})).await["error"]["code"], -32602);
    assert_eq!(legacy.request("resources/read", json!({"uri": "x:y"})).await["error"]["code"], -32002);
}

#[tokio::test(start_paused = true)]
async fn what_the_modern_era_has_done_away_with_does_not_exist_in_it() {
    let world = TestHost::new().server("a", Script::echo()).start().await;
    let mut client = Client::modern(&gateway(&world, |_| {}), Scope::All, json!({}));
    for method in ["initialize", "ping", "logging/setLevel", "resources/subscribe"] {
        assert_eq!(client.request(method, json!({})).await["error"]["code"], -32601, "{method}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_gateway_does_not_know_has_the_code_of_the_table() {
    let world = TestHost::new().server("a", Script::echo()).start().await;
    let gateway = gateway(&world, |_| {});
    let mut modern = Client::modern(&gateway, Scope::All, json!({}));
    let mut legacy = Client::legacy(&gateway, Scope::All, json!({})).await;
    let prompt = json!({"name": "a__none"});
    let complete = json!({"ref": {"type": "ref/prompt", "name": "a__none"}, "argument": {}});
    let table = [
        ("prompts/get", prompt, -32602, "unknown-prompt"),
        ("completion/complete", complete, -32602, "unknown-prompt"),
        ("vendor/none", json!({}), -32601, "unknown-method"),
        ("tasks/list", json!({}), -32601, "unknown-method"),
    ];
    for (method, params, code, name) in table {
        for client in [&mut modern, &mut legacy] {
            let error = client.request(method, params.clone()).await["error"].take();
            assert_eq!((&error["code"], &error["data"]["code"]), (&json!(code), &json!(name)), "{method}");
        }
    }
    let removed = modern.request("ping", json!({})).await;
    assert_eq!(removed["error"]["data"]["code"], "unknown-method", "{removed}");
}

#[tokio::test(start_paused = true)]
async fn instructions_pass_byte_for_byte() {
    let words = r#"caf\u00e9 \/ \ud83d\ude00 \"x\" !"#;
    let written = format!("\"{words}\"");
    for script in [Script::echo(), Script::echo().modern()] {
        let world = TestHost::new().server("a", script.raw_instructions(&written)).start().await;
        let gateway = gateway(&world, |_| {});
        let mut client = Client::modern(&gateway, server_scope("a"), json!({}));
        client.send_request("server/discover", json!({})).await;
        let discovered = client.receive_line().await;
        assert!(discovered.contains(&format!(r#""instructions":{written}"#)), "{discovered}");
        let opened = Client::initialize_line(Caller::local(), &gateway, server_scope("a")).await;
        assert!(opened.contains(&format!(r#""instructions":{written}"#)), "{opened}");
        // Quoted between other text they stay as they were written.
        let opened = Client::initialize_line(Caller::local(), &gateway, Scope::All).await;
        assert!(opened.contains(&format!(r#"\n\na: {words}""#)), "{opened}");
    }
}

//! Tools that behave: their answers, their timing and their lines in the ledger.

use std::collections::HashSet;

use serde_json::json;
use tempfile::tempdir;

use crate::client::{FakeMcpClient, modern_params, read_lines, text_of};

#[test]
fn echo_returns_its_arguments_byte_for_byte() {
    let mut client = FakeMcpClient::legacy(&["--tools", "1"]);
    let arguments = r#"{"z":1e2, "a" :9223372036854775808,"é":"\u00e9"}"#;
    for tool in ["echo", "tool_0001"] {
        client.send(&format!(
            r#"{{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{{"name":"{tool}","arguments":{arguments}}}}}"#
        ));
        let line = String::from_utf8(client.read_raw()).unwrap();
        assert!(line.contains(&format!(r#""structuredContent":{arguments}"#)), "{line}");
        assert_eq!(text_of(&serde_json::from_str(&line).unwrap()), arguments);
    }
}

#[test]
fn simple_tools_answer_what_they_say() {
    let mut client = FakeMcpClient::legacy(&[]);
    assert_eq!(client.text("add", json!({"a": 2, "b": 3})), "5");
    assert_eq!(client.text("add", json!({"a": 0.5, "b": 0.25})), "0.75");
    assert_eq!(client.text("text", json!({"text": "a\n\"b\""})), "a\n\"b\"");
    assert_eq!(client.text("blob", json!({"size": 100_000})).len(), 100_000);
    assert_eq!(client.text("pid", json!({})), client.pid().to_string());
    assert_eq!(client.text("counter", json!({})), "1");
    assert_eq!(client.text("counter", json!({})), "2");
    assert!(client.call("env", json!({}))["result"]["structuredContent"]["PATH"].is_string());
    let fds = client.call("fds", json!({}));
    let fds = fds["result"]["structuredContent"].as_object().unwrap();
    assert!(["0", "1", "2"].iter().all(|fd| fds[*fd].as_str().unwrap().starts_with("pipe:")));
}

#[test]
fn the_kinds_of_failure_are_told_apart() {
    let mut client = FakeMcpClient::legacy(&[]);
    let failed = client.call("fail", json!({"text": "connect refused"}));
    assert_eq!(failed["result"]["isError"], true);
    assert_eq!(text_of(&failed), "connect refused");
    let error = client.call("rpc_error", json!({"code": -32603, "message": "m"}));
    assert_eq!(error["error"], json!({"code": -32603, "message": "m"}));
    assert_eq!(client.call("nobody", json!({}))["error"]["code"], -32602);
    assert_eq!(client.call("add", json!({"a": "one"}))["error"]["code"], -32602);
}

#[test]
fn exact_answers_the_printed_bytes() {
    let printed =
        std::process::Command::new(env!("CARGO_BIN_EXE_fake-mcp")).arg("--print-exact").output().unwrap();
    let mut client = FakeMcpClient::legacy(&[]);
    let id = client.send_call("exact", json!({}));
    let expected = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{}}}\n",
        String::from_utf8(printed.stdout).unwrap()
    );
    assert_eq!(String::from_utf8(client.read_raw()).unwrap(), expected);
}

#[test]
fn hints_travel_with_results_and_each_result_is_new() {
    let mut client = FakeMcpClient::legacy(&[]);
    let first = client.call("hint", json!({"ttl_ms": 60_000, "scope": "public"}));
    assert_eq!(first["result"]["ttlMs"], 60_000);
    assert_eq!(first["result"]["cacheScope"], "public");
    let second = client.call("hint", json!({"ttl_ms": -1}));
    assert_eq!(second["result"]["ttlMs"], -1);
    assert!(second["result"].get("cacheScope").is_none());
    assert_ne!(text_of(&first), text_of(&second));
}

#[test]
fn sleeps_are_answered_in_the_order_they_end() {
    let mut client = FakeMcpClient::legacy(&[]);
    let slow = client.send_call("sleep", json!({"ms": 400}));
    let quick = client.send_call("sleep", json!({"ms": 10}));
    assert_eq!(client.read()["id"], quick);
    assert_eq!(client.read()["id"], slow);
}

#[test]
fn ten_thousand_sleeps_at_once_are_all_answered() {
    let mut client = FakeMcpClient::legacy(&[]);
    let asked: HashSet<u64> =
        (0..10_000).map(|n| client.send_call("sleep", json!({"ms": 1000 + n % 50}))).collect();
    let answered: HashSet<u64> = (0..10_000).map(|_| client.read()["id"].as_u64().unwrap()).collect();
    assert_eq!(asked, answered);
}

#[test]
fn a_cancelled_sleep_is_never_answered() {
    let mut client = FakeMcpClient::legacy(&[]);
    let cancelled = client.send_call("sleep", json!({"ms": 500}));
    let later = client.send_call("sleep", json!({"ms": 600}));
    client.cancel(cancelled);
    assert_eq!(client.read()["id"], later);
    assert_eq!(client.text("text", json!({"text": "next"})), "next");
}

#[test]
fn the_ledger_counts_executions_and_nothing_else() {
    let directory = tempdir().unwrap();
    let (ledger, requests) = (directory.path().join("ledger"), directory.path().join("requests"));
    let switches = ["--ledger", ledger.to_str().unwrap(), "--requests", requests.to_str().unwrap()];
    let mut client = FakeMcpClient::legacy(&switches);
    let pid = client.pid();
    client.request(
        "tools/call",
        json!({"name": "counter", "arguments": {"b": 1}, "_meta": {"dev.ostler/idempotencyKey": "k-1"}}),
    );
    client.call("nobody", json!({}));
    client.call("add", json!({}));
    client.send_call("crash", json!({"when": "before"}));
    client.expect_eof();
    assert_eq!(
        read_lines(&ledger),
        [format!("{pid}\tcounter\tk-1\t{{\"b\":1}}"), format!("{pid}\tcrash\t\t{{\"when\":\"before\"}}")]
    );
    let calls = ["counter", "nobody", "add", "crash"].map(|name| format!("tools/call\t{name}"));
    assert_eq!(read_lines(&requests), [&["initialize\t".to_owned()], &calls[..]].concat());
}

#[test]
fn progress_is_reported_for_the_token_and_then_the_answer() {
    let mut client = FakeMcpClient::legacy(&[]);
    let params =
        json!({"name": "progress", "arguments": {"count": 3, "ms": 1}, "_meta": {"progressToken": "t"}});
    let id = client.send_request("tools/call", params);
    for step in 1..=3 {
        let notice = client.read();
        assert_eq!(notice["method"], "notifications/progress");
        assert_eq!(notice["params"], json!({"progressToken": "t", "progress": step, "total": 3}));
    }
    assert_eq!(client.read()["id"], id);
    assert_eq!(client.text("progress", json!({"count": 2})), "done");
}

#[test]
fn a_question_may_carry_the_id_of_the_call_it_belongs_to() {
    let mut client = FakeMcpClient::legacy(&[]);
    let id = client.send_call("ask", json!({}));
    let question = client.read();
    assert_eq!(question, json!({"jsonrpc": "2.0", "id": id, "method": "roots/list"}));
    let answer = json!({"jsonrpc": "2.0", "id": id, "result": {"roots": [7]}});
    client.send(&answer.to_string());
    let result = client.read();
    assert_eq!(result["id"], id);
    assert_eq!(result["result"]["structuredContent"], answer);
}

#[test]
fn a_question_has_the_method_id_and_params_it_is_given_and_dies_with_its_call() {
    let mut client = FakeMcpClient::legacy(&[]);
    let id =
        client.send_call("ask", json!({"method": "sampling/createMessage", "id": "q", "params": {"n": 1}}));
    let question = client.read();
    assert_eq!(
        question,
        json!({"jsonrpc": "2.0", "id": "q", "method": "sampling/createMessage", "params": {"n": 1}})
    );
    client.cancel(id);
    client.send(r#"{"jsonrpc":"2.0","id":"q","result":{}}"#);
    assert_eq!(client.text("text", json!({"text": "next"})), "next");
}

#[test]
fn modern_input_takes_two_rounds_and_executes_once() {
    let directory = tempdir().unwrap();
    let ledger = directory.path().join("ledger");
    let mut client = FakeMcpClient::start(&["--ledger", ledger.to_str().unwrap()]);
    let first = client.request("tools/call", modern_params(json!({"name": "input"})));
    assert_eq!(first["result"]["resultType"], "input_required");
    assert_eq!(first["result"]["inputRequests"]["confirm"]["method"], "elicitation/create");
    assert_eq!(read_lines(&ledger), [""; 0]);

    let responses = json!({"confirm": {"action": "accept", "content": {"ok": true}}});
    let again =
        |state| modern_params(json!({"name": "input", "inputResponses": responses, "requestState": state}));
    let spoiled = client.request("tools/call", again(json!("something else")));
    assert_eq!(spoiled["error"]["code"], -32602);
    let second = client.request("tools/call", again(first["result"]["requestState"].clone()));
    assert_eq!(second["result"]["structuredContent"], responses);
}

#[test]
fn legacy_input_asks_during_the_call() {
    let mut client = FakeMcpClient::legacy(&[]);
    let id = client.send_call("input", json!({}));
    let question = client.read();
    assert_eq!(question["method"], "elicitation/create");
    client
        .send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}}).to_string());
    let answer = client.read();
    assert_eq!(answer["id"], id);
    assert_eq!(answer["result"]["structuredContent"]["result"]["action"], "decline");
}

#[test]
fn slow_answers_leave_in_order_and_can_be_cancelled() {
    let mut client = FakeMcpClient::legacy(&["--slow", "400"]);
    let cancelled = client.send_call("counter", json!({}));
    let kept = client.send_call("counter", json!({}));
    client.cancel(cancelled);
    let answer = client.read();
    assert_eq!(answer["id"], kept);
    assert_eq!(text_of(&answer), "2", "a cancelled answer does not undo the execution");
}

#[test]
fn shuffled_answers_all_arrive_out_of_order() {
    let mut client = FakeMcpClient::legacy(&["--shuffle"]);
    let call =
        |id: u64| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"pid"}}}}"#);
    client.send(&(100..150).map(call).collect::<Vec<_>>().join("\n"));
    let mut answered: Vec<u64> = (100..150).map(|_| client.read()["id"].as_u64().unwrap()).collect();
    assert!(!answered.is_sorted());
    answered.sort_unstable();
    assert_eq!(answered, (100..150).collect::<Vec<_>>());
}

#[test]
fn raw_echo_answers_every_call() {
    let mut client = FakeMcpClient::legacy(&["--raw-echo"]);
    let answer = client.call("whatever", json!({"a": [1]}));
    assert_eq!(answer["result"]["structuredContent"], json!({"a": [1]}));
    let answer = client.request("tools/call", modern_params(json!({"name": "whatever"})));
    assert_eq!(answer["result"]["resultType"], "complete");
}

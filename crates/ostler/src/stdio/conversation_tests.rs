//! Tests of sessions, line by line.

use super::*;

fn line(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn request(id: u64, method: &str, params: Value) -> Bytes {
    line(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string())
}

fn call(id: u64) -> Bytes {
    request(id, "tools/call", json!({"name": "a__b", "arguments": {}}))
}

fn cancel(id: u64) -> Bytes {
    let params = json!({"requestId": id});
    line(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}).to_string())
}

fn result(id: Value, result: Value) -> Bytes {
    line(&json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string())
}

fn farewell(conversation: &mut StdioClientSession) {
    assert!(!conversation.handle_daemon_line(&line(FAREWELL)).is_shown);
}

fn parsed(lines: &[u8]) -> Vec<Value> {
    lines
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect()
}

/// Returns all lines for a newly attached daemon.
fn resent(conversation: &mut StdioClientSession) -> Vec<Value> {
    conversation.resume();
    std::iter::from_fn(|| conversation.next_to_send())
        .map(|line| serde_json::from_slice(&line).unwrap())
        .collect()
}

fn methods(messages: &[Value]) -> Vec<&str> {
    messages.iter().map(|message| message["method"].as_str().unwrap()).collect()
}

/// Returns an initialized session of a legacy client.
fn legacy(version: &str) -> StdioClientSession {
    let mut conversation = StdioClientSession::new();
    let params = json!({"protocolVersion": version, "capabilities": {"roots": {}}});
    conversation.handle_client_line(&request(1, "initialize", params));
    let answer = json!({"protocolVersion": version, "capabilities": {"tools": {"listChanged": true}}});
    assert!(conversation.handle_daemon_line(&result(json!(1), answer)).is_shown);
    conversation.handle_client_line(&line(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#));
    conversation
}

#[test]
fn what_may_have_been_executed_is_answered_and_never_sent_again() {
    let mut conversation = StdioClientSession::new();
    for (id, method) in [(1, "tools/call"), (2, "tools/list"), (3, "tasks/cancel"), (4, "resources/read")] {
        assert_eq!(conversation.handle_client_line(&request(id, method, json!({}))), ClientLineAction::Send);
    }
    let told = parsed(&conversation.handle_connection_lost("gone"));
    let ids: Vec<&Value> = told.iter().map(|answer| &answer["id"]).collect();
    assert_eq!(ids, [&json!(1), &json!(3)]);
    assert!(told.iter().all(|answer| answer["error"]["code"] == OUTCOME_UNKNOWN), "{told:?}");
    assert_eq!(methods(&resent(&mut conversation)), ["tools/list", "resources/read"]);
    assert!(conversation.handle_daemon_line(&result(json!(2), json!({}))).is_shown);
    let told = parsed(&conversation.handle_connection_lost("gone again"));
    assert_eq!((told.len(), &told[0]["id"]), (1, &json!(4)), "repeated once");
    assert!(resent(&mut conversation).is_empty());
}

#[test]
fn only_what_is_known_to_read_and_continues_nothing_is_sent_again() {
    let mut conversation = StdioClientSession::new();
    let state = json!({"uri": "a://b", "requestState": "s"});
    let answers = json!({"name": "p", "inputResponses": {}});
    for (id, method, params) in [
        (1, "resources/read", state),
        (2, "prompts/get", answers),
        (3, "vendor/money/get", json!({})),
        (4, "prompts/get", json!({"name": "p"})),
    ] {
        conversation.handle_client_line(&request(id, method, params));
    }
    let told = parsed(&conversation.handle_connection_lost("gone"));
    assert_eq!(told.iter().map(|answer| &answer["id"]).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(methods(&resent(&mut conversation)), ["prompts/get"]);
}

#[test]
fn a_session_is_opened_again_and_the_client_sees_nothing_of_it() {
    let mut conversation = legacy("2025-11-25");
    conversation.handle_client_line(&request(2, "logging/setLevel", json!({"level": "info"})));
    conversation.handle_client_line(&request(3, "resources/subscribe", json!({"uri": "a:1"})));
    conversation.handle_client_line(&request(4, "resources/subscribe", json!({"uri": "a:2"})));
    conversation.handle_client_line(&request(5, "resources/unsubscribe", json!({"uri": "a:2"})));
    (2..=5).for_each(|id| drop(conversation.handle_daemon_line(&result(json!(id), json!({})))));
    conversation.handle_connection_lost("gone");
    conversation.handle_client_line(&call(6));
    let sent = resent(&mut conversation);
    let expected =
        ["initialize", "notifications/initialized", "logging/setLevel", "resources/subscribe", "tools/call"];
    assert_eq!(methods(&sent), expected);
    assert_eq!(sent[0]["params"]["capabilities"], json!({"roots": {}}));
    assert_eq!(sent[3]["params"], json!({"uri": "a:1"}));

    let capabilities = json!({"tools": {"listChanged": true}, "prompts": {}});
    let opened = json!({"protocolVersion": "2025-11-25", "capabilities": capabilities});
    let heard = conversation.handle_daemon_line(&result(sent[0]["id"].clone(), opened));
    assert!(!heard.is_shown && heard.notice.is_none());
    assert_eq!(methods(&parsed(&heard.more)), ["notifications/tools/list_changed"]);
    let heard = conversation.handle_daemon_line(&result(sent[3]["id"].clone(), json!({})));
    assert_eq!(parsed(&heard.more)[0]["params"], json!({"uri": "a:1"}), "it may have changed");
    assert!(conversation.handle_daemon_line(&result(json!(6), json!({}))).is_shown);
}

#[test]
fn another_revision_of_the_next_daemon_is_told_to_people() {
    let mut conversation = legacy("2025-11-25");
    conversation.handle_connection_lost("gone");
    let sent = resent(&mut conversation);
    let heard = conversation
        .handle_daemon_line(&result(sent[0]["id"].clone(), json!({"protocolVersion": "2024-11-05"})));
    assert!(heard.notice.unwrap().contains("speaks MCP 2024-11-05 now"));
}

#[test]
fn a_daemon_that_ends_is_left_when_it_has_answered_and_asked_nothing_more() {
    let mut conversation = StdioClientSession::new();
    conversation.handle_client_line(&call(1));
    assert!(
        conversation.handle_daemon_line(&line(r#"{"jsonrpc":"2.0","id":7,"method":"roots/list"}"#)).is_shown
    );
    farewell(&mut conversation);
    assert!(!conversation.may_detach());
    assert_eq!(conversation.handle_client_line(&call(2)), ClientLineAction::Queue);
    assert_eq!(
        conversation.handle_client_line(&result(json!(7), json!({}))),
        ClientLineAction::Send,
        "it was asked for"
    );
    assert!(conversation.handle_daemon_line(&result(json!(1), json!({}))).is_shown);
    assert!(conversation.may_detach());
    assert_eq!(conversation.handle_connection_lost("gone"), b"");
    assert_eq!(methods(&resent(&mut conversation)), ["tools/call"]);
}

#[test]
fn a_request_that_is_cancelled_before_a_daemon_has_it_is_neither_sent_nor_answered() {
    let mut conversation = StdioClientSession::new();
    conversation.handle_client_line(&request(1, "tools/list", json!({})));
    farewell(&mut conversation);
    // While the daemon drains, while there is none, and while the next one is resumed.
    for id in 2..=6 {
        assert_eq!(conversation.handle_client_line(&call(id)), ClientLineAction::Queue);
    }
    assert_eq!(conversation.handle_client_line(&cancel(2)), ClientLineAction::Queue);
    assert_eq!(conversation.handle_connection_lost("gone"), b"");
    assert_eq!(conversation.handle_client_line(&cancel(3)), ClientLineAction::Queue);
    assert_eq!(
        conversation.handle_client_line(&cancel(1)),
        ClientLineAction::Queue,
        "the read is not repeated"
    );
    conversation.resume();
    assert_eq!(conversation.next_to_send().unwrap(), call(4));
    assert_eq!(conversation.handle_client_line(&cancel(5)), ClientLineAction::Queue);
    assert_eq!(
        conversation.handle_client_line(&cancel(4)),
        ClientLineAction::Queue,
        "it was sent, so the daemon hears of it"
    );
    assert_eq!(conversation.next_to_send().unwrap(), call(6));
    assert_eq!(conversation.next_to_send().unwrap(), cancel(4));
    assert_eq!(conversation.next_to_send(), None);
    assert_eq!(
        parsed(&conversation.handle_connection_lost("gone")).len(),
        1,
        "only call 6 is without an answer"
    );
}

#[test]
fn no_daemon_is_awaited_for_requests_that_are_all_cancelled() {
    let mut conversation = StdioClientSession::new();
    conversation.handle_client_line(&request(1, "tools/list", json!({})));
    conversation.handle_connection_lost("gone");
    conversation.handle_client_line(&call(2));
    assert!(conversation.wants_daemon());
    conversation.handle_client_line(&cancel(2));
    conversation.handle_client_line(&cancel(1));
    assert!(!conversation.wants_daemon());
    assert_eq!(conversation.fail_pending(b"{\"code\":1}"), b"");
    conversation.finish_client();
    assert!(conversation.is_finished());
}

#[test]
fn a_listen_outlives_its_daemon() {
    let mut conversation = StdioClientSession::new();
    conversation.handle_client_line(&request(1, "subscriptions/listen", json!({"notifications": {}})));
    farewell(&mut conversation);
    assert!(conversation.may_detach(), "it is not waited for");
    assert!(!conversation.handle_daemon_line(&result(json!(1), json!({}))).is_shown);
    conversation.handle_connection_lost("gone");
    assert!(!conversation.wants_daemon(), "it starts no daemon");
    assert_eq!(methods(&resent(&mut conversation)), ["subscriptions/listen"]);
    assert!(conversation.handle_daemon_line(&result(json!(1), json!({}))).is_shown, "this one ends it");
}

#[test]
fn questions_of_a_daemon_that_is_gone_are_taken_back() {
    let mut conversation = legacy("2025-11-25");
    for id in [7, 8] {
        let question = json!({"jsonrpc": "2.0", "id": id, "method": "roots/list"});
        conversation.handle_daemon_line(&line(&question.to_string()));
    }
    conversation.handle_client_line(&result(json!(7), json!({"roots": []})));
    let told = parsed(&conversation.handle_connection_lost("gone"));
    assert_eq!(told.len(), 1);
    assert_eq!(
        (&told[0]["method"], &told[0]["params"]["requestId"]),
        (&json!("notifications/cancelled"), &json!(8))
    );
    assert_eq!(conversation.handle_client_line(&result(json!(8), json!({}))), ClientLineAction::Queue);
    assert!(!methods(&resent(&mut conversation)).contains(&"roots/list"));
}

#[test]
fn requests_of_a_batch_are_accounted_for_one_by_one() {
    let mut conversation = legacy("2025-03-26");
    let batch = |messages: &[Bytes]| {
        let parts: Vec<&str> = messages.iter().map(|line| std::str::from_utf8(line).unwrap()).collect();
        line(&format!("[{}]", parts.join(",")))
    };
    conversation.handle_client_line(&batch(&[call(2), request(3, "tools/list", json!({}))]));
    farewell(&mut conversation);
    assert!(!conversation.may_detach());
    let told = parsed(&conversation.handle_connection_lost("gone"));
    assert_eq!((told.len(), &told[0]["id"]), (1, &json!(2)));
    assert_eq!(methods(&resent(&mut conversation))[2..], ["tools/list"]);
    assert!(conversation.handle_daemon_line(&batch(&[result(json!(3), json!({}))])).is_shown);
    farewell(&mut conversation);
    assert!(conversation.may_detach());
    conversation.handle_connection_lost("gone");
    conversation.handle_client_line(&batch(&[call(4), call(5)]));
    assert_eq!(parsed(&conversation.fail_pending(b"{\"code\":1}")).len(), 2);
}

#[test]
fn a_call_is_accounted_for_though_its_id_is_used_again() {
    let mut conversation = StdioClientSession::new();
    conversation.handle_client_line(&call(2));
    conversation.handle_client_line(&request(2, "tools/list", json!({})));
    // The daemon refuses the second.
    let refused = json!({"jsonrpc": "2.0", "id": 2, "error": {"code": -32600, "message": "under way"}});
    assert!(conversation.handle_daemon_line(&line(&refused.to_string())).is_shown);
    let told = parsed(&conversation.handle_connection_lost("gone"));
    assert_eq!((told.len(), &told[0]["id"]), (1, &json!(2)), "{told:?}");
    assert!(told[0]["error"]["message"].as_str().unwrap().contains("the call of `a__b`"), "{told:?}");
    assert!(resent(&mut conversation).is_empty());
    assert!(!conversation.wants_daemon());

    conversation.handle_client_line(&request(3, "tools/list", json!({})));
    conversation.handle_client_line(&call(3));
    assert!(conversation.handle_daemon_line(&result(json!(3), json!({"tools": []}))).is_shown);
    assert_eq!(
        parsed(&conversation.handle_connection_lost("gone")).len(),
        1,
        "the read is answered, the call is not"
    );

    resent(&mut conversation);
    for _ in 0..3 {
        conversation.handle_client_line(&call(4));
    }
    for _ in 0..3 {
        assert!(conversation.wants_daemon());
        assert!(conversation.handle_daemon_line(&result(json!(4), json!({}))).is_shown);
    }
    assert!(!conversation.wants_daemon(), "all are answered");
}

#[test]
fn what_waits_is_bounded_and_told_when_no_daemon_comes() {
    let mut conversation = StdioClientSession::new();
    conversation.handle_connection_lost("gone");
    let mut held = 0;
    while conversation.has_room() {
        held += 1;
        assert_eq!(conversation.handle_client_line(&call(held)), ClientLineAction::Queue);
    }
    assert_eq!(held, MAX_QUEUED as u64);
    assert_eq!(parsed(&conversation.fail_pending(b"{\"code\":-31002}")).len(), MAX_QUEUED);
    assert!(conversation.has_room() && !conversation.wants_daemon());
    conversation.handle_client_line(&request(1, "tools/call", json!({"text": "x".repeat(MAX_QUEUED_BYTES)})));
    assert!(!conversation.has_room());
}

#[test]
fn a_read_that_is_too_long_to_be_kept_is_not_repeated() {
    let mut conversation = StdioClientSession::new();
    conversation.handle_client_line(&request(1, "prompts/get", json!({"text": "x".repeat(MAX_KEPT_BYTES)})));
    assert_eq!(parsed(&conversation.handle_connection_lost("gone"))[0]["id"], 1);
    assert_eq!(resent(&mut conversation), Vec::<Value>::new());
}

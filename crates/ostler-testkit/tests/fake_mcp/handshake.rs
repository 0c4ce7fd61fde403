//! Handshakes of both eras, and their failures.

use serde_json::json;

use crate::client::{FakeMcpClient, modern_params, text_of};

#[test]
fn a_legacy_client_negotiates_each_known_version_and_the_newest_otherwise() {
    for version in ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"] {
        let answer = FakeMcpClient::start(&["--era", "legacy", "--name", "bob"]).initialize(version);
        assert_eq!(answer["result"]["protocolVersion"], version);
        assert_eq!(answer["result"]["serverInfo"]["name"], "bob");
    }
    let answer = FakeMcpClient::start(&[]).initialize("2030-01-01");
    assert_eq!(answer["result"]["protocolVersion"], "2025-11-25");
}

#[test]
fn a_legacy_session_serves_only_after_it_is_initialized() {
    let mut client = FakeMcpClient::start(&["--era", "legacy"]);
    assert_eq!(client.request("ping", json!({}))["result"], json!({}));
    assert_eq!(client.request("tools/list", json!({}))["error"]["code"], -32600);
    client.request("initialize", json!({"protocolVersion": "2025-06-18"}));
    assert_eq!(client.request("tools/list", json!({}))["error"]["code"], -32600);
    client.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    let listed = client.request("tools/list", json!({}));
    assert_eq!(listed["result"]["tools"][0]["name"], "echo");
    assert!(listed["result"].get("resultType").is_none());
    assert!(listed["result"].get("ttlMs").is_none());
}

#[test]
fn a_modern_client_needs_no_handshake_but_its_meta() {
    for era in ["modern", "both"] {
        let mut client = FakeMcpClient::start(&["--era", era, "--name", "bob"]);
        let found = client.request("server/discover", modern_params(json!({})));
        assert_eq!(found["result"]["supportedVersions"], json!(["2026-07-28"]));
        assert_eq!(found["result"]["resultType"], "complete");
        assert_eq!(found["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "bob");

        let answer =
            client.request("tools/call", modern_params(json!({"name": "echo", "arguments": {"a": 1}})));
        assert_eq!(answer["result"]["resultType"], "complete");
        assert_eq!(answer["result"]["structuredContent"], json!({"a": 1}));

        assert_eq!(client.request("tools/list", json!({}))["error"]["code"], -32602);
        let half = json!({"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}});
        assert_eq!(client.request("tools/list", half)["error"]["code"], -32602);
        assert_eq!(client.request("ping", modern_params(json!({})))["error"]["code"], -32601);
        assert_eq!(client.request("initialize", modern_params(json!({})))["error"]["code"], -32601);
        assert_eq!(client.request("subscriptions/listen", modern_params(json!({})))["error"]["code"], -32601);
    }
}

#[test]
fn an_unsupported_version_is_refused_with_what_is_supported() {
    let mut client = FakeMcpClient::start(&[]);
    let mut params = modern_params(json!({}));
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2031-01-01");
    let refused = client.request("tools/list", params);
    assert_eq!(refused["error"]["code"], -32022);
    assert_eq!(refused["error"]["data"], json!({"supported": ["2026-07-28"], "requested": "2031-01-01"}));
}

#[test]
fn both_eras_are_served_over_one_pipe() {
    let mut client = FakeMcpClient::legacy(&[]);
    let legacy = client.call("pid", json!({}));
    let modern = client.request("tools/call", modern_params(json!({"name": "pid"})));
    assert!(legacy["result"].get("resultType").is_none());
    assert_eq!(modern["result"]["resultType"], "complete");
    assert_eq!(text_of(&legacy), text_of(&modern));
}

#[test]
fn a_legacy_server_does_not_know_the_probe() {
    let mut client = FakeMcpClient::start(&["--era", "legacy"]);
    assert_eq!(client.request("server/discover", modern_params(json!({})))["error"]["code"], -32601);
}

#[test]
fn a_silent_server_ignores_the_probe_and_answers_initialize() {
    let mut client = FakeMcpClient::start(&["--era", "silent-probe"]);
    client.send_request("server/discover", modern_params(json!({})));
    let answer = client.initialize("2025-11-25");
    assert_eq!(answer["result"]["protocolVersion"], "2025-11-25");
    assert_eq!(client.request("server/discover", modern_params(json!({})))["error"]["code"], -32601);
}

#[test]
fn a_hanging_handshake_is_never_answered() {
    let mut client = FakeMcpClient::start(&["--hang-at-start"]);
    client.send_request("server/discover", modern_params(json!({})));
    client.send_request("initialize", json!({"protocolVersion": "2025-11-25"}));
    assert_eq!(client.request("ping", json!({}))["result"], json!({}));
}

#[test]
fn a_failing_handshake_is_an_error_in_both_eras() {
    let mut client = FakeMcpClient::start(&["--handshake-error"]);
    assert_eq!(client.request("server/discover", modern_params(json!({})))["error"]["code"], -32603);
    assert_eq!(client.request("initialize", json!({}))["error"]["code"], -32603);
}

#[test]
fn a_bad_version_is_offered_in_both_eras() {
    let mut client = FakeMcpClient::start(&["--bad-version"]);
    let found = client.request("server/discover", modern_params(json!({})));
    assert_eq!(found["result"]["supportedVersions"], json!(["1999-01-01"]));
    assert_eq!(client.request("tools/list", modern_params(json!({})))["error"]["code"], -32022);
    assert_eq!(client.initialize("2025-11-25")["result"]["protocolVersion"], "1999-01-01");
}

#[test]
fn what_is_not_json_is_answered_with_a_parse_error_and_blank_lines_are_skipped() {
    let mut client = FakeMcpClient::legacy(&[]);
    client.send("");
    client.send("{half");
    let refused = client.read();
    assert_eq!(refused["error"]["code"], -32700);
    assert!(refused["id"].is_null());
    assert_eq!(client.request("no/such", json!({}))["error"]["code"], -32601);
}

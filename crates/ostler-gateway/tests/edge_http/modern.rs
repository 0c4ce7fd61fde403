//! Modern requests.

use crate::world::{Request, World};

#[tokio::test]
async fn a_request_is_answered_with_one_json_object() {
    let world = World::new().await;
    let response = world.send(Request::modern("tools/list", "1")).await;
    assert_eq!((response.status, response.header("content-type")), (200, Some("application/json")));
    assert_eq!(response.json()["result"]["tools"], serde_json::json!([]));
    assert_eq!(response.header("mcp-session-id"), None);
}

#[tokio::test]
async fn ids_come_back_as_they_were_written() {
    let world = World::new().await;
    for id in ["9223372036854775808", "0", "-1", r#""""#, r#""\u0061""#] {
        let response = world.send(Request::modern("tools/list", id)).await;
        assert!(response.body.contains(&format!(r#""id":{id},"#)), "{id}: {response:?}");
    }
}

#[tokio::test]
async fn methods_that_do_not_exist_are_not_found() {
    let world = World::new().await;
    for method in ["initialize", "ping", "logging/setLevel", "resources/subscribe", "unknown/method"] {
        let response = world.send(Request::modern(method, "500")).await;
        assert_eq!((response.status, response.code()), (404, -32601), "{method}");
        assert_eq!(response.json()["id"], 500);
    }
}

#[tokio::test]
async fn headers_must_be_there_and_agree() {
    let world = World::new().await;
    let good = Request::modern("tools/list", "1");
    let bad = [
        good.clone().with("Mcp-Method", "prompts/list"),
        good.clone().with("Mcp-Method", "TOOLS/LIST"),
        good.clone().without("Mcp-Method"),
        good.clone().without("MCP-Protocol-Version"),
        good.clone().with("MCP-Protocol-Version", "2025-11-25"),
    ];
    for request in bad {
        let response = world.send(request).await;
        assert_eq!((response.status, response.code()), (400, -32020), "{response:?}");
    }
    assert_eq!(world.send(good.with("mcp-METHOD", "tools/list")).await.status, 200);
}

fn call(name: &str) -> Request {
    let meta = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
    Request::post(format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"{name}","_meta":{meta}}}}}"#
    ))
    .with("MCP-Protocol-Version", "2026-07-28")
    .with("Mcp-Method", "tools/call")
}

#[tokio::test]
async fn the_name_in_the_header_is_the_one_in_the_body() {
    let world = World::new().await;
    for (name, header, is_equal) in [
        ("echo", "echo", true),
        ("echo", "  echo  ", true),
        ("echo", "other", false),
        ("echo", "", false),
        ("écho", "=?base64?w6ljaG8=?=", true),
        ("écho", "=?base64?w6ljaG?=", false),
    ] {
        let response = world.send(call(name).with("Mcp-Name", header)).await;
        let is_refused = response.status == 400 && response.code() == -32020;
        assert_eq!(is_refused, !is_equal, "{name} {header:?}: {response:?}");
    }
}

#[tokio::test]
async fn what_a_request_must_say_of_itself_is_missed() {
    let world = World::new().await;
    let version = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28""#;
    for params in [
        "{}",
        r#"{"_meta":{"io.modelcontextprotocol/clientCapabilities":{}}}"#,
        &format!(r#"{{"_meta":{{{version}}}}}"#),
    ] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":3,"method":"server/discover","params":{params}}}"#);
        let request = Request::post(body)
            .with("MCP-Protocol-Version", "2026-07-28")
            .with("Mcp-Method", "server/discover");
        let response = world.send(request).await;
        assert_eq!((response.status, response.code()), (400, -32602), "{params}");
        assert_eq!(response.json()["id"], 3);
    }
}

#[tokio::test]
async fn another_version_is_answered_with_ours() {
    let world = World::new().await;
    let meta = r#"{"io.modelcontextprotocol/protocolVersion":"v999.0.0","io.modelcontextprotocol/clientCapabilities":{}}"#;
    let body =
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{{"_meta":{meta}}}}}"#);
    let request = Request::post(body).with("Mcp-Method", "server/discover");
    let response = world.send(request.clone().with("MCP-Protocol-Version", "v999.0.0")).await;
    assert_eq!((response.status, response.code()), (400, -32022));
    let data = serde_json::json!({ "supported": ["2026-07-28"], "requested": "v999.0.0" });
    assert_eq!(response.json()["error"]["data"], data);
    let response = world.send(request.with("MCP-Protocol-Version", "2026-07-28")).await;
    assert_eq!((response.status, response.code()), (400, -32020));
}

#[tokio::test]
async fn what_is_no_message_is_refused_by_name() {
    let world = World::new().await;
    for (body, code) in [
        ("", -32700),
        ("{", -32700),
        ("[]", -32600),
        ("17", -32600),
        (r#"{"jsonrpc":"2.0","id":null,"method":"a"}"#, -32600),
        (r#"{"jsonrpc":"1.0","id":1,"method":"a"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"a"}"#, -32600),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":"a","params":[1]}"#, -32602),
    ] {
        let response = world.send(Request::post(body)).await;
        assert_eq!((response.status, response.code()), (400, code), "{body}");
    }
}

#[tokio::test]
async fn a_notification_is_accepted() {
    let world = World::new().await;
    let request = Request::post(r#"{"jsonrpc":"2.0","method":"notifications/whatever"}"#)
        .with("MCP-Protocol-Version", "2026-07-28");
    let response = world.send(request).await;
    assert_eq!((response.status, response.body.as_str()), (202, ""));
}

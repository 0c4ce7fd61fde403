//! Modern MCP client over HTTP, one connection for each request.

use serde_json::{Value, json};

use crate::http;

/// Sends a request to all servers, and returns the whole answer.
pub(crate) fn ask(port: u16, method: &str, params: Value) -> Value {
    ask_with(port, method, params, &[]).json()
}

/// Sends a request with further headers, and returns the answer with its status.
pub(crate) fn ask_with(port: u16, method: &str, params: Value, further: &[&str]) -> http::Answer {
    let (headers, body) = request(method, params);
    let headers: Vec<&str> = headers.iter().map(String::as_str).chain(further.iter().copied()).collect();
    http::ask(port, "POST /mcp", &headers, &body)
}

/// Returns header lines and the body of a request.
pub(crate) fn request(method: &str, mut params: Value) -> (Vec<String>, String) {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    });
    let mut headers = vec![
        "Content-Type: application/json".to_owned(),
        "Accept: application/json, text/event-stream".to_owned(),
        "MCP-Protocol-Version: 2026-07-28".to_owned(),
        format!("Mcp-Method: {method}"),
    ];
    if let Some(name) = params["name"].as_str() {
        headers.push(format!("Mcp-Name: {name}"));
    }
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    (headers, body.to_string())
}

/// Calls a tool of any server.
pub(crate) fn call(port: u16, tool: &str, arguments: Value) -> Value {
    ask(port, "tools/call", json!({"name": tool, "arguments": arguments}))
}

/// Calls a tool again with the answer to its question.
pub(crate) fn answer(port: u16, tool: &str, asked: &Value) -> Value {
    let result = &asked["result"];
    assert_eq!(result["resultType"], "input_required", "{asked}");
    let keys = result["inputRequests"].as_object().unwrap().keys();
    let responses: serde_json::Map<_, _> =
        keys.map(|key| (key.clone(), json!({"action": "accept", "content": {"ok": true}}))).collect();
    let state = &result["requestState"];
    let params = json!({"name": tool, "arguments": {}, "inputResponses": responses, "requestState": state});
    ask(port, "tools/call", params)
}

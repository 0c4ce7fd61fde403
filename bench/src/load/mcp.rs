//! Requests of MCP clients, as bytes for a connection.

const META: &str = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

/// Returns a modern call of a tool.
pub(crate) fn call(server: &str, tool: &str, arguments: &str) -> Vec<u8> {
    let name = format!("{server}__{tool}");
    let params = format!(r#"{{"name":"{name}","arguments":{arguments},"_meta":{META}}}"#);
    modern("tools/call", &format!("Mcp-Name: {name}\r\n"), &params)
}

/// Returns a modern request to listen for changes.
pub(crate) fn listen() -> Vec<u8> {
    let params = format!(r#"{{"notifications":{{"toolsListChanged":true}},"_meta":{META}}}"#);
    modern("subscriptions/listen", "", &params)
}

/// Returns a modern request for the first page of all tools.
pub(crate) fn list() -> Vec<u8> {
    modern("tools/list", "", &format!(r#"{{"_meta":{META}}}"#))
}

/// Returns a request to the admin API.
pub(crate) fn admin(path: &str, token: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n").into_bytes()
}

fn modern(method: &str, headers: &str, params: &str) -> Vec<u8> {
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
    let headers = format!("MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: {method}\r\n{headers}");
    post(&headers, &body)
}

/// Returns the `initialize` of a common client.
pub(crate) fn initialize() -> Vec<u8> {
    post(
        "",
        r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{"roots":{"listChanged":true},"sampling":{},"elicitation":{}},"clientInfo":{"name":"claude-code","version":"1.0.72","title":"Claude Code"}}}"#,
    )
}

/// Returns the request for the stream of a legacy session.
pub(crate) fn stream(session: &str) -> Vec<u8> {
    format!("GET /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\nMcp-Session-Id: {session}\r\n\r\n")
        .into_bytes()
}

fn post(headers: &str, body: &str) -> Vec<u8> {
    format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n{headers}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

//! Headers of modern requests.

use std::sync::atomic::{AtomicBool, Ordering};

use ostler_host::{Request, ServerSpec};
use ostler_wire::Params;
use serde_json::{Value, json};

use crate::fixture::{HttpFixture, code, spec, spec_with};
use crate::scripted_endpoint::{ScriptedEndpoint, modern};

fn annotated(header: &str) -> Value {
    json!({"name": "route", "inputSchema": {"type": "object", "properties": {
        "region": {"type": "string", "x-mcp-header": header},
        "priority": {"type": "integer", "x-mcp-header": "Priority"},
        "deep": {"type": "object", "properties": {"on": {"type": "boolean", "x-mcp-header": "On"}}},
        "plain": {"type": "string"},
    }}})
}

#[tokio::test(flavor = "multi_thread")]
async fn version_method_and_name_are_in_the_headers() {
    let remote = ScriptedEndpoint::start(modern(|got| {
        (got.method() == "resources/read").then(|| got.result(json!({"contents": []})))
    }));
    let stage = HttpFixture::connected_to(&remote).await;
    stage.text("größe").await;
    stage
        .host
        .send_to("remote", Request::new(&stage.me, "resources/read", Params::resource_read("file:///ä")))
        .await
        .unwrap();
    let got = remote.requests();
    for got in &got {
        assert_eq!(got.header("mcp-protocol-version"), Some("2026-07-28"));
        assert_eq!(got.header("mcp-method"), Some(got.method()));
        let meta = &got.body["params"]["_meta"];
        assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
        assert_eq!(meta["io.modelcontextprotocol/clientInfo"]["name"], "ostler");
    }
    let names: Vec<_> = got.iter().map(|got| got.header("mcp-name")).collect();
    assert_eq!(names, [None, None, Some("=?base64?Z3LDtsOfZQ==?="), Some("=?base64?ZmlsZTovLy/DpA==?=")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn marked_arguments_are_in_the_headers() {
    let remote = ScriptedEndpoint::start(modern(|got| match got.method() {
        "tools/list" => Some(got.result(json!({"tools": [annotated("Region")]}))),
        _ => None,
    }));
    let stage = HttpFixture::with_server(ServerSpec { validate: false, ..spec(&remote.url()) }).await;
    let arguments = json!({"region": "Köln", "priority": 42, "deep": {"on": true}, "plain": "no"});
    stage.call_with("route", arguments).await.unwrap();
    stage.call_with("route", json!({"region": null, "priority": 1})).await.unwrap();
    let calls = remote.requests_of("tools/call");
    assert_eq!(calls[0].header("mcp-param-region"), Some("=?base64?S8O2bG4=?="));
    assert_eq!(calls[0].header("mcp-param-priority"), Some("42"));
    assert_eq!(calls[0].header("mcp-param-on"), Some("true"));
    assert_eq!(calls[0].header("mcp-param-plain"), None);
    assert_eq!(calls[1].header("mcp-param-region"), None);
    assert_eq!(calls[1].header("mcp-param-on"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_that_are_refused_are_looked_up_again_once() {
    let has_changed = AtomicBool::new(false);
    let remote = ScriptedEndpoint::start(modern(move |got| match got.method() {
        "tools/list" => {
            let name = if has_changed.swap(true, Ordering::SeqCst) { "Zone" } else { "Region" };
            Some(got.result(json!({"ttlMs": 600_000, "tools": [annotated(name)]})))
        }
        "tools/call" if got.header("mcp-param-zone").is_none() => Some(got.error(400, -32020)),
        _ => None,
    }));
    let stage = HttpFixture::connected_to(&remote).await;
    for _ in 0..3 {
        let answer = stage.call_with("route", json!({"region": "eu"})).await.unwrap();
        assert_eq!(answer.text(), "route");
    }
    assert_eq!(remote.calls(), 4, "one refusal in all");
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_that_stay_refused_are_an_error_of_the_server() {
    let remote = ScriptedEndpoint::start(modern(|got| got.is_call().then(|| got.error(400, -32020))));
    let stage = HttpFixture::connected_to(&remote).await;
    assert_eq!(stage.call("echo").await.unwrap_err().rpc_code(), -32020);
    assert_eq!(remote.calls(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_with_invalid_marks_does_not_exist() {
    let remote = ScriptedEndpoint::start(modern(|got| match got.method() {
        "tools/list" => {
            let bad = json!({"name": "bad", "inputSchema": {"type": "object", "properties": {
                "x": {"type": "number", "x-mcp-header": "X"}}}});
            Some(got.result(json!({"tools": [bad, annotated("Region")]})))
        }
        _ => None,
    }));
    let stage = HttpFixture::connected_to(&remote).await;
    let tools = stage.host.tools(&stage.me, "remote").await.unwrap();
    assert_eq!(tools.iter().map(|tool| tool.tool.name.as_str()).collect::<Vec<_>>(), ["route"]);
    assert_eq!(code(&stage.call("bad").await), "unknown-tool");
    assert_eq!(remote.calls(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_says_of_other_arguments_is_passed_on() {
    let remote = ScriptedEndpoint::start(modern(|got| match got.method() {
        "tools/list" => Some(got.result(json!({"tools": [annotated("Region")]}))),
        _ => None,
    }));
    let stage = HttpFixture::with_server(spec_with(&remote.url(), &[("Mcp-Param-Tenant", "ours")])).await;
    let said = [
        ("mcp-param-new", "=?base64?S8O2bG4=?="),
        ("Mcp-Param-Region", "forged"),
        ("Mcp-Param-On", "true"),
        ("Mcp-Param-Tenant", "forged"),
        ("Mcp-Param-Broken\n", "x"),
        ("Mcp-Param-Torn", "a\r\nb: c"),
        ("Authorization", "Bearer theirs"),
        ("Mcp-Name", "forged"),
        ("Mcp-Parä", "x"),
    ];
    let said = said.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let arguments = json!({"region": "west", "new": "x"}).into();
    let request = Request::tool_call(&stage.me, "route", arguments).unwrap();
    stage.host.send_to("remote", request.with_headers(said)).await.unwrap();
    let call = &remote.requests_of("tools/call")[0];
    assert_eq!(call.header("mcp-param-new"), Some("=?base64?S8O2bG4=?="));
    assert_eq!(call.header("mcp-param-region"), Some("west"));
    assert_eq!(call.header("mcp-param-on"), None, "it is marked, and the argument is not there");
    assert_eq!(call.header("mcp-param-tenant"), Some("ours"), "the operator's counts");
    assert_eq!(call.header("mcp-name"), Some("route"));
    let others = call.headers.keys().filter(|name| name.as_str().starts_with("mcp-par")).count();
    assert_eq!((others, call.header("authorization")), (3, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_of_a_clients_headers_is_passed_on_than_fits() {
    let remote = ScriptedEndpoint::start(modern(|_| None));
    let stage = HttpFixture::connected_to(&remote).await;
    let long = ("Mcp-Param-Long".to_owned(), "x".repeat((8 << 10) + 1));
    let many = (0..100).map(|n| (format!("Mcp-Param-{n}"), n.to_string()));
    let request = stage.request("echo").with_headers(std::iter::once(long).chain(many).collect());
    stage.host.send_to("remote", request).await.unwrap();
    let call = &remote.requests_of("tools/call")[0];
    let passed = call.headers.keys().filter(|name| name.as_str().starts_with("mcp-param-")).count();
    assert_eq!((passed, call.header("mcp-param-63"), call.header("mcp-param-long")), (64, Some("63"), None));
}

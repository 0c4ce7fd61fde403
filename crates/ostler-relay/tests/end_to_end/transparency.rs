//! Transparency: an agent reads, byte for byte, what the host's own clients read.

use ostler_testkit::{Script, ScriptedReply, TestHost};
use ostler_wire::Era;
use serde_json::{Value, json};

use crate::pair::RelayPair;

/// Returns a result that re-encoding would change: an image, nested structure, numbers that no type
/// holds, unsorted keys.
const RICH: &str = r#"{"zz": 1.50, "content":[{"type":"image","data":"aGk=","mimeType":"image/png"},{"type":"text","text":"\u00e9\u0000"}],"structuredContent":{"b":123456789012345678901234567890,"a":[1e400,-0]},"_meta":{"x/y":{}},"later":[ ]}"#;

fn script() -> Script {
    let prompts = json!({"prompts": [{"name": "p", "description": "d", "later": 1e30}]}).to_string();
    let resources = json!({"resources": [{"uri": "file:///1", "name": "one"}]}).to_string();
    let templates = json!({"resourceTemplates": [{"name": "t", "uriTemplate": "item://{id}"}]}).to_string();
    Script::new()
        .capabilities(r#"{"tools":{},"prompts":{},"resources":{},"completions":{}}"#)
        .definition(json!({"name": "rich", "inputSchema": {"type": "object"}, "later": {"x": [1]}}))
        .on("rich", |_| ScriptedReply::result(RICH))
        .tool("echo")
        .tool_replying("large", ScriptedReply::text(&"x".repeat(3 << 20)))
        .tool_replying("fails", ScriptedReply::error(-32050, "no, and \u{e9}"))
        .tool_replying("wrong", ScriptedReply::tool_error("it did not work"))
        .tool_replying("garbled", ScriptedReply::malformed())
        .tool_replying("crashes", ScriptedReply::crash())
        .on("prompts/list", move |_| ScriptedReply::result(prompts.clone()))
        .on("prompts/get", |_| ScriptedReply::result(r#"{"messages":[],"later":1.0}"#))
        .on("resources/list", move |_| ScriptedReply::result(resources.clone()))
        .on("resources/templates/list", move |_| ScriptedReply::result(templates.clone()))
        .on("resources/read", |asked| match asked.name.as_deref() {
            Some("file:///1") => ScriptedReply::result(r#"{"contents":[{"uri":"file:///1","blob":"aGk="}]}"#),
            _ => ScriptedReply::error(-32002, "Resource not found"),
        })
        .on("completion/complete", |_| ScriptedReply::result(r#"{"completion":{"values":["x"],"total":1}}"#))
}

fn requests() -> Vec<(&'static str, Value)> {
    let complete = |reference: Value| json!({"ref": reference, "argument": {"name": "id", "value": "1"}});
    vec![
        ("tools/list", json!({})),
        ("tools/call", json!({"name": "a__rich", "arguments": {}})),
        ("tools/call", json!({"name": "a__echo", "arguments": {"x": [1, {"y": null}]}})),
        ("tools/call", json!({"name": "a__large", "arguments": {}})),
        ("tools/call", json!({"name": "a__fails"})),
        ("tools/call", json!({"name": "a__wrong"})),
        ("tools/call", json!({"name": "a__garbled"})),
        ("tools/call", json!({"name": "a__missing"})),
        ("tools/call", json!({"name": "b__echo"})),
        ("prompts/list", json!({})),
        ("prompts/get", json!({"name": "a__p", "arguments": {"x": "1"}})),
        ("prompts/get", json!({"name": "a__q"})),
        ("resources/list", json!({})),
        ("resources/templates/list", json!({})),
        ("resources/read", json!({"uri": "file:///1"})),
        ("resources/read", json!({"uri": "item://9"})),
        ("resources/read", json!({"uri": "nowhere:1"})),
        ("completion/complete", complete(json!({"type": "ref/prompt", "name": "a__p"}))),
        ("completion/complete", complete(json!({"type": "ref/resource", "uri": "item://{id}"}))),
        ("tools/call", json!({"name": "a__crashes"})),
    ]
}

async fn compare(agents: Era, script: Script) {
    let pair = RelayPair::open(TestHost::new().server("a", script)).await;
    let (mut agent, mut client) = (pair.agent(agents, json!({})).await, pair.client(agents, json!({})).await);
    for (method, params) in requests() {
        let (agent_line, client_line) = (
            agent.send_request(method, params.clone()).await,
            client.send_request(method, params.clone()).await,
        );
        let (agent_line, client_line) =
            (agent.line_for(agent_line).await, client.line_for(client_line).await);
        let short = |line: &str| line.chars().take(600).collect::<String>();
        assert!(
            agent_line == client_line,
            "{method} {params}\nagent:  {}\nclient: {}",
            short(&agent_line),
            short(&client_line)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_modern_agent_reads_what_a_legacy_server_says() {
    compare(Era::Modern, script()).await;
}

#[tokio::test(start_paused = true)]
async fn a_modern_agent_reads_what_a_modern_server_says() {
    compare(Era::Modern, script().modern()).await;
}

#[tokio::test(start_paused = true)]
async fn a_legacy_agent_reads_what_a_legacy_server_says() {
    compare(Era::Legacy, script()).await;
}

#[tokio::test(start_paused = true)]
async fn a_legacy_agent_reads_what_a_modern_server_says() {
    compare(Era::Legacy, script().modern()).await;
}

#[tokio::test(start_paused = true)]
async fn the_result_of_a_tool_passes_byte_for_byte() {
    let pair = RelayPair::open(TestHost::new().server("a", script())).await;
    let mut agent = pair.agent(Era::Modern, json!({})).await;
    let id = agent.send_request("tools/call", json!({"name": "a__rich"})).await;
    let line = agent.line_for(id).await;
    assert!(line.contains(r#""b":123456789012345678901234567890,"a":[1e400,-0]"#), "{line}");
    assert!(line.contains(r#"{"type":"image","data":"aGk=","mimeType":"image/png"}"#), "{line}");
    assert!(line.contains(r#""zz": 1.50"#), "{line}");
}

#[tokio::test(start_paused = true)]
async fn arguments_reach_the_server_byte_for_byte() {
    let pair = RelayPair::open(TestHost::new().server("a", script())).await;
    let (caller, host) = (ostler_host::Caller::local(), pair.worker_gateway.host().clone());
    pair.agent(Era::Modern, json!({})).await.request("tools/list", json!({})).await;
    let text = r#"{ "n" : 123456789012345678901234567890, "b":1, "a":[1e400] }"#;
    host.call(&caller, "a", "echo", ostler_host::CallArguments::raw(text)).await.unwrap();
    assert_eq!(pair.test_host.server("a").requests_for("echo")[0].arguments.as_deref(), Some(text));
}

//! Invalid arguments: reported as a tool result, which models see.

use ostler_gateway::Scope;
use ostler_host::Caller;
use ostler_testkit::{Script, TestHost};
use ostler_wire::Era;
use serde_json::json;

use crate::client::{Client, gateway, server_scope};

#[tokio::test(start_paused = true)]
async fn wrong_arguments_are_a_result_with_is_error_in_both_eras_and_at_every_endpoint() {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let script = Script::new().definition(json!({"name": "t", "inputSchema": schema}));
    let world = TestHost::new().server("a", script).start().await;
    let gateway = gateway(&world, |_| {});
    for era in [Era::Legacy, Era::Modern] {
        for (face, name) in [(Scope::All, "a__t"), (server_scope("a"), "t")] {
            let mut client = Client::for_caller(Caller::local(), &gateway, face, era).await;
            let answer = client.call(name, json!({"n": "x"})).await;
            let result = &answer["result"];
            assert_eq!(result["isError"], true, "{answer}");
            let text = result["content"][0]["text"].as_str().unwrap();
            assert!(text.contains("/n: the value is not of type \"integer\""), "{text}");
            assert_eq!(result["_meta"]["dev.ostler/error"]["code"], "invalid-arguments");
            let kind = if era == Era::Modern { json!("complete") } else { json!(null) };
            assert_eq!(result["resultType"], kind, "{answer}");
            let answer = client.call(name, json!({"n": 1})).await;
            assert_ne!(answer["result"]["isError"], true, "{answer}");
        }
    }
    assert_eq!(world.server("a").count("t"), 4);
}

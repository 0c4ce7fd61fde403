//! Argument validation: arguments that do not fit a tool's schema never reach its server.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use ostler_core::config::PinMode;
use ostler_core::error::CallError;
use ostler_core::pins::{LockFile, LockedServer, Pin, PinPolicy};
use ostler_host::upstream::ServerNotification;
use ostler_host::{CallArguments, Caller, Request, ServerName, Verdict};
use ostler_testkit::{Script, ScriptedReply, TestHost, run_until_stalled};
use ostler_wire::Params;
use serde_json::{Value, json};

use crate::secs;

/// The tool `read`, which needs a `path` of this type.
fn read(kind: &str) -> Value {
    let schema = json!({"type": "object", "properties": {"path": {"type": kind}}, "required": ["path"]});
    json!({"name": "read", "inputSchema": schema})
}

fn script() -> Script {
    Script::new().definition(read("string"))
}

fn list(tools: &[Value]) -> ScriptedReply {
    ScriptedReply::result(json!({"tools": tools}).to_string())
}

/// Returns the outcome of a call: `ok`, or the code of its error.
async fn called(world: &TestHost, arguments: &str) -> &'static str {
    world.call_with("a", "read", arguments).await.map_or_else(|error| error.code(), |_| "ok")
}

#[tokio::test(start_paused = true)]
async fn wrong_arguments_fail_here_with_the_path_of_the_mistake() {
    let world = TestHost::new().server("a", script()).start().await;
    assert_eq!(called(&world, r#"{"path":"/x"}"#).await, "ok");
    let error = world.call_with("a", "read", r#"{"path":7}"#).await.unwrap_err();
    let CallError::InvalidArguments { mistakes, .. } = &error else { panic!("{error:?}") };
    assert_eq!(mistakes[0].path, "/path");
    assert_eq!(error.delivery(), None);
    // Absent arguments are an empty object.
    let error = world.call("a", "read").await.unwrap_err();
    assert!(error.cause().unwrap().contains("\"path\" is a required property"), "{error:?}");
    assert_eq!(world.server("a").count("read"), 1);
}

#[tokio::test(start_paused = true)]
async fn the_first_call_of_all_is_checked_too() {
    let world = TestHost::new().server("a", script()).start().await;
    assert_eq!(called(&world, "{}").await, "invalid-arguments");
    assert_eq!(world.server("a").count("read"), 0);
}

#[tokio::test(start_paused = true)]
async fn arguments_that_fit_pass_byte_for_byte() {
    let world = TestHost::new().server("a", script()).start().await;
    let odd = r#"{ "path" : "\u002fx", "n":123456789012345678901234567890, "e":1E400, "path":"/y" }"#;
    assert_eq!(called(&world, odd).await, "ok");
    assert_eq!(world.server("a").requests().last().unwrap().arguments.as_deref(), Some(odd));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_not_to_be_validated_gets_everything() {
    let world = TestHost::new().server_with("a", script(), |spec| spec.validate = false).start().await;
    assert_eq!(called(&world, r#"{"path":7}"#).await, "ok");
}

#[tokio::test(start_paused = true)]
async fn a_schema_that_judges_nothing_lets_everything_pass() {
    let schemas = [
        json!({"type": "objekt"}),
        json!({"$ref": "https://example.com/x.json"}),
        json!({"$ref": "#"}),
        json!("none"),
        Value::Null,
    ];
    for schema in schemas {
        let script = Script::new().definition(json!({"name": "read", "inputSchema": schema}));
        let world = TestHost::new().server("a", script).start().await;
        assert_eq!(called(&world, r#"{"path":7}"#).await, "ok", "{schema}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_call_costs_nothing_and_says_nothing_about_the_server() {
    let world = TestHost::new().server("a", script()).start().await;
    let records = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&records);
    world.host.set_recorder(Some(Arc::new(move |record| {
        let row = (record.outcome, record.delivery, record.detail.map(str::to_owned));
        seen.lock().unwrap().push(row);
    })));
    let ada = Caller::new("ada", "researcher").with_budget(1);
    for _ in 0..20 {
        assert_eq!(world.call_as(&ada, "a", "read").await.unwrap_err().code(), "invalid-arguments");
    }
    let rows = std::mem::take(&mut *records.lock().unwrap());
    assert_eq!(rows.len(), 20);
    let (outcome, delivery, detail) = &rows[0];
    assert_eq!((*outcome, *delivery), ("invalid-arguments", None));
    assert!(detail.as_deref().unwrap().contains("required property"), "{detail:?}");
    let status = world.status("a");
    assert_eq!((status.consecutive_failures, status.in_flight), (0, 0));
    // The budget is whole, and nothing holds the caller back.
    let path = CallArguments::raw(r#"{"path":"/x"}"#);
    world.host.call(&ada, "a", "read", path).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_call_is_not_refused_by_a_definition_that_the_server_no_longer_has() {
    let script = script()
        .on("tools/list", |asked| list(&[if asked.nth == 1 { read("string") } else { read("integer") }]));
    let world = TestHost::new().server("a", script).start().await;
    assert_eq!(called(&world, r#"{"path":7}"#).await, "invalid-arguments");
    world.server("a").emit(ServerNotification::ToolsChanged);
    assert_eq!(called(&world, r#"{"path":7}"#).await, "ok");
    assert_eq!(called(&world, r#"{"path":"/x"}"#).await, "invalid-arguments");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_announce_changes_is_asked_before_a_call_is_refused() {
    let script = script()
        .without_list_changed()
        .on("tools/list", |asked| list(&[if asked.nth == 1 { read("string") } else { read("integer") }]));
    let world = TestHost::new().server("a", script).start().await;
    assert_eq!(called(&world, r#"{"path":"/x"}"#).await, "ok");
    tokio::time::advance(secs(5)).await;
    assert_eq!(called(&world, r#"{"path":7}"#).await, "ok");
    assert_eq!(called(&world, r#"{"path":"/x"}"#).await, "invalid-arguments");
    // Invalid calls cause at most one list request per second.
    for _ in 0..50 {
        assert_eq!(called(&world, r#"{"path":"/x"}"#).await, "invalid-arguments");
    }
    assert_eq!(world.server("a").count("tools/list"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_can_not_be_asked_for_again_refuses_nothing() {
    let script = script().without_list_changed().on("tools/list", |asked| match asked.nth {
        1 => list(&[read("string")]),
        _ => ScriptedReply::error(-32603, "not now"),
    });
    let world = TestHost::new().server("a", script).start().await;
    assert_eq!(called(&world, r#"{"path":"/x"}"#).await, "ok");
    tokio::time::advance(secs(5)).await;
    assert_eq!(called(&world, r#"{"path":7}"#).await, "ok");
}

#[tokio::test(start_paused = true)]
async fn a_hidden_tool_answers_as_if_it_did_not_exist_whatever_the_arguments() {
    let world = TestHost::new().server("a", script()).start().await;
    assert_eq!(called(&world, r#"{"path":"/x"}"#).await, "ok");
    world.host.set_policy_hook(Some(Box::new(|_, _, tool| match tool {
        Some(_) => Verdict::Deny { reason: "hidden".into() },
        None => Verdict::Allow,
    })));
    let hidden = world.call_with("a", "read", r#"{"path":7}"#).await.unwrap_err();
    assert_eq!(hidden.code(), "unknown-tool");
    let missing = world.call_with("a", "nope", r#"{"path":7}"#).await.unwrap_err();
    assert_eq!(hidden.to_string(), missing.to_string().replace("nope", "read"));
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_nobody_approved_is_not_quoted() {
    let tools = [("read".to_owned(), Pin::from_definition(read("string").to_string().as_bytes()).unwrap())];
    let locked = LockedServer::with_tools("", tools.into());
    let pins = PinPolicy::new(
        PinMode::Enforce,
        LockFile { servers: [(ServerName::new("a").unwrap(), locked)].into() },
    );
    for (kind, arguments, expected) in [
        ("string", r#"{"path":"/x"}"#, "ok"),
        ("string", r#"{"path":7}"#, "invalid-arguments"),
        ("integer", r#"{"path":7}"#, "definition-changed"),
        ("integer", r#"{"path":"/x"}"#, "definition-changed"),
    ] {
        let script = Script::new().definition(read(kind));
        let world = TestHost::new()
            .options(|options| options.pins = Some(pins.clone()))
            .server("a", script)
            .start()
            .await;
        assert_eq!(called(&world, arguments).await, expected, "{kind} {arguments}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_goes_on_is_not_checked_again() {
    let world = TestHost::new().server("a", script()).start().await;
    assert_eq!(called(&world, r#"{"path":"/x"}"#).await, "ok");
    let text = r#"{"name":"read","arguments":{"path":7},"inputResponses":{}}"#;
    let params = Params::parse(Bytes::from_static(text.as_bytes())).unwrap();
    world.host.send_to("a", Request::new(&world.caller, "tools/call", params)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn large_schemas_and_arguments_are_checked_like_small_ones() {
    let mut definition = read("string");
    definition["inputSchema"]["description"] = json!("x".repeat(100_000));
    definition["inputSchema"]["properties"]["lines"] = json!({"items": {"type": "integer"}});
    let world = TestHost::new().server("a", Script::new().definition(definition)).start().await;
    let lines = |last: &str| format!(r#"{{"path":"/x","lines":[{}{last}]}}"#, "1,".repeat(50_000));
    assert_eq!(called(&world, &lines("1")).await, "ok");
    assert_eq!(called(&world, &lines("\"x\"")).await, "invalid-arguments");
    assert_eq!(world.server("a").count("read"), 1);
}

#[tokio::test(start_paused = true)]
async fn more_tools_than_schemas_are_kept_for_are_all_checked() {
    let tools: Vec<Value> = (0..1_300)
        .map(|n| {
            let mut tool = read("string");
            tool["name"] = json!(format!("read{n}"));
            tool
        })
        .collect();
    let script = tools.into_iter().fold(Script::new(), Script::definition);
    let world = TestHost::new().server("a", script).start().await;
    for _ in 0..2 {
        for n in 0..1_300 {
            let error = world.call("a", &format!("read{n}")).await.unwrap_err();
            assert_eq!(error.code(), "invalid-arguments");
        }
    }
    run_until_stalled().await;
}

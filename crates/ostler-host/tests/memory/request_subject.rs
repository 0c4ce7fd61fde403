//! The subject of a request: rules are asked about it, answers are cached under it, it is recorded and the server reads
//! it. It is the same item in all four, for every method and any other parameters.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use ostler_core::policy::Verdict;
use ostler_host::{Caller, Request};
use ostler_testkit::{ReceivedRequest, Script, ScriptedReply, TestHost};
use ostler_wire::Params;
use proptest::prelude::*;
use serde_json::{Value, json};

/// Members that name items, by the methods that read them.
const MEMBERS: [&str; 5] = ["name", "uri", "cursor", "taskId", "ref"];

/// Every method, and the member that names its item.
const METHODS: [(&str, &str); 17] = [
    ("tools/call", "name"),
    ("prompts/get", "name"),
    ("resources/read", "uri"),
    ("resources/subscribe", "uri"),
    ("resources/unsubscribe", "uri"),
    ("tools/list", "cursor"),
    ("prompts/list", "cursor"),
    ("resources/list", "cursor"),
    ("resources/templates/list", "cursor"),
    ("tasks/list", "cursor"),
    ("tasks/get", "taskId"),
    ("tasks/cancel", "taskId"),
    ("completion/complete", "ref"),
    ("server/discover", ""),
    ("ping", ""),
    ("logging/setLevel", ""),
    ("vendor/anything", "?"),
];

/// A server that echoes each request, and makes its answers public.
fn script() -> Script {
    let seen = |asked: &ReceivedRequest| {
        let list = |key: &str, names: [&str; 2]| json!(names.map(|name| json!({key: name, "name": name})));
        let mut result = json!({"ttlMs": 600_000, "cacheScope": "public", "seen": asked.params});
        let (member, list) = match asked.method.as_str() {
            "prompts/list" => ("prompts", list("name", ["a", "b"])),
            "resources/list" => ("resources", list("uri", ["t://a", "t://b"])),
            "resources/templates/list" => ("resourceTemplates", list("uriTemplate", ["t://a", "t://b"])),
            "tools/list" => ("tools", list("name", ["a", "b"])),
            _ => ("content", json!([])),
        };
        result[member] = list;
        ScriptedReply::result(result.to_string())
    };
    let capabilities = r#"{"tools":{},"prompts":{},"resources":{},"completions":{}}"#;
    let script = Script::new().capabilities(capabilities).tool("a").tool("b").on("a", seen).on("b", seen);
    METHODS
        .iter()
        .filter(|(method, _)| *method != "tools/call")
        .fold(script, |script, (method, _)| script.on(method, seen))
}

fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => prop::sample::select(&["\"a\"", "\"b\"", "\"t://a\"", "\"t://b\"", "\"\\u0061\""][..]).prop_map(str::to_owned),
        1 => prop::sample::select(&["null", "7", "[]", "{}", "\"\"", "\"a\\u0000\""][..]).prop_map(str::to_owned),
        2 => prop::sample::select(&[
            r#"{"type":"ref/prompt","name":"a"}"#,
            r#"{"type":"ref/resource","uri":"t://a"}"#,
            r#"{"type":"ref/prompt","name":"a","uri":"t://b"}"#,
            r#"{"type":"ref/resource","name":"b"}"#,
            r#"{"Name":"a","name":"b"}"#,
        ][..]).prop_map(str::to_owned),
    ]
}

/// Parameters with any members, in any order, some of them twice.
fn params() -> impl Strategy<Value = String> {
    let key = prop::sample::select(
        &[
            "name",
            "name",
            "uri",
            "uri",
            "cursor",
            "taskId",
            "ref",
            "arguments",
            "vendor",
            "n\\u0061me",
            "Uri",
            "name\\u0000",
        ][..],
    );
    prop::collection::vec((key, value()), 0..4).prop_map(|members| {
        let members: Vec<String> = members.iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
        format!("{{{}}}", members.join(","))
    })
}

/// Returns every part of a text that a server might take for the name of an item.
fn named(params: &str) -> Vec<String> {
    let params: Value = serde_json::from_str(params).unwrap();
    let texts = MEMBERS.iter().flat_map(|member| match &params[*member] {
        Value::Object(reference) => {
            reference.iter().filter(|(key, _)| *key != "type").map(|(_, value)| value.clone()).collect()
        }
        Value::Null => Vec::new(),
        value => vec![value.clone()],
    });
    texts.map(|text| text.as_str().map_or_else(|| text.to_string(), str::to_owned)).collect()
}

/// Subject that a rule is asked about, without the word for its kind.
fn bare(subject: &str) -> String {
    let prefixes = ["prompt:", "resource:", "method:"];
    prefixes.iter().find_map(|prefix| subject.strip_prefix(prefix)).unwrap_or(subject).to_owned()
}

async fn check(method: &str, own: &str, text: &str) -> Result<(), TestCaseError> {
    let Ok(params) = Params::parse(Bytes::copy_from_slice(text.as_bytes())) else { return Ok(()) };
    let world = TestHost::new().server("s", script()).start().await;
    let judged = Arc::new(Mutex::new(Vec::new()));
    let book = Arc::clone(&judged);
    world.host.set_policy_hook(Some(Box::new(move |caller, _, subject| {
        if caller.principal() == "ada" {
            book.lock().unwrap().extend(subject.map(str::to_owned));
        }
        Verdict::Allow
    })));
    let recorded = Arc::new(Mutex::new(Vec::new()));
    let book = Arc::clone(&recorded);
    world.host.set_recorder(Some(Arc::new(move |record| {
        book.lock().unwrap().push((record.principal.to_owned(), record.subject.to_owned()));
    })));

    let ada = Caller::new("ada", "local");
    let _ = world.host.send_to("s", Request::new(&ada, method, params)).await;
    let sent = world.server("s").requests_for(if method == "tools/call" { "" } else { method });
    let sent: Vec<ReceivedRequest> = match method {
        "tools/call" => {
            world.server("s").requests().into_iter().filter(|asked| asked.method == method).collect()
        }
        _ => sent,
    };
    // The host sends list requests of its own, too.
    let sent: Vec<String> = sent
        .into_iter()
        .map(|asked| asked.params)
        .filter(|params| own != "cursor" || named(params) == named(text))
        .collect();
    let judged = judged.lock().unwrap().clone();
    let recorded = recorded.lock().unwrap().clone();
    if own != "?" {
        for params in &sent {
            let names = named(params);
            prop_assert!(names.len() <= 1, "{method} {text} was sent");
            if !own.is_empty() && own != "cursor" && own != "taskId" {
                // A completion whose `ref` names nothing is authorized by its method.
                let judged_by = if names.is_empty() { vec![method.to_owned()] } else { names.clone() };
                prop_assert_eq!(judged.iter().map(|subject| bare(subject)).collect::<Vec<_>>(), judged_by);
            }
            if own == "name" || own == "uri" || own == "ref" {
                prop_assert_eq!(
                    &recorded,
                    &vec![("ada".to_owned(), names.first().cloned().unwrap_or_default())]
                );
            }
        }
    }
    // A request that is refused before any rule is asked is recorded too, and is never sent.
    let is_judged = |subject: &String| judged.iter().any(|judged| bare(judged) == *subject);
    let is_refused = |subject: &String| sent.is_empty() && judged.is_empty() && named(text).contains(subject);
    let is_fair = |subject: &String| is_judged(subject) || is_refused(subject);
    prop_assert!(recorded.iter().all(|(_, subject)| subject.is_empty() || is_fair(subject)));

    // Every other caller gets the answer to its own request.
    let bob = Caller::new("bob", "local");
    let plain = [
        ("tools/call", "name", "a"),
        ("prompts/get", "name", "a"),
        ("resources/read", "uri", "t://a"),
        ("resources/read", "uri", "t://b"),
        ("prompts/list", "", ""),
        ("resources/list", "", ""),
        ("server/discover", "", ""),
    ];
    for (method, member, name) in plain {
        let params = if member.is_empty() { json!({}) } else { json!({member: name}) }.to_string();
        let answer =
            world.host.send_to("s", Request::new(&bob, method, Params::parse(params.into()).unwrap())).await;
        let answer: Value = serde_json::from_slice(&answer.unwrap().body).unwrap();
        let seen = answer["seen"].as_str().unwrap();
        let expected: Vec<String> = (!name.is_empty()).then(|| name.to_owned()).into_iter().collect();
        prop_assert_eq!(named(seen), expected, "{} after {}", method, text);
        prop_assert!(!seen.contains("vendor"), "{} after {}", method, text);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn judged_kept_recorded_and_sent_are_one_item(
        (method, own) in prop::sample::select(&METHODS[..]), text in params(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(check(method, own, &text))?;
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_that_nothing_can_have_is_unknown_before_a_rule_is_asked() {
    let world = TestHost::new().server("s", script()).start().await;
    let asked = Arc::new(Mutex::new(Vec::new()));
    let book = Arc::clone(&asked);
    world.host.set_policy_hook(Some(Box::new(move |_, _, subject| {
        book.lock().unwrap().extend(subject.map(str::to_owned));
        Verdict::Allow
    })));
    let recorded = Arc::new(Mutex::new(Vec::new()));
    let book = Arc::clone(&recorded);
    world.host.set_recorder(Some(Arc::new(move |record| {
        book.lock().unwrap().push(record.outcome);
    })));
    let long = "n".repeat(1_025);
    let uri = format!("t://{}", "u".repeat(8 << 10));
    let table = [
        ("tools/call", json!({"name": long}), "unknown-tool"),
        ("tools/call", json!({"name": "a\u{7}"}), "unknown-tool"),
        ("prompts/get", json!({"name": long}), "unknown-prompt"),
        ("prompts/get", json!({"name": "a\u{9b}1m"}), "unknown-prompt"),
        ("resources/read", json!({"uri": uri}), "unknown-resource"),
        ("completion/complete", json!({"ref": {"type": "ref/prompt", "name": long}}), "unknown-prompt"),
        (&format!("vendor/{long}"), json!({}), "unknown-method"),
        ("vendor/a\nb", json!({}), "unknown-method"),
        ("initialize", json!({}), "unknown-method"),
        ("notifications/cancelled", json!({"requestId": 1}), "unknown-method"),
    ];
    for (method, params, code) in table {
        let request = Request::new(&world.caller, method, Params::parse(params.to_string().into()).unwrap());
        assert_eq!(world.host.send_to("s", request).await.unwrap_err().code(), code, "{method}");
        assert_eq!(recorded.lock().unwrap().pop(), Some(code), "{method}");
    }
    assert_eq!(*asked.lock().unwrap(), Vec::<String>::new());
    assert!(world.server("s").requests().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_member_that_only_the_server_knows_is_passed_on_and_never_shared() {
    let world = TestHost::new().server("s", script()).start().await;
    let read = async |params: &str| {
        let params = Params::parse(Bytes::copy_from_slice(params.as_bytes())).unwrap();
        let answer =
            world.host.send_to("s", Request::new(&world.caller, "resources/read", params)).await.unwrap();
        serde_json::from_slice::<Value>(&answer.body).unwrap()["seen"].as_str().unwrap().to_owned()
    };
    let odd = r#"{ "vendor" : {"deep": [1]}, "uri":"t://a"}"#;
    assert!(read(odd).await.contains(r#""vendor" : {"deep": [1]}"#));
    assert!(!read(r#"{"uri":"t://a"}"#).await.contains("vendor"));
    assert!(read(odd).await.contains("vendor"), "what was kept for another request is no answer to it");
}

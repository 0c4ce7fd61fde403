use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::era::ClientInfo;
use crate::message::Message;
use crate::meta::{MetaKey, SessionMeta};

fn params(text: &str) -> Params {
    Params::parse(Bytes::copy_from_slice(text.as_bytes())).unwrap()
}

fn session(capabilities: &str) -> SessionMeta {
    let client = ClientInfo { name: "ostler".into(), version: "0.1.0".into() };
    SessionMeta::modern("2026-07-28", capabilities, &client)
}

/// Returns the `params` text that is written, or "" if there is none.
fn sent(text: &str, meta: &RequestMeta<'_>) -> String {
    let mut out = Vec::new();
    write_request(&mut out, 17, "tools/call", &params(text), meta);
    let line = String::from_utf8(out).unwrap();
    let line = line.strip_suffix("}\n").unwrap();
    let rest = line.strip_prefix(r#"{"jsonrpc":"2.0","id":17,"method":"tools/call""#).unwrap();
    rest.strip_prefix(r#","params":"#).unwrap_or(rest).to_owned()
}

#[test]
fn params_pass_untouched_when_there_is_nothing_to_say() {
    let nothing = RequestMeta::default();
    assert_eq!(sent("{}", &nothing), "");
    for text in [r#"{ "n":1e400,"n":2 }"#, r#"{"_meta":{"a":1 , "a":2}}"#, r#"{"_meta":null}"#] {
        assert_eq!(sent(text, &nothing), text);
    }
}

#[test]
fn the_clients_progress_token_never_goes_upstream() {
    let nothing = RequestMeta::default();
    assert_eq!(sent(r#"{"_meta":{"progressToken":1}}"#, &nothing), r#"{"_meta":{}}"#);
    assert_eq!(
        sent(r#"{"x":1,"_meta":{"a":1 , "progressToken":"t" , "b" : [2] },"y":2}"#, &nothing),
        r#"{"x":1,"_meta":{"a":1,"b" : [2]},"y":2}"#
    );
    let ours = RequestMeta { progress_token: Some(9), ..RequestMeta::default() };
    assert_eq!(
        sent(r#"{"_meta":{"a":1,"progress\u0054oken":"t"}}"#, &ours),
        r#"{"_meta":{"progressToken":9,"a":1}}"#
    );
}

#[test]
fn meta_is_added_where_there_was_none() {
    let key = RequestMeta { idempotency_key: Some("k\"1"), ..RequestMeta::default() };
    let meta = r#""_meta":{"dev.ostler/idempotencyKey":"k\"1"}"#;
    assert_eq!(sent("{}", &key), format!("{{{meta}}}"));
    assert_eq!(sent("{ }", &key), format!("{{{meta} }}"));
    assert_eq!(sent(r#"{"name":"x"}"#, &key), format!(r#"{{{meta},"name":"x"}}"#));
    assert_eq!(sent(r#"{"_meta":null,"name":"x"}"#, &key), format!(r#"{{{meta},"name":"x"}}"#));
}

#[test]
fn a_modern_session_replaces_what_the_client_said_of_itself() {
    let session = session("{\n\"sampling\":{}}");
    let meta = RequestMeta {
        session: Some(&session),
        idempotency_key: Some("k"),
        progress_token: Some(3),
        is_legacy: false,
    };
    let text = r#"{"_meta":{"io.modelcontextprotocol/clientInfo":{"name":"evil"},"traceparent":"00-1",
        "dev.ostler/idempotencyKey":"old","io.modelcontextprotocol/logLevel":"debug",
        "io.modelcontextprotocol\/protocolVersion":"2025-01-01","progressToken":3,"v":{"progressToken":1}}}"#;
    assert_eq!(
        sent(text, &meta),
        concat!(
            r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
            r#""io.modelcontextprotocol/clientCapabilities":{ "sampling":{}},"#,
            r#""io.modelcontextprotocol/clientInfo":{"name":"ostler","version":"0.1.0"},"#,
            r#""dev.ostler/idempotencyKey":"k","progressToken":3,"#,
            r#""traceparent":"00-1","io.modelcontextprotocol/logLevel":"debug","v":{"progressToken":1}}}"#
        )
    );
}

#[test]
fn capabilities_that_are_no_object_claim_nothing() {
    for wrong in ["", "null", "[]", "{", "{}}"] {
        assert_eq!(session(wrong), session("{}"), "{wrong}");
    }
}

#[test]
fn a_pretty_printed_value_becomes_one_line() {
    assert_eq!(sent("{\r\n  \"a\": \"\\n\"\n}", &RequestMeta::default()), "{    \"a\": \"\\n\" }");
    let mut out = b"earlier\n".to_vec();
    write_result(&mut out, &RequestId::from(1), b"{\n}");
    write_notification(&mut out, "x", Some(b"[\n]"));
    write_error(&mut out, &RequestId::from(2), -32602, "a\nb", Some(b"{\n}"));
    let expected = concat!(
        "earlier\n",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{ }}\n",
        "{\"jsonrpc\":\"2.0\",\"method\":\"x\",\"params\":[ ]}\n",
        "{\"jsonrpc\":\"2.0\",\"id\":2,\"error\":{\"code\":-32602,\"message\":\"a\\nb\",\"data\":{ }}}\n",
    );
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

#[test]
fn a_cancellation_names_the_request() {
    let mut out = Vec::new();
    write_cancelled(&mut out, 17, "timed out");
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":17,\"reason\":\"timed out\"}}\n"
    );
}

#[test]
fn a_strange_method_name_stays_a_string() {
    let mut out = Vec::new();
    write_request(&mut out, 1, "a\"\n,", &Params::empty(), &RequestMeta::default());
    out.pop();
    let Message::Request { method, params: None, .. } = Message::parse(out.into()).unwrap() else {
        panic!("a request")
    };
    assert_eq!(method, "a\"\n,");
}

/// Generates JSON values of some depth.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 20, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map("[a-z,\"]{0,3}", inner, 0..4).prop_map(|map| json!(map)),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn only_the_entries_we_set_differ(
        mut object in prop::collection::hash_map("[a-z]{1,4}|name|arguments", value(), 0..4),
        meta in prop::option::of(prop::collection::hash_map(
            "[a-z]{1,3}|progressToken|traceparent|dev[.]ostler/idempotencyKey", value(), 0..5)),
        is_pretty: bool,
        key in prop::option::of("[ -~]{0,5}"),
        token in prop::option::of(any::<u64>()),
        is_modern: bool,
    ) {
        if let Some(meta) = &meta {
            object.insert("_meta".into(), json!(meta));
        }
        let before = json!(object);
        let text = if is_pretty { serde_json::to_string_pretty(&before) } else { serde_json::to_string(&before) };
        let session = session("{}");
        let ours = RequestMeta { session: is_modern.then_some(&session), idempotency_key: key.as_deref(), progress_token: token, is_legacy: false };
        let mut out = Vec::new();
        write_request(&mut out, 17, "tools/call", &params(&text.unwrap()), &ours);
        prop_assert_eq!(memchr::memchr(b'\n', &out), Some(out.len() - 1));

        let after: Value = serde_json::from_slice(&out).unwrap();
        let mut after = after.get("params").cloned().unwrap_or_else(|| json!({}));
        let mut entries = after["_meta"].as_object().cloned().unwrap_or_default();
        prop_assert_eq!(entries.get("progressToken").cloned(), token.map(Value::from));
        if let Some(key) = &key {
            prop_assert_eq!(&entries["dev.ostler/idempotencyKey"], key);
        }
        prop_assert_eq!(entries.contains_key(MetaKey::ProtocolVersion.name()), is_modern);
        let stays = |key: &MetaKey| matches!(key, MetaKey::Traceparent | MetaKey::RelatedTask);
        for taken in MetaKey::ALL.into_iter().filter(|taken| !stays(taken)) {
            if taken != MetaKey::IdempotencyKey || key.is_some() {
                entries.remove(taken.name());
            }
        }
        let mut kept = meta.clone().unwrap_or_default();
        kept.remove("progressToken");
        if key.is_some() {
            kept.remove("dev.ostler/idempotencyKey");
        }
        prop_assert_eq!(json!(entries), json!(kept));
        object.remove("_meta");
        if let Some(after) = after.as_object_mut() {
            after.remove("_meta");
        }
        prop_assert_eq!(after, json!(object));
    }
}

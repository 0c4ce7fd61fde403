use bytes::Bytes;
use serde_json::{Value, json};

use super::*;

const MODERN: &str = r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},
    "serverInfo":{"name":"s"},"instructions":"be kind"}"#;
const LEGACY: &str =
    r#"{"protocolVersion":"2025-06-18","capabilities":{"prompts":{}},"serverInfo":{"name":"l"}}"#;

/// A handshake and the server's side of it.
struct HandshakeDriver(Handshake);

impl HandshakeDriver {
    fn new(remembered: Option<Era>) -> HandshakeDriver {
        let client = ClientInfo { name: "ostler".into(), version: "0.1.0".into() };
        HandshakeDriver(Handshake::new(client, remembered, r#"{"roots":{}}"#))
    }

    fn receive(&mut self, text: &str) -> HandshakeStep {
        self.0.on_message(&Message::parse(Bytes::copy_from_slice(text.as_bytes())).unwrap())
    }

    /// Answers the last request with a result.
    fn receive_result(&mut self, result: &str) -> HandshakeStep {
        let id = self.0.last_id;
        self.receive(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#))
    }

    /// Answers the last request with an error.
    fn receive_error(&mut self, code: i64, data: Value) -> HandshakeStep {
        let id = self.0.last_id;
        self.receive(&json!({"id": id, "error": {"code": code, "message": "no", "data": data}}).to_string())
    }
}

/// Returns the request in a step.
fn sent_request(step: HandshakeStep) -> Value {
    let HandshakeStep::Send(bytes) = step else { panic!("{step:?}") };
    assert_eq!(bytes.last(), Some(&b'\n'));
    serde_json::from_slice(&bytes).unwrap()
}

fn sends_method(step: HandshakeStep, method: &str) -> bool {
    sent_request(step)["method"] == method
}

fn refused_step(method: &'static str, code: i64) -> HandshakeStep {
    HandshakeStep::Fail(HandshakeError::Refused { method, code, message: "no".into() })
}

#[test]
fn a_modern_server_is_open_after_its_discovery() {
    let mut driver = HandshakeDriver::new(None);
    assert_eq!(
        sent_request(driver.0.begin()),
        json!({"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {"roots": {}},
            "io.modelcontextprotocol/clientInfo": {"name": "ostler", "version": "0.1.0"},
        }}})
    );
    assert!(driver.0.is_awaiting_probe());
    let HandshakeStep::Done(info) = driver.receive_result(MODERN) else { panic!("a modern server info") };
    assert_eq!((info.era, info.version.as_str()), (Era::Modern, "2026-07-28"));
    assert!(info.has_capability("tools") && info.session_meta.is_some());
    assert_eq!(info.instructions.unwrap().text(), "be kind");
}

#[test]
fn a_legacy_server_refuses_the_probe_and_is_initialized() {
    for code in [-32601, -32602, -32600, -32000, -32002, 0] {
        for remembered in [None, Some(Era::Modern)] {
            let mut driver = HandshakeDriver::new(remembered);
            driver.0.begin();
            assert_eq!(
                sent_request(driver.receive_error(code, Value::Null)),
                json!({"jsonrpc": "2.0", "id": 2, "method": "initialize", "params": {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"roots": {}},
                    "clientInfo": {"name": "ostler", "version": "0.1.0"},
                }})
            );
            assert!(!driver.0.is_awaiting_probe());
            let HandshakeStep::SendThenDone(info, bytes) = driver.receive_result(LEGACY) else {
                panic!("a legacy server info")
            };
            assert_eq!((info.era, info.version.as_str()), (Era::Legacy, "2025-06-18"));
            assert_eq!(info.session_meta, None);
            assert_eq!(bytes, b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n");
        }
    }
}

#[test]
fn a_strange_result_of_the_probe_means_legacy() {
    for result in [
        "null",
        "{}",
        "[]",
        r#"{"supportedVersions":"2026-07-28"}"#,
        r#"{"supportedVersions":["2025-06-18"]}"#,
    ] {
        let mut driver = HandshakeDriver::new(None);
        driver.0.begin();
        assert!(sends_method(driver.receive_result(result), "initialize"), "{result}");
    }
}

#[test]
fn an_error_without_an_id_answers_the_probe() {
    let mut driver = HandshakeDriver::new(None);
    driver.0.begin();
    assert!(sends_method(
        driver.receive(r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600}}"#),
        "initialize"
    ));
}

#[test]
fn an_unsupported_version_is_negotiated_or_named() {
    let table = [
        (json!({"supported": ["2025-06-18", "2027-01-01"]}), None),
        (Value::Null, None),
        (json!({"supported": "2025-06-18"}), None),
        (json!({"supported": ["2027-01-01"]}), Some(vec!["2027-01-01".to_owned()])),
        (json!({"supported": []}), Some(vec![])),
    ];
    for (data, listed) in table {
        let mut driver = HandshakeDriver::new(None);
        driver.0.begin();
        let step = driver.receive_error(UNSUPPORTED_VERSION, data.clone());
        match listed {
            None => assert!(sends_method(step, "initialize"), "{data}"),
            Some(listed) => {
                assert_eq!(
                    step,
                    HandshakeStep::Fail(HandshakeError::UnsupportedVersion { supported: listed })
                )
            }
        }
    }
    let mut driver = HandshakeDriver::new(None);
    driver.0.begin();
    let HandshakeStep::Fail(HandshakeError::UnsupportedVersion { supported: listed }) =
        driver.receive_result(r#"{"supportedVersions":["2028-01-01"]}"#)
    else {
        panic!("unsupported")
    };
    assert_eq!(listed, ["2028-01-01"]);
}

#[test]
fn a_server_that_refuses_our_version_and_names_it_is_asked_once_more() {
    let mut driver = HandshakeDriver::new(None);
    driver.0.begin();
    let supported = json!({"supported": ["2026-07-28"]});
    assert!(sends_method(driver.receive_error(UNSUPPORTED_VERSION, supported.clone()), "server/discover"));
    let step = driver.receive_error(UNSUPPORTED_VERSION, supported);
    let listed = vec!["2026-07-28".to_owned()];
    assert_eq!(step, HandshakeStep::Fail(HandshakeError::UnsupportedVersion { supported: listed }));
}

#[test]
fn a_modern_refusal_is_not_taken_for_a_legacy_server() {
    for code in [HEADER_MISMATCH, MISSING_CAPABILITY] {
        let mut driver = HandshakeDriver::new(None);
        driver.0.begin();
        assert_eq!(driver.receive_error(code, Value::Null), refused_step("server/discover", code));
    }
}

#[test]
fn a_silent_probe_is_followed_by_initialize_and_either_may_be_answered() {
    let silent = || {
        let mut driver = HandshakeDriver::new(None);
        driver.0.begin();
        assert!(sends_method(driver.0.on_probe_timeout(), "initialize"));
        assert!(!driver.0.is_awaiting_probe());
        assert_eq!(driver.0.on_probe_timeout(), HandshakeStep::Wait);
        driver
    };
    assert!(matches!(silent().receive_result(LEGACY), HandshakeStep::SendThenDone(..)));
    assert!(matches!(silent().receive(&format!(r#"{{"id":1,"result":{MODERN}}}"#)), HandshakeStep::Done(_)));
    let refused = r#"{"id":1,"error":{"code":-32601}}"#;
    for late in [refused, r#"{"id":null,"error":{"code":-32600}}"#, r#"{"id":1,"result":{}}"#] {
        let mut driver = silent();
        assert_eq!(driver.receive(late), HandshakeStep::Wait, "{late}");
        assert!(matches!(driver.receive_result(LEGACY), HandshakeStep::SendThenDone(..)), "{late}");
    }
    assert_eq!(silent().0.on_closed(), HandshakeStep::Fail(HandshakeError::Closed));
}

#[test]
fn a_slow_modern_server_may_refuse_initialize_before_it_answers_the_probe() {
    let mut driver = HandshakeDriver::new(None);
    driver.0.begin();
    driver.0.on_probe_timeout();
    assert_eq!(driver.receive_error(METHOD_NOT_FOUND, Value::Null), HandshakeStep::Wait);
    assert!(matches!(driver.receive(&format!(r#"{{"id":1,"result":{MODERN}}}"#)), HandshakeStep::Done(_)));
    let mut driver = HandshakeDriver::new(None);
    driver.0.begin();
    driver.0.on_probe_timeout();
    driver.receive_error(METHOD_NOT_FOUND, Value::Null);
    assert_eq!(driver.0.on_closed(), refused_step("initialize", METHOD_NOT_FOUND));
}

#[test]
fn a_server_that_exits_at_the_probe_has_failed() {
    let mut driver = HandshakeDriver::new(None);
    driver.0.begin();
    assert_eq!(driver.0.on_closed(), HandshakeStep::Fail(HandshakeError::Closed));
}

#[test]
fn a_remembered_legacy_server_may_have_become_modern() {
    for code in [METHOD_NOT_FOUND, UNSUPPORTED_VERSION] {
        let mut driver = HandshakeDriver::new(Some(Era::Legacy));
        assert!(sends_method(driver.0.begin(), "initialize"));
        assert!(sends_method(driver.receive_error(code, Value::Null), "server/discover"));
        assert!(matches!(driver.receive_result(MODERN), HandshakeStep::Done(_)));
    }
}

#[test]
fn the_second_probe_is_the_last_word() {
    let mut ends: Vec<fn(&mut HandshakeDriver) -> HandshakeStep> = Vec::new();
    ends.push(|driver| driver.receive_error(-32601, Value::Null));
    ends.push(|driver| driver.receive_result("{}"));
    ends.push(|driver| driver.0.on_probe_timeout());
    ends.push(|driver| driver.0.on_closed());
    for end in ends {
        let mut driver = HandshakeDriver::new(Some(Era::Legacy));
        driver.0.begin();
        driver.receive_error(METHOD_NOT_FOUND, Value::Null);
        assert_eq!(end(&mut driver), refused_step("initialize", METHOD_NOT_FOUND));
        assert_eq!(driver.receive_result(MODERN), HandshakeStep::Wait);
    }
}

#[test]
fn a_refused_initialize_fails_after_an_answered_probe() {
    let mut driver = HandshakeDriver::new(None);
    driver.0.begin();
    driver.receive_error(METHOD_NOT_FOUND, Value::Null);
    assert_eq!(
        driver.receive_error(METHOD_NOT_FOUND, Value::Null),
        refused_step("initialize", METHOD_NOT_FOUND)
    );
    let mut driver = HandshakeDriver::new(Some(Era::Legacy));
    driver.0.begin();
    assert_eq!(driver.receive_error(-32603, Value::Null), refused_step("initialize", -32603));
}

#[test]
fn the_version_of_the_reply_is_checked() {
    for version in LEGACY_VERSIONS {
        let mut driver = HandshakeDriver::new(Some(Era::Legacy));
        driver.0.begin();
        let step = driver.receive_result(&format!(r#"{{"protocolVersion":"{version}"}}"#));
        assert!(
            matches!(step, HandshakeStep::SendThenDone(info, _) if info.version == version && info.capabilities == "{}")
        );
    }
    let mut driver = HandshakeDriver::new(Some(Era::Legacy));
    driver.0.begin();
    let step = driver.receive_result(r#"{"protocolVersion":"1999-01-01"}"#);
    assert_eq!(
        step,
        HandshakeStep::Fail(HandshakeError::UnsupportedVersion { supported: vec!["1999-01-01".into()] })
    );
    for strange in ["{}", "null", r#"{"protocolVersion":7}"#] {
        let mut driver = HandshakeDriver::new(Some(Era::Legacy));
        driver.0.begin();
        assert_eq!(
            driver.receive_result(strange),
            HandshakeStep::Fail(HandshakeError::InvalidResult { method: "initialize" })
        );
    }
}

#[test]
fn the_server_is_answered_while_it_is_being_asked() {
    let mut driver = HandshakeDriver::new(None);
    assert_eq!(driver.receive(r#"{"jsonrpc":"2.0","method":"notifications/message"}"#), HandshakeStep::Wait);
    driver.0.begin();
    // The server's id equals ours; the method tells the direction.
    assert_eq!(
        sent_request(driver.receive(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#)),
        json!({"jsonrpc": "2.0", "id": 1, "result": {}})
    );
    let refused = sent_request(driver.receive(r#"{"jsonrpc":"2.0","id":"r","method":"roots/list"}"#));
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!("r"), &json!(-32601)));
    assert_eq!(driver.receive(r#"{"jsonrpc":"2.0","method":"notifications/message"}"#), HandshakeStep::Wait);
    assert_eq!(driver.receive(r#"{"jsonrpc":"2.0","id":99,"result":{}}"#), HandshakeStep::Wait);
    assert!(matches!(driver.receive(&format!(r#"{{"id":"1","result":{MODERN}}}"#)), HandshakeStep::Done(_)));
    assert_eq!(driver.receive(r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#), HandshakeStep::Wait);
}

#[test]
fn a_late_answer_to_the_probe_is_no_answer_to_initialize() {
    let mut driver = HandshakeDriver::new(None);
    driver.0.begin();
    driver.receive_error(-32601, Value::Null);
    assert_eq!(driver.receive(&format!(r#"{{"id":1,"result":{MODERN}}}"#)), HandshakeStep::Wait);
    assert!(matches!(driver.receive_result(LEGACY), HandshakeStep::SendThenDone(..)));
    assert!(driver.0.last_id < FIRST_REQUEST_ID);
}

use super::*;

fn parse(text: &str) -> Result<Message, MessageError> {
    Message::parse(Bytes::copy_from_slice(text.as_bytes()))
}

#[test]
fn a_request_keeps_id_and_params_as_they_are_written() {
    let line = r#"{"params":{ "n":9007199254740993, "n2":1e400 },"method":"tools/call","id":"a\u0000b","jsonrpc":"2.0","x":1}"#;
    let Message::Request { id, method, params } = parse(line).unwrap() else { panic!("a request") };
    assert_eq!(id.raw(), br#""a\u0000b""#);
    assert_eq!(method, "tools/call");
    assert_eq!(params.unwrap(), r#"{ "n":9007199254740993, "n2":1e400 }"#);
}

#[test]
fn values_are_slices_of_the_line() {
    let line = Bytes::from_static(br#"{"jsonrpc":"2.0","id":1,"result":{"content":[]}}"#);
    let Message::Response { outcome: RpcOutcome::Result(result), .. } = Message::parse(line.clone()).unwrap()
    else {
        panic!("a result")
    };
    assert_eq!(result.as_ptr() as usize - line.as_ptr() as usize, 33);
}

#[test]
fn a_message_without_id_is_a_notification() {
    let message = parse(r#"{"jsonrpc":"2.0","method":"vendor/x","params":null}"#).unwrap();
    assert_eq!(message, Message::Notification { method: MethodName::from("vendor/x"), params: None });
}

#[test]
fn an_error_keeps_its_object_verbatim() {
    let raw = r#"{"message":"n\ud800o","data":[1e999],"code":-32601}"#;
    let message = parse(&format!(r#"{{"id":null,"error":{raw}}}"#)).unwrap();
    let Message::Response { id: None, outcome: RpcOutcome::Error(error) } = message else {
        panic!("an error")
    };
    assert_eq!((error.code, &error.raw[..]), (-32601, raw.as_bytes()));
    assert!(error.message.starts_with("n\u{fffd}"));
}

#[test]
fn an_answer_may_leave_out_the_version_and_a_request_may_not() {
    assert!(parse(r#"{"id":1,"result":{}}"#).is_ok());
    assert!(parse(r#"{"method":"notifications/message"}"#).is_ok());
    assert_eq!(parse(r#"{"id":1,"method":"ping"}"#), Err(MessageError::BadVersion));
}

#[test]
fn every_malformation_has_its_name() {
    use MessageError::*;
    let table = [
        ("5", NotAnObject),
        ("\"x\"", NotAnObject),
        ("null", NotAnObject),
        ("[]", Batch),
        (r#" [{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, Batch),
        ("{}", NeitherResultNorError),
        (r#"{"jsonrpc":"2.0","id":1}"#, NeitherResultNorError),
        (r#"{"jsonrpc":"2.0","id":1,"result":1,"error":{"code":1}}"#, BothResultAndError),
        (r#"{"jsonrpc":"2.0","id":1,"result":1,"method":"ping"}"#, BothMethodAndOutcome),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","error":null}"#, BothMethodAndOutcome),
        (r#"{"jsonrpc":"1.0","id":1,"result":1}"#, BadVersion),
        (r#"{"jsonrpc":2.0,"id":1,"result":1}"#, BadVersion),
        (r#"{"jsonrpc":null,"id":1,"result":1}"#, BadVersion),
        (r#"{"jsonrpc":"2.0","id":1.5,"result":1}"#, BadId),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, BadId),
        (r#"{"jsonrpc":"2.0","id":{},"result":1}"#, BadId),
        (r#"{"jsonrpc":"2.0","id":null,"result":1}"#, MissingId),
        (r#"{"jsonrpc":"2.0","result":1}"#, MissingId),
        (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, BadMethod),
        (r#"{"jsonrpc":"2.0","id":1,"method":"\ud800"}"#, BadMethod),
        (r#"{"jsonrpc":"2.0","id":1,"error":"no"}"#, BadError),
        (r#"{"jsonrpc":"2.0","id":1,"error":{"message":"no"}}"#, BadError),
        (r#"{"jsonrpc":"2.0","id":1,"error":{"code":1e2}}"#, BadError),
        (r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"code":2}}"#, DuplicateKey("code")),
    ];
    for (text, why) in table {
        assert_eq!(parse(text), Err(why), "{text}");
    }
}

#[test]
fn every_key_that_decides_may_occur_once() {
    for key in ENVELOPE_KEYS {
        let text = format!(r#"{{"{key}":"2.0","{key}":"2.0"}}"#);
        assert_eq!(parse(&text), Err(MessageError::DuplicateKey(key)));
    }
    assert_eq!(
        parse(r#"{"jsonrpc":"2.0","id":1,"method":"ping","m\u0065thod":"x"}"#),
        Err(MessageError::DuplicateKey("method"))
    );
    assert!(parse(r#"{"jsonrpc":"2.0","id":1,"method":"ping","x":1,"x":2}"#).is_ok());
}

#[test]
fn talk_on_stdout_is_not_json() {
    for line in [
        "[INFO] listening",
        "Server started",
        "{oops}",
        r#"{"id":1"#,
        r#"{"id":1} {"id":2}"#,
        "",
        "{\"a\":\"\n\"}",
    ] {
        assert!(matches!(parse(line), Err(MessageError::NotJson { .. })), "{line}");
    }
    assert_eq!(Message::parse(Bytes::from_static(b"{\"a\":\"\xff\"}")), Err(MessageError::NotUtf8));
}

#[test]
fn hostile_nesting_does_not_overflow_the_stack() {
    let deep = 100_000;
    assert!(matches!(parse(&"[".repeat(deep)), Err(MessageError::NotJson { .. })));
    assert!(matches!(parse(&"{\"id\":".repeat(deep)), Err(MessageError::NotJson { .. })));
    let value = format!("{}{}", "[".repeat(deep), "]".repeat(deep));
    assert_eq!(parse(&value), Err(MessageError::Batch));
    let answer = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{value}}}"#);
    let Message::Response { outcome: RpcOutcome::Result(result), .. } = parse(&answer).unwrap() else {
        panic!("a result")
    };
    assert_eq!(result, value);
    assert_eq!(parse(&format!(r#"{{"jsonrpc":"2.0","id":1,"error":{value}}}"#)), Err(MessageError::BadError));
}

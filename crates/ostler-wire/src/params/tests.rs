use super::*;

fn parse(text: &str) -> Result<Params, ParamsError> {
    Params::parse(Bytes::copy_from_slice(text.as_bytes()))
}

fn raw(json: &str) -> &RawValue {
    serde_json::from_str(json).unwrap()
}

#[test]
fn members_are_opened_one_level() {
    let params = parse(
        r#" {"name":"a\u002fb","uri":"u","cursor":"c","taskId":"t","arguments":{"name":"inner"},
        "inputResponses":{"x":1},"requestState":"s\u0000","_meta":{"progressToken":"p","other":[1]}} "#,
    )
    .unwrap();
    assert_eq!(params.name().unwrap(), "a/b");
    assert_eq!(params.uri().unwrap(), "u");
    assert_eq!(params.cursor().unwrap(), "c");
    assert_eq!(params.task_id().unwrap(), "t");
    assert_eq!(params.arguments().unwrap(), br#"{"name":"inner"}"#);
    assert_eq!(params.input_responses().unwrap(), br#"{"x":1}"#);
    assert_eq!(params.request_state().unwrap(), br#""s\u0000""#);
    assert_eq!(params.progress_token().unwrap(), br#""p""#);
    assert_eq!(params.meta().unwrap(), br#"{"progressToken":"p","other":[1]}"#);
    assert!(params.is_continuation());
    assert!(!params.has_modern_meta());
}

#[test]
fn what_is_not_there_or_no_string_is_none() {
    let params = parse(r#"{"name":7,"cursor":null,"uri":"\ud800"}"#).unwrap();
    assert_eq!((params.name(), params.cursor(), params.uri()), (None, None, None));
    assert!(!params.is_continuation());
    assert_eq!(Params::empty().raw(), "{}");
    assert_eq!(Params::empty(), Params::default());
}

#[test]
fn an_escaped_slash_in_a_meta_key_is_the_same_key() {
    let params = parse(r#"{"_meta":{"io.modelcontextprotocol\/protocolVersion":"2026-07-28"}}"#).unwrap();
    assert!(params.has_modern_meta());
}

#[test]
fn wrong_shapes_have_names() {
    use ParamsError::*;
    let table = [
        ("[]", NotAnObject),
        ("null", NotAnObject),
        ("", NotAnObject),
        (r#"{"_meta":[]}"#, MetaNotAnObject),
        (r#"{"_meta":"x"}"#, MetaNotAnObject),
        (r#"{"name":1,"n\u0061me":2}"#, Duplicate("name")),
        (r#"{"_meta":{},"_meta":{}}"#, Duplicate("_meta")),
        (r#"{"name":"a","Name":"b"}"#, CaseVariant("name")),
        (r#"{"NAME":"b"}"#, CaseVariant("name")),
        (r#"{"n\u0041me":"b","name":"a"}"#, CaseVariant("name")),
        (r#"{"uri":"a","URI":"b"}"#, CaseVariant("uri")),
        (r#"{"ta\u017fkid":"b"}"#, CaseVariant("taskId")),
        (r#"{"ref":{},"Ref":{}}"#, CaseVariant("ref")),
        (r#"{"ref":{},"r\u0065f":{}}"#, Duplicate("ref")),
        (r#"{"name\u0000":"b"}"#, ControlInKey("params")),
        (r#"{"vendor\t":"b"}"#, ControlInKey("params")),
        (r#"{"_meta":{"vendor/x\u001b":1}}"#, ControlInKey("_meta")),
        (r#"{"_meta":{"progressToken":1,"progressToken":2}}"#, Duplicate("progressToken")),
    ];
    for (text, why) in table {
        assert_eq!(parse(text), Err(why), "{text}");
    }
    assert!(matches!(parse(r#"{"a":1"#), Err(NotJson { .. })));
    assert_eq!(Params::parse(Bytes::from_static(b"{\"\xff\":1}")), Err(NotUtf8));
    assert!(parse(r#"{"_meta":null}"#).is_ok());
    assert!(parse(r#"{"x":1,"x":2,"_meta":{"y":1,"y":2}}"#).is_ok());
}

#[test]
fn every_meta_key_may_occur_once() {
    for key in MetaKey::ALL {
        let name = key.name();
        let text = format!(r#"{{"_meta":{{"{name}":1,"{name}":1}}}}"#);
        assert_eq!(parse(&text), Err(ParamsError::Duplicate(name)));
    }
}

#[test]
fn an_entry_of_meta_is_known_however_it_is_escaped_and_refused_if_it_only_looks_like_ours() {
    let escaped = parse(r#"{"_meta":{"io.modelcontextprotocol/related\u002dtask":{"taskId":"x"}}}"#).unwrap();
    assert_eq!(escaped.meta_entry(MetaKey::RelatedTask), Some(&br#"{"taskId":"x"}"#[..]));
    let alike = parse(r#"{"_meta":{"IO.modelcontextprotocol/related-Task":1}}"#);
    assert_eq!(alike, Err(ParamsError::CaseVariant(MetaKey::RelatedTask.name())));
}

#[test]
fn entries_of_meta_that_only_a_server_knows_are_others_and_traces_are_not() {
    for (text, has_others) in [
        (r#"{"_meta":{"com.example/locale":"x"}}"#, true),
        (r#"{"_meta":{"traceparent":"x","tracestate":"y","baggage":"z","progressToken":1}}"#, false),
        (r#"{"vendor":1}"#, true),
    ] {
        assert_eq!(parse(text).unwrap().has_unknown_members(), has_others, "{text}");
    }
}

#[test]
fn built_parameters_equal_parsed_ones() {
    let table = [
        (Params::tool_call("say \"hi\"", None).unwrap(), r#"{"name":"say \"hi\""}"#),
        (
            Params::tool_call("t", Some(raw(r#"{"n": 9007199254740993}"#))).unwrap(),
            r#"{"name":"t","arguments":{"n": 9007199254740993}}"#,
        ),
        (Params::prompt_get("p", Some(raw("{}"))).unwrap(), r#"{"name":"p","arguments":{}}"#),
        (Params::resource_read("file:///a"), r#"{"uri":"file:///a"}"#),
        (Params::list(Some("c")), r#"{"cursor":"c"}"#),
        (Params::list(None), "{}"),
    ];
    for (built, text) in table {
        assert_eq!(built, parse(text).unwrap());
    }
    assert_eq!(Params::tool_call("t", Some(raw("[1]"))), Err(ParamsError::ArgumentsNotAnObject));
}

#[test]
fn renaming_touches_only_the_name() {
    let before =
        r#"{ "_meta" : {"progressToken":1}, "name" : "srv__tool" , "arguments":{"name":"srv__tool"}}"#;
    let renamed = parse(before).unwrap().with_name("a \"longer\" name than before");
    assert_eq!(renamed.name().unwrap(), "a \"longer\" name than before");
    assert_eq!(renamed.raw(), &before.replacen(r#""srv__tool""#, r#""a \"longer\" name than before""#, 1));
    let back = renamed.with_name("srv__tool");
    assert_eq!(back.raw(), before);
    for params in [renamed, back] {
        assert_eq!(params, Params::parse(params.raw().clone()).unwrap());
    }
}

#[test]
fn a_missing_name_is_added_in_front() {
    for (before, after) in [("{}", r#"{"name":"x"}"#), (r#"{ "uri":"u"}"#, r#"{"name":"x", "uri":"u"}"#)] {
        let named = parse(before).unwrap().with_name("x");
        assert_eq!(named, parse(after).unwrap());
    }
}

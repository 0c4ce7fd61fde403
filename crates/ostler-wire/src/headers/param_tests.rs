use super::*;

fn marked(properties: &str) -> Result<Vec<ParamHeader>, ParamHeaderError> {
    param_headers(format!(r#"{{"type":"object","properties":{properties}}}"#).as_bytes())
}

#[test]
fn marked_properties_are_found_at_any_depth() {
    let found = marked(
        r#"{"region":{"type":"string","x-mcp-header":"Region"},
            "deep":{"type":"object","properties":{"n":{"type":"integer","x-mcp-header":"N"}}},
            "x-mcp-header":{"type":"string"},
            "plain":{"type":"number","default":{"x-mcp-header":"no schema"}}}"#,
    )
    .unwrap();
    let mut found: Vec<_> =
        found.into_iter().map(|found| (found.name, found.path.join("/"), found.kind)).collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(
        found,
        [
            ("Mcp-Param-N".to_owned(), "deep/n".to_owned(), ParamKind::Integer),
            ("Mcp-Param-Region".to_owned(), "region".to_owned(), ParamKind::String),
        ]
    );
}

#[test]
fn a_schema_without_a_mark_needs_no_headers() {
    assert_eq!(param_headers(b"{}"), Ok(Vec::new()));
    assert_eq!(param_headers(br#"{"type":"object","description":"\u00e9"}"#), Ok(Vec::new()));
}

#[test]
fn bad_marks_make_the_definition_invalid() {
    let string = |name: &str| format!(r#"{{"type":"string","x-mcp-header":{name}}}"#);
    for name in
        [r#""""#, r#""My Region""#, r#""Region:Primary""#, r#""Région""#, r#""Region\t1""#, "1", "null"]
    {
        let properties = format!(r#"{{"value":{}}}"#, string(name));
        assert_eq!(marked(&properties), Err(ParamHeaderError::BadName("value".into())), "{name}");
    }
    for kind in [r#""object""#, r#""array""#, r#""null""#, r#""number""#, r#"["string"]"#] {
        let properties = format!(r#"{{"value":{{"type":{kind},"x-mcp-header":"Value"}}}}"#);
        assert_eq!(marked(&properties), Err(ParamHeaderError::BadType("value".into())), "{kind}");
    }
    assert_eq!(
        marked(r#"{"value":{"x-mcp-header":"Value"}}"#),
        Err(ParamHeaderError::BadType("value".into()))
    );
    for (one, other) in [("Region", "Region"), ("MyField", "myfield")] {
        let properties =
            format!(r#"{{"a":{},"b":{}}}"#, string(&format!("{one:?}")), string(&format!("{other:?}")));
        assert!(matches!(marked(&properties), Err(ParamHeaderError::Duplicate(_))), "{one} {other}");
    }
}

#[test]
fn a_mark_where_no_argument_is_certain_is_invalid() {
    let mark = r#"{"type":"string","x-mcp-header":"X"}"#;
    for schema in [
        mark.to_owned(),
        format!(r#"{{"properties":{{"list":{{"type":"array","items":{mark}}}}}}}"#),
        format!(r#"{{"additionalProperties":{mark}}}"#),
        format!(r#"{{"oneOf":[{{"properties":{{"a":{mark}}}}}]}}"#),
        format!(r#"{{"if":{{}},"then":{{"properties":{{"a":{mark}}}}}}}"#),
        format!(r#"{{"$defs":{{"a":{mark}}}}}"#),
        format!(r#"{{"patternProperties":{{"^x":{mark}}}}}"#),
    ] {
        assert!(
            matches!(param_headers(schema.as_bytes()), Err(ParamHeaderError::Unreachable(_))),
            "{schema}"
        );
    }
}

#[test]
fn a_schema_that_is_none_is_invalid() {
    for schema in ["[\"x-mcp-header\"]", "{\"x-mcp-header\"", "\"x-mcp-header\""] {
        assert_eq!(param_headers(schema.as_bytes()), Err(ParamHeaderError::NotASchema), "{schema}");
    }
}

fn header(kind: ParamKind) -> ParamHeader {
    ParamHeader { name: "Mcp-Param-V".into(), path: vec!["a".into(), "v".into()], kind }
}

fn value(argument: &str) -> Option<String> {
    let arguments = format!(r#"{{"v":"wrong","a":{{"w":1,"v":{argument}}}}}"#);
    let found = param_header_values(&[header(ParamKind::String)], Some(arguments.as_bytes()));
    found.into_iter().next().map(|(_, value)| value)
}

#[test]
fn scalars_become_texts_and_nothing_else_does() {
    let table = [
        (r#""us-west1""#, Some("us-west1")),
        (r#""a\u0062""#, Some("ab")),
        (r#""""#, Some("=?base64??=")),
        (r#""é""#, Some("=?base64?w6k=?=")),
        ("true", Some("true")),
        ("false", Some("false")),
        ("42", Some("42")),
        ("-7", Some("-7")),
        ("42.0", Some("42")),
        ("4.2e1", Some("42")),
        ("3.5", Some("3.5")),
        ("9007199254740991", Some("9007199254740991")),
        ("9007199254740992", None),
        ("-9007199254740992", None),
        ("1e300", None),
        ("99999999999999999999", None),
        ("-9223372036854775808", None),
        ("null", None),
        ("{}", None),
        ("[1]", None),
    ];
    for (argument, expected) in table {
        assert_eq!(value(argument).as_deref(), expected, "{argument}");
    }
}

#[test]
fn absent_arguments_have_no_header() {
    let headers = [header(ParamKind::String)];
    assert_eq!(param_header_values(&headers, None), []);
    for arguments in ["{}", r#"{"a":{}}"#, r#"{"a":null}"#, r#"{"a":"v"}"#, "[]", "no json"] {
        assert_eq!(param_header_values(&headers, Some(arguments.as_bytes())), [], "{arguments}");
    }
}

#[test]
fn a_header_agrees_when_it_says_what_the_argument_says() {
    let table = [
        (ParamKind::String, r#""Hello""#, "Hello", Ok(true)),
        (ParamKind::String, r#""Hello""#, "=?base64?SGVsbG8=?=", Ok(true)),
        (ParamKind::String, r#""Hello""#, "hello", Ok(false)),
        (ParamKind::String, r#""Hello""#, "=?base64?SGVsbG8?=", Err(HeaderEncodingError)),
        (ParamKind::String, r#""42""#, "42.0", Ok(false)),
        (ParamKind::Integer, "42", "42.0", Ok(true)),
        (ParamKind::Integer, "42", "43", Ok(false)),
        (ParamKind::Integer, "42", "", Ok(false)),
        (ParamKind::Integer, "0", "nan", Ok(false)),
        (ParamKind::Boolean, "true", "true", Ok(true)),
        (ParamKind::Boolean, "true", "True", Ok(false)),
        (ParamKind::String, "null", "anything", Ok(true)),
    ];
    for (kind, argument, text, expected) in table {
        let arguments = format!(r#"{{"a":{{"v":{argument}}}}}"#);
        assert_eq!(header(kind).matches_argument(text, arguments.as_bytes()), expected, "{argument} {text}");
    }
}

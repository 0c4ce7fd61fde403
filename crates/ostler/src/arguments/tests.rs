use proptest::prelude::*;

use super::*;

const TOOL: &str = r##"{"name":"t","inputSchema":{
    "type":"object",
    "properties":{
        "text":{"type":"string"},
        "whole":{"type":"integer","description":"How many"},
        "real":{"type":"number"},
        "flag":{"type":"boolean"},
        "list":{"type":"array","items":{"type":"string"}},
        "thing":{"type":"object"},
        "maybe":{"anyOf":[{"type":"integer"},{"type":"null"}]},
        "either":{"type":["string","number"]},
        "level":{"enum":["low","high"]},
        "far":{"$ref":"#/$defs/far"},
        "loop":{"$ref":"#/$defs/loop"},
        "open":{}
    },
    "required":["whole"],
    "additionalProperties":false,
    "$defs":{"far":{"type":"integer"},"loop":{"$ref":"#/$defs/loop"}}
}}"##;

fn build(definition: &str, pairs: &[&str]) -> Result<String, String> {
    let given =
        pairs.iter().map(|text| parse_pair(text)).collect::<Result<Vec<_>, _>>().map(TypedArguments::Pairs);
    given
        .and_then(|given| given.tool_object(definition.as_bytes()))
        .map_err(|failure| failure.render(crate::output::Style::plain()))
}

fn sent(pairs: &[&str]) -> String {
    build(TOOL, pairs).unwrap()
}

#[test]
fn values_take_the_type_that_the_tool_asks_for() {
    let table = [
        ("text=5", r#"{"text":"5"}"#),
        ("text=", r#"{"text":""}"#),
        ("text=a=b", r#"{"text":"a=b"}"#),
        ("text=\"quoted\"", r#"{"text":"\"quoted\""}"#),
        ("whole=123456789012345678901234567890", r#"{"whole":123456789012345678901234567890}"#),
        ("whole=2.0", r#"{"whole":2.0}"#),
        ("real=0.10", r#"{"real":0.10}"#),
        ("real=1e400", r#"{"real":1e400}"#),
        ("flag=true", r#"{"flag":true}"#),
        ("list=[1, 2]", r#"{"list":[1, 2]}"#),
        ("thing={\"a\":9007199254740993}", r#"{"thing":{"a":9007199254740993}}"#),
        ("maybe=null", r#"{"maybe":null}"#),
        ("maybe=3", r#"{"maybe":3}"#),
        ("either=3", r#"{"either":3}"#),
        ("either=three", r#"{"either":"three"}"#),
        ("level=low", r#"{"level":"low"}"#),
        ("far=7", r#"{"far":7}"#),
        ("loop=[]", r#"{"loop":[]}"#),
        ("open=7", r#"{"open":7}"#),
        ("open=seven", r#"{"open":"seven"}"#),
        ("text:={\"a\":1}", r#"{"text":{"a":1}}"#),
    ];
    for (typed, want) in table {
        assert_eq!(sent(&[typed]), want, "{typed}");
    }
    assert_eq!(sent(&["real=1", "text=x"]), r#"{"real":1,"text":"x"}"#, "in the order they came");
}

#[test]
fn what_does_not_fit_says_what_is_wanted() {
    let table = [
        ("whole=1.5", "the argument `whole` wants a whole number, found `1.5`"),
        ("flag=yes", "the argument `flag` wants true or false, found `yes`"),
        ("list=a,b", "the argument `list` wants a JSON list, found `a,b`"),
        ("maybe=x", "the argument `maybe` wants a whole number or null, found `x`"),
        ("open:=x", "the argument `open` is not JSON"),
        ("fla=true", "the tool has no argument `fla`\n  hint: did you mean `flag`?"),
        ("nothing", "`nothing` is not an argument of a tool"),
        ("=x", "`=x` is not an argument of a tool"),
        ("text=@/does/not/exist", "the file `/does/not/exist` can't be read"),
    ];
    for (typed, want) in table {
        let error = build(TOOL, &[typed]).unwrap_err();
        assert!(error.contains(want), "{typed}: {error}");
    }
}

#[test]
fn a_tool_that_says_nothing_gets_json_where_it_reads_as_json() {
    for definition in ["{}", "not even json", r#"{"inputSchema":{"properties":{"a":{}}}}"#] {
        assert_eq!(build(definition, &["x=1", "y=one"]).unwrap(), r#"{"x":1,"y":"one"}"#);
    }
}

#[test]
fn arguments_are_described_with_the_required_ones_first() {
    let arguments = InputSchema::from_tool(TOOL.as_bytes()).arguments();
    assert_eq!((arguments[0].name.as_str(), arguments[0].is_required), ("whole", true));
    assert_eq!(arguments[0].description, "How many");
    let kind = |name| arguments.iter().find(|argument| argument.name == name).unwrap().kind.as_str();
    let table = [
        ("list", "array of string"),
        ("maybe", "integer | null"),
        ("level", "\"low\" | \"high\""),
        ("far", "integer"),
        ("loop", "any"),
    ];
    for (name, want) in table {
        assert_eq!(kind(name), want, "{name}");
    }
}

proptest! {
    #[test]
    fn any_text_arrives_as_it_was_typed(value in "[^@]\\PC{0,40}") {
        let pair = parse_pair(&format!("text={value}")).unwrap();
        let json = pair.json(&InputSchema::from_tool(TOOL.as_bytes()), &["whole"]).unwrap();
        prop_assert_eq!(serde_json::from_str::<String>(&json).unwrap(), value);
    }

    #[test]
    fn digits_are_never_changed(digits in "-?[1-9][0-9]{0,60}(\\.[0-9]{1,40})?") {
        let pair = parse_pair(&format!("real={digits}")).unwrap();
        prop_assert_eq!(pair.json(&InputSchema::from_tool(TOOL.as_bytes()), &["whole"]).unwrap(), digits);
    }
}

#[test]
fn an_unknown_key_is_refused_where_a_required_one_is_missing() {
    let tool = r#"{"name":"t","inputSchema":{"type":"object","properties":{"timezone":{},"form":{}},"required":["timezone"]}}"#;
    let refused = build(tool, &["tz=UTC"]).unwrap_err();
    assert!(refused.contains("the tool has no argument `tz`"), "{refused}");
    assert!(refused.contains("it has `form`, `timezone`"), "{refused}");
    assert_eq!(build(tool, &["timezone=UTC", "tz=UTC"]).unwrap(), r#"{"timezone":"UTC","tz":"UTC"}"#);
    assert_eq!(build(tool, &["form=x"]).unwrap(), r#"{"form":"x"}"#, "the server says what is missing");
    let wide = r#"{"name":"t","inputSchema":{"properties":{"a":{}},"required":["a"],"allOf":[{}]}}"#;
    assert_eq!(build(wide, &["b=1"]).unwrap(), r#"{"b":1}"#);
}

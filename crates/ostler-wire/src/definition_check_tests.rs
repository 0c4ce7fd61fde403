use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn repaired(kind: DefinitionKind, raw: &str, era: Era) -> Option<String> {
    match check_definition(kind, raw.as_bytes(), era) {
        Conformance::Repaired { definition, .. } => Some(String::from_utf8(definition).unwrap()),
        Conformance::Valid => Some(raw.to_owned()),
        Conformance::Unusable { .. } => None,
    }
}

fn tool(members: &str) -> String {
    format!(r#"{{"name":"t","inputSchema":{{"type":"object"}},{members}}}"#)
}

#[test]
fn what_the_schema_allows_stays_byte_for_byte() {
    let tools = [
        r#" { "name" : "t" , "inputSchema" : { "type" : "object" , "x" : 1e400 } , "later":[1,  2] } "#,
        r#"{"name":"t","inputSchema":{"properties":{"a":{},"b":{"type":"string"}},"required":["a"],"type":"object"}}"#,
        r#"{"name":"t","inputSchema":{"type":"object","$schema":"x","properties":{"type":{}}},"annotations":{}}"#,
        r#"{"name":"t","inputSchema":{"ty\u0070e":"ob\u006aect"},"title":"\ud83d\ude00","icons":[]}"#,
        r#"{"name":"t","inputSchema":{"type":"object"},"icons":[{"src":"a","sizes":["any"],"theme":"dark","x":1}],
           "annotations":{"title":"T","readOnlyHint":true,"x":5},"execution":{"taskSupport":"optional"},"_meta":{"a":1}}"#,
        r#"{"name":"t","inputSchema":{"type":"object"},"outputSchema":{"type":"object","properties":{"a":{}}}}"#,
    ];
    for text in tools {
        for era in [Era::Legacy, Era::Modern] {
            assert_eq!(
                check_definition(DefinitionKind::Tool, text.as_bytes(), era),
                Conformance::Valid,
                "{text}"
            );
        }
    }
    let others = [
        (DefinitionKind::Prompt, r#"{"name":"p","arguments":[{"name":"a","required":true,"title":"A"}]}"#),
        (
            DefinitionKind::Resource,
            r#"{"uri":"a:b","name":"r","size":5e3,"mimeType":"text/plain","annotations":
               {"audience":["user"],"priority":0.5,"lastModified":"2024-02-29T12:00:58.5+02:00"}}"#,
        ),
        (DefinitionKind::ResourceTemplate, r#"{"uriTemplate":"a:{b}","name":"r","_meta":{}}"#),
    ];
    for (kind, text) in others {
        assert_eq!(check_definition(kind, text.as_bytes(), Era::Legacy), Conformance::Valid, "{text}");
    }
}

#[test]
fn a_tool_without_a_usable_input_schema_is_completed_where_no_meaning_changes() {
    let table = [
        (r#"{"name":"t"}"#, Some(r#"{"name":"t","inputSchema":{"type":"object"}}"#)),
        (r#"{"inputSchema":null,"name":"t"}"#, Some(r#"{"inputSchema":{"type":"object"},"name":"t"}"#)),
        (r#"{"name":"t","inputSchema":[ ]}"#, Some(r#"{"name":"t","inputSchema":{"type":"object"}}"#)),
        (r#"{"name":"t","inputSchema":true}"#, Some(r#"{"name":"t","inputSchema":{"type":"object"}}"#)),
        (r#"{"name":"t","inputSchema":{}}"#, Some(r#"{"name":"t","inputSchema":{"type":"object"}}"#)),
        (
            r#"{"name":"t","inputSchema":{"properties": {"a": {"x": 1e400}}}}"#,
            Some(r#"{"name":"t","inputSchema":{"properties":{"a": {"x": 1e400}},"type":"object"}}"#),
        ),
        (
            r#"{"name":"t","inputSchema":{"type":["object","null"]}}"#,
            Some(r#"{"name":"t","inputSchema":{"type":"object"}}"#),
        ),
        (
            r#"{"name":"t","inputSchema":{"type":null}}"#,
            Some(r#"{"name":"t","inputSchema":{"type":"object"}}"#),
        ),
        (
            r#"{"name":"t","inputSchema":{"type":"object","properties":null,"required":null,"$schema":5}}"#,
            Some(r#"{"name":"t","inputSchema":{"type":"object"}}"#),
        ),
        (
            r#"{"name":"t","inputSchema":{"type":"object","properties":[],"required":["a",5,"b"]}}"#,
            Some(r#"{"name":"t","inputSchema":{"type":"object","required":["a","b"]}}"#),
        ),
        (
            r#"{"name":"t","inputSchema":{"type":"object","properties":{"a":null,"b":"string","c":{},"d":[]}}}"#,
            Some(
                r#"{"name":"t","inputSchema":{"type":"object","properties":{"a":{},"b":{},"c":{},"d":{}}}}"#,
            ),
        ),
        (r#"{"name":"t","inputSchema":"x"}"#, None),
        (r#"{"name":"t","inputSchema":false}"#, None),
        (r#"{"name":"t","inputSchema":[1]}"#, None),
        (r#"{"name":"t","inputSchema":{"type":"string"}}"#, None),
        (r#"{"name":"t","inputSchema":{"type":5}}"#, None),
        (r#"{"name":"t","inputSchema":{"type":"object","properties":"a"}}"#, None),
    ];
    for (raw, expected) in table {
        for era in [Era::Legacy, Era::Modern] {
            assert_eq!(repaired(DefinitionKind::Tool, raw, era).as_deref(), expected, "{raw}");
        }
    }
}

#[test]
fn an_optional_member_of_the_wrong_type_is_dropped_alone() {
    let wrong = [
        r#""description":5"#,
        r#""title":null"#,
        r#""icons":"x""#,
        r#""annotations":[]"#,
        r#""execution":true"#,
        r#""_meta":null"#,
        r#""outputSchema":null"#,
        r#""outputSchema":true"#,
    ];
    for member in wrong {
        let raw = tool(&format!(r#"{member},"later":1"#));
        let expected = tool(r#""later":1"#);
        for era in [Era::Legacy, Era::Modern] {
            assert_eq!(repaired(DefinitionKind::Tool, &raw, era).as_deref(), Some(&*expected), "{raw}");
        }
    }
    let table = [
        (r#""annotations":{"readOnlyHint":"yes","title":"x"}"#, r#""annotations":{"title":"x"}"#),
        (r#""execution":{"taskSupport":"maybe","x":1}"#, r#""execution":{"x":1}"#),
        (r#""icons":[{"src":"a"},{"src":5},{"src":"b","sizes":"1x1"}]"#, r#""icons":[{"src":"a"}]"#),
    ];
    for (raw, expected) in table {
        let found = repaired(DefinitionKind::Tool, &tool(raw), Era::Modern);
        assert_eq!(found.as_deref(), Some(&*tool(expected)), "{raw}");
    }
}

#[test]
fn the_legacy_era_asks_for_more() {
    let table = [
        (r#""outputSchema":{"type":"array","items":{}}"#, r#""x":1"#),
        (r#""outputSchema":{"properties":"x"}"#, r#""x":1"#),
        (r#""outputSchema":{"anyOf":[]}"#, r#""outputSchema":{"anyOf":[],"type":"object"},"x":1"#),
    ];
    for (raw, expected) in table {
        let raw = tool(&format!(r#"{raw},"x":1"#));
        assert_eq!(
            check_definition(DefinitionKind::Tool, raw.as_bytes(), Era::Modern),
            Conformance::Valid,
            "{raw}"
        );
        assert_eq!(repaired(DefinitionKind::Tool, &raw, Era::Legacy), Some(tool(expected)), "{raw}");
    }
    let flags =
        r#"{"name":"t","inputSchema":{"type":"object","properties":{"a":true,"b":false,"c":{"x": 1}}}}"#;
    assert_eq!(check_definition(DefinitionKind::Tool, flags.as_bytes(), Era::Modern), Conformance::Valid);
    assert_eq!(
        repaired(DefinitionKind::Tool, flags, Era::Legacy).unwrap(),
        r#"{"name":"t","inputSchema":{"type":"object","properties":{"a":{},"b":{"not":{}},"c":{"x": 1}}}}"#
    );
}

#[test]
fn prompts_resources_and_templates_are_completed_too() {
    use DefinitionKind::{Prompt, Resource, ResourceTemplate};
    let table = [
        (Prompt, r#"{"name":"p","arguments":null}"#, Some(r#"{"name":"p"}"#)),
        (Prompt, r#"{"name":"p","arguments":{}}"#, Some(r#"{"name":"p"}"#)),
        (Prompt, r#"{"name":"p","arguments":{"a":1}}"#, None),
        (
            Prompt,
            r#"{"name":"p","arguments":[{"name":5},{"name":"a","required":"yes","description":null}]}"#,
            Some(r#"{"name":"p","arguments":[{"name":"a"}]}"#),
        ),
        (Resource, r#"{"uri":"a:b"}"#, Some(r#"{"uri":"a:b","name":"a:b"}"#)),
        (Resource, r#"{"name":null,"uri":"a:\u0062"}"#, Some(r#"{"name":"a:\u0062","uri":"a:\u0062"}"#)),
        (Resource, r#"{"uri":"a:b","name":"r","size":"5"}"#, Some(r#"{"uri":"a:b","name":"r"}"#)),
        (Resource, r#"{"uri":"a:b","name":"r","size":1e400}"#, Some(r#"{"uri":"a:b","name":"r"}"#)),
        (
            Resource,
            r#"{"uri":"a:b","name":"r","size":1.5,"mimeType":[]}"#,
            Some(r#"{"uri":"a:b","name":"r"}"#),
        ),
        (
            Resource,
            r#"{"uri":"a:b","name":"r","annotations":{"audience":["user","cat"],"priority":2,"lastModified":"today"}}"#,
            Some(r#"{"uri":"a:b","name":"r","annotations":{"audience":["user"]}}"#),
        ),
        (
            ResourceTemplate,
            r#"{"uriTemplate":"a:{b}","title":5}"#,
            Some(r#"{"uriTemplate":"a:{b}","name":"a:{b}"}"#),
        ),
    ];
    for (kind, raw, expected) in table {
        assert_eq!(repaired(kind, raw, Era::Modern).as_deref(), expected, "{raw}");
    }
}

#[test]
fn text_that_parsers_of_clients_refuse_makes_a_definition_unusable() {
    let deep = format!("{}{}", "[".repeat(MAX_DEPTH), "]".repeat(MAX_DEPTH));
    let long = "1".repeat(MAX_DIGITS + 1);
    let wrong = [r#""\ud800""#, r#""\udc00\ud800""#, r#""\ud800\ud800""#, r#"{"\ud83d":1}"#, &deep, &long];
    for value in wrong {
        assert_eq!(
            repaired(DefinitionKind::Tool, &tool(&format!(r#""x":{value}"#)), Era::Modern),
            None,
            "{value}"
        );
    }
    for value in [r#""\ud83d\ude00""#, r#""\\ud800""#, r#""\"\\""#, "1e400"] {
        let raw = tool(&format!(r#""x":{value}"#));
        assert_eq!(
            check_definition(DefinitionKind::Tool, raw.as_bytes(), Era::Modern),
            Conformance::Valid,
            "{value}"
        );
    }
}

#[test]
fn problems_name_the_member() {
    let raw =
        r#"{"name":"t","inputSchema":{},"title":5,"description":[],"icons":5,"_meta":5,"annotations":5}"#;
    let Conformance::Repaired { problem, .. } =
        check_definition(DefinitionKind::Tool, raw.as_bytes(), Era::Modern)
    else {
        panic!("it can be completed");
    };
    assert_eq!(
        problem,
        "`inputSchema.type` is missing, `title` is not a string, `description` is not a string, `icons` is not an array, and more"
    );
}

#[test]
fn timestamps_are_those_that_the_typescript_sdk_takes() {
    for good in ["2025-01-12T15:00:58Z", "2025-01-12T15:00:58.123456789+02:00", "2024-02-29T00:00:00-11:30"] {
        assert!(is_timestamp(good), "{good}");
    }
    let bad = [
        "2025-01-12T15:00Z",
        "2025-01-12T15:00:58",
        "2025-02-29T00:00:00Z",
        "2025-01-12t15:00:58z",
        "2025-01-12",
        "2025-01-12T24:00:00Z",
        "2025-01-12T15:00:58+0200",
        "2025-01-12T15:00:58+24:00",
        "2025-13-01T00:00:00Z",
        "2025-01-12T15:00:58.Z",
        "",
        "T",
        "+2025-1-1T15:00:58Z",
    ];
    for bad in bad {
        assert!(!is_timestamp(bad), "{bad}");
    }
}

/// Generates small JSON values.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3..3_i32).prop_map(Value::from),
        "object|string|[a-z]{0,3}".prop_map(Value::from),
    ];
    let key = "type|properties|required|name|src|\\$schema|title|readOnlyHint|taskSupport|[a-c]";
    leaf.prop_recursive(3, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map(key, inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn what_was_completed_is_valid_in_its_era(
        keys in prop::collection::hash_map(
            "title|description|icons|_meta|inputSchema|outputSchema|annotations|execution|arguments|size|mimeType|name",
            value(), 0..6),
        kind in prop_oneof![
            Just(DefinitionKind::Tool), Just(DefinitionKind::Prompt),
            Just(DefinitionKind::Resource), Just(DefinitionKind::ResourceTemplate)],
    ) {
        let mut members: serde_json::Map<String, Value> = keys.into_iter().collect();
        let key = match kind {
            DefinitionKind::Tool | DefinitionKind::Prompt => "name",
            DefinitionKind::Resource => "uri",
            DefinitionKind::ResourceTemplate => "uriTemplate",
        };
        members.insert(key.to_owned(), "a:b".into());
        let raw = Value::from(members).to_string();
        for era in [Era::Legacy, Era::Modern] {
            if let Some(form) = repaired(kind, &raw, era) {
                prop_assert_eq!(check_definition(kind, form.as_bytes(), era), Conformance::Valid, "{} from {}", form, raw);
            }
        }
        // The legacy era requires nothing less.
        if check_definition(kind, raw.as_bytes(), Era::Legacy) == Conformance::Valid {
            prop_assert_eq!(check_definition(kind, raw.as_bytes(), Era::Modern), Conformance::Valid);
        }
    }
}

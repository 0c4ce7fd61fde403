use std::thread;

use serde_json::json;

use super::*;

fn compile(schema: &Value) -> Result<ArgumentSchema, UnusableSchema> {
    ArgumentSchema::compile(json!({"name": "t", "inputSchema": schema}).to_string().as_bytes())
}

/// Returns the mistakes in the arguments; `None` if they are not checked.
fn mistakes_in(schema: &Value, arguments: &str) -> Option<Vec<String>> {
    let schema = compile(schema).unwrap();
    let bounded = schema.bound(Some(arguments.as_bytes()))?;
    Some(schema.check(&bounded).iter().map(ToString::to_string).collect())
}

#[track_caller]
fn fits(schema: &Value, arguments: &str) {
    assert_eq!(mistakes_in(schema, arguments), Some(Vec::new()), "{schema} {arguments}");
}

#[track_caller]
fn is_wrong(schema: &Value, arguments: &str) {
    assert!(
        mistakes_in(schema, arguments).is_some_and(|mistakes| !mistakes.is_empty()),
        "{schema} {arguments}"
    );
}

#[track_caller]
fn is_unusable(schema: &Value, why: &str) {
    let error = compile(schema).map(drop).unwrap_err().to_string();
    assert!(error.contains(why), "{error}");
}

#[test]
fn a_mistake_is_told_by_its_path_and_without_the_value() {
    let schema = json!({
        "type": "object",
        "properties": {"path": {"type": "string"}, "lines": {"type": "array", "items": {"type": "integer"}}},
        "required": ["path"],
        "additionalProperties": false
    });
    fits(&schema, r#"{"path":"/tmp/x","lines":[1,2]}"#);
    let mut mistakes = mistakes_in(&schema, r#"{"lines":[1,"hunter2"],"mode":7}"#).unwrap();
    mistakes.sort();
    let expected = [
        "\"path\" is a required property",
        "/lines/1: the value is not of type \"integer\"",
        "Additional properties are not allowed ('mode' was unexpected)",
    ];
    assert_eq!(mistakes, expected);
}

#[test]
fn absent_arguments_are_an_empty_object() {
    let needs_path = compile(&json!({"type": "object", "required": ["path"]})).unwrap();
    let needs_nothing = compile(&json!({"type": "object"})).unwrap();
    for arguments in [None, Some(&b"null"[..]), Some(b"{}")] {
        assert_eq!(needs_path.check(&needs_path.bound(arguments).unwrap()).len(), 1);
        assert_eq!(needs_nothing.check(&needs_nothing.bound(arguments).unwrap()), []);
    }
}

#[test]
fn mistakes_are_few_and_short() {
    let schema = json!({"type": "object", "additionalProperties": {"enum": ["x".repeat(1_000)]}});
    let members: Vec<String> = (0..300).map(|i| format!("\"{}{i}\":1", "k".repeat(300))).collect();
    let mistakes = mistakes_in(&schema, &format!("{{{}}}", members.join(","))).unwrap();
    assert_eq!(mistakes.len(), MAX_MISTAKES);
    assert!(mistakes.iter().all(|mistake| mistake.chars().count() < 2 * MAX_MISTAKE_LEN + 10));
}

#[test]
fn many_values_are_told_their_first_mistake() {
    let schema = json!({"type": "object", "properties": {"a": {"items": {"type": "string"}}}});
    let numbers = vec!["1"; 20_000].join(",");
    assert_eq!(mistakes_in(&schema, &format!("{{\"a\":[{numbers}]}}")).unwrap().len(), 1);
}

#[test]
fn a_schema_speaks_its_own_dialect_and_the_newest_one_by_default() {
    let tuple = |dialect: &str| {
        let items = json!([{"type": "string"}]);
        json!({"$schema": dialect, "type": "object", "properties": {"a": {"items": items}}})
    };
    is_wrong(&tuple("http://json-schema.org/draft-07/schema#"), r#"{"a":[1]}"#);
    is_unusable(&tuple("https://json-schema.org/draft/2020-12/schema"), "");
    is_unusable(&tuple("https://example.com/mine"), "");
    is_wrong(&json!({"properties": {"a": {"prefixItems": [{"type": "string"}]}}}), r#"{"a":[1]}"#);
    // Exclusive bounds are flags in draft 4.
    let old = json!({"$schema": "http://json-schema.org/draft-04/schema#",
        "properties": {"a": {"minimum": 1, "exclusiveMinimum": true}}});
    is_wrong(&old, r#"{"a":1}"#);
    fits(&old, r#"{"a":2}"#);
}

#[test]
fn formats_and_contents_are_only_described() {
    for dialect in ["http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"]
    {
        let schema = json!({"$schema": dialect, "properties": {
            "a": {"type": "string", "format": "email"},
            "b": {"type": "string", "contentEncoding": "base64", "contentMediaType": "application/json"}
        }});
        fits(&schema, r#"{"a":"nobody","b":"{{{"}"#);
    }
}

#[test]
fn a_number_with_more_digits_than_fit_is_never_called_wrong_for_them() {
    let number = |rule: Value| json!({"$schema": "http://json-schema.org/draft-04/schema#", "properties": {"a": rule}});
    let long = r#"{"a":123456789012345678901234567890}"#;
    for rule in [
        json!({"type": "integer"}),
        json!({"type": "number"}),
        json!({"multipleOf": 10}),
        json!({"multipleOf": 7}),
    ] {
        fits(&number(rule.clone()), long);
        fits(&json!({"properties": {"a": rule}}), long);
    }
    let unique = json!({"properties": {"a": {"uniqueItems": true}}});
    fits(&unique, r#"{"a":[123456789012345678901234567890,123456789012345678901234567891]}"#);
    is_wrong(&unique, r#"{"a":[18446744073709551615,18446744073709551615]}"#);
    fits(&unique, r#"{"a":[18446744073709551615,18446744073709551614,-9223372036854775808]}"#);
    // The mistake remains whatever digits were lost.
    is_wrong(&json!({"properties": {"a": {"type": "string"}}}), long);
    is_wrong(&json!({"required": ["b"]}), long);
    is_wrong(
        &json!({"properties": {"a": {"maximum": 9_007_199_254_740_993_u64}}}),
        r#"{"a":9007199254740994}"#,
    );
    fits(&json!({"properties": {"a": {"maximum": 9_007_199_254_740_993_u64}}}), r#"{"a":9007199254740993}"#);
}

#[test]
fn what_can_not_be_read_is_not_judged() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    assert_eq!(mistakes_in(&schema, r#"{"a":1e999}"#), None);
    assert_eq!(mistakes_in(&schema, &format!("{{\"a\":{}1{}}}", "[".repeat(200), "]".repeat(200))), None);
    assert_eq!(mistakes_in(&schema, "{"), None);
    assert_eq!(mistakes_in(&schema, &format!("{{\"b\":\"{}\"}}", "x".repeat(MAX_ARGUMENTS_BYTES))), None);
}

#[test]
fn references_lead_nowhere_but_into_the_schema() {
    let inner = json!({
        "properties": {"a": {"$ref": "#/$defs/a~1b"}, "c": {"$ref": "#/properties/a"}, "d": {"$ref": "#/$defs/%25"}},
        "$defs": {"a/b": {"type": "string"}, "%": {"type": "null"}}
    });
    is_wrong(&inner, r#"{"c":1}"#);
    is_wrong(&inner, r#"{"d":1}"#);
    for elsewhere in
        ["https://example.com/x.json", "file:///etc/passwd", "other.json#/a", "#/missing", "#anchor"]
    {
        is_unusable(&json!({"properties": {"a": {"$ref": elsewhere}}}), "it refers to");
    }
    is_unusable(&json!({"$ref": "http://json-schema.org/draft-07/schema#"}), "it refers to");
    is_unusable(&json!({"properties": {"a": {"$dynamicRef": "#node"}}}), "dynamic");
    is_unusable(&json!({"properties": {"a": {"$id": "https://example.com/a", "$ref": "#/x"}}}), "addresses");
    // A property may be named like a keyword.
    is_wrong(&json!({"properties": {"$id": {"type": "string"}, "$ref": {"type": "string"}}}), r#"{"$id":1}"#);
}

#[test]
fn what_is_no_schema_is_unusable() {
    for schema in
        [json!({"type": "objekt"}), json!({"properties": 1}), json!([]), json!("x"), json!({"not": 1})]
    {
        assert!(compile(&schema).is_err(), "{schema}");
    }
    assert_eq!(ArgumentSchema::compile(b"{\"name\":\"t\"}").map(drop), Err(UnusableSchema::Missing));
    is_unusable(&json!({"description": "x".repeat(MAX_SCHEMA_BYTES)}), "too long");
}

#[test]
fn patterns_are_left_to_the_server() {
    let schema = |pattern: &str| json!({"properties": {"a": {"pattern": pattern, "maxLength": 20_000}}});
    for pattern in ["^[a-z]{1,64}$", "^(a+)+$", "a[ab]{2000}[^ab]", "(?=a)b", "((a{1000}){1000}){1000}"] {
        fits(&schema(pattern), r#"{"a":"A"}"#);
        is_wrong(&schema(pattern), &format!("{{\"a\":\"{}\"}}", "a".repeat(30_000)));
    }
    is_unusable(&schema(&"x".repeat(2_000)), "patterns");
    // A property of that name is no pattern.
    is_wrong(&json!({"properties": {"pattern": {"type": "string"}}}), r#"{"pattern":1}"#);
}

#[test]
fn a_pattern_that_is_not_matched_refuses_nothing_by_another_keyword() {
    let word = json!({"type": "string", "pattern": "^[a-z]+$"});
    let number = json!({"type": "string", "pattern": "^[0-9]+$"});
    for schema in [
        json!({"oneOf": [word, number]}),
        json!({"not": number}),
        json!({"if": number, "then": {"minLength": 5}}),
        json!({"contains": number, "maxContains": 0}),
    ] {
        is_unusable(&json!({"properties": {"a": schema}}), "patterns beside");
    }
    is_unusable(&json!({"patternProperties": {"^x": {"type": "string"}}}), "names of properties");
}

#[test]
fn long_texts_and_large_constants_count_as_many_steps() {
    let steps =
        |schema: &Value, text: &str| compile(schema).unwrap().bound(Some(text.as_bytes())).unwrap().steps;
    let schema = json!({"properties": {"a": {"minLength": 1}}});
    let long = format!("{{\"a\":\"{}\"}}", "a".repeat(60_000));
    assert!(steps(&schema, &long) > 10 * steps(&schema, r#"{"a":"a"}"#));
    let large = json!({"properties": {"a": {"const": vec![1; 5_000]}}});
    assert!(steps(&large, r#"{"a":[]}"#) > 5_000);
}

#[test]
fn what_servers_take_against_the_letter_of_their_schema_is_no_mistake() {
    let schema = json!({
        "properties": {"a": {"type": "string", "nullable": true}, "b": {"type": "number", "default": 1}, "c": {"type": "string"}},
        "required": ["b"]
    });
    fits(&schema, r#"{"a":null}"#);
    is_wrong(&schema, r#"{"a":1,"b":1}"#);
    fits(&schema, r#"{"c":null,"b":1}"#);
    is_wrong(&json!({"properties": {"b": {"default": 1}}, "required": ["x"]}), "{}");
}

/// Returns definitions that each refer twice to the next one.
fn doubling(levels: usize, applicator: &str) -> Value {
    let mut defs = serde_json::Map::new();
    for level in 0..levels {
        let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
        defs.insert(format!("d{level}"), json!({applicator: [next, next]}));
    }
    defs.insert(format!("d{levels}"), json!({"type": "object"}));
    json!({"$ref": "#/$defs/d0", "$defs": defs})
}

#[test]
fn definitions_that_double_are_refused_before_they_cost_anything() {
    for applicator in ["allOf", "anyOf", "oneOf"] {
        is_unusable(&doubling(50, applicator), "too large");
    }
    fits(&doubling(5, "allOf"), "{}");
}

#[test]
fn a_schema_that_refers_to_itself_for_the_same_value_is_refused() {
    is_unusable(&json!({"$ref": "#"}), "without end");
    is_unusable(&json!({"anyOf": [{"type": "null"}, {"$ref": "#"}]}), "without end");
    let two = json!({"$ref": "#/$defs/a", "$defs": {"a": {"not": {"$ref": "#/$defs/b"}}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}}});
    is_unusable(&two, "without end");
}

#[test]
fn trees_of_any_depth_are_judged_and_those_that_branch_out_are_not() {
    let tree = json!({
        "type": "object",
        "properties": {"children": {"type": "array", "items": {"$ref": "#"}}, "name": {"type": "string"}}
    });
    let deep = |levels: usize, leaf: &str| {
        format!("{}{leaf}{}", r#"{"children":["#.repeat(levels), "]}".repeat(levels))
    };
    fits(&tree, &deep(40, r#"{"name":"x"}"#));
    is_wrong(&tree, &deep(40, r#"{"name":1}"#));
    // Every level is visited twice by the level above.
    let twice = json!({"allOf": [
        {"properties": {"children": {"items": {"$ref": "#"}}}},
        {"properties": {"children": {"items": {"$ref": "#"}}}}
    ]});
    fits(&twice, &deep(3, "{}"));
    assert_eq!(mistakes_in(&twice, &deep(40, "{}")), None);
    // JSON itself, as some tools describe it.
    let json = json!({"$defs": {"json": {"anyOf": [
        {"type": ["string", "number", "boolean", "null"]},
        {"type": "array", "items": {"$ref": "#/$defs/json"}},
        {"type": "object", "additionalProperties": {"$ref": "#/$defs/json"}}
    ]}}, "properties": {"value": {"$ref": "#/$defs/json"}}});
    fits(&json, r#"{"value":{"a":[1,{"b":[[]]}]}}"#);
}

#[test]
fn unevaluated_properties_that_are_nested_cost_what_they_cost() {
    let mut schema = json!({"properties": {"a": {"type": "string"}}});
    for _ in 0..20 {
        schema = json!({"allOf": [schema], "unevaluatedProperties": false});
    }
    assert_eq!(mistakes_in(&schema, r#"{"a":"x"}"#), None);
    let usual = json!({"allOf": [{"properties": {"a": {"type": "string"}}}], "unevaluatedProperties": false});
    fits(&usual, r#"{"a":"x"}"#);
    is_wrong(&usual, r#"{"b":"x"}"#);
}

#[test]
fn the_deepest_schemas_and_arguments_fit_into_the_stack_of_a_thread() {
    // Half the stack of a runtime thread, in a build without optimizations.
    let work = || {
        let mut nested = json!({"type": "object"});
        for _ in 0..60 {
            nested = json!({"anyOf": [{"type": "null"}, nested]});
        }
        is_wrong(&json!({"properties": {"a": nested}}), r#"{"a":1}"#);
        // A chain of references, each one schema deeper.
        let mut defs = serde_json::Map::new();
        for level in 0..190 {
            defs.insert(format!("d{level}"), json!({"$ref": format!("#/$defs/d{}", level + 1)}));
        }
        defs.insert("d190".into(), json!({"type": "object"}));
        is_wrong(&json!({"$ref": "#/$defs/d0", "$defs": defs.clone()}), "[]");
        defs.insert("d190".into(), json!({"$ref": "#/$defs/d191"}));
        for level in 191..1_000 {
            defs.insert(format!("d{level}"), json!({"$ref": format!("#/$defs/d{}", level + 1)}));
        }
        is_unusable(&json!({"$ref": "#/$defs/d0", "$defs": defs}), "too large");
        let mut mixed = json!({"type": "object"});
        for level in 0..55 {
            mixed = match level % 5 {
                0 => json!({"oneOf": [mixed, {"type": "null"}]}),
                1 => json!({"if": mixed, "then": true, "else": false}),
                2 => json!({"dependentSchemas": {"c": mixed}, "unevaluatedProperties": true}),
                3 => json!({"not": {"not": mixed}}),
                _ => json!({"properties": {"c": mixed}, "additionalProperties": false}),
            };
        }
        let _ = mistakes_in(&mixed, r#"{"c":{"c":{"c":{"c":1}}}}"#);
        let tree = json!({"properties": {"c": {"$ref": "#"}}});
        let deep = format!("{}1{}", r#"{"c":"#.repeat(120), "}".repeat(120));
        fits(&tree, &deep);
    };
    let thread = thread::Builder::new().stack_size(1 << 20).spawn(work).unwrap();
    thread.join().unwrap();
}

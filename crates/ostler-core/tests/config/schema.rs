//! The schema and the reader know the same keys.

use ostler_core::config::schema;
use serde_json::{Value, json};

use crate::world::{messages, parse};

/// The sections of the schema: where to put one in a file, and its description.
fn sections(schema: &Value) -> Vec<(Vec<&'static str>, &Value)> {
    let definition = |name: &str| &schema["$defs"][name];
    vec![
        (vec![], schema),
        (vec!["servers", "s"], definition("server")),
        (vec!["servers", "s", "restart"], definition("restart")),
        (vec!["servers", "s", "breaker"], definition("breaker")),
        (vec!["servers", "s", "tools"], definition("tools")),
        (vec!["servers", "s", "tool", "t"], definition("tool")),
        (vec!["roles", "r"], definition("role")),
        (vec!["roles", "r", "budget"], definition("budget")),
        (vec!["auth"], definition("auth")),
        (vec!["auth", "jwt"], definition("jwt")),
        (vec!["defaults"], definition("defaults")),
        (vec!["pool"], definition("pool")),
        (vec!["cache"], definition("cache")),
        (vec!["gateway"], definition("gateway")),
        (vec!["pins"], definition("pins")),
        (vec!["relay"], definition("relay")),
        (vec!["audit"], definition("audit")),
    ]
}

/// What the reader says about a file with this one section, in which this one key is set.
fn read_with(path: &[&str], key: &str, value: Value) -> Vec<String> {
    let mut file = json!({ key: value });
    for name in path.iter().rev() {
        file = json!({ *name: file });
    }
    file["version"] = json!(1);
    match parse("ostler.json", &file.to_string()) {
        Ok(config) => messages(&config.notices),
        Err(report) => messages(&report.problems),
    }
}

#[test]
fn every_section_is_described() {
    let schema = schema();
    assert_eq!(schema["$defs"].as_object().unwrap().len() + 1, sections(&schema).len());
}

#[test]
fn the_reader_knows_every_key_of_the_schema_and_no_other() {
    let schema = schema();
    for (path, section) in sections(&schema) {
        assert_eq!(section["additionalProperties"], json!(false));
        for key in section["properties"].as_object().unwrap().keys() {
            let unknown = format!("unknown key `{key}`");
            let said = read_with(&path, key, Value::Null);
            assert!(said.iter().all(|message| !message.starts_with(&unknown)), "{path:?} {key}: {said:?}");
            assert!(
                said.iter().any(|message| message.contains("found null")) || key == "version",
                "{path:?} {key} is read: {said:?}"
            );
        }
        let said = read_with(&path, "zzzzzzzz", Value::Null);
        assert!(
            said.iter().any(|message| message.starts_with("unknown key `zzzzzzzz`")),
            "{path:?}: {said:?}"
        );
    }
}

#[test]
fn the_described_defaults_are_the_defaults() {
    let schema = schema();
    let defaults = |name: &str| -> Value {
        let properties = schema["$defs"][name]["properties"].as_object().unwrap();
        let set = properties.iter().filter(|(key, _)| !key.contains(char::is_uppercase));
        set.filter_map(|(key, field)| Some((key.clone(), field.get("default")?.clone()))).collect()
    };
    let mut server = defaults("server");
    server["command"] = json!("x");
    server["restart"] = defaults("restart");
    server["breaker"] = defaults("breaker");
    server["tools"] = defaults("tools");
    let root = schema["properties"].as_object().unwrap();
    let mut file: Value =
        root.iter().filter_map(|(key, field)| Some((key.clone(), field.get("default")?.clone()))).collect();
    file["servers"] = json!({ "s": server });
    for name in ["pool", "cache", "pins"] {
        file[name] = defaults(name);
    }
    let spelled = parse("ostler.json", &file.to_string()).unwrap();
    let bare = parse("ostler.json", r#"{"version": 1, "servers": {"s": {"command": "x"}}}"#).unwrap();
    assert_eq!(spelled.servers, bare.servers);
    assert_eq!((spelled.pool, spelled.cache), (bare.pool, bare.cache));
    assert_eq!(spelled.pins, bare.pins);
    assert_eq!((spelled.listen, spelled.watch), (bare.listen, bare.watch));
}

#[test]
fn a_key_of_the_schema_says_what_it_is() {
    let schema = schema();
    assert_eq!(
        schema["$defs"]["server"]["properties"]["keepAlive"],
        json!({
            "type": "string",
            "pattern": r"^\s*([0-9]+\s*(d|h|m|s|ms)\s*)+$",
            "default": "5m",
            "description": "How long a lazy server outlives its last use.",
        })
    );
    assert_eq!(schema["properties"]["servers"]["additionalProperties"]["$ref"], json!("#/$defs/server"));
}

//! The schema and the reader know the same keys.

use std::collections::BTreeMap;

use ostler_core::config::{
    AuditConfig, AuthConfig, CacheConfig, Config, DefaultsConfig, GatewayConfig, PinMode, PoolConfig, schema,
};
use ostler_core::policy::ToolFilter;
use ostler_core::server_name::ServerName;
use ostler_core::spec::{BreakerSettings, ListLimits, RestartSettings, ServerSpec, ToolRules};
use serde_json::{Value, json};

use crate::fake_files::{messages, parse};

/// Returns the sections of the schema: where to put one in a file, and its description.
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

/// Returns the reader's messages about a file with this one section, in which this one key is set.
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
            let found = read_with(&path, key, Value::Null);
            assert!(found.iter().all(|message| !message.starts_with(&unknown)), "{path:?} {key}: {found:?}");
            assert!(
                found.iter().any(|message| message.contains("found null")) || key == "version",
                "{path:?} {key} is read: {found:?}"
            );
        }
        let found = read_with(&path, "zzzzzzzz", Value::Null);
        assert!(
            found.iter().any(|message| message.starts_with("unknown key `zzzzzzzz`")),
            "{path:?}: {found:?}"
        );
    }
}

/// Returns the defaults of a section's keys in the schema.
fn defaults(section: &Value) -> Value {
    let keys = section["properties"].as_object().unwrap().iter();
    let in_snake_case = keys.filter(|(key, _)| !key.contains(char::is_uppercase));
    in_snake_case.filter_map(|(key, found)| Some((key.clone(), found.get("default")?.clone()))).collect()
}

/// Sets every key with a default, in every section of `file`.
fn spell_out(file: &mut Value, schema: &Value) {
    for (path, section) in sections(schema) {
        let mut place = &mut *file;
        for name in path {
            place = &mut place[name];
        }
        let Value::Object(found) = defaults(section) else { unreachable!() };
        for (key, default) in found {
            place[key] = default;
        }
    }
}

#[test]
fn the_defaults_are_the_same_in_the_struct_the_schema_and_an_empty_file() {
    let required = json!({
        "version": 1,
        "servers": {"s": {"command": "x", "tool": {"t": {}}}},
        "roles": {"r": {"allow": [], "budget": {"calls": 1, "per": "1s"}}},
        "auth": {"jwt": {"issuer": "i", "audience": "a", "jwks": "keys.json"}},
        "relay": {"nats": "nats://x:1"},
    });
    let mut spelled = required.clone();
    spell_out(&mut spelled, &schema());
    let spelled = parse("ostler.json", &spelled.to_string()).unwrap();
    let bare = parse("ostler.json", &required.to_string()).unwrap();
    let empty = parse("ostler.toml", "").unwrap();
    assert!(spelled.notices.is_empty(), "{:?}", spelled.notices);

    assert_eq!(spelled.servers, bare.servers);
    let server = &spelled.servers[0];
    let named = ServerSpec::stdio(ServerName::new("s").unwrap(), "x").cwd("/proj").lazy();
    assert_eq!(ServerSpec { tool: server.tool.clone(), ..named }, *server);
    assert_eq!(server.tool["t"], ToolRules::default());
    assert_eq!((server.restart, server.breaker), (RestartSettings::default(), BreakerSettings::default()));
    assert_eq!((server.lists, &server.tools), (ListLimits::default(), &ToolFilter::everything()));
    assert_eq!(spelled.roles, bare.roles);
    assert_eq!((&spelled.auth, &spelled.relay), (&bare.auth, &bare.relay));

    let new = Config::new(Vec::new());
    assert_eq!((&empty.auth, &empty.relay), (&AuthConfig::default(), &None));
    assert_eq!((&new.auth, &new.relay), (&empty.auth, &empty.relay));
    assert!(empty.servers.is_empty() && empty.roles.is_empty() && new.roles.is_empty());
    for config in [&spelled, &bare, &empty] {
        assert_eq!((config.listen, config.watch), (new.listen, new.watch));
        assert_eq!(
            (&config.defaults, &new.defaults),
            (&DefaultsConfig::default(), &DefaultsConfig::default())
        );
        assert_eq!((config.pool, new.pool), (PoolConfig::default(), PoolConfig::default()));
        assert_eq!((config.cache, new.cache), (CacheConfig::default(), CacheConfig::default()));
        assert_eq!((&config.gateway, &new.gateway), (&GatewayConfig::default(), &GatewayConfig::default()));
        assert_eq!((config.audit, new.audit), (AuditConfig::default(), AuditConfig::default()));
        assert_eq!((config.pins, new.pins), (PinMode::default(), PinMode::default()));
    }
}

#[test]
fn the_page_has_every_key_with_its_default_and_no_other() {
    let page = include_str!("../../../../docs/reference/config.md");
    let cell = |default: &Value| match default {
        Value::Array(words) => {
            let words: Vec<_> = words.iter().map(Value::to_string).collect();
            format!("`[{}]`", words.join(", "))
        }
        value => format!("`{value}`"),
    };
    let schema = schema();
    let mut described = BTreeMap::from([("config", &schema)]);
    described.extend(schema["$defs"].as_object().unwrap().iter().map(|(name, found)| (name.as_str(), found)));
    for part in page.split("<!-- section: ").skip(1) {
        let (name, rows) = part.split_once(" -->").unwrap();
        let section = described.remove(name).unwrap_or_else(|| panic!("there is no section {name}"));
        let found: BTreeMap<&str, &str> = rows.lines().filter_map(row).collect();
        let properties = section["properties"].as_object().unwrap();
        let keys: Vec<_> = properties.keys().filter(|key| !key.contains(char::is_uppercase)).collect();
        assert_eq!(found.keys().collect::<Vec<_>>(), keys, "the keys of the section {name}");
        for (key, shown) in found {
            match properties[key].get("default") {
                Some(default) => assert_eq!(shown, cell(default), "the default of `{key}` in {name}"),
                None => assert!(!shown.starts_with('`'), "`{key}` in {name} has no default, and not {shown}"),
            }
        }
    }
    assert!(described.is_empty(), "sections that the page leaves out: {:?}", described.keys());
}

/// Returns the key and the default in a row of the page.
fn row(line: &str) -> Option<(&str, &str)> {
    let mut cells = line.strip_prefix("| `")?.split(" | ");
    let (key, _, default) = (cells.next()?, cells.next()?, cells.next()?);
    Some((key.strip_suffix('`')?, default.trim()))
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
            "description": "Time a lazy server outlives its last use.",
        })
    );
    assert_eq!(schema["properties"]["servers"]["additionalProperties"]["$ref"], json!("#/$defs/server"));
}

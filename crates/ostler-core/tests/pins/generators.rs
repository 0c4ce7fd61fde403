//! Generators of arbitrary JSON and arbitrary lock files.

use std::collections::BTreeMap;

use ostler_core::pins::{LockFile, LockedServer, Pin};
use ostler_core::server_name::ServerName;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Generates texts with quotes, escapes, and deceptive characters.
pub(crate) fn text() -> impl Strategy<Value = String> {
    let odd = prop::sample::select(vec![
        '"',
        '\\',
        '/',
        '\n',
        '\t',
        '\r',
        '\0',
        '\u{1b}',
        '\u{7f}',
        '\u{85}',
        '\u{200b}',
        '\u{202e}',
        '\u{2028}',
        '\u{e0041}',
        '\u{fe0f}',
        '\u{feff}',
        '😀',
        'é',
        '\u{fb33}',
        '\u{ffff}',
    ]);
    vec(prop_oneof![3 => any::<char>(), 3 => odd, 6 => prop::char::range('a', 'e')], 0..8)
        .prop_map(String::from_iter)
}

/// Generates JSON values of a few levels.
pub(crate) fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1e30..1e30f64).prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            btree_map(text(), inner, 0..4).prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Generates definitions of the tool `name`, with arbitrary members beside its name.
pub(crate) fn definition(name: String) -> impl Strategy<Value = Map<String, Value>> {
    btree_map(text(), value(), 0..4).prop_map(move |members| {
        let mut members: Map<_, _> = members.into_iter().filter(|(key, _)| key != "_meta").collect();
        members.insert("name".into(), json!(name));
        members
    })
}

/// Generates pins of such definitions.
pub(crate) fn pin(name: String) -> impl Strategy<Value = Pin> {
    definition(name)
        .prop_map(|members| Pin::from_definition(Value::Object(members).to_string().as_bytes()).unwrap())
}

/// Generates the pins of one server.
pub(crate) fn server() -> impl Strategy<Value = LockedServer> {
    vec(text(), 0..4)
        .prop_flat_map(|names| {
            let pins: Vec<_> = names
                .into_iter()
                .map(|name| pin(name.clone()).prop_map(move |pin| (name.clone(), pin)))
                .collect();
            pins
        })
        .prop_map(|tools| {
            LockedServer::with_tools(format!("sha256:{}", "0".repeat(64)), BTreeMap::from_iter(tools))
        })
}

/// Generates whole lock files.
pub(crate) fn lock() -> impl Strategy<Value = LockFile> {
    btree_map("[a-z][a-z0-9-]{0,5}", server(), 0..3).prop_map(|servers| LockFile {
        servers: servers
            .into_iter()
            .map(|(name, server)| (ServerName::new(&name).unwrap(), server))
            .collect(),
    })
}

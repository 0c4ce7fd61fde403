//! Comparing against a naive model: trees, not hashes.

use std::collections::BTreeMap;

use ostler_core::config::PinMode;
use ostler_core::name::ServerName;
use ostler_core::pins::{Difference, Lock, LockedServer, Pin, Pins, Standing, compare};
use proptest::prelude::*;
use serde_json::{Value, json};

fn locked(tools: &BTreeMap<String, u8>) -> LockedServer {
    let pin = |(tool, version): (&String, &u8)| (tool.clone(), Pin::of(&offer(tool, *version)).unwrap());
    LockedServer { transport: String::new(), tools: tools.iter().map(pin).collect() }
}

fn offer(tool: &str, version: u8) -> Vec<u8> {
    json!({"name": tool, "description": format!("version {version}"), "_meta": {"random": tool.len()}})
        .to_string()
        .into_bytes()
}

fn pins(mode: PinMode, server: LockedServer) -> Pins {
    Pins { mode, lock: Lock { servers: [(ServerName::new("s").unwrap(), server)].into() } }
}

fn tools() -> impl Strategy<Value = BTreeMap<String, u8>> {
    prop::collection::btree_map("[a-d]", 0u8..2, 0..4)
}

proptest! {
    #[test]
    fn verdicts_agree_with_a_naive_model(approved in tools(), offered in tools(), is_locked: bool) {
        let server = locked(&approved);
        let texts: Vec<_> = offered.iter().map(|(tool, version)| (tool.clone(), offer(tool, *version))).collect();
        let approved = if is_locked { approved } else { BTreeMap::new() };
        let mut expected = Vec::new();
        for tool in ["a", "b", "c", "d"] {
            match (approved.get(tool), offered.get(tool)) {
                (Some(old), Some(new)) if old != new => expected.push((tool, "changed")),
                (None, Some(_)) => expected.push((tool, "new")),
                (Some(_), None) => expected.push((tool, "removed")),
                _ => {}
            }
        }
        let found = compare(
            is_locked.then_some(&server),
            texts.iter().map(|(tool, text)| (tool.as_str(), text.as_slice())),
        );
        let verdicts: Vec<_> = found.iter().map(|difference| (difference.tool(), match difference {
            Difference::Changed { .. } => "changed",
            Difference::New { .. } => "new",
            Difference::Removed { .. } => "removed",
        })).collect();
        prop_assert_eq!(verdicts, expected);

        let pins = if is_locked { pins(PinMode::Enforce, server) } else { Pins { mode: PinMode::Warn, lock: Lock::default() } };
        for (tool, text) in &texts {
            let expected = match approved.get(tool) {
                None => Standing::New,
                Some(version) if *version == offered[tool] => Standing::Approved,
                Some(_) => Standing::Changed,
            };
            prop_assert_eq!(pins.standing("s", tool, text), expected);
        }
    }
}

#[test]
fn without_pins_nothing_is_compared() {
    let pins = pins(PinMode::Off, LockedServer::default());
    assert_eq!(pins.standing("s", "a", b"{}"), Standing::Unpinned);
    assert_eq!(pins.standing("other", "a", b"nonsense"), Standing::Unpinned);
}

#[test]
fn a_definition_with_two_meanings_is_never_approved() {
    let tools = BTreeMap::from([("a".to_owned(), 1)]);
    let twice = br#"{"name":"a","description":"version 1","description":"version 1"}"#;
    let server = locked(&tools);
    let found = compare(Some(&server), [("a", &twice[..])].into_iter());
    assert!(matches!(&found[..], [Difference::Changed { new, .. }] if &new[..] == twice));
    let pins = pins(PinMode::Enforce, server);
    assert_eq!(pins.standing("s", "a", twice), Standing::Changed);
    assert_eq!(pins.standing("s", "b", twice), Standing::New);
    assert_eq!(pins.standing("t", "a", &offer("a", 1)), Standing::New);
    assert_eq!(pins.standing("s", "a", &offer("a", 1)), Standing::Approved);
}

#[test]
fn a_tool_that_is_offered_twice_differs_if_either_does() {
    let server = locked(&BTreeMap::from([("a".to_owned(), 1)]));
    let (good, other) = (offer("a", 1), offer("a", 0));
    for offered in [[&good, &other], [&other, &good]] {
        let found = compare(Some(&server), offered.into_iter().map(|text| ("a", text.as_slice())));
        let [Difference::Changed { new, .. }] = &found[..] else { panic!("{found:?}") };
        let new: Value = serde_json::from_slice(new).unwrap();
        assert_eq!(new["description"], "version 0");
    }
}

//! Comparison against a naive model: trees, not hashes.

use std::collections::BTreeMap;

use ostler_core::config::PinMode;
use ostler_core::pins::{
    Difference, DifferenceKind, LockFile, LockSection, LockedServer, Pin, PinPolicy, PinStatus, compare,
};
use ostler_core::server_name::ServerName;
use proptest::prelude::*;
use serde_json::{Value, json};

fn locked(tools: &BTreeMap<String, u8>) -> LockedServer {
    let pin = |(tool, version): (&String, &u8)| {
        (tool.clone(), Pin::from_definition(&offer(tool, *version)).unwrap())
    };
    LockedServer::with_tools("", tools.iter().map(pin).collect())
}

fn offer(tool: &str, version: u8) -> Vec<u8> {
    json!({"name": tool, "description": format!("version {version}"), "_meta": {"ui": tool.len()}})
        .to_string()
        .into_bytes()
}

fn pins(mode: PinMode, server: LockedServer) -> PinPolicy {
    PinPolicy::new(mode, LockFile { servers: [(ServerName::new("s").unwrap(), server)].into() })
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
            texts.iter().map(|(tool, text)| (LockSection::Tools, tool.as_str(), text.as_slice())),
        );
        let verdicts: Vec<_> = found.iter().map(|difference| (difference.name.as_str(), match difference.kind {
            DifferenceKind::Changed { .. } => "changed",
            DifferenceKind::New { .. } => "new",
            DifferenceKind::Removed { .. } => "removed",
        })).collect();
        prop_assert_eq!(verdicts, expected);

        let pins = if is_locked { pins(PinMode::Enforce, server) } else { PinPolicy::new(PinMode::Warn, LockFile::default()) };
        for (tool, text) in &texts {
            let expected = match approved.get(tool) {
                None => PinStatus::New,
                Some(version) if *version == offered[tool] => PinStatus::Approved,
                Some(_) => PinStatus::Changed,
            };
            prop_assert_eq!(pins.status("s", (LockSection::Tools, tool), text), expected);
        }
    }
}

#[test]
fn without_pins_nothing_is_compared() {
    let pins = pins(PinMode::Off, LockedServer::default());
    assert_eq!(pins.status("s", (LockSection::Tools, "a"), b"{}"), PinStatus::Unpinned);
    assert_eq!(pins.status("other", (LockSection::Tools, "a"), b"nonsense"), PinStatus::Unpinned);
}

#[test]
fn a_definition_with_two_meanings_is_never_approved() {
    let tools = BTreeMap::from([("a".to_owned(), 1)]);
    let twice = br#"{"name":"a","description":"version 1","description":"version 1"}"#;
    let server = locked(&tools);
    let found = compare(Some(&server), [(LockSection::Tools, "a", &twice[..])].into_iter());
    assert!(
        matches!(&found[..], [Difference { kind: DifferenceKind::Changed { new, .. }, .. }] if &new[..] == twice)
    );
    let pins = pins(PinMode::Enforce, server);
    assert_eq!(pins.status("s", (LockSection::Tools, "a"), twice), PinStatus::Changed);
    assert_eq!(pins.status("s", (LockSection::Tools, "b"), twice), PinStatus::New);
    assert_eq!(pins.status("t", (LockSection::Tools, "a"), &offer("a", 1)), PinStatus::New);
    assert_eq!(pins.status("s", (LockSection::Tools, "a"), &offer("a", 1)), PinStatus::Approved);
}

#[test]
fn a_tool_that_is_offered_twice_differs_if_either_does() {
    let server = locked(&BTreeMap::from([("a".to_owned(), 1)]));
    let (good, other) = (offer("a", 1), offer("a", 0));
    for offered in [[&good, &other], [&other, &good]] {
        let found = compare(
            Some(&server),
            offered.into_iter().map(|text| (LockSection::Tools, "a", text.as_slice())),
        );
        let [Difference { kind: DifferenceKind::Changed { new, .. }, .. }] = &found[..] else {
            panic!("{found:?}")
        };
        let new: Value = serde_json::from_slice(new).unwrap();
        assert_eq!(new["description"], "version 0");
    }
}

#[test]
fn a_section_that_an_older_lock_lacks_is_not_pinned_yet_and_an_empty_one_approves_nothing() {
    let mut server = locked(&BTreeMap::new());
    let prompt = offer("p", 1);
    let offered = || [(LockSection::Prompts, "p", prompt.as_slice())].into_iter();
    assert_eq!(compare(Some(&server), offered()), []);
    let old = pins(PinMode::Enforce, server.clone());
    assert_eq!(old.status("s", (LockSection::Prompts, "p"), &prompt), PinStatus::Unpinned);
    assert_eq!(old.status("other", (LockSection::Prompts, "p"), &prompt), PinStatus::New);
    server.sections.insert(LockSection::Prompts, BTreeMap::new());
    assert_eq!(compare(Some(&server), offered()).len(), 1);
    let mut new = pins(PinMode::Enforce, server);
    assert_eq!(new.status("s", (LockSection::Prompts, "p"), &prompt), PinStatus::New);
    new.exempt.insert(ServerName::new("s").unwrap());
    assert_eq!(new.status("s", (LockSection::Prompts, "p"), &prompt), PinStatus::Unpinned);
}

#[test]
fn a_tool_and_a_prompt_of_one_name_are_two_items() {
    let server = locked(&BTreeMap::from([("a".to_owned(), 1)]));
    let pins = pins(PinMode::Enforce, server);
    assert_eq!(pins.status("s", (LockSection::Tools, "a"), &offer("a", 1)), PinStatus::Approved);
    assert_eq!(pins.pin("s", LockSection::Prompts, "a"), None);
}

//! Texts for people: nothing lost, nothing hidden.

use ostler_core::pins::{
    DiffSegment, FieldChangeKind, diff_words, field_changes, hash_definition, is_deceptive,
    spell_out_deceptive,
};
use proptest::prelude::*;
use serde_json::Value;

use crate::generators::{definition, text};

fn sides(segments: &[DiffSegment]) -> (String, String) {
    let (mut old, mut new) = (String::new(), String::new());
    for segment in segments {
        match segment {
            DiffSegment::Same(text) => {
                old.push_str(text);
                new.push_str(text);
            }
            DiffSegment::Removed(text) => old.push_str(text),
            DiffSegment::Added(text) => new.push_str(text),
        }
    }
    (old, new)
}

fn sentence() -> impl Strategy<Value = String> {
    prop::collection::vec(prop_oneof![3 => "[ab ]{1,3}", 1 => text()], 0..12).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn pieces_make_both_texts(old in sentence(), new in sentence()) {
        let segments = diff_words(&old, &new);
        prop_assert_eq!(sides(&segments), (old, new));
        let is_same = |segment: &DiffSegment| matches!(segment, DiffSegment::Same(_));
        prop_assert!(!segments.windows(2).any(|pair| is_same(&pair[0]) && is_same(&pair[1])));
    }

    #[test]
    fn what_is_revealed_has_nothing_deceptive(text in sentence()) {
        let shown = spell_out_deceptive(&text);
        prop_assert!(!shown.contains(is_deceptive));
        prop_assert_eq!(spell_out_deceptive(&shown), shown.clone());
        prop_assert_eq!(shown == text, !text.contains(is_deceptive));
    }

    #[test]
    fn definitions_differ_exactly_when_there_are_changes(
        old in definition("tool".into()),
        new in definition("tool".into()),
    ) {
        let [old, new] = [old, new].map(|members| Value::Object(members).to_string().into_bytes());
        let found = field_changes(&old, &new);
        prop_assert_eq!(found.is_empty(), hash_definition(&old).unwrap() == hash_definition(&new).unwrap());
        for change in found {
            prop_assert!(!change.pointer.contains(is_deceptive));
            let shown = match change.kind {
                FieldChangeKind::Added(text) | FieldChangeKind::Removed(text) => text,
                FieldChangeKind::Reworded(segments) => {
                    let (old, new) = sides(&segments);
                    old + &new
                }
                FieldChangeKind::Replaced { old, new } => old + &new,
            };
            prop_assert!(!shown.contains(is_deceptive), "{}", shown);
        }
    }
}

//! Texts for people: nothing lost, nothing hidden.

use ostler_core::pins::{Piece, What, changes, diff, hash, is_deceptive, reveal};
use proptest::prelude::*;
use serde_json::Value;

use crate::worlds::{definition, text};

fn sides(pieces: &[Piece]) -> (String, String) {
    let (mut old, mut new) = (String::new(), String::new());
    for piece in pieces {
        match piece {
            Piece::Same(text) => {
                old.push_str(text);
                new.push_str(text);
            }
            Piece::Gone(text) => old.push_str(text),
            Piece::Come(text) => new.push_str(text),
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
        let pieces = diff(&old, &new);
        prop_assert_eq!(sides(&pieces), (old, new));
        let is_same = |piece: &Piece| matches!(piece, Piece::Same(_));
        prop_assert!(!pieces.windows(2).any(|pair| is_same(&pair[0]) && is_same(&pair[1])));
    }

    #[test]
    fn what_is_revealed_has_nothing_deceptive(text in sentence()) {
        let shown = reveal(&text);
        prop_assert!(!shown.contains(is_deceptive));
        prop_assert_eq!(reveal(&shown), shown.clone());
        prop_assert_eq!(shown == text, !text.contains(is_deceptive));
    }

    #[test]
    fn definitions_differ_exactly_when_there_are_changes(
        old in definition("tool".into()),
        new in definition("tool".into()),
    ) {
        let [old, new] = [old, new].map(|members| Value::Object(members).to_string().into_bytes());
        let found = changes(&old, &new);
        prop_assert_eq!(found.is_empty(), hash(&old).unwrap() == hash(&new).unwrap());
        for change in found {
            prop_assert!(!change.pointer.contains(is_deceptive));
            let shown = match change.what {
                What::Added(text) | What::Removed(text) => text,
                What::Reworded(pieces) => {
                    let (old, new) = sides(&pieces);
                    old + &new
                }
                What::Replaced { old, new } => old + &new,
            };
            prop_assert!(!shown.contains(is_deceptive), "{}", shown);
        }
    }
}

//! Differences between two definitions, field by field, for people to read.

use super::hash::read_definition;
use super::json::Json;
use super::word_diff::{DiffSegment, diff_words, spell_out_deceptive};

/// One field that differs. All of it is for reading: deceptive characters are spelled out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldChange {
    /// Its location, as a JSON pointer; empty for the whole definition.
    pub pointer: String,
    /// The change.
    pub kind: FieldChangeKind,
}

/// Change of a field. Texts are shown as they are, other values as compact JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FieldChangeKind {
    /// The field was added.
    Added(String),
    /// The field was removed.
    Removed(String),
    /// A text became another text.
    Reworded(Vec<DiffSegment>),
    /// A value became another value.
    Replaced {
        /// Before.
        old: String,
        /// After.
        new: String,
    },
}

/// Returns the fields that differ, in the order of the canonical form. Definitions that can't be parsed are
/// compared as whole texts.
pub fn field_changes(old: &[u8], new: &[u8]) -> Vec<FieldChange> {
    let mut found = Vec::new();
    match (read_definition(old), read_definition(new)) {
        (Ok(old), Ok(new)) => compare(&old, &new, &mut Vec::new(), &mut found),
        _ if old == new => {}
        _ => {
            let [old, new] = [old, new].map(|text| spell_out_deceptive(&String::from_utf8_lossy(text)));
            found.push(FieldChange {
                pointer: String::new(),
                kind: FieldChangeKind::Reworded(diff_words(&old, &new)),
            });
        }
    }
    found
}

fn compare(old: &Json, new: &Json, path: &mut Vec<String>, found: &mut Vec<FieldChange>) {
    if old == new {
        return;
    }
    match (old, new) {
        (Json::Object(before), Json::Object(after)) => {
            let mut keys: Vec<&String> = before.iter().chain(after).map(|(key, _)| key).collect();
            keys.sort_by(|one, other| one.encode_utf16().cmp(other.encode_utf16()));
            keys.dedup();
            for key in keys {
                compare_member(key, (old.get(key), new.get(key)), path, found);
            }
        }
        (Json::Array(before), Json::Array(after)) if is_compared_elementwise(before, after) => {
            for index in 0..before.len().max(after.len()) {
                compare_member(&index.to_string(), (before.get(index), after.get(index)), path, found);
            }
        }
        (Json::Text(before), Json::Text(after)) => {
            found.push(change_at(
                path,
                FieldChangeKind::Reworded(diff_words(
                    &spell_out_deceptive(before),
                    &spell_out_deceptive(after),
                )),
            ));
        }
        _ => found.push(change_at(
            path,
            FieldChangeKind::Replaced { old: display_value(old), new: display_value(new) },
        )),
    }
}

/// Returns whether the elements of two lists are compared one by one. Short lists of plain values, such as
/// `enum` and `required`, are easier to read side by side.
fn is_compared_elementwise(before: &[Json], after: &[Json]) -> bool {
    let has_parts =
        |items: &[Json]| items.iter().any(|item| matches!(item, Json::Array(_) | Json::Object(_)));
    before.len() == after.len() || has_parts(before) || has_parts(after)
}

fn compare_member(
    key: &str,
    pair: (Option<&Json>, Option<&Json>),
    path: &mut Vec<String>,
    found: &mut Vec<FieldChange>,
) {
    path.push(key.to_owned());
    match pair {
        (Some(old), Some(new)) => compare(old, new, path, found),
        (None, Some(new)) => found.push(change_at(path, FieldChangeKind::Added(display_value(new)))),
        (Some(old), None) => found.push(change_at(path, FieldChangeKind::Removed(display_value(old)))),
        (None, None) => {}
    }
    path.pop();
}

fn change_at(path: &[String], what: FieldChangeKind) -> FieldChange {
    FieldChange { pointer: pointer(path), kind: what }
}

/// Returns a JSON pointer (RFC 6901) for reading.
pub(super) fn pointer(path: &[String]) -> String {
    path.iter()
        .map(|key| format!("/{}", spell_out_deceptive(key).replace('~', "~0").replace('/', "~1")))
        .collect()
}

fn display_value(value: &Json) -> String {
    match value {
        Json::Text(text) => spell_out_deceptive(text),
        other => spell_out_deceptive(&other.canonical()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(pointer: &str, what: FieldChangeKind) -> FieldChange {
        FieldChange { pointer: pointer.into(), kind: what }
    }

    #[test]
    fn every_field_is_told_with_its_place() {
        let old = br#"{"name":"add","description":"Adds two numbers.","inputSchema":{"properties":
            {"a":{"type":"number"},"b":{"description":"The second."}},"required":["a","b"],"anyOf":[{"x":1}]}}"#;
        let new = br#"{"name":"add","description":"Adds\u200b two numbers.","inputSchema":{"properties":
            {"a":{"type":"string"},"c":{"default":1.0}},"required":["a"],"anyOf":[{"x":2},{}]},"title":"Add"}"#;
        let replaced = |old: &str, new: &str| FieldChangeKind::Replaced { old: old.into(), new: new.into() };
        let reworded = |old: &str, new: &str| {
            FieldChangeKind::Reworded(vec![DiffSegment::Removed(old.into()), DiffSegment::Added(new.into())])
        };
        let hidden = vec![
            DiffSegment::Same("Adds".into()),
            DiffSegment::Added("‹U+200B ZERO WIDTH SPACE›".into()),
            DiffSegment::Same(" two numbers.".into()),
        ];
        assert_eq!(
            field_changes(old, new),
            [
                change("/description", FieldChangeKind::Reworded(hidden)),
                change("/inputSchema/anyOf/0/x", replaced("1", "2")),
                change("/inputSchema/anyOf/1", FieldChangeKind::Added("{}".into())),
                change("/inputSchema/properties/a/type", reworded("number", "string")),
                change(
                    "/inputSchema/properties/b",
                    FieldChangeKind::Removed(r#"{"description":"The second."}"#.into())
                ),
                change("/inputSchema/properties/c", FieldChangeKind::Added(r#"{"default":1}"#.into())),
                change("/inputSchema/required", replaced(r#"["a","b"]"#, r#"["a"]"#)),
                change("/title", FieldChangeKind::Added("Add".into())),
            ]
        );
    }

    #[test]
    fn what_can_not_be_read_is_compared_as_text() {
        let found = field_changes(br#"{"name":"a"}"#, br#"{"name":"a","name":"b"}"#);
        assert!(
            matches!(&found[..], [FieldChange { pointer, kind: FieldChangeKind::Reworded(_) }] if pointer.is_empty())
        );
        assert_eq!(field_changes(b"x", b"x"), []);
    }

    #[test]
    fn pointers_are_escaped_and_revealed() {
        let found = field_changes(b"{}", "{\"a/b~\u{202e}\":1}".as_bytes());
        assert_eq!(found[0].pointer, "/a~1b~0‹U+202E RIGHT-TO-LEFT OVERRIDE›");
    }

    #[test]
    fn lists_are_compared_one_by_one_if_they_are_as_long_or_have_parts() {
        let places = |old: &str, new: &str| -> Vec<String> {
            let whole = |list: &str| format!(r#"{{"x":{list}}}"#).into_bytes();
            field_changes(&whole(old), &whole(new)).into_iter().map(|change| change.pointer).collect()
        };
        assert_eq!(places(r#"["a","b"]"#, r#"["a","c"]"#), ["/x/1"]);
        assert_eq!(places(r#"["a"]"#, r#"["a","c"]"#), ["/x"]);
        assert_eq!(places(r#"[{}]"#, r#"[]"#), ["/x/0"]);
        assert_eq!(places(r#"[]"#, r#"[{}]"#), ["/x/0"]);
    }
}

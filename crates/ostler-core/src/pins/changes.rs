//! What changed between two definitions, field by field, for people to read.

use super::hash::read_definition;
use super::json::Json;
use super::words::{Piece, diff, reveal};

/// One field that differs. Everything in it is for reading: deceptive characters are spelled out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Where, as a JSON pointer; empty for the whole definition.
    pub pointer: String,
    /// What happened there.
    pub what: What,
}

/// What happened to a field. Texts stand as they are, other values as compact JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// It is new.
    Added(String),
    /// It is gone.
    Removed(String),
    /// A text became another text.
    Reworded(Vec<Piece>),
    /// A value became another value.
    Replaced {
        /// Before.
        old: String,
        /// After.
        new: String,
    },
}

/// The fields that differ, in the order of the canonical form. Of a definition that can't be read, the whole
/// text is compared.
pub fn changes(old: &[u8], new: &[u8]) -> Vec<Change> {
    let mut found = Vec::new();
    match (read_definition(old), read_definition(new)) {
        (Ok(old), Ok(new)) => compare(&old, &new, &mut Vec::new(), &mut found),
        _ if old == new => {}
        _ => {
            let [old, new] = [old, new].map(|text| reveal(&String::from_utf8_lossy(text)));
            found.push(Change { pointer: String::new(), what: What::Reworded(diff(&old, &new)) });
        }
    }
    found
}

fn compare(old: &Json, new: &Json, path: &mut Vec<String>, found: &mut Vec<Change>) {
    if old == new {
        return;
    }
    match (old, new) {
        (Json::Object(before), Json::Object(after)) => {
            let mut keys: Vec<&String> = before.iter().chain(after).map(|(key, _)| key).collect();
            keys.sort_by(|one, other| one.encode_utf16().cmp(other.encode_utf16()));
            keys.dedup();
            for key in keys {
                step(key, (old.get(key), new.get(key)), path, found);
            }
        }
        (Json::Array(before), Json::Array(after)) if is_matched(before, after) => {
            for index in 0..before.len().max(after.len()) {
                step(&index.to_string(), (before.get(index), after.get(index)), path, found);
            }
        }
        (Json::Text(before), Json::Text(after)) => {
            found.push(note(path, What::Reworded(diff(&reveal(before), &reveal(after)))));
        }
        _ => found.push(note(path, What::Replaced { old: show(old), new: show(new) })),
    }
}

/// Whether the elements of two lists are compared one by one. Short lists of plain values, such as `enum` and
/// `required`, are easier to read side by side.
fn is_matched(before: &[Json], after: &[Json]) -> bool {
    let has_parts =
        |items: &[Json]| items.iter().any(|item| matches!(item, Json::Array(_) | Json::Object(_)));
    before.len() == after.len() || has_parts(before) || has_parts(after)
}

fn step(key: &str, pair: (Option<&Json>, Option<&Json>), path: &mut Vec<String>, found: &mut Vec<Change>) {
    path.push(key.to_owned());
    match pair {
        (Some(old), Some(new)) => compare(old, new, path, found),
        (None, Some(new)) => found.push(note(path, What::Added(show(new)))),
        (Some(old), None) => found.push(note(path, What::Removed(show(old)))),
        (None, None) => {}
    }
    path.pop();
}

fn note(path: &[String], what: What) -> Change {
    Change { pointer: pointer(path), what }
}

/// A JSON pointer (RFC 6901) for reading.
pub(super) fn pointer(path: &[String]) -> String {
    path.iter().map(|key| format!("/{}", reveal(key).replace('~', "~0").replace('/', "~1"))).collect()
}

fn show(value: &Json) -> String {
    match value {
        Json::Text(text) => reveal(text),
        other => reveal(&other.canonical()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(pointer: &str, what: What) -> Change {
        Change { pointer: pointer.into(), what }
    }

    #[test]
    fn every_field_is_told_with_its_place() {
        let old = br#"{"name":"add","description":"Adds two numbers.","inputSchema":{"properties":
            {"a":{"type":"number"},"b":{"description":"The second."}},"required":["a","b"],"anyOf":[{"x":1}]}}"#;
        let new = br#"{"name":"add","description":"Adds\u200b two numbers.","inputSchema":{"properties":
            {"a":{"type":"string"},"c":{"default":1.0}},"required":["a"],"anyOf":[{"x":2},{}]},"title":"Add"}"#;
        let replaced = |old: &str, new: &str| What::Replaced { old: old.into(), new: new.into() };
        let reworded =
            |old: &str, new: &str| What::Reworded(vec![Piece::Gone(old.into()), Piece::Come(new.into())]);
        let hidden = vec![
            Piece::Same("Adds".into()),
            Piece::Come("‹U+200B ZERO WIDTH SPACE›".into()),
            Piece::Same(" two numbers.".into()),
        ];
        assert_eq!(
            changes(old, new),
            [
                change("/description", What::Reworded(hidden)),
                change("/inputSchema/anyOf/0/x", replaced("1", "2")),
                change("/inputSchema/anyOf/1", What::Added("{}".into())),
                change("/inputSchema/properties/a/type", reworded("number", "string")),
                change("/inputSchema/properties/b", What::Removed(r#"{"description":"The second."}"#.into())),
                change("/inputSchema/properties/c", What::Added(r#"{"default":1}"#.into())),
                change("/inputSchema/required", replaced(r#"["a","b"]"#, r#"["a"]"#)),
                change("/title", What::Added("Add".into())),
            ]
        );
    }

    #[test]
    fn what_can_not_be_read_is_compared_as_text() {
        let found = changes(br#"{"name":"a"}"#, br#"{"name":"a","name":"b"}"#);
        assert!(matches!(&found[..], [Change { pointer, what: What::Reworded(_) }] if pointer.is_empty()));
        assert_eq!(changes(b"x", b"x"), []);
    }

    #[test]
    fn pointers_are_escaped_and_revealed() {
        let found = changes(b"{}", "{\"a/b~\u{202e}\":1}".as_bytes());
        assert_eq!(found[0].pointer, "/a~1b~0‹U+202E RIGHT-TO-LEFT OVERRIDE›");
    }

    #[test]
    fn lists_are_compared_one_by_one_if_they_are_as_long_or_have_parts() {
        let places = |old: &str, new: &str| -> Vec<String> {
            let whole = |list: &str| format!(r#"{{"x":{list}}}"#).into_bytes();
            changes(&whole(old), &whole(new)).into_iter().map(|change| change.pointer).collect()
        };
        assert_eq!(places(r#"["a","b"]"#, r#"["a","c"]"#), ["/x/1"]);
        assert_eq!(places(r#"["a"]"#, r#"["a","c"]"#), ["/x"]);
        assert_eq!(places(r#"[{}]"#, r#"[]"#), ["/x/0"]);
        assert_eq!(places(r#"[]"#, r#"[{}]"#), ["/x/0"]);
    }
}

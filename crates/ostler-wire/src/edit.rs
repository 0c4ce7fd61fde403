//! Edits of an object's members in its text, without reformatting the rest.

use crate::json_string::push_string;
use crate::object::{for_each_member, is_object};

/// Edit of one member of an object. Values are JSON texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberEdit<'a> {
    /// Sets the value; a missing member is added at the end.
    Set(&'a [u8]),
    /// Sets the value unless the member has one.
    Default(&'a [u8]),
    /// Removes the member.
    Remove,
}

/// Returns the text of the object `raw` with some members changed; every other byte that belongs to a member
/// stays. `None` if the text is no object. An edit applies to all occurrences of a key, of which one is left.
pub fn edit(raw: &[u8], changes: &[(&str, MemberEdit<'_>)]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(raw).ok()?;
    if !is_object(raw) {
        return None;
    }
    let grown: usize = changes.iter().map(|(key, change)| key.len() + change.value().len() + 4).sum();
    let mut out = Vec::with_capacity(raw.len() + grown);
    out.push(b'{');
    let mut seen = 0_u64;
    for_each_member(text, |key, value| {
        let at = changes.iter().position(|(name, _)| *name == key.text());
        let value = match at.map(|at| (at, changes[at].1)) {
            None | Some((_, MemberEdit::Default(_))) => value.as_bytes(),
            Some((_, MemberEdit::Remove)) => return,
            Some((at, MemberEdit::Set(_))) if seen & (1 << at) != 0 => return,
            Some((_, MemberEdit::Set(value))) => value,
        };
        if let Some(at) = at {
            seen |= 1 << at;
        }
        push_member(&mut out, key.0.as_bytes(), value);
    })
    .ok()?;
    for (at, (key, change)) in changes.iter().enumerate() {
        if *change != MemberEdit::Remove && seen & (1 << at) == 0 {
            let mut name = Vec::with_capacity(key.len() + 2);
            push_string(&mut name, key);
            push_member(&mut out, &name, change.value());
        }
    }
    out.push(b'}');
    Some(out)
}

impl<'a> MemberEdit<'a> {
    fn value(self) -> &'a [u8] {
        match self {
            MemberEdit::Set(value) | MemberEdit::Default(value) => value,
            MemberEdit::Remove => b"",
        }
    }
}

fn push_member(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    if out.len() > 1 {
        out.push(b',');
    }
    out.extend_from_slice(key);
    out.push(b':');
    out.extend_from_slice(value);
}

/// Returns the raw value of one member of an object; `None` if it is absent, given twice, or the text is no
/// object.
pub fn member<'a>(raw: &'a [u8], key: &str) -> Option<&'a [u8]> {
    let [value] = crate::object::select_members(raw, &[key]).ok()?;
    value.map(str::as_bytes)
}

/// Returns the text of a string member; `None` also if it is no string.
pub fn text_member<'a>(raw: &'a [u8], key: &str) -> Option<std::borrow::Cow<'a, str>> {
    crate::json_string::decode_string(std::str::from_utf8(member(raw, key)?).ok()?)
}

/// Returns all members of an object with their raw values, in order; `None` if the text is no object.
pub fn all_members(raw: &[u8]) -> Option<Vec<(String, &[u8])>> {
    let text = std::str::from_utf8(raw).ok()?;
    let mut all = Vec::new();
    for_each_member(text, |key, value| all.push((key.text().into_owned(), value.as_bytes()))).ok()?;
    Some(all)
}

/// Appends a JSON string.
pub fn push_json_string(out: &mut Vec<u8>, text: &str) {
    push_string(out, text);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edited(raw: &str, changes: &[(&str, MemberEdit<'_>)]) -> String {
        String::from_utf8(edit(raw.as_bytes(), changes).unwrap()).unwrap()
    }

    #[test]
    fn members_are_set_removed_and_added_and_the_rest_stays() {
        let raw = r#" { "a" : 1e400, "b":[1, 2], "\u0063": {"a":0} } "#;
        assert_eq!(
            edited(raw, &[("b", MemberEdit::Set(b"true"))]),
            r#"{"a":1e400,"b":true,"\u0063":{"a":0}}"#
        );
        assert_eq!(edited(raw, &[("c", MemberEdit::Remove), ("a", MemberEdit::Remove)]), r#"{"b":[1, 2]}"#);
        assert_eq!(
            edited(raw, &[("b", MemberEdit::Default(b"0")), ("d", MemberEdit::Default(b"\"x\""))]),
            r#"{"a":1e400,"b":[1, 2],"\u0063":{"a":0},"d":"x"}"#
        );
        assert_eq!(edited("{}", &[("a", MemberEdit::Set(b"1"))]), r#"{"a":1}"#);
        assert_eq!(edited("{}", &[("a", MemberEdit::Remove)]), "{}");
    }

    #[test]
    fn a_member_that_was_there_twice_is_left_once() {
        assert_eq!(edited(r#"{"a":1,"a":2}"#, &[("a", MemberEdit::Set(b"3"))]), r#"{"a":3}"#);
        assert_eq!(edited(r#"{"a":1,"b":0,"a":2}"#, &[("a", MemberEdit::Remove)]), r#"{"b":0}"#);
    }

    #[test]
    fn what_is_no_object_is_left_alone() {
        for raw in ["", "[]", "1", "{", r#"{"a"}"#] {
            assert_eq!(edit(raw.as_bytes(), &[("a", MemberEdit::Remove)]), None, "{raw}");
        }
    }

    #[test]
    fn a_name_with_a_backslash_is_not_taken_for_an_escape() {
        let raw = br#"{"t\u0074l":1,"t\\u0074l":2}"#;
        assert_eq!(member(raw, "ttl").unwrap(), b"1");
        assert_eq!(member(raw, r"t\u0074l").unwrap(), b"2");
    }

    #[test]
    fn members_are_found_by_name() {
        let raw = br#"{"a":"x\n","b":{"c":1}}"#;
        assert_eq!(member(raw, "b").unwrap(), br#"{"c":1}"#);
        assert_eq!(text_member(raw, "a").unwrap(), "x\n");
        assert_eq!(text_member(raw, "b"), None);
        assert_eq!(all_members(raw).unwrap().len(), 2);
    }
}

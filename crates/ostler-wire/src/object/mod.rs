//! Borrowed members of one JSON object, one level deep.
//!
//! Every reader of this crate uses [`for_each_member`]: it walks the members of one object and passes the raw
//! text of keys and values on, so that offsets can be kept and nothing is copied. `serde_json` skips nested
//! values with an explicit stack on the heap, so deep nesting costs one byte per level and no recursion.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer as _, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::json_string::decode_string;

mod fast;

/// A member's key as it is written, quotes included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawKey<'a>(pub(crate) &'a str);

impl<'a> RawKey<'a> {
    /// Decodes the key. A key that is no valid Unicode keeps its raw text, quotes included, which equals none
    /// of the names we look for.
    pub(crate) fn text(self) -> Cow<'a, str> {
        decode_string(self.0).unwrap_or(Cow::Borrowed(self.0))
    }

    /// Returns the index of the key among `names`.
    pub(crate) fn position(self, names: &[&str]) -> Option<usize> {
        let written = self.0.get(1..self.0.len() - 1)?;
        if !written.as_bytes().contains(&b'\\') {
            return names.iter().position(|name| *name == written);
        }
        let text = self.text();
        names.iter().position(|name| *name == text)
    }
}

/// Reason why an object could not be opened.
#[derive(Debug)]
pub(crate) enum ObjectError {
    NotUtf8,
    NotAnObject,
    NotJson(serde_json::Error),
    /// The key at this index of the wanted keys occurs twice.
    Duplicate(usize),
}

/// Returns whether the first token of `json` opens an object.
pub(crate) fn is_object(json: &[u8]) -> bool {
    json.trim_ascii_start().first() == Some(&b'{')
}

/// Calls `visit` with every member of the object `json`, in order, and checks that the whole text is JSON.
pub(crate) fn for_each_member<'a>(
    json: &'a str,
    mut visit: impl FnMut(RawKey<'a>, &'a str),
) -> Result<(), serde_json::Error> {
    let mut found = [("", ""); fast::MAX_MEMBERS];
    match fast::split_members(json, &mut found) {
        Some(count) => {
            found[..count].iter().for_each(|(key, value)| visit(RawKey(key), value));
            Ok(())
        }
        None => for_each_member_serde(json, visit),
    }
}

/// Calls `visit` with every member of any valid text, and describes the error of an invalid one.
pub(crate) fn for_each_member_serde<'a>(
    json: &'a str,
    visit: impl FnMut(RawKey<'a>, &'a str),
) -> Result<(), serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_str(json);
    reader.deserialize_map(MemberVisitor(visit))?;
    reader.end()
}

/// Returns the raw values of the wanted `keys`. Each may occur once; other keys are ignored.
pub(crate) fn select_members<'a, const N: usize>(
    json: &'a [u8],
    keys: &[&str; N],
) -> Result<[Option<&'a str>; N], ObjectError> {
    let text = std::str::from_utf8(json).map_err(|_| ObjectError::NotUtf8)?;
    select_members_str(text, keys)
}

/// Returns the same as [`select_members`], for text that is known to be UTF-8.
pub(crate) fn select_members_str<'a, const N: usize>(
    text: &'a str,
    keys: &[&str; N],
) -> Result<[Option<&'a str>; N], ObjectError> {
    if !is_object(text.as_bytes()) {
        return Err(ObjectError::NotAnObject);
    }
    let mut values = [None; N];
    let mut duplicate = None;
    for_each_member(text, |key, value| {
        let Some(at) = key.position(keys) else { return };
        if values[at].replace(value).is_some() {
            duplicate.get_or_insert(at);
        }
    })
    .map_err(ObjectError::NotJson)?;
    match duplicate {
        Some(at) => Err(ObjectError::Duplicate(at)),
        None => Ok(values),
    }
}

/// Calls `visit` with the elements of the array `json`, raw and in order; `None` if it is not an array.
pub(crate) fn for_each_element<'a>(json: &'a str, visit: impl FnMut(&'a str)) -> Option<()> {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    deserializer.deserialize_seq(ElementVisitor(visit)).ok()?;
    deserializer.end().ok()
}

struct ElementVisitor<F>(F);

impl<'a, F: FnMut(&'a str)> Visitor<'a> for ElementVisitor<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'a>>(mut self, mut list: A) -> Result<(), A::Error> {
        while let Some(element) = list.next_element::<&'a RawValue>()? {
            (self.0)(element.get());
        }
        Ok(())
    }
}

struct MemberVisitor<F>(F);

impl<'a, F: FnMut(RawKey<'a>, &'a str)> Visitor<'a> for MemberVisitor<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some((key, value)) = map.next_entry::<&'a RawValue, &'a RawValue>()? {
            (self.0)(RawKey(key.get()), value.get());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_borrowed_as_they_are_written() {
        let mut seen = Vec::new();
        for_each_member(r#" { "a\u0062" : [1,  2] ,"c":null} "#, |key, value| {
            seen.push((key.0, key.text(), value))
        })
        .unwrap();
        assert_eq!(seen, [(r#""a\u0062""#, "ab".into(), "[1,  2]"), (r#""c""#, "c".into(), "null")]);
    }

    #[test]
    fn an_escaped_spelling_of_a_key_is_the_same_key() {
        assert!(matches!(
            select_members(br#"{"id":1,"\u0069d":2}"#, &["id"]),
            Err(ObjectError::Duplicate(0))
        ));
    }

    #[test]
    fn a_key_with_a_lone_surrogate_is_nobodys_key() {
        assert_eq!(select_members(br#"{"\ud800":1,"id":2}"#, &["id"]).unwrap(), [Some("2")]);
    }

    #[test]
    fn what_follows_the_object_is_refused() {
        assert!(matches!(select_members(b"{} x", &["id"]), Err(ObjectError::NotJson(_))));
    }
}

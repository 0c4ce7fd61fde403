//! Translation of results from one era to the other.

use std::sync::LazyLock;

use bytes::Bytes;
use memchr::memmem::Finder;

use crate::edit::{MemberEdit, edit};

/// Returns a result as a modern client expects it. Members that a legacy server leaves out are added: the
/// type `complete` and, for methods with cache hints (`is_cacheable`), hints that forbid caching.
pub fn result_to_modern(raw: &Bytes, is_cacheable: bool) -> Bytes {
    static TYPE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"resultType\""));
    if !is_cacheable && TYPE.find(raw).is_none() {
        return with_result_type(raw);
    }
    let complete = ("resultType", MemberEdit::Default(b"\"complete\""));
    let hints =
        [complete, ("ttlMs", MemberEdit::Default(b"0")), ("cacheScope", MemberEdit::Default(b"\"private\""))];
    let changes = if is_cacheable { &hints[..] } else { &hints[..1] };
    edit(raw, changes).map_or_else(|| raw.clone(), Bytes::from)
}

/// Puts the type in front of a result that has none. An escaped spelling of the key would be a second one.
/// Only a server that means to confuse writes that; readers then take the last, which is the server's own.
fn with_result_type(raw: &Bytes) -> Bytes {
    const TYPE: &[u8] = b"{\"resultType\":\"complete\"";
    let body = raw.trim_ascii();
    let Some(rest) = body.strip_prefix(b"{") else { return raw.clone() };
    let mut out = Vec::with_capacity(TYPE.len() + 1 + rest.len());
    out.extend_from_slice(TYPE);
    if rest.trim_ascii_start().first() != Some(&b'}') {
        out.push(b',');
    }
    out.extend_from_slice(rest);
    out.into()
}

/// Returns a result as a legacy client expects it, without members of the modern era.
pub fn result_to_legacy(raw: &Bytes) -> Bytes {
    static NEEDLES: LazyLock<[Finder<'static>; 4]> =
        LazyLock::new(|| ["\"resultType\"", "\"ttlMs\"", "\"cacheScope\"", "\\u00"].map(Finder::new));
    let is_plain = |text: &[u8]| NEEDLES.iter().all(|needle| needle.find(text).is_none());
    if let Some(plain) = without_result_type(raw, is_plain) {
        return plain;
    }
    if is_plain(raw) {
        return raw.clone();
    }
    let removals = ["resultType", "ttlMs", "cacheScope"].map(|key| (key, MemberEdit::Remove));
    edit(raw, &removals).map_or_else(|| raw.clone(), Bytes::from)
}

/// Returns a result without its type if the type comes first or last and is the usual one: most results of
/// modern servers have nothing else that is modern. At either end the text can only be a member of the result
/// itself, because a quote inside a string is escaped.
fn without_result_type(raw: &[u8], is_plain: impl Fn(&[u8]) -> bool) -> Option<Bytes> {
    let (front, rest): (&[u8], &[u8]) = match raw.strip_prefix(b"{\"resultType\":\"complete\",") {
        Some(rest) => (b"{", rest),
        None => (raw.strip_suffix(b",\"resultType\":\"complete\"}")?, b"}"),
    };
    let is_usual = is_plain(front) && is_plain(rest);
    is_usual.then(|| [front, rest].concat().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modern(raw: &'static str, is_cacheable: bool) -> Bytes {
        result_to_modern(&Bytes::from_static(raw.as_bytes()), is_cacheable)
    }

    #[test]
    fn a_legacy_result_becomes_complete() {
        assert_eq!(modern(r#"{"content":[]}"#, false), r#"{"resultType":"complete","content":[]}"#);
        assert_eq!(modern("{ }", false), r#"{"resultType":"complete" }"#);
        assert_eq!(modern("[]", false), "[]");
        assert_eq!(
            modern(r#"{"tools":[]}"#, true),
            r#"{"tools":[],"resultType":"complete","ttlMs":0,"cacheScope":"private"}"#
        );
    }

    #[test]
    fn what_a_modern_server_says_stays() {
        for raw in [r#"{"resultType":"task","a":1}"#, r#"{"a":"\"resultType\"","resultType":"x"}"#] {
            assert_eq!(modern(raw, false), raw);
        }
        let raw = r#"{"resultType":"complete","ttlMs":5,"cacheScope":"public"}"#;
        assert_eq!(modern(raw, true), raw);
    }

    #[test]
    fn a_word_in_the_content_is_not_taken_for_the_type() {
        let raw = r#"{"structuredContent":{"resultType":"mine"}}"#;
        assert_eq!(
            modern(raw, false),
            r#"{"structuredContent":{"resultType":"mine"},"resultType":"complete"}"#
        );
    }

    #[test]
    fn a_legacy_client_sees_nothing_modern() {
        let legacy = |raw: &'static str| result_to_legacy(&Bytes::from_static(raw.as_bytes()));
        assert_eq!(legacy(r#"{"ttlMs":1,"a":{"ttlMs":1},"resultType":"complete"}"#), r#"{"a":{"ttlMs":1}}"#);
        assert_eq!(legacy(r#"{"\u0074tlMs":1}"#), "{}");
        let plain = r#"{"content":[{"type":"text"}]}"#;
        assert_eq!(legacy(r#"{"resultType":"complete","content":[{"type":"text"}]}"#), plain);
        assert_eq!(legacy(r#"{"content":[{"type":"text"}],"resultType":"complete"}"#), plain);
        assert_eq!(legacy(r#"{"resultType":"complete","a":1,"resultType":"complete"}"#), r#"{"a":1}"#);
        assert_eq!(legacy(r#"{"ttlMs":1,"a":1,"resultType":"complete"}"#), r#"{"a":1}"#);
        assert_eq!(
            legacy(r#"{"a":{"b":1,"resultType":"complete"}}"#),
            r#"{"a":{"b":1,"resultType":"complete"}}"#
        );
        assert_eq!(legacy(r#"{ "content" : [] }"#), r#"{ "content" : [] }"#);
    }
}

//! JSON strings: decoding and writing.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer as _, Visitor};

/// Decodes the JSON string `raw` (with its quotes); `None` if it is no string or no valid Unicode. Texts that
/// decide something are decoded strictly: two different spellings must not both become U+FFFD.
pub(crate) fn decode_string(raw: &str) -> Option<Cow<'_, str>> {
    let body = raw.strip_prefix('"')?.strip_suffix('"')?;
    if !body.as_bytes().contains(&b'\\') {
        return Some(Cow::Borrowed(body));
    }
    serde_json::from_str(raw).ok().map(Cow::Owned)
}

/// Decodes a JSON string like [`decode_string`], but replaces a lone surrogate with U+FFFD. Only for texts
/// that people read.
pub(crate) fn decode_string_lossy(raw: &str) -> Option<String> {
    let mut reader = serde_json::Deserializer::from_str(raw);
    let bytes = reader.deserialize_bytes(StringBytesVisitor).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Appends `text` as a JSON string, quotes included.
pub(crate) fn push_string(out: &mut Vec<u8>, text: &str) {
    if !text.bytes().any(|byte| matches!(byte, b'"' | b'\\' | ..b' ')) {
        out.reserve(text.len() + 2);
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
        return;
    }
    let written = serde_json::to_writer(out, text);
    debug_assert!(written.is_ok(), "a Vec takes every byte and a str is always a JSON string");
}

/// Appends a number without allocating a `String`.
pub(crate) fn push_number(out: &mut Vec<u8>, number: u64) {
    let written = serde_json::to_writer(out, &number);
    debug_assert!(written.is_ok(), "a Vec takes every byte and an integer is always a JSON number");
}

struct StringBytesVisitor;

impl Visitor<'_> for StringBytesVisitor {
    type Value = Vec<u8>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
        Ok(bytes.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_decoded_strictly_or_lossily() {
        let table = [
            (r#""plain""#, Some("plain"), Some("plain")),
            (r#""a\u0062\n""#, Some("ab\n"), Some("ab\n")),
            (r#""\ud83d\ude00""#, Some("😀"), Some("😀")),
            (r#""x\ud800""#, None, Some("x\u{fffd}\u{fffd}\u{fffd}")),
            ("17", None, None),
            ("null", None, None),
            ("\"", None, None),
        ];
        for (raw, strict, lossy) in table {
            assert_eq!(decode_string(raw).as_deref(), strict, "{raw}");
            assert_eq!(decode_string_lossy(raw).as_deref(), lossy, "{raw}");
        }
    }
}

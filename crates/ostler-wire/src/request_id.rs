//! Request ids, kept as they were written.

use std::fmt;

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::message::MessageError;

/// A request's id: the raw JSON text of a string or of an integer of any size.
///
/// MCP allows strings and integers only, so fractions, exponents, `null` and structures are refused. Two ids
/// are equal when their texts are equal: `1` and `"1"` are different ids, and so are `"a"` and `"\u0061"`,
/// because the peer may compare either way and gets back exactly what it sent.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RequestId {
    /// One JSON token without surrounding whitespace: a string with its quotes, or digits with an optional
    /// minus sign.
    raw: Bytes,
}

impl RequestId {
    /// Parses an id from its JSON text, which must be the token alone, without whitespace around it.
    pub fn parse(raw: Bytes) -> Result<RequestId, MessageError> {
        if raw.first() == Some(&b'"') {
            let token: &RawValue = serde_json::from_slice(&raw).map_err(|_| MessageError::BadId)?;
            if token.get().len() != raw.len() {
                return Err(MessageError::BadId);
            }
        }
        RequestId::from_token(raw)
    }

    /// Parses an id like [`RequestId::parse`], from text that is known to be one JSON token.
    pub(crate) fn from_token(raw: Bytes) -> Result<RequestId, MessageError> {
        let is_id = raw.first() == Some(&b'"') || is_integer(&raw);
        if is_id { Ok(RequestId { raw }) } else { Err(MessageError::BadId) }
    }

    /// Returns the JSON text as it was written.
    pub fn raw(&self) -> &[u8] {
        &self.raw
    }

    /// Returns the number of a request of our own. Some servers answer with the number as a string, so `17`
    /// and `"17"` both give 17; anything else is no number of ours.
    pub fn number(&self) -> Option<u64> {
        let raw: &[u8] = &self.raw;
        let digits = raw.strip_prefix(b"\"").and_then(|raw| raw.strip_suffix(b"\"")).unwrap_or(raw);
        if digits.first() == Some(&b'-') || !is_integer(digits) {
            return None;
        }
        std::str::from_utf8(digits).ok()?.parse().ok()
    }

    /// Returns a copy with memory of its own. A parsed id shares the buffer of the whole line; one that waits
    /// for an answer in a table must not keep a line of megabytes alive.
    #[must_use]
    pub fn detached(&self) -> RequestId {
        RequestId { raw: Bytes::copy_from_slice(&self.raw) }
    }
}

/// Returns whether the text is an integer by JSON's own grammar: no leading zeros, no plus sign.
fn is_integer(raw: &[u8]) -> bool {
    let digits = raw.strip_prefix(b"-").unwrap_or(raw);
    match digits {
        [b'0'] => true,
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

impl From<u64> for RequestId {
    fn from(number: u64) -> RequestId {
        RequestId { raw: Bytes::from(number.to_string()) }
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.raw))
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RequestId({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(raw: &str) -> Result<RequestId, MessageError> {
        RequestId::parse(Bytes::copy_from_slice(raw.as_bytes()))
    }

    #[test]
    fn strings_and_integers_of_any_size_survive_byte_for_byte() {
        let big = format!("1{}", "0".repeat(30));
        for raw in ["0", "-7", "9223372036854775808", &big, r#""""#, r#""a\u0000b""#, r#""\ud800""#] {
            assert_eq!(parse(raw).unwrap().raw(), raw.as_bytes());
        }
    }

    #[test]
    fn what_is_neither_string_nor_integer_is_refused() {
        for raw in [
            "", "null", "true", "1.0", "1e3", "01", "-", "+1", "{}", "[1]", "\"a", " 1", "\"a\" ", "\"a\"b\"",
        ] {
            assert_eq!(parse(raw), Err(MessageError::BadId), "{raw:?}");
        }
    }

    #[test]
    fn our_number_is_known_also_as_a_string() {
        let table = [
            ("17", Some(17)),
            (r#""17""#, Some(17)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("-17", None),
            (r#""017""#, None),
            (r#"" 17""#, None),
            (r#""\u0031""#, None),
            (r#""""#, None),
        ];
        for (raw, number) in table {
            assert_eq!(parse(raw).unwrap().number(), number, "{raw}");
        }
        assert_eq!(RequestId::from(u64::MAX).number(), Some(u64::MAX));
    }

    #[test]
    fn a_number_and_its_string_are_different_ids() {
        assert_ne!(parse("1").unwrap(), parse(r#""1""#).unwrap());
        assert_eq!(parse("1").unwrap(), RequestId::from(1).detached());
    }
}

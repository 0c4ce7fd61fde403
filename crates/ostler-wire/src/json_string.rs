//! JSON strings: decoding, writing, and the cheap text of a method name.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

use serde::de::{Deserializer as _, Visitor};

/// The method of the one modern request that stays open.
pub const SUBSCRIPTIONS_LISTEN: &str = "subscriptions/listen";

/// Methods of both eras. A message that names one of them needs no allocation for its name.
const KNOWN_METHODS: [&str; 34] = [
    "tools/call",
    "tools/list",
    "notifications/progress",
    "resources/read",
    "resources/list",
    "resources/templates/list",
    "resources/subscribe",
    "resources/unsubscribe",
    "prompts/get",
    "prompts/list",
    "completion/complete",
    "logging/setLevel",
    "server/discover",
    SUBSCRIPTIONS_LISTEN,
    "initialize",
    "ping",
    "tasks/get",
    "tasks/list",
    "tasks/update",
    "tasks/result",
    "tasks/cancel",
    "sampling/createMessage",
    "elicitation/create",
    "roots/list",
    "notifications/message",
    "notifications/cancelled",
    "notifications/initialized",
    "notifications/tools/list_changed",
    "notifications/resources/list_changed",
    "notifications/resources/updated",
    "notifications/prompts/list_changed",
    "notifications/roots/list_changed",
    "notifications/elicitation/complete",
    "notifications/tasks/status",
];

/// A method name: a static text for the methods of MCP, an owned one for all others.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MethodName(Cow<'static, str>);

impl MethodName {
    /// The text itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Deref for MethodName {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for MethodName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl PartialEq<str> for MethodName {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}

impl PartialEq<&str> for MethodName {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

impl From<&str> for MethodName {
    fn from(text: &str) -> MethodName {
        match KNOWN_METHODS.iter().find(|known| **known == text) {
            Some(known) => MethodName(Cow::Borrowed(known)),
            None => MethodName(Cow::Owned(text.to_owned())),
        }
    }
}

impl fmt::Display for MethodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The meaning of the JSON string `raw` (with its quotes); `None` if it is no string or no valid Unicode.
/// Texts that decide something are decoded strictly: two different spellings must not meet in U+FFFD.
pub(crate) fn decode_string(raw: &str) -> Option<Cow<'_, str>> {
    let body = raw.strip_prefix('"')?.strip_suffix('"')?;
    if !body.as_bytes().contains(&b'\\') {
        return Some(Cow::Borrowed(body));
    }
    serde_json::from_str(raw).ok().map(Cow::Owned)
}

/// As [`decode`], but a lone surrogate becomes U+FFFD. Only for texts that people read.
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

/// Appends a number without the detour over a `String`.
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
    fn known_methods_cost_no_allocation() {
        assert!(matches!(MethodName::from("tools/call").0, Cow::Borrowed(_)));
        assert!(matches!(MethodName::from("vendor/thing").0, Cow::Owned(_)));
        assert_eq!(MethodName::from("vendor/thing"), "vendor/thing");
    }

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

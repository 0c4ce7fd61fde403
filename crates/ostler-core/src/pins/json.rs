//! Lossless JSON tree: numbers stay as they are written.
//!
//! `serde_json::Value` reads numbers into doubles, so two definitions that differ in a big integer would
//! become equal. Here a number is its text; only one that a double keeps exactly is rewritten as RFC 8785
//! says.

use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

/// A JSON value. Members of an object are sorted by UTF-16 code units, as RFC 8785 requires, and no key
/// occurs twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Json {
    Null,
    Bool(bool),
    /// In its canonical spelling if a double keeps it, else as it was written.
    Number(String),
    Text(String),
    Array(Vec<Json>),
    Object(Vec<(String, Json)>),
}

/// Reason why a text has no tree.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum JsonError {
    /// Not JSON, nested more than 127 levels deep, or with a number beyond a double's range.
    #[error("{0}")]
    NotJson(String),
    #[error("the key {0:?} occurs twice in one object")]
    DuplicateKey(String),
}

impl Json {
    /// Parses a text that holds one value.
    pub(super) fn parse(text: &str) -> Result<Self, JsonError> {
        let source = RefCell::new(JsonSource { rest: text, duplicate: None });
        let mut reader = serde_json::Deserializer::from_str(text);
        let tree = JsonTreeBuilder(&source).deserialize(&mut reader);
        if let Some(key) = source.into_inner().duplicate {
            return Err(JsonError::DuplicateKey(key));
        }
        let not_json = |error: serde_json::Error| JsonError::NotJson(error.to_string());
        let tree = tree.map_err(not_json)?;
        reader.end().map_err(not_json)?;
        Ok(tree)
    }

    /// Returns the members of an object, none for other values.
    pub(super) fn members(&self) -> &[(String, Json)] {
        match self {
            Self::Object(members) => members,
            _ => &[],
        }
    }

    /// Returns an object's member.
    pub(super) fn get(&self, key: &str) -> Option<&Json> {
        self.members().iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// Returns the text of a string.
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the RFC 8785 form, except for numbers that it would change.
    pub(super) fn canonical(&self) -> String {
        let mut out = String::new();
        self.push_canonical(&mut out);
        out
    }

    fn push_canonical(&self, out: &mut String) {
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Self::Number(number) => out.push_str(number),
            Self::Text(text) => push_string(out, text),
            Self::Array(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    out.push_str(if index == 0 { "" } else { "," });
                    item.push_canonical(out);
                }
                out.push(']');
            }
            Self::Object(members) => {
                out.push('{');
                for (index, (key, value)) in members.iter().enumerate() {
                    out.push_str(if index == 0 { "" } else { "," });
                    push_string(out, key);
                    out.push(':');
                    value.push_canonical(out);
                }
                out.push('}');
            }
        }
    }
}

/// Appends a string as RFC 8785 and `serde_json` write it: short escapes where they exist, `\u00xx` in lower
/// case for other control characters, and everything else as it is.
fn push_string(out: &mut String, text: &str) {
    out.push_str(&serde_json::Value::from(text).to_string());
}

/// Returns a number in the one spelling of its value. A number that a double does not keep has no such
/// spelling and stays as it is: it may be taken for different from an equal number, never for equal to a
/// different one.
fn canonical_number(number: &str) -> String {
    let is_plain = number.len() <= 15 && number.bytes().all(|byte| byte.is_ascii_digit());
    if is_plain {
        return number.to_owned();
    }
    ostler_wire::canonicalize_exact(number.as_bytes())
        .ok()
        .and_then(|form| String::from_utf8(form).ok())
        .unwrap_or_else(|| number.to_owned())
}

/// State of a text beside its parser's.
struct JsonSource<'t> {
    /// The text after the last number. The parser gives numbers as doubles, in the order of the text; their
    /// spelling is found here.
    rest: &'t str,
    /// A key that occurs twice. It is recorded beside the parser's error, whose text must not decide
    /// anything.
    duplicate: Option<String>,
}

impl<'t> JsonSource<'t> {
    /// Returns the next number's text.
    fn next_number(&mut self) -> &'t str {
        let bytes = self.rest.as_bytes();
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            match byte {
                b'"' => at += string_length(&bytes[at..]),
                b'-' | b'0'..=b'9' => break,
                _ => at += 1,
            }
        }
        let (_, from) = self.rest.split_at(at);
        let is_part = |c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.' | 'e' | 'E');
        let (number, rest) = from.split_at(from.find(|c| !is_part(c)).unwrap_or(from.len()));
        self.rest = rest;
        number
    }
}

/// Returns the length of the string that the text begins with, quotes included.
fn string_length(text: &[u8]) -> usize {
    let mut at = 1;
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    text.len()
}

/// Builds a tree and records spellings and duplicates.
#[derive(Clone, Copy)]
struct JsonTreeBuilder<'n, 't>(&'n RefCell<JsonSource<'t>>);

impl JsonTreeBuilder<'_, '_> {
    fn number(self) -> Json {
        Json::Number(canonical_number(self.0.borrow_mut().next_number()))
    }
}

impl<'de> DeserializeSeed<'de> for JsonTreeBuilder<'_, '_> {
    type Value = Json;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Json, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for JsonTreeBuilder<'_, '_> {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Json, E> {
        Ok(self.number())
    }

    fn visit_u64<E>(self, _: u64) -> Result<Json, E> {
        Ok(self.number())
    }

    fn visit_f64<E>(self, _: f64) -> Result<Json, E> {
        Ok(self.number())
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json, A::Error> {
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            array.push(item);
        }
        Ok(Json::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Json, A::Error> {
        let mut object = Vec::new();
        while let Some(key) = members.next_key::<String>()? {
            object.push((key, members.next_value_seed(self)?));
        }
        object.sort_by(|(one, _), (other, _)| one.encode_utf16().cmp(other.encode_utf16()));
        if let Some(pair) = object.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            self.0.borrow_mut().duplicate = Some(pair[0].0.clone());
            return Err(A::Error::custom("a key occurs twice"));
        }
        Ok(Json::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(text: &str) -> Result<String, JsonError> {
        Json::parse(text).map(|json| json.canonical())
    }

    #[test]
    fn what_a_double_keeps_has_the_form_of_the_rfc() {
        let text = r#" {"b":[1.0, 4.50, 1E30, -0, 2e-3, true, null], "\u0061": "\u20ac\u000F\n\/", "\ud83d\ude00":{}, "\ufb33":[]} "#;
        let expected =
            ostler_wire::canonicalize_exact(text.as_bytes()).map(|form| String::from_utf8(form).unwrap());
        assert_eq!(form(text).unwrap(), expected.unwrap());
    }

    #[test]
    fn numbers_beyond_a_double_stay_as_they_are_written() {
        for number in ["9007199254740993", "-9007199254740993", "0.1000000000000000055511151231257827"] {
            assert_eq!(form(number).unwrap(), number);
        }
        assert_eq!(form("9007199254740992.0").unwrap(), "9007199254740992");
        assert_eq!(form("1000000000000000000000").unwrap(), "1e+21");
    }

    #[test]
    fn what_two_parsers_may_read_differently_is_refused() {
        assert_eq!(form(r#"{"a":{"b":1,"\u0062":1}}"#), Err(JsonError::DuplicateKey("b".into())));
        for text in ["", "{", "[1,]", "1 2", r#""\ud800""#, r#"{"\udc00":1}"#, "nul", "01"] {
            assert!(matches!(form(text), Err(JsonError::NotJson(_))), "{text}");
        }
        let deep = |levels| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(form(&deep(127)).is_ok());
        for text in [deep(128), deep(100_000), "[1e400]".into()] {
            assert!(matches!(form(&text), Err(JsonError::NotJson(_))));
        }
    }

    #[test]
    fn numbers_are_matched_with_their_spelling() {
        let text = r#"{"7":[-1,"2\"3",{"4\\":5.50}],"6":9007199254740993}"#;
        assert_eq!(form(text).unwrap(), r#"{"6":9007199254740993,"7":[-1,"2\"3",{"4\\":5.5}]}"#);
    }
}

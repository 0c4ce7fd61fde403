//! Canonical JSON (RFC 8785): equal values have equal texts.

use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use self::exact_number::find_inexact_number;

mod exact_number;
mod fast;

/// Reason why a text has no canonical form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CanonicalError {
    /// The text is not JSON, is nested more than 127 levels deep, or holds a number beyond a double's range
    /// or a lone surrogate.
    #[error("no canonical form: {why}")]
    NotJson {
        /// The parser's message and position.
        why: String,
    },
    /// A key occurs twice in one object, so the object is ambiguous.
    #[error("no canonical form: the key `{0}` occurs twice")]
    DuplicateKey(String),
    /// The canonical form would change a number's value.
    #[error("no exact canonical form: the number {0} is not kept by a double")]
    NotExact(String),
}

/// Returns the canonical form of a JSON text: keys sorted, no whitespace, numbers as ECMAScript writes a
/// double. Numbers that a double can't keep are rounded; [`canonicalize_exact`] refuses them.
pub fn canonicalize(json: &[u8]) -> Result<Vec<u8>, CanonicalError> {
    fast::canonicalize_plain(json).map_or_else(|| canonicalize_tree(json), Ok)
}

/// Returns the canonical form of any text, by way of a tree.
pub(crate) fn canonicalize_tree(json: &[u8]) -> Result<Vec<u8>, CanonicalError> {
    let value = parse_unique_keys(json)?;
    serde_json_canonicalizer::to_vec(&value).map_err(not_json)
}

/// Returns the canonical form like [`canonicalize`], but refuses a text in which a number would change its
/// value: two texts with the same exact form mean the same. So 9007199254740993 and 9007199254740992 never
/// share a cache entry.
pub fn canonicalize_exact(json: &[u8]) -> Result<Vec<u8>, CanonicalError> {
    if let Some(form) = fast::canonicalize_plain(json) {
        return Ok(form);
    }
    let form = canonicalize_tree(json)?;
    match find_inexact_number(json) {
        Some(number) => Err(CanonicalError::NotExact(number)),
        None => Ok(form),
    }
}

/// Parses a text and rejects repeated keys.
fn parse_unique_keys(json: &[u8]) -> Result<Value, CanonicalError> {
    let duplicate = RefCell::new(None);
    let mut reader = serde_json::Deserializer::from_slice(json);
    let value = UniqueKeySeed { duplicate: &duplicate }.deserialize(&mut reader);
    if let Some(key) = duplicate.take() {
        return Err(CanonicalError::DuplicateKey(key));
    }
    let value = value.map_err(not_json)?;
    reader.end().map_err(not_json)?;
    Ok(value)
}

fn not_json(error: serde_json::Error) -> CanonicalError {
    CanonicalError::NotJson { why: error.to_string() }
}

/// Builds a [`Value`] and records a key that occurs twice. The key is recorded beside serde's error, because
/// an error's text must not decide anything.
#[derive(Clone, Copy)]
struct UniqueKeySeed<'n> {
    duplicate: &'n RefCell<Option<String>>,
}

impl<'de> DeserializeSeed<'de> for UniqueKeySeed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for UniqueKeySeed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            if object.contains_key(&key) {
                self.duplicate.replace(Some(key));
                return Err(A::Error::custom("a key occurs twice"));
            }
            object.insert(key, members.next_value_seed(self)?);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(json: &str) -> Result<String, CanonicalError> {
        canonicalize(json.as_bytes()).map(|form| String::from_utf8(form).unwrap())
    }

    fn exact(json: &str) -> Result<String, CanonicalError> {
        canonicalize_exact(json.as_bytes()).map(|form| String::from_utf8(form).unwrap())
    }

    #[test]
    fn the_sample_of_the_rfc() {
        let sample = r#"{
            "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
            "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
            "literals": [null, true, false]
        }"#;
        let expected = concat!(
            r#"{"literals":[null,true,false],"#,
            r#""numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"#,
            "\"string\":\"€$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}"
        );
        assert_eq!(form(sample).unwrap(), expected);
    }

    #[test]
    fn keys_are_sorted_by_utf16_code_units() {
        let text = r#"{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh",
            "1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}"#;
        let form = form(text).unwrap();
        let order = ["Carriage Return", "One", "Control", "Latin", "Euro", "Emoji", "Hebrew"];
        let places: Vec<_> = order.iter().map(|word| form.find(word).unwrap()).collect();
        assert!(places.is_sorted(), "{form}");
    }

    #[test]
    fn numbers_of_appendix_b() {
        let table = [
            (0x0000_0000_0000_0000_u64, "0"),
            (0x8000_0000_0000_0000, "0"),
            (0x0000_0000_0000_0001, "5e-324"),
            (0x8000_0000_0000_0001, "-5e-324"),
            (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
            (0xffef_ffff_ffff_ffff, "-1.7976931348623157e+308"),
            (0x4340_0000_0000_0000, "9007199254740992"),
            (0xc340_0000_0000_0000, "-9007199254740992"),
            (0x4430_0000_0000_0000, "295147905179352830000"),
            (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
            (0x44b5_2d02_c7e1_4af6, "1e+23"),
            (0x44b5_2d02_c7e1_4af7, "1.0000000000000001e+23"),
            (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
            (0x444b_1ae4_d6e2_ef4f, "999999999999999900000"),
            (0x444b_1ae4_d6e2_ef50, "1e+21"),
            (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
            (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
            (0x41b3_de43_5555_5553, "333333333.3333332"),
            (0x41b3_de43_5555_5554, "333333333.33333325"),
            (0x41b3_de43_5555_5555, "333333333.3333333"),
            (0x41b3_de43_5555_5556, "333333333.3333334"),
            (0x41b3_de43_5555_5557, "333333333.33333343"),
            (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
            (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
        ];
        for (bits, expected) in table {
            let text = format!("{:e}", f64::from_bits(bits));
            assert_eq!(form(&text).unwrap(), expected, "{bits:x}");
            assert_eq!(exact(&text).unwrap(), expected, "{bits:x}");
        }
    }

    #[test]
    fn numbers_that_would_meet_are_refused() {
        assert_eq!(form("9007199254740993").unwrap(), form("9007199254740992").unwrap());
        assert_eq!(exact("9007199254740992").unwrap(), "9007199254740992");
        assert_eq!(
            exact(r#"{"a":[9007199254740993]}"#),
            Err(CanonicalError::NotExact("9007199254740993".into()))
        );
        assert!(matches!(form("1e400"), Err(CanonicalError::NotJson { .. })));
    }

    #[test]
    fn a_repeated_key_has_no_meaning_at_any_depth() {
        for text in [r#"{"a":1,"a":1}"#, r#"[{"b":{"a":1,"\u0061":2}}]"#] {
            assert_eq!(form(text), Err(CanonicalError::DuplicateKey("a".into())));
            assert_eq!(exact(text), Err(CanonicalError::DuplicateKey("a".into())));
        }
        assert!(form(r#"[{"a":1},{"a":1}]"#).is_ok());
    }

    #[test]
    fn what_is_no_json_has_no_form() {
        for text in ["", "{", "[1,]", "1 2", r#""\ud800""#, &"[".repeat(100_000)] {
            assert!(
                matches!(form(text), Err(CanonicalError::NotJson { .. })),
                "{}",
                &text[..text.len().min(9)]
            );
        }
        assert!(matches!(canonicalize(b"\"\xff\""), Err(CanonicalError::NotJson { .. })));
    }
}

//! A hash identifies a value: no spelling changes it, any other value does.

use ostler_core::pins::{Pin, hash_definition};
use proptest::prelude::*;
use serde_json::Value;

use crate::generators::{definition, value};

/// Writes a value with its members in reverse and blanks wherever they are allowed.
fn respell(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("[ {} ]", items.iter().map(respell).collect::<Vec<_>>().join(" ,\n")),
        Value::Object(members) => {
            let members: Vec<_> = members
                .iter()
                .rev()
                .map(|(key, value)| format!("{} :\t{}", escape(key), respell(value)))
                .collect();
            format!("{{\r\n{} }}", members.join(" , "))
        }
        Value::String(text) => escape(text),
        other => other.to_string(),
    }
}

/// Returns a string in which every character is escaped.
fn escape(text: &str) -> String {
    let units: String = text.encode_utf16().map(|unit| format!("\\u{unit:04X}")).collect();
    format!("\"{units}\"")
}

/// Collects every value of a tree, by its path.
fn places(value: &Value, here: String, found: &mut Vec<String>) {
    found.push(here.clone());
    match value {
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                places(item, format!("{here}/{index}"), found);
            }
        }
        Value::Object(members) => {
            for (key, value) in members {
                places(value, format!("{here}/{}", key.replace('~', "~0").replace('/', "~1")), found);
            }
        }
        _ => {}
    }
}

proptest! {
    #[test]
    fn spelling_never_counts(members in definition("tool".into())) {
        let value = Value::Object(members);
        let plain = hash_definition(value.to_string().as_bytes()).unwrap();
        prop_assert_eq!(hash_definition(respell(&value).as_bytes()).unwrap(), plain);
        let pin = Pin::from_definition(value.to_string().as_bytes()).unwrap();
        prop_assert_eq!(pin.hash, plain);
        prop_assert_eq!(Pin::from_definition(&pin.definition).unwrap(), pin, "a canonical form is its own form");
    }

    #[test]
    fn the_meta_of_a_tool_counts(members in definition("tool".into()), meta in value()) {
        let plain = hash_definition(Value::Object(members.clone()).to_string().as_bytes()).unwrap();
        let mut members = members;
        members.insert("_meta".into(), meta);
        prop_assert_ne!(hash_definition(Value::Object(members).to_string().as_bytes()).unwrap(), plain);
    }

    #[test]
    fn any_other_value_counts(
        members in definition("tool".into()),
        place in any::<prop::sample::Index>(),
        other in value(),
    ) {
        let old = Value::Object(members);
        let mut found = Vec::new();
        places(&old, String::new(), &mut found);
        let place = place.get(&found);
        prop_assume!(!place.is_empty());
        let mut new = old.clone();
        *new.pointer_mut(place).unwrap() = other;
        let is_same = spelled(&old) == spelled(&new);
        let (old, new) = (hash_definition(old.to_string().as_bytes()).unwrap(), hash_definition(new.to_string().as_bytes()).unwrap());
        prop_assert_eq!(old == new, is_same, "{}", place);
    }

    #[test]
    fn integers_beyond_doubles_are_told_apart(one: u64, other: u64) {
        let of = |number: u64| hash_definition(format!(r#"{{"maximum":{number}}}"#).as_bytes()).unwrap();
        prop_assert_eq!(of(one) == of(other), one == other);
        prop_assert_eq!(of(one | 1 << 63) == of((one | 1 << 63) ^ 1), false);
    }
}

/// Returns a text that is equal exactly for equal values: whole doubles are written as the integers they are.
fn spelled(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(spelled).collect(),
        Value::Object(members) => {
            Value::Object(members.iter().map(|(key, value)| (key.clone(), spelled(value))).collect())
        }
        Value::Number(number) if number.is_f64() => format!("number {:?}", number.as_f64()).into(),
        Value::Number(number) => match number.as_f64() {
            Some(double) if double.abs() < 9e15 => format!("number {:?}", Some(double)).into(),
            _ => format!("number {number}").into(),
        },
        other => other.clone(),
    }
}

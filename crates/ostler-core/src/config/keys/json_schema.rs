//! JSON Schema of Ostler's own config file, generated from the tables of keys.

use serde_json::{Map, Value, json};

use super::key_spec::{DefaultValue, KeySpec, SectionSpec, ValueKind};
use super::section::Settings as _;
use crate::config::Config;

/// Returns the schema of `ostler.toml` and of its JSON twin, in draft 2020-12.
pub fn schema() -> Value {
    let mut definitions = Map::new();
    let mut schema = section(Config::SECTION, &mut definitions);
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("Ostler configuration");
    schema["$defs"] = Value::Object(definitions);
    schema
}

fn section(section: &'static SectionSpec, definitions: &mut Map<String, Value>) -> Value {
    let mut properties = Map::new();
    for field in section.fields() {
        let value = property(field, definitions);
        let camel = field.camel_case();
        if camel != field.key {
            properties.insert(camel.into_owned(), value.clone());
        }
        properties.insert(field.key.to_owned(), value);
    }
    json!({
        "type": "object",
        "description": section.doc,
        "properties": properties,
        "additionalProperties": false,
    })
}

fn property(field: &KeySpec, definitions: &mut Map<String, Value>) -> Value {
    let mut schema = kind(&field.kind, definitions);
    schema["description"] = json!(field.doc);
    match field.preset {
        DefaultValue::Nothing => {}
        DefaultValue::Flag(flag) => schema["default"] = json!(flag),
        DefaultValue::Count(number) => schema["default"] = json!(number),
        DefaultValue::Text(text) => schema["default"] = json!(text),
        DefaultValue::Texts(texts) => schema["default"] = json!(texts),
    }
    schema
}

fn kind(kind: &ValueKind, definitions: &mut Map<String, Value>) -> Value {
    /// Allows any order and repetition; the reader is stricter and reports it better.
    const DURATION: &str = r"^\s*([0-9]+\s*(d|h|m|s|ms)\s*)+$";
    const SIZE: &str = r"^\s*[0-9]+\s*[KkMmGg]?[Ii]?[Bb]\s*$";
    match kind {
        ValueKind::Flag => json!({"type": "boolean"}),
        ValueKind::Count(least, u64::MAX) => json!({"type": "integer", "minimum": least}),
        ValueKind::Count(least, most) => json!({"type": "integer", "minimum": least, "maximum": most}),
        ValueKind::Text => json!({"type": "string", "minLength": 1}),
        ValueKind::Texts => json!({"type": "array", "items": {"type": "string"}}),
        ValueKind::TextOrTexts => {
            json!({"anyOf": [{"type": "string", "minLength": 1}, {"type": "array", "items": {"type": "string"}}]})
        }
        ValueKind::TextMap | ValueKind::Several(_) => {
            json!({"type": "object", "additionalProperties": {"type": "string"}})
        }
        ValueKind::Choice(words) => json!({"enum": words}),
        ValueKind::Duration(_) => json!({"type": "string", "pattern": DURATION}),
        ValueKind::Size(_) => json!({"type": "string", "pattern": SIZE}),
        ValueKind::DurationOrFalse => {
            json!({"anyOf": [{"type": "string", "pattern": DURATION}, {"const": false}]})
        }
        ValueKind::DurationOrNever => {
            json!({"anyOf": [{"type": "string", "pattern": DURATION}, {"const": "never"}]})
        }
        ValueKind::Section(section) => define(section, definitions),
        ValueKind::Named(section) => {
            json!({"type": "object", "additionalProperties": define(section, definitions)})
        }
    }
}

/// Describes a section once and refers to it everywhere else.
fn define(found: &'static SectionSpec, definitions: &mut Map<String, Value>) -> Value {
    if !definitions.contains_key(found.name) {
        let described = section(found, definitions);
        definitions.insert(found.name.to_owned(), described);
    }
    json!({"$ref": format!("#/$defs/{}", found.name)})
}

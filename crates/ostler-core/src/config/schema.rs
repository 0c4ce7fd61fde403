//! The JSON schema of Ostler's own config file, generated from the tables.

use serde_json::{Map, Value, json};

use super::Config;
use super::field::{Field, Kind, Preset, Section};
use super::section::Settings as _;

/// The schema of `ostler.toml` and of its JSON twin, as of draft 2020-12.
pub fn schema() -> Value {
    let mut definitions = Map::new();
    let mut schema = section(Config::SECTION, &mut definitions);
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("Ostler configuration");
    schema["$defs"] = Value::Object(definitions);
    schema
}

fn section(section: &'static Section, definitions: &mut Map<String, Value>) -> Value {
    let mut properties = Map::new();
    for field in section.fields() {
        let value = property(field, definitions);
        let camel = field.camel();
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

fn property(field: &Field, definitions: &mut Map<String, Value>) -> Value {
    let mut schema = kind(&field.kind, definitions);
    schema["description"] = json!(field.doc);
    match field.preset {
        Preset::Nothing => {}
        Preset::Flag(flag) => schema["default"] = json!(flag),
        Preset::Count(number) => schema["default"] = json!(number),
        Preset::Text(text) => schema["default"] = json!(text),
        Preset::Texts(texts) => schema["default"] = json!(texts),
    }
    schema
}

fn kind(kind: &Kind, definitions: &mut Map<String, Value>) -> Value {
    /// Any order and repetition; the reader is stricter and says so better.
    const DURATION: &str = r"^\s*([0-9]+\s*(d|h|m|s|ms)\s*)+$";
    const SIZE: &str = r"^\s*[0-9]+\s*[KkMmGg]?[Ii]?[Bb]\s*$";
    match kind {
        Kind::Flag => json!({"type": "boolean"}),
        Kind::Count(least, u64::MAX) => json!({"type": "integer", "minimum": least}),
        Kind::Count(least, most) => json!({"type": "integer", "minimum": least, "maximum": most}),
        Kind::Text => json!({"type": "string", "minLength": 1}),
        Kind::Texts => json!({"type": "array", "items": {"type": "string"}}),
        Kind::TextOrTexts => {
            json!({"anyOf": [{"type": "string", "minLength": 1}, {"type": "array", "items": {"type": "string"}}]})
        }
        Kind::TextMap | Kind::Several(_) => {
            json!({"type": "object", "additionalProperties": {"type": "string"}})
        }
        Kind::Choice(words) => json!({"enum": words}),
        Kind::Duration(_) => json!({"type": "string", "pattern": DURATION}),
        Kind::Size(_) => json!({"type": "string", "pattern": SIZE}),
        Kind::DurationOrFalse => {
            json!({"anyOf": [{"type": "string", "pattern": DURATION}, {"const": false}]})
        }
        Kind::DurationOrNever => {
            json!({"anyOf": [{"type": "string", "pattern": DURATION}, {"const": "never"}]})
        }
        Kind::Section(section) => define(section, definitions),
        Kind::Named(section) => {
            json!({"type": "object", "additionalProperties": define(section, definitions)})
        }
    }
}

/// Describes a section once and refers to it from everywhere.
fn define(found: &'static Section, definitions: &mut Map<String, Value>) -> Value {
    if !definitions.contains_key(found.name) {
        let described = section(found, definitions);
        definitions.insert(found.name.to_owned(), described);
    }
    json!({"$ref": format!("#/$defs/{}", found.name)})
}

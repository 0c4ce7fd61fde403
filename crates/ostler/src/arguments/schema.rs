//! Input schema of a tool, as far as typed arguments need it.

use serde_json::{Map, Value};

use crate::invocation::command;

/// Limit of the nesting of references and unions; a schema may refer to itself.
const MAX_DEPTH: usize = 8;

/// Describes the spelling of types on a command line.
pub(super) fn type_syntax_hint() -> String {
    format!("{} shows the arguments; lists and objects are written as JSON", command("tools --full"))
}

/// Type of a JSON value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JsonType {
    String,
    Integer,
    Number,
    Boolean,
    Array,
    Object,
    Null,
}

const JSON_TYPES: [(&str, JsonType, &str); 7] = [
    ("string", JsonType::String, "a text"),
    ("integer", JsonType::Integer, "a whole number"),
    ("number", JsonType::Number, "a number"),
    ("boolean", JsonType::Boolean, "true or false"),
    ("array", JsonType::Array, "a JSON list"),
    ("object", JsonType::Object, "a JSON object"),
    ("null", JsonType::Null, "null"),
];

impl JsonType {
    fn from_name(word: &str) -> Option<Self> {
        JSON_TYPES.iter().find(|(name, ..)| *name == word).map(|(_, kind, _)| *kind)
    }

    /// Returns the description of the type, for "wants …".
    pub(super) fn description(self) -> &'static str {
        JSON_TYPES.iter().find(|(_, kind, _)| *kind == self).map_or("", |(.., wanted)| wanted)
    }

    /// Returns whether the text of a JSON value is of this type. A text that merely looks like JSON is a string that
    /// was typed without quotes, so a string is accepted by no type.
    pub(super) fn accepts(self, json: &str) -> bool {
        let first = json.bytes().next().unwrap_or_default();
        match self {
            Self::String => false,
            Self::Integer => is_numeric(first) && is_whole(json),
            Self::Number => is_numeric(first),
            Self::Boolean => matches!(json, "true" | "false"),
            Self::Array => first == b'[',
            Self::Object => first == b'{',
            Self::Null => json == "null",
        }
    }
}

fn is_numeric(first: u8) -> bool {
    first == b'-' || first.is_ascii_digit()
}

/// Returns whether a number is whole: `1.0` is an integer in JSON Schema.
fn is_whole(number: &str) -> bool {
    match number.split_once('.') {
        Some((_, fraction)) => fraction.bytes().all(|digit| digit == b'0'),
        None => !number.contains(['e', 'E']),
    }
}

/// The `inputSchema` of a tool; empty where there is none.
#[derive(Debug, Default)]
pub(crate) struct InputSchema {
    root: Value,
}

/// Description of one argument for people.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Argument {
    /// Key of the argument.
    pub(crate) name: String,
    /// Its type, or `any`.
    pub(crate) kind: String,
    /// The tool requires it.
    pub(crate) is_required: bool,
    /// Description by the tool; may be empty.
    pub(crate) description: String,
}

impl InputSchema {
    /// Returns the schema in a tool's definition.
    pub(crate) fn from_tool(definition: &[u8]) -> Self {
        let definition: Value = serde_json::from_slice(definition).unwrap_or_default();
        Self { root: definition.get("inputSchema").cloned().unwrap_or_default() }
    }

    /// Returns the described arguments, required ones first.
    pub(crate) fn arguments(&self) -> Vec<Argument> {
        let required: Vec<&str> = strings(self.root.get("required")).collect();
        let mut arguments: Vec<Argument> = self
            .properties()
            .into_iter()
            .flatten()
            .map(|(name, property)| Argument {
                name: name.clone(),
                kind: self.describe(property),
                is_required: required.contains(&name.as_str()),
                description: self.text(property, "description"),
            })
            .collect();
        arguments.sort_by_key(|argument| !argument.is_required);
        arguments
    }

    /// Returns the values that an argument may have, where the tool lists them.
    pub(crate) fn values(&self, key: &str) -> Vec<String> {
        let Some(property) = self.properties().and_then(|properties| properties.get(key)) else {
            return Vec::new();
        };
        let listed = property.get("enum").and_then(Value::as_array);
        let Some(listed) = listed else {
            let is_boolean = self.types_of(key) == [JsonType::Boolean];
            return if is_boolean { vec!["true".into(), "false".into()] } else { Vec::new() };
        };
        listed.iter().map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned)).collect()
    }

    /// Returns the known keys if this key is unknown and probably a misspelling: either the schema allows no other
    /// keys, or a required key is missing among all keys that are given.
    pub(super) fn known_keys_if_rejected(&self, key: &str, given: &[&str]) -> Option<Vec<&str>> {
        let has = |keyword: &str| self.root.get(keyword).is_some();
        let is_closed = self.root.get("additionalProperties") == Some(&Value::Bool(false))
            || strings(self.root.get("required")).any(|required| !given.contains(&required))
                && !["allOf", "anyOf", "oneOf", "$ref"].into_iter().any(has)
                && self.properties().is_some_and(|properties| !properties.is_empty());
        let is_closed = is_closed && !has("patternProperties");
        let known: Vec<&str> = self.properties().into_iter().flatten().map(|(key, _)| key.as_str()).collect();
        (is_closed && !known.contains(&key)).then_some(known)
    }

    /// Returns the types that a key may have; none if the schema does not say.
    pub(super) fn types_of(&self, key: &str) -> Vec<JsonType> {
        let mut kinds = Vec::new();
        if let Some(property) = self.properties().and_then(|properties| properties.get(key)) {
            self.collect(property, 0, &mut kinds);
        }
        kinds
    }

    fn properties(&self) -> Option<&Map<String, Value>> {
        self.root.get("properties")?.as_object()
    }

    fn collect(&self, schema: &Value, depth: usize, kinds: &mut Vec<JsonType>) {
        if depth > MAX_DEPTH {
            return;
        }
        let named = strings(schema.get("type")).filter_map(JsonType::from_name);
        let listed = schema.get("enum").and_then(Value::as_array).into_iter().flatten();
        let constant = schema.get("const").into_iter();
        let found: Vec<JsonType> = match schema.get("type") {
            Some(_) => named.collect(),
            None => listed.chain(constant).map(type_of_value).collect(),
        };
        for kind in found {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        for key in ["anyOf", "oneOf", "allOf"] {
            for branch in schema.get(key).and_then(Value::as_array).into_iter().flatten() {
                self.collect(branch, depth + 1, kinds);
            }
        }
        if let Some(target) = self.resolve_reference(schema) {
            self.collect(target, depth + 1, kinds);
        }
    }

    /// Resolves a local reference. Others are never fetched.
    fn resolve_reference(&self, schema: &Value) -> Option<&Value> {
        let pointer = schema.get("$ref")?.as_str()?.strip_prefix('#')?;
        self.root.pointer(pointer)
    }

    fn describe(&self, property: &Value) -> String {
        if let Some(values) = property.get("enum").and_then(Value::as_array) {
            return values.iter().map(Value::to_string).collect::<Vec<_>>().join(" | ");
        }
        let mut kinds = Vec::new();
        self.collect(property, 0, &mut kinds);
        let word = |kind: &JsonType| {
            JSON_TYPES.iter().find(|(_, known, _)| known == kind).map_or("", |(word, ..)| *word)
        };
        match kinds.as_slice() {
            [] => "any".into(),
            [JsonType::Array] => match property.get("items").map(|items| self.describe(items)) {
                Some(items) if items != "any" => format!("array of {items}"),
                _ => "array".into(),
            },
            kinds => kinds.iter().map(word).collect::<Vec<_>>().join(" | "),
        }
    }

    fn text(&self, property: &Value, key: &str) -> String {
        let own = property.get(key).or_else(|| self.resolve_reference(property)?.get(key));
        own.and_then(Value::as_str).unwrap_or_default().to_owned()
    }
}

fn type_of_value(value: &Value) -> JsonType {
    match value {
        Value::Null => JsonType::Null,
        Value::Bool(_) => JsonType::Boolean,
        Value::Number(number) if number.is_f64() => JsonType::Number,
        Value::Number(_) => JsonType::Integer,
        Value::String(_) => JsonType::String,
        Value::Array(_) => JsonType::Array,
        Value::Object(_) => JsonType::Object,
    }
}

/// Returns the strings of a string or of a list of strings.
fn strings(value: Option<&Value>) -> impl Iterator<Item = &str> {
    let list = value.and_then(Value::as_array).into_iter().flatten();
    value.into_iter().chain(list).filter_map(Value::as_str)
}

//! What a tool says about its arguments.

use serde_json::{Map, Value};

use crate::invocation::command;

/// References and unions are followed this deep; a schema may refer to itself.
const DEEPEST: usize = 8;

/// How types are written on a command line.
pub(super) fn how() -> String {
    format!("{} shows the arguments; lists and objects are written as JSON", command("tools --full"))
}

/// The type of a JSON value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    String,
    Integer,
    Number,
    Boolean,
    Array,
    Object,
    Null,
}

const KINDS: [(&str, Kind, &str); 7] = [
    ("string", Kind::String, "a text"),
    ("integer", Kind::Integer, "a whole number"),
    ("number", Kind::Number, "a number"),
    ("boolean", Kind::Boolean, "true or false"),
    ("array", Kind::Array, "a JSON list"),
    ("object", Kind::Object, "a JSON object"),
    ("null", Kind::Null, "null"),
];

impl Kind {
    fn named(word: &str) -> Option<Self> {
        KINDS.iter().find(|(name, ..)| *name == word).map(|(_, kind, _)| *kind)
    }

    /// What is wanted, for "wants …".
    pub(super) fn wanted(self) -> &'static str {
        KINDS.iter().find(|(_, kind, _)| *kind == self).map_or("", |(.., wanted)| wanted)
    }

    /// Whether the text of a JSON value is of this kind. A text that merely
    /// looks like one is a string that was typed without quotes, so a string
    /// fits nothing here.
    pub(super) fn fits(self, json: &str) -> bool {
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

/// `1.0` is an integer to JSON schema.
fn is_whole(number: &str) -> bool {
    match number.split_once('.') {
        Some((_, fraction)) => fraction.bytes().all(|digit| digit == b'0'),
        None => !number.contains(['e', 'E']),
    }
}

/// The `inputSchema` of a tool; an empty one where there is none.
#[derive(Debug, Default)]
pub(crate) struct Schema {
    root: Value,
}

/// One argument, for people.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Argument {
    /// Its key.
    pub(crate) name: String,
    /// Its type, or `any`.
    pub(crate) kind: String,
    /// Whether the tool insists on it.
    pub(crate) is_required: bool,
    /// What the tool says about it; may be empty.
    pub(crate) description: String,
}

impl Schema {
    /// The schema in a tool's definition.
    pub(crate) fn of_tool(definition: &[u8]) -> Self {
        let definition: Value = serde_json::from_slice(definition).unwrap_or_default();
        Self { root: definition.get("inputSchema").cloned().unwrap_or_default() }
    }

    /// The arguments that are described, required ones first.
    pub(crate) fn arguments(&self) -> Vec<Argument> {
        let required: Vec<&str> = texts(self.root.get("required")).collect();
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
            let is_boolean = self.kinds(key) == [Kind::Boolean];
            return if is_boolean { vec!["true".into(), "false".into()] } else { Vec::new() };
        };
        listed.iter().map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned)).collect()
    }

    /// The known keys, if this key is not one of them and no other is allowed, or a required one is missing among all
    /// keys that are given: then this one is probably a wrong name of it.
    pub(super) fn refuses(&self, key: &str, given: &[&str]) -> Option<Vec<&str>> {
        let has = |keyword: &str| self.root.get(keyword).is_some();
        let is_closed = self.root.get("additionalProperties") == Some(&Value::Bool(false))
            || texts(self.root.get("required")).any(|required| !given.contains(&required))
                && !["allOf", "anyOf", "oneOf", "$ref"].into_iter().any(has)
                && self.properties().is_some_and(|properties| !properties.is_empty());
        let is_closed = is_closed && !has("patternProperties");
        let known: Vec<&str> = self.properties().into_iter().flatten().map(|(key, _)| key.as_str()).collect();
        (is_closed && !known.contains(&key)).then_some(known)
    }

    /// The types that a key may have; none if nothing is said.
    pub(super) fn kinds(&self, key: &str) -> Vec<Kind> {
        let mut kinds = Vec::new();
        if let Some(property) = self.properties().and_then(|properties| properties.get(key)) {
            self.collect(property, 0, &mut kinds);
        }
        kinds
    }

    fn properties(&self) -> Option<&Map<String, Value>> {
        self.root.get("properties")?.as_object()
    }

    fn collect(&self, schema: &Value, depth: usize, kinds: &mut Vec<Kind>) {
        if depth > DEEPEST {
            return;
        }
        let named = texts(schema.get("type")).filter_map(Kind::named);
        let listed = schema.get("enum").and_then(Value::as_array).into_iter().flatten();
        let constant = schema.get("const").into_iter();
        let found: Vec<Kind> = match schema.get("type") {
            Some(_) => named.collect(),
            None => listed.chain(constant).map(kind_of).collect(),
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
        if let Some(target) = self.target(schema) {
            self.collect(target, depth + 1, kinds);
        }
    }

    /// What a local reference leads to. Others are never fetched.
    fn target(&self, schema: &Value) -> Option<&Value> {
        let pointer = schema.get("$ref")?.as_str()?.strip_prefix('#')?;
        self.root.pointer(pointer)
    }

    fn describe(&self, property: &Value) -> String {
        if let Some(values) = property.get("enum").and_then(Value::as_array) {
            return values.iter().map(Value::to_string).collect::<Vec<_>>().join(" | ");
        }
        let mut kinds = Vec::new();
        self.collect(property, 0, &mut kinds);
        let word =
            |kind: &Kind| KINDS.iter().find(|(_, known, _)| known == kind).map_or("", |(word, ..)| *word);
        match kinds.as_slice() {
            [] => "any".into(),
            [Kind::Array] => match property.get("items").map(|items| self.describe(items)) {
                Some(items) if items != "any" => format!("array of {items}"),
                _ => "array".into(),
            },
            kinds => kinds.iter().map(word).collect::<Vec<_>>().join(" | "),
        }
    }

    fn text(&self, property: &Value, key: &str) -> String {
        let own = property.get(key).or_else(|| self.target(property)?.get(key));
        own.and_then(Value::as_str).unwrap_or_default().to_owned()
    }
}

fn kind_of(value: &Value) -> Kind {
    match value {
        Value::Null => Kind::Null,
        Value::Bool(_) => Kind::Boolean,
        Value::Number(number) if number.is_f64() => Kind::Number,
        Value::Number(_) => Kind::Integer,
        Value::String(_) => Kind::String,
        Value::Array(_) => Kind::Array,
        Value::Object(_) => Kind::Object,
    }
}

/// A text, or a list of texts.
fn texts(value: Option<&Value>) -> impl Iterator<Item = &str> {
    let list = value.and_then(Value::as_array).into_iter().flatten();
    value.into_iter().chain(list).filter_map(Value::as_str)
}

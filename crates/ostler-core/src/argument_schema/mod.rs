//! Argument schemas: the `inputSchema` of a tool, compiled to judge arguments.
//!
//! The schema comes from a server and the arguments from a caller, and neither is trusted with the time of the host:
//! no reference leaves the schema, patterns are left to the server, and a check whose bound of steps ([`effort`]) is too
//! large is not made. Arguments are called wrong only where that is certain.

mod cost_bound;

use std::fmt;

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{JsonType, Keyword, ValidationError, Validator};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::cost_bound::CostBound;

/// The longest schema that is compiled; the largest of published servers have some 30 KiB.
const MAX_SCHEMA_BYTES: usize = 256 << 10;
/// The longest arguments that are read: more than models write, less than takes a thread for milliseconds.
const MAX_ARGUMENTS_BYTES: usize = 128 << 10;
/// The most mistakes that are told of one call.
const MAX_MISTAKES: usize = 8;
/// A check of more steps than this tells the first mistake only: every step may leave one behind, which costs memory.
const MANY_STEPS: u64 = 10_000;
/// The longest text of a mistake.
const MAX_MISTAKE_LEN: usize = 200;
/// The least magnitude at which a number that is no 64-bit integer may have lost digits.
const MIN_INEXACT: f64 = 9_007_199_254_740_992.0;

/// The compiled schema of one tool's arguments.
pub struct ArgumentSchema {
    validator: Validator,
    cost_bound: CostBound,
    size: usize,
    /// The schema, if it has defaults.
    schema_with_defaults: Option<Value>,
}

/// Arguments that can be judged within bounds.
#[derive(Debug)]
pub struct BoundedArguments {
    value: Value,
    /// Upper bound on the steps of a check.
    pub steps: u64,
    /// Upper bound on nested steps of a check.
    pub nesting: u64,
}

/// One thing that is wrong with the arguments of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Mistake {
    /// A JSON pointer to the wrong value; empty for the arguments as a whole.
    pub path: String,
    /// What is wrong with it. Holds nothing of the value itself.
    pub problem: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            "" => f.write_str(&self.problem),
            path => write!(f, "{path}: {}", self.problem),
        }
    }
}

/// Why a definition's schema judges nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnusableSchema {
    /// The definition has none.
    #[error("it has no `inputSchema`")]
    Missing,
    /// It is not what its dialect of JSON Schema allows, or refers to something that is not in it.
    #[error("{0}")]
    Invalid(String),
    /// Checking by it can't be bounded.
    #[error("{0}")]
    Unbounded(&'static str),
}

impl ArgumentSchema {
    /// Compiles the `inputSchema` of a tool's definition. Takes about 40 µs per KiB.
    pub fn compile(definition: &[u8]) -> Result<Self, UnusableSchema> {
        let text = ostler_wire::member(definition, "inputSchema").ok_or(UnusableSchema::Missing)?;
        if text.len() > MAX_SCHEMA_BYTES {
            return Err(UnusableSchema::Unbounded("it is too long"));
        }
        let schema: Value = serde_json::from_slice(text)
            .map_err(|error| UnusableSchema::Invalid(truncate(&error.to_string())))?;
        let effort = CostBound::from_schema(&schema)?;
        let validator = jsonschema::options()
            .offline()
            // Matching takes time in proportion to the pattern times the text, and the server matches anyway.
            .with_keyword("pattern", |_, _, _| Ok(Box::new(UncheckedKeyword)))
            .should_validate_formats(false)
            .without_content_media_type_support("application/json")
            .without_content_encoding_support("base64")
            .build(&schema)
            .map_err(|error| UnusableSchema::Invalid(truncate(&error.to_string())))?;
        let has_default = memchr::memmem::find(text, b"\"default\"").is_some();
        Ok(Self {
            validator,
            cost_bound: effort,
            size: text.len(),
            schema_with_defaults: has_default.then_some(schema),
        })
    }

    /// The length of the schema's text, to which the memory of its compiled form is proportional.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Reads arguments; `None` if judging them could take too long, or if they can't be read without loss. Absent
    /// arguments and `null` are an empty object.
    pub fn bound(&self, arguments: Option<&[u8]>) -> Option<BoundedArguments> {
        let arguments = arguments.unwrap_or(b"{}");
        if arguments.len() > MAX_ARGUMENTS_BYTES {
            return None;
        }
        let value: Value = serde_json::from_slice(arguments).ok()?;
        let value = if value.is_null() { Value::Object(Default::default()) } else { value };
        self.cost_bound.bound(value)
    }

    /// Returns what is wrong with arguments; nothing if they fit.
    pub fn check(&self, arguments: &BoundedArguments) -> Vec<Mistake> {
        if self.validator.is_valid(&arguments.value) {
            return Vec::new();
        }
        let is_certain =
            |error: &ValidationError<'_>| is_certain(error) && !self.is_covered_by_default(error);
        if arguments.steps > MANY_STEPS {
            let first = self.validator.validate(&arguments.value).err();
            return first.iter().filter(|error| is_certain(error)).map(mistake).collect();
        }
        let errors = self.validator.iter_errors(&arguments.value);
        errors.filter(is_certain).take(MAX_MISTAKES).map(|error| mistake(&error)).collect()
    }
}

impl ArgumentSchema {
    /// Returns whether servers take what the schema refuses by the letter: a required property that is absent and has a
    /// default.
    fn is_covered_by_default(&self, error: &ValidationError<'_>) -> bool {
        let (Some(root), ValidationErrorKind::Required { property }) =
            (&self.schema_with_defaults, error.kind())
        else {
            return false;
        };
        let path = error.schema_path().as_str();
        // Behind a reference the path is not one of this text, and nothing can be said.
        let Some(schema) = path.rsplit_once('/').and_then(|(parent, _)| root.pointer(parent)) else {
            return true;
        };
        property.as_str().and_then(|name| schema.get("properties")?.get(name)?.get("default")).is_some()
    }
}

/// A keyword that is not checked.
struct UncheckedKeyword;

impl<'i> Keyword<'i> for UncheckedKeyword {
    fn validate(&self, _: &'i Value) -> Result<(), ValidationError<'i>> {
        Ok(())
    }

    fn is_valid(&self, _: &'i Value) -> bool {
        true
    }
}

impl fmt::Debug for ArgumentSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArgumentSchema").field("size", &self.size).finish_non_exhaustive()
    }
}

fn mistake(error: &ValidationError<'_>) -> Mistake {
    Mistake {
        path: truncate(error.instance_path().as_str()),
        // The values themselves may be secrets, and long.
        problem: truncate(&error.masked_with("the value").to_string()),
    }
}

/// Returns whether a mistake is one whatever digits a number has lost by being read.
fn is_certain(error: &ValidationError<'_>) -> bool {
    let value = error.instance();
    // Clients write `null` for what is absent, and servers differ in how they take it.
    if value.is_null() {
        return false;
    }
    match error.kind() {
        ValidationErrorKind::Required { .. } | ValidationErrorKind::AdditionalProperties { .. } => true,
        ValidationErrorKind::Type { kind } if value.is_number() => {
            !allows_numbers(kind) || !is_inexact(value)
        }
        ValidationErrorKind::Type { .. } => true,
        _ => !is_inexact(value),
    }
}

fn allows_numbers(kind: &TypeKind) -> bool {
    let is_number = |kind: JsonType| matches!(kind, JsonType::Number | JsonType::Integer);
    match kind {
        TypeKind::Single(kind) => is_number(*kind),
        TypeKind::Multiple(kinds) => kinds.iter().any(is_number),
    }
}

/// Returns whether a value holds a number that may have lost digits.
fn is_inexact(value: &Value) -> bool {
    match value {
        Value::Number(number) => {
            number.is_f64() && number.as_f64().is_none_or(|number| number.abs() >= MIN_INEXACT)
        }
        Value::Array(items) => items.iter().any(is_inexact),
        Value::Object(members) => members.values().any(is_inexact),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}

fn truncate(text: &str) -> String {
    match text.char_indices().nth(MAX_MISTAKE_LEN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;

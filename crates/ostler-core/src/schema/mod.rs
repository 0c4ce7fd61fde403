//! Argument schemas: the `inputSchema` of a tool, compiled to judge arguments.
//!
//! The schema comes from a server and the arguments from a caller, and neither is trusted with the time of the host:
//! no reference leaves the schema, patterns run in linear time, and a check whose bound of steps ([`effort`]) is too
//! large is not made. Arguments are called wrong only where that is certain.

mod effort;

use std::fmt;

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{JsonType, PatternOptions, ValidationError, Validator};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::effort::Effort;

/// The longest schema that is compiled; the largest of published servers have some 30 KiB.
const LONGEST_SCHEMA: usize = 256 << 10;
/// The longest arguments that are read: more than models write, less than takes a thread for milliseconds.
const LONGEST_ARGUMENTS: usize = 128 << 10;
/// The size of one compiled pattern, and of the table that its matches fill.
const LARGEST_PATTERN: usize = 256 << 10;
/// The most mistakes that are told of one call.
const MOST_MISTAKES: usize = 8;
/// Arguments with more values than this are told their first mistake only: every mistake that is looked for costs memory.
const MANY_VALUES: u64 = 2_000;
/// The longest text of a mistake.
const LONGEST_MISTAKE: usize = 200;
/// The least magnitude at which a number that is no 64-bit integer may have lost digits.
const INEXACT: f64 = 9_007_199_254_740_992.0;

/// The compiled schema of one tool's arguments.
pub struct ArgumentSchema {
    validator: Validator,
    effort: Effort,
    size: usize,
}

/// Arguments that can be judged within bounds.
#[derive(Debug)]
pub struct Bounded {
    value: Value,
    values: u64,
    /// Upper bound on the steps of a check.
    pub steps: u64,
    /// Upper bound on nested steps of a check.
    pub nesting: u64,
}

/// One thing that is wrong with the arguments of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mistake {
    /// A JSON pointer to the wrong value; empty for the arguments as a whole.
    pub path: String,
    /// What the schema wants there. Holds nothing of the value itself.
    pub expected: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            "" => f.write_str(&self.expected),
            path => write!(f, "{path}: {}", self.expected),
        }
    }
}

/// Why a definition's schema judges nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
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
    pub fn compile(definition: &[u8]) -> Result<Self, Unusable> {
        let text = ostler_wire::member(definition, "inputSchema").ok_or(Unusable::Missing)?;
        if text.len() > LONGEST_SCHEMA {
            return Err(Unusable::Unbounded("it is too long"));
        }
        let schema: Value =
            serde_json::from_slice(text).map_err(|error| Unusable::Invalid(cut(&error.to_string())))?;
        let effort = Effort::of(&schema)?;
        let patterns = PatternOptions::regex().size_limit(LARGEST_PATTERN).dfa_size_limit(LARGEST_PATTERN);
        let validator = jsonschema::options()
            .offline()
            .with_pattern_options(patterns)
            .should_validate_formats(false)
            .without_content_media_type_support("application/json")
            .without_content_encoding_support("base64")
            .build(&schema)
            .map_err(|error| Unusable::Invalid(cut(&error.to_string())))?;
        Ok(Self { validator, effort, size: text.len() })
    }

    /// The length of the schema's text, to which the memory of its compiled form is proportional.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Reads arguments; `None` if judging them could take too long, or if they can't be read without loss. Absent
    /// arguments and `null` are an empty object.
    pub fn bound(&self, arguments: Option<&[u8]>) -> Option<Bounded> {
        let arguments = arguments.unwrap_or(b"{}");
        if arguments.len() > LONGEST_ARGUMENTS {
            return None;
        }
        let value: Value = serde_json::from_slice(arguments).ok()?;
        let value = if value.is_null() { Value::Object(Default::default()) } else { value };
        self.effort.bound(value, arguments.len())
    }

    /// Returns what is wrong with arguments; nothing if they fit.
    pub fn check(&self, arguments: &Bounded) -> Vec<Mistake> {
        if self.validator.is_valid(&arguments.value) {
            return Vec::new();
        }
        if arguments.values > MANY_VALUES {
            let first = self.validator.validate(&arguments.value).err();
            return first.iter().filter(|error| is_certain(error)).map(mistake).collect();
        }
        let errors = self.validator.iter_errors(&arguments.value);
        errors.filter(is_certain).take(MOST_MISTAKES).map(|error| mistake(&error)).collect()
    }
}

impl fmt::Debug for ArgumentSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArgumentSchema").field("size", &self.size).finish_non_exhaustive()
    }
}

fn mistake(error: &ValidationError<'_>) -> Mistake {
    Mistake {
        path: cut(error.instance_path().as_str()),
        // The values themselves may be secrets, and long.
        expected: cut(&error.masked_with("the value").to_string()),
    }
}

/// Returns whether a mistake is one whatever digits a number has lost by being read.
fn is_certain(error: &ValidationError<'_>) -> bool {
    let value = error.instance();
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
            number.is_f64() && number.as_f64().is_none_or(|number| number.abs() >= INEXACT)
        }
        Value::Array(items) => items.iter().any(is_inexact),
        Value::Object(members) => members.values().any(is_inexact),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(LONGEST_MISTAKE) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;

//! Argument schema: the `inputSchema` of a tool, compiled to check arguments.
//!
//! The schema comes from a server and the arguments from a caller, and neither may use the host's time
//! without bound: references never leave the schema, patterns are left to the server, and a check whose bound
//! of steps ([`cost_bound`]) is too large is skipped. Arguments are reported wrong only if that is certain.

mod cost_bound;

use std::fmt;

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{JsonType, Keyword, ValidationError, Validator};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::cost_bound::CostBound;
use crate::error::truncate;

/// Longest schema that is compiled; the largest of published servers have some 30 KiB.
const MAX_SCHEMA_BYTES: usize = 256 << 10;
/// Longest arguments that are checked: more than models write, and few enough that a check takes less than
/// milliseconds.
const MAX_ARGUMENTS_BYTES: usize = 128 << 10;
/// Most mistakes reported for one call.
const MAX_MISTAKES: usize = 8;
/// A check of more steps reports the first mistake only: every step may leave one behind, which costs memory.
const MANY_STEPS: u64 = 10_000;
/// Longest text of a mistake.
const MAX_MISTAKE_LEN: usize = 200;
/// Smallest magnitude at which a number that is no 64-bit integer may have lost digits.
const MIN_INEXACT: f64 = 9_007_199_254_740_992.0;

/// Compiled schema of one tool's arguments.
pub struct ArgumentSchema {
    validator: Validator,
    cost_bound: CostBound,
    size: usize,
    /// The schema, if it has defaults.
    schema_with_defaults: Option<Value>,
}

/// Arguments that can be checked within bounds.
#[derive(Debug)]
pub struct BoundedArguments {
    value: Value,
    /// Upper bound on the steps of a check.
    pub steps: u64,
    /// Upper bound on nested steps of a check.
    pub nesting: u64,
}

/// One mistake in the arguments of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Mistake {
    /// A JSON pointer to the wrong value; empty for the arguments as a whole.
    pub path: String,
    /// The problem. Holds nothing of the value itself.
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

/// Reason why a definition's schema can't be used for checks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnusableSchema {
    /// The definition has no schema.
    #[error("it has no `inputSchema`")]
    Missing,
    /// The schema is invalid in its dialect of JSON Schema, or refers to something outside it.
    #[error("{0}")]
    Invalid(String),
    /// The cost of a check has no bound.
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
            .map_err(|error| UnusableSchema::Invalid(truncate(&error.to_string(), MAX_MISTAKE_LEN)))?;
        let cost_bound = CostBound::from_schema(&schema)?;
        let validator = jsonschema::options()
            .offline()
            // Matching takes time in proportion to the pattern times the text, and the server matches anyway.
            .with_keyword("pattern", |_, _, _| Ok(Box::new(UncheckedKeyword)))
            .should_validate_formats(false)
            .without_content_media_type_support("application/json")
            .without_content_encoding_support("base64")
            .build(&schema)
            .map_err(|error| UnusableSchema::Invalid(truncate(&error.to_string(), MAX_MISTAKE_LEN)))?;
        let has_default = memchr::memmem::find(text, b"\"default\"").is_some();
        Ok(Self {
            validator,
            cost_bound,
            size: text.len(),
            schema_with_defaults: has_default.then_some(schema),
        })
    }

    /// Returns the length of the schema's text, to which the memory of its compiled form is proportional.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Parses arguments; `None` if a check could take too long, or if they can't be parsed without loss.
    /// Absent arguments and `null` are an empty object.
    pub fn bound(&self, arguments: Option<&[u8]>) -> Option<BoundedArguments> {
        let arguments = arguments.unwrap_or(b"{}");
        if arguments.len() > MAX_ARGUMENTS_BYTES {
            return None;
        }
        let value: Value = serde_json::from_slice(arguments).ok()?;
        let value = if value.is_null() { Value::Object(Default::default()) } else { value };
        self.cost_bound.bound(value)
    }

    /// Returns the mistakes in the arguments, none if they are valid.
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
    /// Returns whether servers accept what the schema strictly refuses: an absent required property that has
    /// a default.
    fn is_covered_by_default(&self, error: &ValidationError<'_>) -> bool {
        let (Some(root), ValidationErrorKind::Required { property }) =
            (&self.schema_with_defaults, error.kind())
        else {
            return false;
        };
        let path = error.schema_path().as_str();
        // After a reference the path is none of this text, so the property can't be found.
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
        path: truncate(error.instance_path().as_str(), MAX_MISTAKE_LEN),
        // The values themselves may be secrets, and long.
        problem: truncate(&error.masked_with("the value").to_string(), MAX_MISTAKE_LEN),
    }
}

/// Returns whether a mistake remains one whatever digits a number has lost in parsing.
fn is_certain(error: &ValidationError<'_>) -> bool {
    let value = error.instance();
    // Clients write `null` for absent values, and servers differ in how they accept it.
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

#[cfg(test)]
mod tests;

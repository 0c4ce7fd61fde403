//! Tool arguments that are repeated in headers: `x-mcp-header` in the tool's schema.

use std::borrow::Cow;

use memchr::memmem;
use serde_json::{Map, Value};

use super::PARAM_PREFIX;
use super::encoding::{HeaderEncodingError, decode_value, encode_value};
use crate::json_string::decode_string;
use crate::object::select_members_str;

/// Schema keyword that marks a property.
const KEYWORD: &str = "x-mcp-header";

/// Largest integer that every JSON parser reads alike; larger ones get no header.
const SAFE_INTEGER: u64 = (1 << 53) - 1;

/// One marked property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamHeader {
    /// The full name of the header, `Mcp-Param-…`.
    pub name: String,
    /// The keys that lead to the property, from the arguments down. Never empty.
    pub path: Vec<String>,
    /// The type of its value.
    pub kind: ParamKind,
}

/// The type of a marked property. Others can't be marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamKind {
    /// A text.
    String,
    /// A whole number.
    Integer,
    /// `true` or `false`.
    Boolean,
}

/// Reason why a tool's marks make its definition invalid. Only that tool is left out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParamHeaderError {
    /// The schema is not a JSON object.
    #[error("the schema is not a JSON object")]
    NotASchema,
    /// A mark outside a property that plain `properties` lead to.
    #[error("`x-mcp-header` stands where no argument is certain, under `{0}`")]
    Unreachable(String),
    /// The mark is not a valid header name.
    #[error("`x-mcp-header` of `{0}` is not a header name")]
    BadName(String),
    /// Two marks differ only in case, which header names ignore.
    #[error("two properties are marked with the header `{0}`")]
    Duplicate(String),
    /// The property's type can't be carried in a header.
    #[error("`{0}` is marked with `x-mcp-header` but is no string, integer or boolean")]
    BadType(String),
}

/// Returns the marked properties of a tool's `inputSchema`. A schema that does not contain the keyword is not
/// parsed.
pub fn param_headers(input_schema: &[u8]) -> Result<Vec<ParamHeader>, ParamHeaderError> {
    let may_be_marked =
        [KEYWORD.as_bytes(), b"\\u00"].iter().any(|needle| memmem::find(input_schema, needle).is_some());
    if !may_be_marked {
        return Ok(Vec::new());
    }
    let schema: Map<String, Value> =
        serde_json::from_slice(input_schema).map_err(|_| ParamHeaderError::NotASchema)?;
    let mut search = ParamHeaderSearch { path: Vec::new(), found: Vec::new() };
    search.visit(&schema, true)?;
    Ok(search.found)
}

/// Returns the headers that a call with these arguments needs: names and encoded values. Absent and `null`
/// arguments have none.
pub fn param_header_values(headers: &[ParamHeader], arguments: Option<&[u8]>) -> Vec<(String, String)> {
    let Some(arguments) = arguments.filter(|_| !headers.is_empty()) else { return Vec::new() };
    let value = |header: &ParamHeader| {
        let value = header.value(arguments)?;
        Some((header.name.clone(), encode_value(&value).into_owned()))
    };
    headers.iter().filter_map(value).collect()
}

impl ParamHeader {
    /// Returns the text that the header of a call with these arguments encodes. `None` if the header must not
    /// be required: the argument is absent, `null`, no scalar, or an integer that parsers read differently.
    pub fn value<'a>(&self, arguments: &'a [u8]) -> Option<Cow<'a, str>> {
        scalar_text(self.raw(arguments)?)
    }

    /// Returns whether a header equals its argument. Integers are compared as numbers, so `42.0` is 42.
    pub fn matches_argument(&self, header: &str, arguments: &[u8]) -> Result<bool, HeaderEncodingError> {
        let header = decode_value(header)?;
        let Some(value) = self.value(arguments) else { return Ok(true) };
        if header == value {
            return Ok(true);
        }
        let is_number = self.kind == ParamKind::Integer && self.raw(arguments).is_some_and(is_number);
        Ok(is_number && number(&header).is_some_and(|header| Some(header) == number(&value)))
    }

    /// Returns the argument's JSON text.
    fn raw<'a>(&self, arguments: &'a [u8]) -> Option<&'a str> {
        let mut value = std::str::from_utf8(arguments).ok()?;
        for key in &self.path {
            let [member] = select_members_str(value, &[key]).ok()?;
            value = member?;
        }
        Some(value)
    }
}

/// Returns a scalar as text, `None` for every other value.
fn scalar_text(raw: &str) -> Option<Cow<'_, str>> {
    match raw {
        "true" | "false" => return Some(Cow::Borrowed(raw)),
        _ if raw.starts_with('"') => return decode_string(raw),
        _ if !is_number(raw) => return None,
        _ => {}
    }
    if let Ok(integer) = raw.parse::<i64>() {
        return (integer.unsigned_abs() <= SAFE_INTEGER).then_some(Cow::Borrowed(raw));
    }
    let double = raw.parse::<f64>().ok()?;
    if double.fract() != 0.0 {
        return Some(Cow::Borrowed(raw));
    }
    (double.abs() <= SAFE_INTEGER as f64).then(|| Cow::Owned((double as i64).to_string()))
}

fn is_number(raw: &str) -> bool {
    raw.starts_with(|first: char| first == '-' || first.is_ascii_digit())
}

/// Parses a number in JSON's own spelling, which excludes what Rust also accepts: `inf`, `+1`, `.5`.
fn number(text: &str) -> Option<f64> {
    is_number(text).then(|| text.parse().ok()).flatten()
}

struct ParamHeaderSearch {
    /// The keys from the root to the current schema.
    path: Vec<String>,
    found: Vec<ParamHeader>,
}

impl ParamHeaderSearch {
    /// Visits a schema. `is_certain` is true as long as only `properties` led here, so that an argument has a
    /// known path.
    fn visit(&mut self, schema: &Map<String, Value>, is_certain: bool) -> Result<(), ParamHeaderError> {
        if let Some(mark) = schema.get(KEYWORD) {
            if !is_certain || self.path.is_empty() {
                return Err(ParamHeaderError::Unreachable(self.property_path()));
            }
            self.add_header(schema, mark)?;
        }
        for (keyword, value) in schema {
            match keyword.as_str() {
                "properties" => self.visit_named(value, is_certain)?,
                "$defs" | "definitions" | "dependentSchemas" | "patternProperties" => {
                    self.visit_named(value, false)?;
                }
                // Values, not schemas: marks in them do not count.
                "default" | "const" | "enum" | "examples" | KEYWORD => {}
                _ => self.visit_any(keyword, value)?,
            }
        }
        Ok(())
    }

    /// Visits a map from names to schemas.
    fn visit_named(&mut self, map: &Value, is_certain: bool) -> Result<(), ParamHeaderError> {
        for (name, schema) in map.as_object().into_iter().flatten() {
            let Value::Object(schema) = schema else { continue };
            self.path.push(name.clone());
            self.visit(schema, is_certain)?;
            self.path.pop();
        }
        Ok(())
    }

    /// Visits the value of a keyword that may hold one schema or several.
    fn visit_any(&mut self, keyword: &str, value: &Value) -> Result<(), ParamHeaderError> {
        let schemas = match value {
            Value::Array(values) => values.as_slice(),
            one => std::slice::from_ref(one),
        };
        self.path.push(keyword.to_owned());
        for schema in schemas.iter().filter_map(Value::as_object) {
            self.visit(schema, false)?;
        }
        self.path.pop();
        Ok(())
    }

    fn add_header(&mut self, schema: &Map<String, Value>, mark: &Value) -> Result<(), ParamHeaderError> {
        let name = mark.as_str().filter(|name| is_token(name));
        let name = name.ok_or_else(|| ParamHeaderError::BadName(self.property_path()))?;
        let kind = match schema.get("type").and_then(Value::as_str) {
            Some("string") => ParamKind::String,
            Some("integer") => ParamKind::Integer,
            Some("boolean") => ParamKind::Boolean,
            _ => return Err(ParamHeaderError::BadType(self.property_path())),
        };
        let name = format!("{PARAM_PREFIX}{name}");
        if self.found.iter().any(|other| other.name.eq_ignore_ascii_case(&name)) {
            return Err(ParamHeaderError::Duplicate(name));
        }
        self.found.push(ParamHeader { name, path: self.path.clone(), kind });
        Ok(())
    }

    fn property_path(&self) -> String {
        self.path.join(".")
    }
}

/// Returns whether a name is a token of RFC 9110, 5.6.2.
fn is_token(name: &str) -> bool {
    let is_tchar = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(is_tchar)
}

#[cfg(test)]
#[path = "param_tests.rs"]
mod tests;

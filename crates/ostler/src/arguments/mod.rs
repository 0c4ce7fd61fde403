//! Tool arguments: conversion of typed text to the text of a JSON object.
//!
//! Values stay text throughout: a number is sent with the digits that were typed, however many.

pub(crate) mod schema;

use std::collections::HashSet;
use std::io::Read;

use ostler_core::catalog::nearest;
use serde_json::value::RawValue;

use crate::failure::CommandFailure;
use crate::output::escape_line;
use schema::{InputSchema, JsonType};

/// Typed arguments, with files and stdin read.
#[derive(Debug)]
pub(crate) enum TypedArguments {
    /// `--args`: the text of an object, sent unchanged.
    Object(String),
    /// `key=value`, in their order.
    Pairs(Vec<KeyValue>),
}

/// One `key=value`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct KeyValue {
    key: String,
    value: String,
    /// `key:=value`: the value is JSON, whatever the schema of the tool.
    is_json: bool,
}

impl TypedArguments {
    /// Reads the typed arguments, and the files they name.
    pub(crate) fn read(pairs: &[String], whole: Option<&str>) -> Result<Self, CommandFailure> {
        match whole {
            Some(_) if !pairs.is_empty() => {
                let what = format!("`{}` and --args both give arguments", escape_line(&pairs[0]));
                Err(usage_error(
                    what,
                    "write all of them as key=value, or all of them into the object of --args",
                ))
            }
            Some(source) => {
                let text = read_object(source)?;
                let value: &RawValue = serde_json::from_str(&text)
                    .map_err(|error| usage_error(format!("--args is not JSON: {error}"), ARGS_HINT))?;
                if !value.get().starts_with('{') {
                    return Err(usage_error("--args is not an object".into(), ARGS_HINT));
                }
                Ok(Self::Object(text))
            }
            None => {
                let pairs: Vec<KeyValue> =
                    pairs.iter().map(|text| parse_pair(text)).collect::<Result<_, _>>()?;
                let mut keys = HashSet::new();
                match pairs.iter().find(|pair| !keys.insert(&pair.key)) {
                    Some(twice) => {
                        let what = format!("the argument `{}` is given twice", escape_line(&twice.key));
                        Err(usage_error(what, "a list is written as JSON: key='[1, 2]'"))
                    }
                    None => Ok(Self::Pairs(pairs)),
                }
            }
        }
    }

    /// Returns the object whose values are strings, as arguments of prompts are.
    pub(crate) fn prompt_object(&self) -> Result<Box<RawValue>, CommandFailure> {
        let Self::Pairs(pairs) = self else {
            return Err(usage_error("arguments of prompts are texts".into(), ARGS_HINT));
        };
        let members: serde_json::Map<String, serde_json::Value> =
            pairs.iter().map(|pair| (pair.key.clone(), pair.value.as_str().into())).collect();
        serde_json::value::to_raw_value(&members).map_err(|error| CommandFailure::Output(error.into()))
    }

    /// Returns the text of the object for a tool of this definition.
    pub(crate) fn tool_object(self, definition: &[u8]) -> Result<String, CommandFailure> {
        let pairs = match self {
            Self::Object(text) => return Ok(text),
            Self::Pairs(pairs) => pairs,
        };
        let schema = InputSchema::from_tool(definition);
        let keys: Vec<&str> = pairs.iter().map(|pair| pair.key.as_str()).collect();
        let mut text = String::from("{");
        for (index, pair) in pairs.iter().enumerate() {
            if index > 0 {
                text.push(',');
            }
            text.push_str(&quote(&pair.key));
            text.push(':');
            text.push_str(&pair.json(&schema, &keys)?);
        }
        text.push('}');
        Ok(text)
    }
}

const ARGS_HINT: &str =
    "write an object such as --args '{\"key\": \"value\"}'; `-` reads stdin, `@FILE` a file";

fn read_object(source: &str) -> Result<String, CommandFailure> {
    if source == "-" {
        let mut text = String::new();
        let read = std::io::stdin().read_to_string(&mut text);
        return read
            .map(|_| text)
            .map_err(|error| usage_error(format!("stdin can't be read: {error}"), ARGS_HINT));
    }
    match source.strip_prefix('@') {
        Some(file) => read_file(file),
        None => Ok(source.to_owned()),
    }
}

fn read_file(file: &str) -> Result<String, CommandFailure> {
    std::fs::read_to_string(file).map_err(|error| {
        usage_error(
            format!("the file `{}` can't be read: {error}", escape_line(file)),
            "`@` stands before the name of a file",
        )
    })
}

/// Returns the failure for a word that is no key=value.
pub(crate) fn invalid_pair(text: &str) -> CommandFailure {
    let what = format!("`{}` is not an argument of a tool", escape_line(text));
    let hint = match text.starts_with(['{', '[', '@']) || text == "-" {
        true => format!("arguments as one object come by --args: --args '{}'", escape_line(text)),
        false => "write key=value, or --args '{\"key\": \"value\"}'".into(),
    };
    usage_error(what, hint)
}

fn parse_pair(text: &str) -> Result<KeyValue, CommandFailure> {
    let is_key = |key: &str| !matches!(key, "" | ":") && !key.starts_with('{');
    let Some((key, value)) = text.split_once('=').filter(|(key, _)| is_key(key)) else {
        return Err(invalid_pair(text));
    };
    let (key, is_json) = match key.strip_suffix(':') {
        Some(key) => (key, true),
        None => (key, false),
    };
    let value = match value.strip_prefix('@') {
        Some(file) => read_file(file)?,
        None => value.to_owned(),
    };
    Ok(KeyValue { key: key.to_owned(), value, is_json })
}

impl KeyValue {
    /// Returns the value as JSON, of the type that the tool asks for; `keys` are those of all arguments.
    fn json(&self, schema: &InputSchema, keys: &[&str]) -> Result<String, CommandFailure> {
        if let Some(known) = schema.known_keys_if_rejected(&self.key, keys) {
            let what = format!("the tool has no argument `{}`", escape_line(&self.key));
            let hint = match nearest(&self.key, known.iter().copied()) {
                Some(near) => format!("did you mean `{}`?", escape_line(near)),
                None if known.is_empty() => "it takes no arguments".into(),
                None => format!(
                    "it has {}",
                    known.iter().map(|key| format!("`{}`", escape_line(key))).collect::<Vec<_>>().join(", ")
                ),
            };
            return Err(usage_error(what, hint));
        }
        let parsed: Option<&RawValue> = serde_json::from_str(&self.value).ok();
        if self.is_json {
            let Some(value) = parsed else {
                let what = format!("the argument `{}` is not JSON", escape_line(&self.key));
                return Err(usage_error(what, "`:=` is for JSON; `=` takes text as it is"));
            };
            return Ok(value.get().to_owned());
        }
        let kinds = schema.types_of(&self.key);
        match parsed {
            Some(value) if kinds.is_empty() || kinds.iter().any(|kind| kind.accepts(value.get())) => {
                Ok(value.get().to_owned())
            }
            _ if kinds.is_empty() || kinds.contains(&JsonType::String) => Ok(quote(&self.value)),
            _ => {
                let wanted: Vec<&str> = kinds.iter().map(|kind| kind.description()).collect();
                let shown: String = escape_line(&self.value).chars().take(60).collect();
                let what = format!(
                    "the argument `{}` wants {}, found `{shown}`",
                    escape_line(&self.key),
                    wanted.join(" or ")
                );
                Err(usage_error(what, schema::type_syntax_hint()))
            }
        }
    }
}

/// Returns a text as a JSON string.
fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn usage_error(what: String, hint: impl Into<String>) -> CommandFailure {
    CommandFailure::Usage { what, hint: Some(hint.into()) }
}

#[cfg(test)]
mod tests;

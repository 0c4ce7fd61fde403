//! The arguments of a tool, from what was typed to the text of a JSON object.
//!
//! Values stay text all the way: a number goes out with the digits that were
//! typed, however many.

pub(crate) mod schema;

use std::collections::HashSet;
use std::io::Read;

use ostler_core::catalog::nearest;
use serde_json::value::RawValue;

use crate::failure::Failure;
use crate::output::clean;
use schema::{Kind, Schema};

/// What was typed, with files and stdin read.
#[derive(Debug)]
pub(crate) enum Given {
    /// `--args`: the text of an object, sent as it is.
    Whole(String),
    /// `key=value`, in the order they came.
    Pairs(Vec<Pair>),
}

/// One `key=value`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    key: String,
    value: String,
    /// `key:=value`: the value is JSON, whatever the tool says.
    is_json: bool,
}

impl Given {
    /// Reads what was typed, and the files it names.
    pub(crate) fn read(pairs: &[String], whole: Option<&str>) -> Result<Self, Failure> {
        match whole {
            Some(_) if !pairs.is_empty() => {
                let what = format!("`{}` and --args both give arguments", clean(&pairs[0]));
                Err(usage(what, "write all of them as key=value, or all of them into the object of --args"))
            }
            Some(source) => {
                let text = read_whole(source)?;
                let value: &RawValue = serde_json::from_str(&text)
                    .map_err(|error| usage(format!("--args is not JSON: {error}"), HOW_JSON))?;
                if !value.get().starts_with('{') {
                    return Err(usage("--args is not an object".into(), HOW_JSON));
                }
                Ok(Self::Whole(text))
            }
            None => {
                let pairs: Vec<Pair> = pairs.iter().map(|text| read_pair(text)).collect::<Result<_, _>>()?;
                let mut keys = HashSet::new();
                match pairs.iter().find(|pair| !keys.insert(&pair.key)) {
                    Some(twice) => {
                        let what = format!("the argument `{}` is given twice", clean(&twice.key));
                        Err(usage(what, "a list is written as JSON: key='[1, 2]'"))
                    }
                    None => Ok(Self::Pairs(pairs)),
                }
            }
        }
    }

    /// Returns the object whose values are texts, as arguments of prompts are.
    pub(crate) fn as_texts(&self) -> Result<Box<RawValue>, Failure> {
        let Self::Pairs(pairs) = self else {
            return Err(usage("arguments of prompts are texts".into(), HOW_JSON));
        };
        let members: serde_json::Map<String, serde_json::Value> =
            pairs.iter().map(|pair| (pair.key.clone(), pair.value.as_str().into())).collect();
        serde_json::value::to_raw_value(&members).map_err(|error| Failure::Output(error.into()))
    }

    /// The text of the object to send to a tool of this definition.
    pub(crate) fn for_tool(self, definition: &[u8]) -> Result<String, Failure> {
        let pairs = match self {
            Self::Whole(text) => return Ok(text),
            Self::Pairs(pairs) => pairs,
        };
        let schema = Schema::of_tool(definition);
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

const HOW_JSON: &str =
    "write an object such as --args '{\"key\": \"value\"}'; `-` reads stdin, `@FILE` a file";

fn read_whole(source: &str) -> Result<String, Failure> {
    if source == "-" {
        let mut text = String::new();
        let read = std::io::stdin().read_to_string(&mut text);
        return read.map(|_| text).map_err(|error| usage(format!("stdin can't be read: {error}"), HOW_JSON));
    }
    match source.strip_prefix('@') {
        Some(file) => read_file(file),
        None => Ok(source.to_owned()),
    }
}

fn read_file(file: &str) -> Result<String, Failure> {
    std::fs::read_to_string(file).map_err(|error| {
        usage(
            format!("the file `{}` can't be read: {error}", clean(file)),
            "`@` stands before the name of a file",
        )
    })
}

/// The failure of what stands in the place of a key=value and is none.
pub(crate) fn not_a_pair(text: &str) -> Failure {
    let what = format!("`{}` is not an argument of a tool", clean(text));
    let hint = match text.starts_with(['{', '[', '@']) || text == "-" {
        true => format!("arguments as one object come by --args: --args '{}'", clean(text)),
        false => "write key=value, or --args '{\"key\": \"value\"}'".into(),
    };
    usage(what, hint)
}

fn read_pair(text: &str) -> Result<Pair, Failure> {
    let is_key = |key: &str| !matches!(key, "" | ":") && !key.starts_with('{');
    let Some((key, value)) = text.split_once('=').filter(|(key, _)| is_key(key)) else {
        return Err(not_a_pair(text));
    };
    let (key, is_json) = match key.strip_suffix(':') {
        Some(key) => (key, true),
        None => (key, false),
    };
    let value = match value.strip_prefix('@') {
        Some(file) => read_file(file)?,
        None => value.to_owned(),
    };
    Ok(Pair { key: key.to_owned(), value, is_json })
}

impl Pair {
    /// The value as JSON, of the type that the tool asks for; `keys` are those of all arguments.
    fn json(&self, schema: &Schema, keys: &[&str]) -> Result<String, Failure> {
        if let Some(known) = schema.refuses(&self.key, keys) {
            let what = format!("the tool has no argument `{}`", clean(&self.key));
            let hint = match nearest(&self.key, known.iter().copied()) {
                Some(near) => format!("did you mean `{}`?", clean(near)),
                None if known.is_empty() => "it takes no arguments".into(),
                None => format!(
                    "it has {}",
                    known.iter().map(|key| format!("`{}`", clean(key))).collect::<Vec<_>>().join(", ")
                ),
            };
            return Err(usage(what, hint));
        }
        let parsed: Option<&RawValue> = serde_json::from_str(&self.value).ok();
        if self.is_json {
            let Some(value) = parsed else {
                let what = format!("the argument `{}` is not JSON", clean(&self.key));
                return Err(usage(what, "`:=` is for JSON; `=` takes text as it is"));
            };
            return Ok(value.get().to_owned());
        }
        let kinds = schema.kinds(&self.key);
        match parsed {
            Some(value) if kinds.is_empty() || kinds.iter().any(|kind| kind.fits(value.get())) => {
                Ok(value.get().to_owned())
            }
            _ if kinds.is_empty() || kinds.contains(&Kind::String) => Ok(quote(&self.value)),
            _ => {
                let wanted: Vec<&str> = kinds.iter().map(|kind| kind.wanted()).collect();
                let shown: String = clean(&self.value).chars().take(60).collect();
                let what = format!(
                    "the argument `{}` wants {}, found `{shown}`",
                    clean(&self.key),
                    wanted.join(" or ")
                );
                Err(usage(what, schema::how()))
            }
        }
    }
}

/// A text as a JSON string.
fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn usage(what: String, hint: impl Into<String>) -> Failure {
    Failure::Usage { what, hint: Some(hint.into()) }
}

#[cfg(test)]
mod tests;

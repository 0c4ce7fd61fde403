//! `tools` and `tool.NAME`: the exposed tools, and rules for single ones.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value as Json, json};

use crate::config::keys::section::{section, words};
use crate::config::keys::{ReadValue, Settings as _, ValueKind, WriteValue};
use crate::config::read::{ConfigNode, SectionReader, printable_key};
use crate::config::values::glob::{self, GlobError};
use crate::config::values::secret_literals::quote;

/// Twice MCP's own limit for tool names.
const MAX_TOOL_NAME_BYTES: usize = 256;

section! {
    /// The server's tools that are exposed; others do not exist for callers.
    ///
    /// Patterns are [globs](glob): `*` is any run of characters, `/` included, and
    /// `?` is any one.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize)]
    pub struct ToolFilter("tools", optional) {
        /// Patterns of tool names of which at least one must match; `*` stands for any characters.
        allow: Vec<String> = texts(["*"]) => patterns;
        /// Patterns of tool names of which none may match; deny wins.
        deny: Vec<String> = texts([]) => patterns;
    }
}

section! {
    /// Rules for one tool, by the server's own name for it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
    pub struct ToolRules("tool", default, written) {
        /// Time results are cached, whatever the server says; false forbids caching.
        cache: CacheRule = duration_or_false;
        /// "safe" declares that running the tool twice does no harm.
        retry: RetryRule = choice;
    }
}

/// Caching of a tool's results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Default)]
#[serde(rename_all = "lowercase")]
pub enum CacheRule {
    /// For the time of the server's own hint.
    #[default]
    Hint,
    /// This long, whatever the server says.
    For(Duration),
    /// Never, whatever the server says.
    Never,
}

words! {
    /// Retrying of calls whose outcome is unknown.
    #[derive(Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum RetryRule {
        /// No retry: the tool runs at most once per call.
        Never = "never",
        /// The operator declares that running it twice does no harm.
        Safe = "safe",
    }
}

impl ReadValue for CacheRule {
    fn read(reader: &SectionReader<'_>, key: &'static str) -> Option<Self> {
        reader.duration_or_false(key).map(|time| time.map_or(Self::Never, Self::For))
    }
}

impl WriteValue for CacheRule {
    fn write(&self, kind: &ValueKind) -> Json {
        match self {
            Self::Hint => Json::Null,
            Self::Never => json!(false),
            Self::For(time) => time.write(kind),
        }
    }
}

impl WriteValue for ToolFilter {}

impl WriteValue for RetryRule {}

/// Reads the rules of single tools.
pub(crate) fn rules(reader: &SectionReader<'_>, key: &'static str) -> Option<BTreeMap<String, ToolRules>> {
    let mut rules = BTreeMap::new();
    for entry in reader.named_entries(key) {
        let path = format!("{}.{}", reader.key_path(key), printable_key(&entry.key));
        if entry.key.is_empty() || entry.key.len() > MAX_TOOL_NAME_BYTES {
            let message = format!("`{path}`: a tool's name has 1 to {MAX_TOOL_NAME_BYTES} characters");
            reader.context.error(entry.key_span, &path, message, None);
        } else if let Some(found) =
            SectionReader::from_entry(reader.context, ToolRules::SECTION, &path, entry)
        {
            rules.insert(entry.key.clone(), ToolRules::preset().filled(found));
        }
    }
    Some(rules)
}

fn patterns(reader: &SectionReader<'_>, key: &'static str) -> Option<Vec<String>> {
    let texts = reader.texts(key)?;
    for (text, node) in &texts {
        report_bad_pattern(reader, key, text, node, glob::check(text));
    }
    Some(texts.into_iter().map(|(text, _)| text.to_owned()).collect())
}

/// Reports an invalid pattern.
pub(crate) fn report_bad_pattern(
    reader: &SectionReader<'_>,
    key: &'static str,
    text: &str,
    node: &ConfigNode,
    checked: Result<(), GlobError>,
) {
    let Err(error) = checked else { return };
    let path = reader.key_path(key);
    let hint =
        (error == GlobError::NoServer).then(|| "write \"server/*\" for all tools of a server".to_owned());
    reader.context.error(node.span, &path, format!("{} in `{path}`: {error}", quote(text)), hint);
}

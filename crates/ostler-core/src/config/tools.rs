//! `tools` and `tool.NAME`: which tools exist, and rules for single ones.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value as Json, json};

use super::field::Kind;
use super::glob::{self, GlobError};
use super::node::Node;
use super::reader::{Reader, clip};
use super::secret::quote;
use super::section::{Settings as _, section, words};
use super::value::{Value, Written};

/// MCP's own limit for tool names is half of this.
const LONGEST_TOOL_NAME: usize = 256;

section! {
    /// Which of the server's tools exist as far as anybody here is concerned.
    ///
    /// Patterns are [globs](glob): `*` is any run of characters, `/` included, and
    /// `?` is any one.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize)]
    pub struct Filter("tools", optional) {
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
        /// How long results are remembered, whatever the server says; false forbids it.
        cache: CacheRule = duration_or_false;
        /// "safe" vouches that running the tool twice does no harm.
        retry: RetryRule = choice;
    }
}

/// Whether results of a tool may be remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Default)]
#[serde(rename_all = "lowercase")]
pub enum CacheRule {
    /// As long as the server's own hint says.
    #[default]
    Hint,
    /// This long, whatever the server says.
    For(Duration),
    /// Never, whatever the server says.
    Never,
}

words! {
    /// Whether a call whose outcome is unknown may be repeated.
    #[derive(Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum RetryRule {
        /// Not repeated: the tool runs at most once per call.
        Never = "never",
        /// The operator vouches that running it twice does no harm.
        Safe = "safe",
    }
}

impl Value for CacheRule {
    fn read(reader: &Reader<'_>, key: &'static str) -> Option<Self> {
        reader.duration_or_false(key).map(|time| time.map_or(Self::Never, Self::For))
    }
}

impl Written for CacheRule {
    fn write(&self, kind: &Kind) -> Json {
        match self {
            Self::Hint => Json::Null,
            Self::Never => json!(false),
            Self::For(time) => time.write(kind),
        }
    }
}

impl Written for Filter {}

impl Written for RetryRule {}

/// Reads the rules of single tools.
pub(crate) fn rules(reader: &Reader<'_>, key: &'static str) -> Option<BTreeMap<String, ToolRules>> {
    let mut rules = BTreeMap::new();
    for entry in reader.named(key) {
        let path = format!("{}.{}", reader.path_of(key), clip(&entry.key));
        if entry.key.is_empty() || entry.key.len() > LONGEST_TOOL_NAME {
            let message = format!("`{path}`: a tool's name has 1 to {LONGEST_TOOL_NAME} characters");
            reader.scope.error(entry.key_at, &path, message, None);
        } else if let Some(found) = Reader::of(reader.scope, ToolRules::SECTION, &path, entry) {
            rules.insert(entry.key.clone(), ToolRules::preset().filled(found));
        }
    }
    Some(rules)
}

fn patterns(reader: &Reader<'_>, key: &'static str) -> Option<Vec<String>> {
    let texts = reader.texts(key)?;
    for (text, node) in &texts {
        report(reader, key, text, node, glob::check(text));
    }
    Some(texts.into_iter().map(|(text, _)| text.to_owned()).collect())
}

/// Reports what is wrong with a pattern, if anything is.
pub(crate) fn report(
    reader: &Reader<'_>,
    key: &'static str,
    text: &str,
    node: &Node,
    checked: Result<(), GlobError>,
) {
    let Err(error) = checked else { return };
    let path = reader.path_of(key);
    let hint =
        (error == GlobError::NoServer).then(|| "write \"server/*\" for all tools of a server".to_owned());
    reader.scope.error(node.at, &path, format!("{} in `{path}`: {error}", quote(text)), hint);
}

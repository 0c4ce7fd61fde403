//! `tools` and `tool.NAME`: which tools exist, and rules for single ones.

use super::field::{Field, Kind, Preset, Section};
use super::glob::{self, GlobError};
use super::node::Node;
use super::reader::Reader;
use super::secret::quote;
use crate::policy::Filter;
use crate::spec::{CacheRule, RetryRule, ToolRules};

pub(crate) static TOOLS: Section = Section {
    name: "tools",
    doc: "Which of the server's tools exist as far as anybody here is concerned.",
    fields: &[
        Field {
            key: "allow",
            kind: Kind::Texts,
            preset: Preset::Texts(&["*"]),
            doc: "Patterns of tool names of which at least one must match; `*` stands for any characters.",
        },
        Field {
            key: "deny",
            kind: Kind::Texts,
            preset: Preset::Texts(&[]),
            doc: "Patterns of tool names of which none may match; deny wins.",
        },
    ],
};

pub(crate) static TOOL: Section = Section {
    name: "tool",
    doc: "Rules for one tool, by the server's own name for it.",
    fields: &[
        Field {
            key: "cache",
            kind: Kind::DurationOrFalse,
            preset: Preset::Nothing,
            doc: "How long results are remembered, whatever the server says; false forbids it.",
        },
        Field {
            key: "retry",
            kind: Kind::Choice(&["never", "safe"]),
            preset: Preset::Text("never"),
            doc: "\"safe\" vouches that running the tool twice does no harm.",
        },
    ],
};

pub(crate) fn read_filter(reader: Reader<'_>) -> Filter {
    let everything = Filter::everything();
    let filter = Filter {
        allow: patterns(&reader, "allow").unwrap_or(everything.allow),
        deny: patterns(&reader, "deny").unwrap_or(everything.deny),
    };
    reader.finish();
    filter
}

pub(crate) fn read_rules(reader: Reader<'_>) -> ToolRules {
    let cache = match reader.duration_or_false("cache") {
        None => CacheRule::Hint,
        Some(None) => CacheRule::Never,
        Some(Some(time)) => CacheRule::For(time),
    };
    let retry = match reader.choice("retry") {
        Some("safe") => RetryRule::Safe,
        _ => RetryRule::Never,
    };
    reader.finish();
    ToolRules { cache, retry }
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

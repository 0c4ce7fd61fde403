//! Section reader: reads one section by its table of keys.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use super::client_formats;
use super::file_context::FileContext;
use super::node::{ConfigNode, ConfigTable, ConfigValue, TableEntry};
use super::source_text::SourceSpan;
use crate::catalog::nearest;
use crate::config::keys::{DefaultValue, KeySpec, SectionSpec, ValueKind};
use crate::config::values::secret_literals::quote;
use crate::config::values::{duration, size};

/// A section of a file, with its keys found and its unknown keys reported.
pub(crate) struct SectionReader<'a> {
    pub(crate) context: &'a FileContext<'a>,
    section: &'static SectionSpec,
    /// The path of the section: `servers.time`, empty for the root.
    pub(crate) path: String,
    /// The location for problems of the section as a whole.
    pub(crate) span: SourceSpan,
    entries: BTreeMap<&'static str, &'a TableEntry>,
    /// Keys that an unknown key of the file probably means.
    misspelled: BTreeSet<&'static str>,
    /// Every key that was requested: all of the table's, when reading is done.
    requested_keys: RefCell<BTreeSet<&'static str>>,
}

impl<'a> SectionReader<'a> {
    /// Reads an entry that should be a section; reports one that is no table.
    pub(crate) fn from_entry(
        context: &'a FileContext<'a>,
        section: &'static SectionSpec,
        path: &str,
        entry: &'a TableEntry,
    ) -> Option<Self> {
        match entry.node.as_table() {
            Some(table) => Some(Self::from_table(context, section, path, entry.key_span, table)),
            None => {
                let message = format!("`{path}` wants a table, found {}", entry.node.describe());
                context.error(entry.node.span, path, message, None);
                None
            }
        }
    }

    /// Finds the section's keys; reports unknown and repeated ones.
    pub(crate) fn from_table(
        context: &'a FileContext<'a>,
        section: &'static SectionSpec,
        path: &str,
        at: SourceSpan,
        table: &'a ConfigTable,
    ) -> Self {
        let (path, asked) = (path.to_owned(), RefCell::default());
        let mut reader = Self {
            context,
            section,
            path,
            span: at,
            entries: BTreeMap::new(),
            misspelled: BTreeSet::new(),
            requested_keys: asked,
        };
        for entry in &table.entries {
            let Some(field) = section.field(&entry.key) else {
                reader.report_unknown(entry);
                reader.misspelled.extend(section.nearest(&entry.key));
                continue;
            };
            let path = reader.key_path(field.key);
            if let Some(first) = reader.entries.get(field.key) {
                report_repeated(context, &path, &first.key, first.key_span, entry);
                continue;
            }
            context.record_location(&path, entry.key_span);
            reader.entries.insert(field.key, entry);
        }
        reader
    }

    /// Returns the path of one of the section's keys.
    pub(crate) fn key_path(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// Returns the location of a key, or of the section if the key is absent.
    pub(crate) fn key_span(&self, key: &str) -> SourceSpan {
        self.entries.get(key).map_or(self.span, |entry| entry.key_span)
    }

    /// Returns whether the file has the key.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// Reports required keys that are absent.
    pub(crate) fn require_keys(&self) {
        for field in self.section.fields().filter(|field| !self.has(field.key)) {
            if let Some(hint) = field.required {
                let message = format!("`{}` has no `{}`", self.path, field.key);
                self.context.error(self.span, &self.path, message, hint);
            }
        }
    }

    /// Returns the text of a key, if it is one, without checking it.
    pub(crate) fn peek(&self, key: &str) -> Option<&'a str> {
        self.entries.get(key)?.node.as_text()
    }

    /// Returns whether the file has an unknown key that probably means this one.
    pub(crate) fn has_misspelled(&self, key: &str) -> bool {
        self.misspelled.contains(key)
    }

    /// Returns the kind of a key's value.
    pub(crate) fn kind(&self, key: &'static str) -> &'static ValueKind {
        self.section.field(key).map_or(&ValueKind::Flag, |field| &field.kind)
    }

    pub(crate) fn flag(&self, key: &'static str) -> Option<bool> {
        let (field, entry) = self.take(key)?;
        match entry.node.value {
            ConfigValue::Flag(flag) => Some(flag),
            _ => self.report_mistyped(field, &entry.node),
        }
    }

    pub(crate) fn count(&self, key: &'static str) -> Option<u64> {
        let (field, entry) = self.take(key)?;
        let ValueKind::Count(least, most) = field.kind else { return None };
        match entry.node.value {
            ConfigValue::Integer(number) => {
                let number = u64::try_from(number).ok().filter(|number| (least..=most).contains(number));
                number.or_else(|| self.report_mistyped(field, &entry.node))
            }
            _ => self.report_mistyped(field, &entry.node),
        }
    }

    /// Returns a text and its node, for messages about it.
    pub(crate) fn text(&self, key: &'static str) -> Option<(&'a str, &'a ConfigNode)> {
        let (field, entry) = self.take(key)?;
        match entry.node.as_text() {
            Some("") | None => self.report_mistyped(field, &entry.node),
            Some(text) => Some((text, &entry.node)),
        }
    }

    /// Returns a path, resolved against the file.
    pub(crate) fn path(&self, key: &'static str) -> Option<PathBuf> {
        let (text, node) = self.text(key)?;
        self.absolute(key, text, node)
    }

    /// Resolves a path in the value of a key against the file.
    pub(crate) fn absolute(&self, key: &str, path: &str, node: &ConfigNode) -> Option<PathBuf> {
        let absolute = self.context.absolute(path.as_ref());
        absolute.map_err(|why| self.context.error(node.span, &self.key_path(key), why, None)).ok()
    }

    /// Returns a list of texts; other members are reported and left out.
    pub(crate) fn texts(&self, key: &'static str) -> Option<Vec<(&'a str, &'a ConfigNode)>> {
        let (field, entry) = self.take(key)?;
        let ConfigValue::List(list) = &entry.node.value else {
            return self.report_mistyped(field, &entry.node);
        };
        let text_of = |node: &'a ConfigNode| {
            node.as_text().map(|text| (text, node)).or_else(|| self.report_mistyped(field, node))
        };
        Some(list.iter().filter_map(text_of).collect())
    }

    /// Returns a non-empty list of texts in place of one text.
    pub(crate) fn texts_in_place_of(&self, key: &'static str) -> Option<(Vec<&'a str>, &'a ConfigNode)> {
        let (_, entry) = self.take(key)?;
        let ConfigValue::List(list) = &entry.node.value else { return None };
        let words: Vec<&str> = list.iter().map(ConfigNode::as_text).collect::<Option<_>>()?;
        (!words.is_empty()).then_some((words, &entry.node))
    }

    /// Returns a list of texts, or one text as a list of one.
    pub(crate) fn text_or_texts(&self, key: &'static str) -> Option<Vec<(&'a str, &'a ConfigNode)>> {
        match self.entries.get(key).map(|entry| &entry.node.value) {
            Some(ConfigValue::List(_)) => self.texts(key),
            _ => self.text(key).map(|found| vec![found]),
        }
    }

    /// Returns texts by name; other values and repeated names are reported and left out.
    pub(crate) fn text_map(&self, key: &'static str) -> Option<Vec<(&'a TableEntry, &'a str)>> {
        let (field, entry) = self.take(key)?;
        let Some(table) = entry.node.as_table() else { return self.report_mistyped(field, &entry.node) };
        let unique = self.unique(&self.key_path(key), table);
        let text_of = |entry: &'a TableEntry| {
            let text = entry.node.as_text().map(|text| (entry, text));
            text.or_else(|| {
                let path = format!("{}.{}", self.key_path(key), entry.key);
                let message = format!("`{path}` wants a text, found {}", entry.node.describe());
                self.context.error(entry.node.span, &path, message, "put it into quotes");
                None
            })
        };
        Some(unique.into_iter().filter_map(text_of).collect())
    }

    pub(crate) fn choice(&self, key: &'static str) -> Option<&'static str> {
        let (field, entry) = self.take(key)?;
        let ValueKind::Choice(words) = field.kind else { return None };
        let Some(text) = entry.node.as_text() else { return self.report_mistyped(field, &entry.node) };
        words.iter().find(|word| **word == text).copied().or_else(|| {
            let path = self.key_path(key);
            let message = format!("`{path}` wants {}, found {}", field.kind.expected(), quote(text));
            let hint = nearest(text, words.iter().copied()).map(|word| format!("did you mean \"{word}\"?"));
            self.context.error(entry.node.span, &path, message, hint);
            None
        })
    }

    pub(crate) fn duration(&self, key: &'static str) -> Option<Duration> {
        let (field, entry) = self.take(key)?;
        let ValueKind::Duration(least) = field.kind else { return None };
        self.duration_in(field, &entry.node, Duration::from_millis(least))
    }

    /// Returns a duration above zero, or `None` for `false`.
    pub(crate) fn duration_or_false(&self, key: &'static str) -> Option<Option<Duration>> {
        let (field, entry) = self.take(key)?;
        match entry.node.value {
            ConfigValue::Flag(false) => Some(None),
            _ => self.duration_in(field, &entry.node, Duration::from_millis(1)).map(Some),
        }
    }

    /// Returns a duration above zero, or `None` for `"never"`.
    pub(crate) fn duration_or_never(&self, key: &'static str) -> Option<Option<Duration>> {
        let (field, entry) = self.take(key)?;
        match entry.node.as_text() {
            Some("never") => Some(None),
            _ => self.duration_in(field, &entry.node, Duration::from_millis(1)).map(Some),
        }
    }

    fn duration_in(&self, field: &KeySpec, node: &ConfigNode, least: Duration) -> Option<Duration> {
        let path = self.key_path(field.key);
        let Some(text) = node.as_text() else { return self.report_mistyped(field, node) };
        match duration::parse(text) {
            Ok(found) if found < least => {
                let message = format!(
                    "`{path}` is at least {}, found {}",
                    crate::fault::HumanDuration(least),
                    quote(text)
                );
                let hint = match field.kind {
                    ValueKind::DurationOrFalse => Some("write false to forbid it".into()),
                    ValueKind::DurationOrNever => Some("write \"never\" to leave it to an operator".into()),
                    _ => None,
                };
                self.context.error(node.span, &path, message, hint);
                None
            }
            Ok(found) => Some(found),
            Err(error) => {
                let message = format!("`{path}` wants a duration, found {}: {error}", quote(text));
                self.context.error(
                    node.span,
                    &path,
                    message,
                    "write it like \"30s\", \"5m\", \"100ms\" or \"1h30m\"",
                );
                None
            }
        }
    }

    pub(crate) fn size(&self, key: &'static str) -> Option<usize> {
        let (field, entry) = self.take(key)?;
        let ValueKind::Size(least) = field.kind else { return None };
        let path = self.key_path(key);
        let Some(text) = entry.node.as_text() else { return self.report_mistyped(field, &entry.node) };
        match size::parse(text) {
            Ok(found) if (found as u64) < least => {
                let message = format!("`{path}` is at least {least} bytes, found {}", quote(text));
                self.context.error(entry.node.span, &path, message, None);
                None
            }
            Ok(found) => Some(found),
            Err(error) => {
                let message = format!("`{path}` wants a size, found {}: {error}", quote(text));
                self.context.error(
                    entry.node.span,
                    &path,
                    message,
                    "write it like \"64MiB\", \"4MB\" or \"512KiB\"",
                );
                None
            }
        }
    }

    /// Returns a section inside this one.
    pub(crate) fn section(&self, key: &'static str) -> Option<SectionReader<'a>> {
        let (field, entry) = self.take(key)?;
        let ValueKind::Section(section) = field.kind else { return None };
        SectionReader::from_entry(self.context, section, &self.key_path(key), entry)
    }

    /// Returns the entries of a table whose names the operator chooses, each name once.
    pub(crate) fn named_entries(&self, key: &'static str) -> Vec<&'a TableEntry> {
        let Some((field, entry)) = self.take(key) else { return Vec::new() };
        match entry.node.as_table() {
            Some(table) => self.unique(&self.key_path(key), table),
            None => self.report_mistyped(field, &entry.node).unwrap_or_default(),
        }
    }

    /// Returns the entries of a table without those that repeat a name, which are reported.
    fn unique(&self, path: &str, table: &'a ConfigTable) -> Vec<&'a TableEntry> {
        let mut seen = BTreeMap::new();
        let mut unique = Vec::new();
        for entry in &table.entries {
            if let Some(first) = seen.get(&entry.key) {
                report_repeated(self.context, &format!("{path}.{}", entry.key), &entry.key, *first, entry);
            } else {
                seen.insert(&entry.key, entry.key_span);
                unique.push(entry);
            }
        }
        unique
    }

    /// Returns the row and the entry of a key, and records that it was requested.
    fn take(&self, key: &'static str) -> Option<(&'static KeySpec, &'a TableEntry)> {
        self.requested_keys.borrow_mut().insert(key);
        let field = self.section.field(key);
        debug_assert!(field.is_some(), "`{key}` is not in the table of {}", self.section.name);
        Some((field?, self.entries.get(key)?))
    }

    /// Ends the reading. A key of the table that was never requested would be accepted without any effect, so
    /// that is a bug.
    pub(crate) fn finish(self) {
        if cfg!(debug_assertions) {
            let known: BTreeSet<_> = self.section.fields().map(|field| field.key).collect();
            assert_eq!(
                *self.requested_keys.borrow(),
                known,
                "keys asked for and keys known of {}",
                self.section.name
            );
        }
    }

    fn report_mistyped<T>(&self, field: &KeySpec, node: &ConfigNode) -> Option<T> {
        let path = self.key_path(field.key);
        let message = format!("`{path}` wants {}, found {}", field.kind.expected(), node.describe());
        let hint = mistyped_hint(&field.kind, node).or_else(|| minimum_hint(field, node));
        self.context.error(node.span, &path, message, hint);
        None
    }

    fn report_unknown(&self, entry: &TableEntry) {
        let key = printable_key(&entry.key);
        let path = self.key_path(&key);
        let section = if self.path.is_empty() { "the config".into() } else { self.path.clone() };
        let hint = match self.section.nearest(&entry.key) {
            Some(near) => Some(format!("did you mean `{near}`?")),
            None => client_formats::hint_for(&entry.key),
        };
        self.context.error_or_warn(entry.key_span, &path, format!("unknown key `{key}` in {section}"), hint);
    }
}

/// Returns the replacement for a value of the wrong type.
fn mistyped_hint(kind: &ValueKind, node: &ConfigNode) -> Option<String> {
    match (kind, &node.value) {
        (
            ValueKind::Duration(_) | ValueKind::DurationOrFalse | ValueKind::DurationOrNever,
            ConfigValue::Integer(number),
        ) if *number > 0 => {
            Some(format!("write \"{number}s\" for seconds, or \"{number}ms\" for milliseconds"))
        }
        (ValueKind::DurationOrFalse, ConfigValue::Flag(true)) => {
            Some("say for how long, such as \"30s\"".into())
        }
        (ValueKind::Size(_), ConfigValue::Integer(number)) if *number > 0 => {
            Some(format!("write \"{number}B\" for bytes"))
        }
        (ValueKind::Flag, ConfigValue::Text(text)) if text == "true" || text == "false" => {
            Some(format!("write {text} without quotes"))
        }
        (ValueKind::Count(..), ConfigValue::Text(text)) if text.parse::<u64>().is_ok() => {
            Some(format!("write {text} without quotes"))
        }
        (ValueKind::Text, ConfigValue::Integer(_) | ConfigValue::Float(_) | ConfigValue::Flag(_)) => {
            Some("put it into quotes".into())
        }
        (ValueKind::Texts, ConfigValue::Integer(_) | ConfigValue::Float(_) | ConfigValue::Flag(_)) => {
            Some("put each member into quotes, inside [ ]".into())
        }
        (ValueKind::Texts, ConfigValue::Text(_)) => Some("put it into [ ]".into()),
        _ => None,
    }
}

/// Returns the replacement for a number below the minimum.
fn minimum_hint(field: &KeySpec, node: &ConfigNode) -> Option<String> {
    match (&field.kind, &node.value, &field.preset) {
        (ValueKind::Count(least, _), ConfigValue::Integer(number), preset)
            if i128::from(*number) < i128::from(*least) =>
        {
            Some(match preset {
                DefaultValue::Count(usual) => format!("write {least} or more, or leave it out for {usual}"),
                _ => format!("write {least} or more, or leave it out"),
            })
        }
        _ => None,
    }
}

fn report_repeated(
    context: &FileContext<'_>,
    path: &str,
    first_key: &str,
    first_at: SourceSpan,
    entry: &TableEntry,
) {
    let line = context.line(first_at);
    let message = if first_key == entry.key {
        format!("`{path}` is given twice, first in line {line}")
    } else {
        format!("`{path}` is given twice, first as `{first_key}` in line {line}")
    };
    context.error(entry.key_span, path, message, "keep one of them");
}

/// Returns a key in a form safe for messages.
pub(crate) fn printable_key(key: &str) -> String {
    quote(key).trim_matches('"').to_owned()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::keys::DefaultValue;
    use crate::config::problem::ProblemLog;
    use crate::config::read::SourceText;

    static ODD: SectionSpec = SectionSpec {
        name: "odd",
        doc: "",
        rows: &[KeySpec {
            key: "idle",
            kind: ValueKind::Flag,
            preset: DefaultValue::Nothing,
            required: None,
            doc: "",
        }],
    };

    #[test]
    #[should_panic(expected = "keys asked for and keys known of odd")]
    fn a_key_that_is_known_and_never_asked_for_is_noticed() {
        let (document, log, places) =
            (SourceText::new(Path::new("f"), ""), ProblemLog::default(), RefCell::default());
        let context = FileContext::new(&document, &log, &places);
        let table = ConfigTable { entries: Vec::new() };
        SectionReader::from_table(&context, &ODD, "odd", SourceSpan::default(), &table).finish();
    }
}

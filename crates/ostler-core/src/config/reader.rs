//! Reads one section by its table of fields.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use super::document::Span;
use super::field::{Field, Kind, Preset, Section};
use super::node::{Entry, Node, Table, Value};
use super::scope::Scope;
use super::secret::quote;
use super::{clients, duration, size};
use crate::catalog::nearest;

/// A section of a file, with its keys found and its unknown keys reported.
pub(crate) struct Reader<'a> {
    pub(crate) scope: &'a Scope<'a>,
    section: &'static Section,
    /// Where the section stands among all: `servers.time`, empty for the root.
    pub(crate) path: String,
    /// Where problems of the section as a whole are pointed at.
    pub(crate) at: Span,
    found: BTreeMap<&'static str, &'a Entry>,
    /// Keys that an unknown key of the file probably means.
    meant: BTreeSet<&'static str>,
    /// Every key that was asked for: all of the table's, when reading is done.
    asked: RefCell<BTreeSet<&'static str>>,
}

impl<'a> Reader<'a> {
    /// A node that should be a section; if it is no table, that is reported.
    pub(crate) fn of(
        scope: &'a Scope<'a>,
        section: &'static Section,
        path: &str,
        entry: &'a Entry,
    ) -> Option<Self> {
        match entry.node.as_table() {
            Some(table) => Some(Self::open(scope, section, path, entry.key_at, table)),
            None => {
                let message = format!("`{path}` wants a table, found {}", entry.node.describe());
                scope.error(entry.node.at, path, message, None);
                None
            }
        }
    }

    /// Finds the section's keys; reports unknown and repeated ones.
    pub(crate) fn open(
        scope: &'a Scope<'a>,
        section: &'static Section,
        path: &str,
        at: Span,
        table: &'a Table,
    ) -> Self {
        let (path, asked) = (path.to_owned(), RefCell::default());
        let mut reader =
            Self { scope, section, path, at, found: BTreeMap::new(), meant: BTreeSet::new(), asked };
        for entry in &table.entries {
            let Some(field) = section.field(&entry.key) else {
                reader.report_unknown(entry);
                reader.meant.extend(section.nearest(&entry.key));
                continue;
            };
            let path = reader.path_of(field.key);
            if let Some(first) = reader.found.get(field.key) {
                report_repeated(scope, &path, &first.key, first.key_at, entry);
                continue;
            }
            scope.note(&path, entry.key_at);
            reader.found.insert(field.key, entry);
        }
        reader
    }

    /// The path of one of the section's keys.
    pub(crate) fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// Where a key stands, or the section when it is absent.
    pub(crate) fn at_of(&self, key: &str) -> Span {
        self.found.get(key).map_or(self.at, |entry| entry.key_at)
    }

    /// Whether the file has the key.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.found.contains_key(key)
    }

    /// Reports keys without which the section is nothing.
    pub(crate) fn require_keys(&self) {
        for field in self.section.fields().filter(|field| !self.has(field.key)) {
            if let Some(hint) = field.required {
                let message = format!("`{}` has no `{}`", self.path, field.key);
                self.scope.error(self.at, &self.path, message, hint);
            }
        }
    }

    /// Returns the text of a key, if it is one, without judging it.
    pub(crate) fn peek(&self, key: &str) -> Option<&'a str> {
        self.found.get(key)?.node.as_text()
    }

    /// Whether the file has an unknown key that probably means this one.
    pub(crate) fn has_misspelled(&self, key: &str) -> bool {
        self.meant.contains(key)
    }

    /// What the value of a key is.
    pub(crate) fn kind(&self, key: &'static str) -> &'static Kind {
        self.section.field(key).map_or(&Kind::Flag, |field| &field.kind)
    }

    pub(crate) fn flag(&self, key: &'static str) -> Option<bool> {
        let (field, entry) = self.take(key)?;
        match entry.node.value {
            Value::Flag(flag) => Some(flag),
            _ => self.mistyped(field, &entry.node),
        }
    }

    pub(crate) fn count(&self, key: &'static str) -> Option<u64> {
        let (field, entry) = self.take(key)?;
        let Kind::Count(least, most) = field.kind else { return None };
        match entry.node.value {
            Value::Integer(number) => {
                let number = u64::try_from(number).ok().filter(|number| (least..=most).contains(number));
                number.or_else(|| self.mistyped(field, &entry.node))
            }
            _ => self.mistyped(field, &entry.node),
        }
    }

    /// A text and the node it stands in, for messages about it.
    pub(crate) fn text(&self, key: &'static str) -> Option<(&'a str, &'a Node)> {
        let (field, entry) = self.take(key)?;
        match entry.node.as_text() {
            Some("") | None => self.mistyped(field, &entry.node),
            Some(text) => Some((text, &entry.node)),
        }
    }

    /// A path, relative to the file.
    pub(crate) fn path(&self, key: &'static str) -> Option<PathBuf> {
        let (text, node) = self.text(key)?;
        self.absolute(key, text, node)
    }

    /// Makes a path absolute that stands in the value of a key.
    pub(crate) fn absolute(&self, key: &str, path: &str, node: &Node) -> Option<PathBuf> {
        let absolute = self.scope.absolute(path.as_ref());
        absolute.map_err(|why| self.scope.error(node.at, &self.path_of(key), why, None)).ok()
    }

    /// A list of texts; other members are reported and left out.
    pub(crate) fn texts(&self, key: &'static str) -> Option<Vec<(&'a str, &'a Node)>> {
        let (field, entry) = self.take(key)?;
        let Value::List(list) = &entry.node.value else { return self.mistyped(field, &entry.node) };
        let text_of =
            |node: &'a Node| node.as_text().map(|text| (text, node)).or_else(|| self.mistyped(field, node));
        Some(list.iter().filter_map(text_of).collect())
    }

    /// Returns the texts of a list, at least one and all of them texts, that stands where one text is wanted.
    pub(crate) fn texts_in_place_of(&self, key: &'static str) -> Option<(Vec<&'a str>, &'a Node)> {
        let (_, entry) = self.take(key)?;
        let Value::List(list) = &entry.node.value else { return None };
        let words: Vec<&str> = list.iter().map(Node::as_text).collect::<Option<_>>()?;
        (!words.is_empty()).then_some((words, &entry.node))
    }

    /// A list of texts, or one text that is taken for a list of one.
    pub(crate) fn text_or_texts(&self, key: &'static str) -> Option<Vec<(&'a str, &'a Node)>> {
        match self.found.get(key).map(|entry| &entry.node.value) {
            Some(Value::List(_)) => self.texts(key),
            _ => self.text(key).map(|found| vec![found]),
        }
    }

    /// Texts by name; other values and repeated names are reported and left out.
    pub(crate) fn text_map(&self, key: &'static str) -> Option<Vec<(&'a Entry, &'a str)>> {
        let (field, entry) = self.take(key)?;
        let Some(table) = entry.node.as_table() else { return self.mistyped(field, &entry.node) };
        let unique = self.unique(&self.path_of(key), table);
        let text_of = |entry: &'a Entry| {
            let text = entry.node.as_text().map(|text| (entry, text));
            text.or_else(|| {
                let path = format!("{}.{}", self.path_of(key), entry.key);
                let message = format!("`{path}` wants a text, found {}", entry.node.describe());
                self.scope.error(entry.node.at, &path, message, "put it into quotes");
                None
            })
        };
        Some(unique.into_iter().filter_map(text_of).collect())
    }

    pub(crate) fn choice(&self, key: &'static str) -> Option<&'static str> {
        let (field, entry) = self.take(key)?;
        let Kind::Choice(words) = field.kind else { return None };
        let Some(text) = entry.node.as_text() else { return self.mistyped(field, &entry.node) };
        words.iter().find(|word| **word == text).copied().or_else(|| {
            let path = self.path_of(key);
            let message = format!("`{path}` wants {}, found {}", field.kind.wanted(), quote(text));
            let hint = nearest(text, words.iter().copied()).map(|word| format!("did you mean \"{word}\"?"));
            self.scope.error(entry.node.at, &path, message, hint);
            None
        })
    }

    pub(crate) fn duration(&self, key: &'static str) -> Option<Duration> {
        let (field, entry) = self.take(key)?;
        let Kind::Duration(least) = field.kind else { return None };
        self.duration_in(field, &entry.node, Duration::from_millis(least))
    }

    /// A duration above zero, or `None` for `false`.
    pub(crate) fn duration_or_false(&self, key: &'static str) -> Option<Option<Duration>> {
        let (field, entry) = self.take(key)?;
        match entry.node.value {
            Value::Flag(false) => Some(None),
            _ => self.duration_in(field, &entry.node, Duration::from_millis(1)).map(Some),
        }
    }

    /// A duration above zero, or `None` for `"never"`.
    pub(crate) fn duration_or_never(&self, key: &'static str) -> Option<Option<Duration>> {
        let (field, entry) = self.take(key)?;
        match entry.node.as_text() {
            Some("never") => Some(None),
            _ => self.duration_in(field, &entry.node, Duration::from_millis(1)).map(Some),
        }
    }

    fn duration_in(&self, field: &Field, node: &Node, least: Duration) -> Option<Duration> {
        let path = self.path_of(field.key);
        let Some(text) = node.as_text() else { return self.mistyped(field, node) };
        match duration::parse(text) {
            Ok(found) if found < least => {
                let message =
                    format!("`{path}` is at least {}, found {}", crate::fault::Span(least), quote(text));
                let hint = match field.kind {
                    Kind::DurationOrFalse => Some("write false to forbid it".into()),
                    Kind::DurationOrNever => Some("write \"never\" to leave it to an operator".into()),
                    _ => None,
                };
                self.scope.error(node.at, &path, message, hint);
                None
            }
            Ok(found) => Some(found),
            Err(error) => {
                let message = format!("`{path}` wants a duration, found {}: {error}", quote(text));
                self.scope.error(
                    node.at,
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
        let Kind::Size(least) = field.kind else { return None };
        let path = self.path_of(key);
        let Some(text) = entry.node.as_text() else { return self.mistyped(field, &entry.node) };
        match size::parse(text) {
            Ok(found) if (found as u64) < least => {
                let message = format!("`{path}` is at least {least} bytes, found {}", quote(text));
                self.scope.error(entry.node.at, &path, message, None);
                None
            }
            Ok(found) => Some(found),
            Err(error) => {
                let message = format!("`{path}` wants a size, found {}: {error}", quote(text));
                self.scope.error(
                    entry.node.at,
                    &path,
                    message,
                    "write it like \"64MiB\", \"4MB\" or \"512KiB\"",
                );
                None
            }
        }
    }

    /// A section inside this one.
    pub(crate) fn section(&self, key: &'static str) -> Option<Reader<'a>> {
        let (field, entry) = self.take(key)?;
        let Kind::Section(section) = field.kind else { return None };
        Reader::of(self.scope, section, &self.path_of(key), entry)
    }

    /// The entries of a table whose names the operator chooses, each name once.
    pub(crate) fn named(&self, key: &'static str) -> Vec<&'a Entry> {
        let Some((field, entry)) = self.take(key) else { return Vec::new() };
        match entry.node.as_table() {
            Some(table) => self.unique(&self.path_of(key), table),
            None => self.mistyped(field, &entry.node).unwrap_or_default(),
        }
    }

    /// The entries of a table without those that repeat a name, which are reported.
    fn unique(&self, path: &str, table: &'a Table) -> Vec<&'a Entry> {
        let mut seen = BTreeMap::new();
        let mut unique = Vec::new();
        for entry in &table.entries {
            if let Some(first) = seen.get(&entry.key) {
                report_repeated(self.scope, &format!("{path}.{}", entry.key), &entry.key, *first, entry);
            } else {
                seen.insert(&entry.key, entry.key_at);
                unique.push(entry);
            }
        }
        unique
    }

    /// The field and the entry of a key, noting that it was asked for.
    fn take(&self, key: &'static str) -> Option<(&'static Field, &'a Entry)> {
        self.asked.borrow_mut().insert(key);
        let field = self.section.field(key);
        debug_assert!(field.is_some(), "`{key}` is not in the table of {}", self.section.name);
        Some((field?, self.found.get(key)?))
    }

    /// Ends the reading. A key of the table that nobody asks for would be a key
    /// that is accepted and does nothing.
    pub(crate) fn finish(self) {
        if cfg!(debug_assertions) {
            let known: BTreeSet<_> = self.section.fields().map(|field| field.key).collect();
            assert_eq!(*self.asked.borrow(), known, "keys asked for and keys known of {}", self.section.name);
        }
    }

    fn mistyped<T>(&self, field: &Field, node: &Node) -> Option<T> {
        let path = self.path_of(field.key);
        let message = format!("`{path}` wants {}, found {}", field.kind.wanted(), node.describe());
        let hint = retyped(&field.kind, node).or_else(|| too_small(field, node));
        self.scope.error(node.at, &path, message, hint);
        None
    }

    fn report_unknown(&self, entry: &Entry) {
        let key = clip(&entry.key);
        let path = self.path_of(&key);
        let section = if self.path.is_empty() { "the config".into() } else { self.path.clone() };
        let hint = match self.section.nearest(&entry.key) {
            Some(near) => Some(format!("did you mean `{near}`?")),
            None => clients::hint_for(&entry.key),
        };
        self.scope.complain(entry.key_at, &path, format!("unknown key `{key}` in {section}"), hint);
    }
}

/// What to write instead of a value of the wrong type.
fn retyped(kind: &Kind, node: &Node) -> Option<String> {
    match (kind, &node.value) {
        (Kind::Duration(_) | Kind::DurationOrFalse | Kind::DurationOrNever, Value::Integer(number))
            if *number > 0 =>
        {
            Some(format!("write \"{number}s\" for seconds, or \"{number}ms\" for milliseconds"))
        }
        (Kind::DurationOrFalse, Value::Flag(true)) => Some("say for how long, such as \"30s\"".into()),
        (Kind::Size(_), Value::Integer(number)) if *number > 0 => {
            Some(format!("write \"{number}B\" for bytes"))
        }
        (Kind::Flag, Value::Text(text)) if text == "true" || text == "false" => {
            Some(format!("write {text} without quotes"))
        }
        (Kind::Count(..), Value::Text(text)) if text.parse::<u64>().is_ok() => {
            Some(format!("write {text} without quotes"))
        }
        (Kind::Text, Value::Integer(_) | Value::Float(_) | Value::Flag(_)) => {
            Some("put it into quotes".into())
        }
        (Kind::Texts, Value::Integer(_) | Value::Float(_) | Value::Flag(_)) => {
            Some("put each member into quotes, inside [ ]".into())
        }
        (Kind::Texts, Value::Text(_)) => Some("put it into [ ]".into()),
        _ => None,
    }
}

/// What to write instead of a number that is below the least.
fn too_small(field: &Field, node: &Node) -> Option<String> {
    match (&field.kind, &node.value, &field.preset) {
        (Kind::Count(least, _), Value::Integer(number), preset)
            if i128::from(*number) < i128::from(*least) =>
        {
            Some(match preset {
                Preset::Count(usual) => format!("write {least} or more, or leave it out for {usual}"),
                _ => format!("write {least} or more, or leave it out"),
            })
        }
        _ => None,
    }
}

fn report_repeated(scope: &Scope<'_>, path: &str, first_key: &str, first_at: Span, entry: &Entry) {
    let line = scope.line(first_at);
    let message = if first_key == entry.key {
        format!("`{path}` is given twice, first in line {line}")
    } else {
        format!("`{path}` is given twice, first as `{first_key}` in line {line}")
    };
    scope.error(entry.key_at, path, message, "keep one of them");
}

/// A key as it may stand in a message.
pub(crate) fn clip(key: &str) -> String {
    quote(key).trim_matches('"').to_owned()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::document::Document;
    use crate::config::field::Preset;
    use crate::config::problem::Log;

    static ODD: Section = Section {
        name: "odd",
        doc: "",
        rows: &[Field { key: "idle", kind: Kind::Flag, preset: Preset::Nothing, required: None, doc: "" }],
    };

    #[test]
    #[should_panic(expected = "keys asked for and keys known of odd")]
    fn a_key_that_is_known_and_never_asked_for_is_noticed() {
        let (document, log, places) = (Document::new(Path::new("f"), ""), Log::default(), RefCell::default());
        let scope = Scope::new(&document, &log, &places);
        let table = Table { entries: Vec::new() };
        Reader::open(&scope, &ODD, "odd", Span::default(), &table).finish();
    }
}

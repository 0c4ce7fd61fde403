//! Config tree of both file formats: values that know their location.

use super::source_text::SourceSpan;

/// A value and its location.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ConfigNode {
    pub(crate) value: ConfigValue,
    pub(crate) span: SourceSpan,
}

/// Values that both TOML and JSON have.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ConfigValue {
    Null,
    Flag(bool),
    Integer(i64),
    /// Also integers that no `i64` holds.
    Float(f64),
    Text(String),
    /// TOML's dates and times, which no key accepts.
    Date,
    List(Vec<ConfigNode>),
    Table(ConfigTable),
}

/// Entries in the order of the file. Keys may repeat: the reader reports it.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct ConfigTable {
    pub(crate) entries: Vec<TableEntry>,
}

/// A key, its location, and its value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TableEntry {
    pub(crate) key: String,
    pub(crate) key_span: SourceSpan,
    pub(crate) node: ConfigNode,
}

/// Reason and location of invalid TOML or JSON.
#[derive(Debug)]
pub(crate) struct SyntaxError {
    pub(crate) message: String,
    pub(crate) span: SourceSpan,
}

impl ConfigNode {
    pub(crate) fn as_table(&self) -> Option<&ConfigTable> {
        match &self.value {
            ConfigValue::Table(table) => Some(table),
            _ => None,
        }
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        match &self.value {
            ConfigValue::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Describes the value, for "found …".
    pub(crate) fn describe(&self) -> String {
        match &self.value {
            ConfigValue::Null => "null".into(),
            ConfigValue::Flag(flag) => format!("{flag}"),
            ConfigValue::Integer(number) => format!("the number {number}"),
            ConfigValue::Float(number) => format!("the number {number}"),
            ConfigValue::Text(text) if text.is_empty() => "an empty text".into(),
            ConfigValue::Text(_) => "a text".into(),
            ConfigValue::Date => "a date".into(),
            ConfigValue::List(_) => "a list".into(),
            ConfigValue::Table(_) => "a table".into(),
        }
    }
}

impl ConfigTable {
    /// Returns the first entry of that key.
    pub(crate) fn get(&self, key: &str) -> Option<&TableEntry> {
        self.entries.iter().find(|entry| entry.key == key)
    }
}

//! One tree for both file formats: values that know where they stand.

use super::source_text::SourceSpan;

/// A value and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ConfigNode {
    pub(crate) value: ConfigValue,
    pub(crate) span: SourceSpan,
}

/// What TOML and JSON can both say.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ConfigValue {
    Null,
    Flag(bool),
    Integer(i64),
    /// Also integers that no `i64` holds.
    Float(f64),
    Text(String),
    /// TOML's dates and times, which no key wants.
    Date,
    List(Vec<ConfigNode>),
    Table(ConfigTable),
}

/// Entries in the order of the file. Keys may repeat: the reader says so.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct ConfigTable {
    pub(crate) entries: Vec<TableEntry>,
}

/// A key, where it stands, and its value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TableEntry {
    pub(crate) key: String,
    pub(crate) key_span: SourceSpan,
    pub(crate) node: ConfigNode,
}

/// Why a text is not TOML or not JSON, and where.
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

    /// What stands here, for "found …".
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
    /// The first entry of that key.
    pub(crate) fn get(&self, key: &str) -> Option<&TableEntry> {
        self.entries.iter().find(|entry| entry.key == key)
    }
}

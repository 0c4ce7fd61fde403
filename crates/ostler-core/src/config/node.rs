//! One tree for both file formats: values that know where they stand.

use super::document::Span;

/// A value and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub(crate) value: Value,
    pub(crate) at: Span,
}

/// What TOML and JSON can both say.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Null,
    Flag(bool),
    Integer(i64),
    /// Also integers that no `i64` holds.
    Float(f64),
    Text(String),
    /// TOML's dates and times, which no key wants.
    Date,
    List(Vec<Node>),
    Table(Table),
}

/// Entries in the order of the file. Keys may repeat: the reader says so.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Table {
    pub(crate) entries: Vec<Entry>,
}

/// A key, where it stands, and its value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) key_at: Span,
    pub(crate) node: Node,
}

/// Why a text is not TOML or not JSON, and where.
#[derive(Debug)]
pub(crate) struct SyntaxError {
    pub(crate) message: String,
    pub(crate) at: Span,
}

impl Node {
    pub(crate) fn as_table(&self) -> Option<&Table> {
        match &self.value {
            Value::Table(table) => Some(table),
            _ => None,
        }
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// What stands here, for "found …".
    pub(crate) fn describe(&self) -> String {
        match &self.value {
            Value::Null => "null".into(),
            Value::Flag(flag) => format!("{flag}"),
            Value::Integer(number) => format!("the number {number}"),
            Value::Float(number) => format!("the number {number}"),
            Value::Text(text) if text.is_empty() => "an empty text".into(),
            Value::Text(_) => "a text".into(),
            Value::Date => "a date".into(),
            Value::List(_) => "a list".into(),
            Value::Table(_) => "a table".into(),
        }
    }
}

impl Table {
    /// The first entry of that key.
    pub(crate) fn get(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.key == key)
    }
}

//! Readers: from the text of a file, TOML or JSON, to a tree of values that know their lines, and from there
//! to a section's fields. Problems are reported at the line they come from.

pub(crate) mod client_formats;
mod file_context;
pub(crate) mod json;
mod node;
mod section_reader;
mod source_text;
pub(crate) mod toml;

pub(crate) use file_context::{Dialect, FileContext, KeyLocations, UnresolvedReference};
pub(crate) use node::{ConfigNode, ConfigTable, ConfigValue, TableEntry};
pub(crate) use section_reader::{SectionReader, printable_key};
pub(crate) use source_text::{SourceLocation, SourceSpan, SourceText};

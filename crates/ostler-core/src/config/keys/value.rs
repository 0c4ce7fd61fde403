//! Types of keys: reading and writing their values.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value as Json, json};

use super::key_spec::ValueKind;
use crate::config::read::SectionReader;
use crate::config::values::{duration, size};
use crate::fault::HumanDuration;

/// A type that is read from the value of a key.
pub(crate) trait ReadValue: Sized {
    /// Reads a key and reports a wrong value.
    fn read(reader: &SectionReader<'_>, key: &'static str) -> Option<Self>;
}

/// A type that is one of several words, of which the first is the default.
pub(crate) trait ChoiceWord: Copy + 'static {
    const WORDS: &'static [&'static str];
    const ALL: &'static [Self];
}

/// A type that can be written as the value of a key.
pub(crate) trait WriteValue: Serialize {
    /// Writes it as a value of that kind.
    fn write(&self, _: &ValueKind) -> Json {
        json!(self)
    }
}

/// A section that can be written.
pub(crate) trait WriteSection {
    /// Writes the keys whose values differ from `preset`.
    fn write_changed(&self, preset: &Self) -> Map<String, Json>;
}

/// Adds the value of a key, or of several.
pub(crate) fn insert_value(written: &mut Map<String, Json>, kind: &ValueKind, key: &str, value: Json) {
    match (kind, value) {
        (ValueKind::Several(_), Json::Object(several)) => written.extend(several),
        (_, value) => drop(written.insert(key.to_owned(), value)),
    }
}

/// Parses the duration in a line of `section!`.
#[expect(clippy::expect_used, reason = "the test of defaults reads every line")]
pub(crate) fn default_duration(text: &str) -> Duration {
    duration::parse(text).expect("a default is a duration")
}

/// Parses the size in a line of `section!`.
#[expect(clippy::expect_used, reason = "the test of defaults reads every line")]
pub(crate) fn default_size(text: &str) -> usize {
    size::parse(text).expect("a default is a size")
}

impl ReadValue for bool {
    fn read(reader: &SectionReader<'_>, key: &'static str) -> Option<Self> {
        match reader.kind(key) {
            ValueKind::Choice(words) => reader.choice(key).map(|word| word == words[0]),
            _ => reader.flag(key),
        }
    }
}

impl ReadValue for u32 {
    fn read(reader: &SectionReader<'_>, key: &'static str) -> Option<Self> {
        // The line allows no number that does not fit.
        reader.count(key).and_then(|number| Self::try_from(number).ok())
    }
}

impl ReadValue for u64 {
    fn read(reader: &SectionReader<'_>, key: &'static str) -> Option<Self> {
        reader.count(key)
    }
}

impl ReadValue for usize {
    fn read(reader: &SectionReader<'_>, key: &'static str) -> Option<Self> {
        match reader.kind(key) {
            ValueKind::Size(_) => reader.size(key),
            _ => reader.count(key).map(|number| Self::try_from(number).unwrap_or(Self::MAX)),
        }
    }
}

impl ReadValue for Duration {
    fn read(reader: &SectionReader<'_>, key: &'static str) -> Option<Self> {
        reader.duration(key)
    }
}

impl ReadValue for String {
    fn read(reader: &SectionReader<'_>, key: &'static str) -> Option<Self> {
        reader.text(key).map(|(text, _)| text.to_owned())
    }
}

impl ReadValue for PathBuf {
    fn read(reader: &SectionReader<'_>, key: &'static str) -> Option<Self> {
        reader.path(key)
    }
}

impl<T: ReadValue> ReadValue for Option<T> {
    fn read(reader: &SectionReader<'_>, key: &'static str) -> Option<Self> {
        T::read(reader, key).map(Some)
    }
}

impl<T: ChoiceWord> ReadValue for T {
    fn read(reader: &SectionReader<'_>, key: &'static str) -> Option<Self> {
        let found = reader.choice(key)?;
        T::WORDS.iter().zip(T::ALL).find(|(word, _)| **word == found).map(|(_, variant)| *variant)
    }
}

impl<T: WriteSection + Default + Serialize> WriteValue for T {
    fn write(&self, _: &ValueKind) -> Json {
        self.write_changed(&Self::default()).into()
    }
}

impl WriteValue for bool {
    fn write(&self, kind: &ValueKind) -> Json {
        match kind {
            ValueKind::Choice(words) => json!(words[usize::from(!self)]),
            _ => json!(self),
        }
    }
}

impl WriteValue for u32 {}

impl WriteValue for usize {
    fn write(&self, kind: &ValueKind) -> Json {
        match kind {
            ValueKind::Size(_) => json!(format!("{self}B")),
            _ => json!(self),
        }
    }
}

impl WriteValue for Duration {
    /// Writes the duration as people do, or in milliseconds if that would lose precision.
    fn write(&self, _: &ValueKind) -> Json {
        let text = HumanDuration(*self).to_string();
        match duration::parse(&text) {
            Ok(read) if read == *self => json!(text),
            _ => json!(format!("{}ms", (*self).min(duration::MAX_DURATION).as_millis())),
        }
    }
}

impl WriteValue for String {}

impl WriteValue for PathBuf {}

impl<T: WriteValue> WriteValue for Option<T> {
    fn write(&self, kind: &ValueKind) -> Json {
        match (self, kind) {
            (Some(value), _) => value.write(kind),
            (None, ValueKind::DurationOrNever) => json!("never"),
            (None, _) => Json::Null,
        }
    }
}

impl<T: WriteValue> WriteValue for BTreeMap<String, T> {
    fn write(&self, kind: &ValueKind) -> Json {
        self.iter().map(|(name, value)| (name.clone(), value.write(kind))).collect::<Map<_, _>>().into()
    }
}

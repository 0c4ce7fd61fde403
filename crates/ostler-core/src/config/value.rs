//! How the types of keys are read and written.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value as Json, json};

use super::field::Kind;
use super::reader::Reader;
use super::{duration, size};
use crate::fault::Span;

/// A type that the value of a key becomes.
pub(crate) trait Value: Sized {
    /// Reads a key; what is wrong with its value is reported.
    fn read(reader: &Reader<'_>, key: &'static str) -> Option<Self>;
}

/// A type that is one of several words, of which the first is the default.
pub(crate) trait Word: Copy + 'static {
    const WORDS: &'static [&'static str];
    const ALL: &'static [Self];
}

/// A type that can be written as the value of a key.
pub(crate) trait Written: Serialize {
    /// Writes it as a value of that kind.
    fn write(&self, _: &Kind) -> Json {
        json!(self)
    }
}

/// A section that can be written.
pub(crate) trait Unlike {
    /// Writes the keys with another value than `preset` has.
    fn unlike(&self, preset: &Self) -> Map<String, Json>;
}

/// Adds the value of a key, or of several.
pub(crate) fn put(written: &mut Map<String, Json>, kind: &Kind, key: &str, value: Json) {
    match (kind, value) {
        (Kind::Several(_), Json::Object(several)) => written.extend(several),
        (_, value) => drop(written.insert(key.to_owned(), value)),
    }
}

/// Reads a duration that is written in a line.
#[expect(clippy::expect_used, reason = "the test of defaults reads every line")]
pub(crate) fn duration(text: &str) -> Duration {
    duration::parse(text).expect("a default is a duration")
}

/// Reads a size that is written in a line.
#[expect(clippy::expect_used, reason = "the test of defaults reads every line")]
pub(crate) fn size(text: &str) -> usize {
    size::parse(text).expect("a default is a size")
}

impl Value for bool {
    fn read(reader: &Reader<'_>, key: &'static str) -> Option<Self> {
        match reader.kind(key) {
            Kind::Choice(words) => reader.choice(key).map(|word| word == words[0]),
            _ => reader.flag(key),
        }
    }
}

impl Value for u32 {
    fn read(reader: &Reader<'_>, key: &'static str) -> Option<Self> {
        // The line allows no number that does not fit.
        reader.count(key).and_then(|number| Self::try_from(number).ok())
    }
}

impl Value for u64 {
    fn read(reader: &Reader<'_>, key: &'static str) -> Option<Self> {
        reader.count(key)
    }
}

impl Value for usize {
    fn read(reader: &Reader<'_>, key: &'static str) -> Option<Self> {
        match reader.kind(key) {
            Kind::Size(_) => reader.size(key),
            _ => reader.count(key).map(|number| Self::try_from(number).unwrap_or(Self::MAX)),
        }
    }
}

impl Value for Duration {
    fn read(reader: &Reader<'_>, key: &'static str) -> Option<Self> {
        reader.duration(key)
    }
}

impl Value for String {
    fn read(reader: &Reader<'_>, key: &'static str) -> Option<Self> {
        reader.text(key).map(|(text, _)| text.to_owned())
    }
}

impl Value for PathBuf {
    fn read(reader: &Reader<'_>, key: &'static str) -> Option<Self> {
        reader.path(key)
    }
}

impl<T: Value> Value for Option<T> {
    fn read(reader: &Reader<'_>, key: &'static str) -> Option<Self> {
        T::read(reader, key).map(Some)
    }
}

impl<T: Word> Value for T {
    fn read(reader: &Reader<'_>, key: &'static str) -> Option<Self> {
        let found = reader.choice(key)?;
        T::WORDS.iter().zip(T::ALL).find(|(word, _)| **word == found).map(|(_, variant)| *variant)
    }
}

impl<T: Unlike + Default + Serialize> Written for T {
    fn write(&self, _: &Kind) -> Json {
        self.unlike(&Self::default()).into()
    }
}

impl Written for bool {
    fn write(&self, kind: &Kind) -> Json {
        match kind {
            Kind::Choice(words) => json!(words[usize::from(!self)]),
            _ => json!(self),
        }
    }
}

impl Written for u32 {}

impl Written for usize {
    fn write(&self, kind: &Kind) -> Json {
        match kind {
            Kind::Size(_) => json!(format!("{self}B")),
            _ => json!(self),
        }
    }
}

impl Written for Duration {
    /// As people write it, or in milliseconds where that would lose some.
    fn write(&self, _: &Kind) -> Json {
        let text = Span(*self).to_string();
        match duration::parse(&text) {
            Ok(read) if read == *self => json!(text),
            _ => json!(format!("{}ms", (*self).min(duration::LONGEST).as_millis())),
        }
    }
}

impl Written for String {}

impl Written for PathBuf {}

impl<T: Written> Written for Option<T> {
    fn write(&self, kind: &Kind) -> Json {
        match (self, kind) {
            (Some(value), _) => value.write(kind),
            (None, Kind::DurationOrNever) => json!("never"),
            (None, _) => Json::Null,
        }
    }
}

impl<T: Written> Written for BTreeMap<String, T> {
    fn write(&self, kind: &Kind) -> Json {
        self.iter().map(|(name, value)| (name.clone(), value.write(kind))).collect::<Map<_, _>>().into()
    }
}

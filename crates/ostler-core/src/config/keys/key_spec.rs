//! Tables of keys, one per section: the reader, the suggestions for unknown keys and the schema all use them.

use std::borrow::Cow;

/// Table of a section: its purpose and its keys.
#[derive(Debug)]
pub(crate) struct SectionSpec {
    /// Its name in the schema.
    pub(crate) name: &'static str,
    /// One line for people.
    pub(crate) doc: &'static str,
    /// Its rows; one of the kind [`ValueKind::Several`] stands for more than one key.
    pub(crate) rows: &'static [KeySpec],
}

/// One key of a section.
#[derive(Debug)]
pub(crate) struct KeySpec {
    /// In `snake_case`; its `camelCase` spelling means the same.
    pub(crate) key: &'static str,
    /// The kind of its value.
    pub(crate) kind: ValueKind,
    /// The value if the key is absent.
    pub(crate) preset: DefaultValue,
    /// The hint for a section that lacks the key, if the key is required.
    pub(crate) required: Option<&'static str>,
    /// One line for people.
    pub(crate) doc: &'static str,
}

/// Kind of a value.
#[derive(Debug)]
pub(crate) enum ValueKind {
    /// `true` or `false`.
    Flag,
    /// A whole number, at least this and at most that.
    Count(u64, u64),
    /// A text, never empty.
    Text,
    /// A list of texts.
    Texts,
    /// A text, or a list of texts.
    TextOrTexts,
    /// Texts by name.
    TextMap,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A duration, at least this many milliseconds.
    Duration(u64),
    /// A size, at least this many bytes.
    Size(u64),
    /// A duration, or `false`.
    DurationOrFalse,
    /// A duration above zero, or `"never"`.
    DurationOrNever,
    /// Another section.
    Section(&'static SectionSpec),
    /// Sections by a name that the operator chooses.
    Named(&'static SectionSpec),
    /// No key of its own: several keys that together make one value.
    Several(&'static [KeySpec]),
}

/// Value of an absent key.
#[derive(Debug, Clone, Copy)]
pub(crate) enum DefaultValue {
    /// No value.
    Nothing,
    Flag(bool),
    Count(u64),
    Text(&'static str),
    Texts(&'static [&'static str]),
}

impl SectionSpec {
    /// Returns every key, with those of [`ValueKind::Several`] in its place.
    pub(crate) fn fields(&self) -> impl Iterator<Item = &'static KeySpec> + use<> {
        self.rows.iter().flat_map(|row| match row.kind {
            ValueKind::Several(fields) => fields,
            _ => std::slice::from_ref(row),
        })
    }

    /// Returns the field of a key in either spelling.
    pub(crate) fn field(&self, key: &str) -> Option<&'static KeySpec> {
        self.fields().find(|field| field.key == key || field.camel_case() == key)
    }

    /// Returns the key that was probably meant.
    pub(crate) fn nearest(&self, key: &str) -> Option<&'static str> {
        crate::catalog::nearest(key, self.fields().map(|field| field.key))
    }
}

impl KeySpec {
    /// Returns the `camelCase` spelling.
    pub(crate) fn camel_case(&self) -> Cow<'static, str> {
        if !self.key.contains('_') {
            return Cow::Borrowed(self.key);
        }
        let mut words = self.key.split('_');
        let first = words.next().unwrap_or_default().to_owned();
        Cow::Owned(words.fold(first, |mut key, word| {
            let mut chars = word.chars();
            key.extend(chars.next().map(|first| first.to_ascii_uppercase()));
            key + chars.as_str()
        }))
    }
}

impl ValueKind {
    /// Returns the expected value, for "wants …".
    pub(crate) fn expected(&self) -> String {
        match self {
            Self::Flag => "true or false".into(),
            Self::Count(least, most) if least == most => format!("{least}"),
            Self::Count(0, u64::MAX) => "a whole number".into(),
            Self::Count(least, u64::MAX) => format!("a whole number, at least {least}"),
            Self::Count(least, most) => format!("a whole number from {least} to {most}"),
            Self::Text => "a text".into(),
            Self::Texts => "a list of texts".into(),
            Self::TextOrTexts => "a text or a list of texts".into(),
            Self::TextMap => "a table of texts".into(),
            Self::Choice(words) => alternatives(words),
            Self::Duration(_) => "a duration such as \"30s\"".into(),
            Self::Size(_) => "a size such as \"64MiB\"".into(),
            Self::DurationOrFalse => "a duration such as \"30s\", or false".into(),
            Self::DurationOrNever => "a duration such as \"30s\", or \"never\"".into(),
            Self::Section(_) | Self::Named(_) | Self::Several(_) => "a table".into(),
        }
    }
}

/// Lists words as a person does: `"a", "b" or "c"`.
fn alternatives(words: &[&str]) -> String {
    let quoted: Vec<_> = words.iter().map(|word| format!("\"{word}\"")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_a_camel_case_spelling() {
        let field = |key| KeySpec {
            key,
            kind: ValueKind::Flag,
            preset: DefaultValue::Nothing,
            required: None,
            doc: "",
        };
        assert_eq!(field("keep_alive").camel_case(), "keepAlive");
        assert_eq!(field("max_call_time").camel_case(), "maxCallTime");
        assert_eq!(field("url").camel_case(), "url");
    }

    #[test]
    fn words_are_listed_as_people_list_them() {
        assert_eq!(alternatives(&["a"]), r#""a""#);
        assert_eq!(alternatives(&["a", "b"]), r#""a" or "b""#);
        assert_eq!(alternatives(&["a", "b", "c"]), r#""a", "b" or "c""#);
    }
}

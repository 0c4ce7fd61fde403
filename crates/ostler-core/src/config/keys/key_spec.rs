//! Tables of keys, one per section: what is read, what an unknown key is compared with, and what the schema describes.

use std::borrow::Cow;

/// A table of the config: what it is for and which keys it has.
#[derive(Debug)]
pub(crate) struct SectionSpec {
    /// Its name in the schema.
    pub(crate) name: &'static str,
    /// One line for people.
    pub(crate) doc: &'static str,
    /// Its rows; one of the kind [`Kind::Several`] stands for more than one key.
    pub(crate) rows: &'static [KeySpec],
}

/// One key of a section.
#[derive(Debug)]
pub(crate) struct KeySpec {
    /// In `snake_case`; its `camelCase` spelling means the same.
    pub(crate) key: &'static str,
    /// What its value is.
    pub(crate) kind: ValueKind,
    /// What holds when it is absent.
    pub(crate) preset: DefaultValue,
    /// What to write, if the section is nothing without the key.
    pub(crate) required: Option<&'static str>,
    /// One line for people.
    pub(crate) doc: &'static str,
}

/// What a value is.
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
    /// Not a key: several that together make one value.
    Several(&'static [KeySpec]),
}

/// What holds when a key is absent.
#[derive(Debug, Clone, Copy)]
pub(crate) enum DefaultValue {
    /// Nothing does.
    Nothing,
    Flag(bool),
    Count(u64),
    Text(&'static str),
    Texts(&'static [&'static str]),
}

impl SectionSpec {
    /// Returns every key.
    pub(crate) fn fields(&self) -> impl Iterator<Item = &'static KeySpec> + use<> {
        self.rows.iter().flat_map(|row| match row.kind {
            ValueKind::Several(fields) => fields,
            _ => std::slice::from_ref(row),
        })
    }

    /// The field of a key in either spelling.
    pub(crate) fn field(&self, key: &str) -> Option<&'static KeySpec> {
        self.fields().find(|field| field.key == key || field.camel_case() == key)
    }

    /// The key that somebody probably meant.
    pub(crate) fn nearest(&self, key: &str) -> Option<&'static str> {
        crate::catalog::nearest(key, self.fields().map(|field| field.key))
    }
}

impl KeySpec {
    /// The `camelCase` spelling.
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
    /// What is wanted, for "wants …".
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

/// Words as a person lists them: `"a", "b" or "c"`.
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

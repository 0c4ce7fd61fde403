//! Spans of the members of a parameters object in its text.

use super::ParamsError;
use crate::meta::MetaKey;
use crate::object::{for_each_member, is_object};

/// The members of `params` that are read, by their names on the wire.
pub(crate) const FIELD_NAMES: [&str; 9] =
    ["name", "uri", "cursor", "taskId", "ref", "arguments", "_meta", "inputResponses", "requestState"];

/// Entries of `_meta` that only carry the request's trace and do not affect its answer.
const TRACE_KEYS: [&str; 2] = ["tracestate", "baggage"];

/// Index into [`FIELD_NAMES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParamsField {
    Name,
    Uri,
    Cursor,
    TaskId,
    Ref,
    Arguments,
    Meta,
    InputResponses,
    RequestState,
}

/// A piece of the text, never empty. 32 bits keep the table of spans small; longer texts are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TextSpan {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl TextSpan {
    pub(crate) fn slice(self, text: &[u8]) -> &[u8] {
        &text[self.start as usize..self.end as usize]
    }

    fn shift(&mut self, from: u32, by: i64) {
        if self.start >= from {
            // The text has been checked to fit 32 bits, before and after the change.
            self.start = (i64::from(self.start) + by) as u32;
            self.end = (i64::from(self.end) + by) as u32;
        }
    }
}

/// One entry of `_meta`: the spans of its whole text and of its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MetaEntry {
    /// From the key's opening quote to the value's end.
    pub(crate) whole: TextSpan,
    pub(crate) value: TextSpan,
}

/// Spans of all members that are read. Offsets count from the beginning of the parameters' text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ParamsSpans {
    /// True if the object is not empty.
    pub(crate) has_members: bool,
    /// True if there is a member that is none of [`FIELD_NAMES`], or an entry of `_meta` that only the server
    /// understands.
    pub(crate) has_unknown_members: bool,
    fields: [Option<TextSpan>; FIELD_NAMES.len()],
    entries: [Option<MetaEntry>; MetaKey::ALL.len()],
}

impl ParamsSpans {
    /// Locates the members of the object `text`, and of its `_meta`.
    pub(crate) fn locate(text: &str) -> Result<ParamsSpans, ParamsError> {
        if u32::try_from(text.len()).is_err() {
            return Err(ParamsError::TooLarge);
        }
        if !is_object(text.as_bytes()) {
            return Err(ParamsError::NotAnObject);
        }
        let mut spans = ParamsSpans::default();
        let (mut duplicate, mut alike, mut has_control) = (None, None, false);
        for_each_member(text, |key, value| {
            spans.has_members = true;
            let key = key.text();
            let Some(at) = FIELD_NAMES.iter().position(|field| *field == key) else {
                spans.has_unknown_members = true;
                has_control |= key.contains(char::is_control);
                alike = alike.or_else(|| FIELD_NAMES.into_iter().find(|field| is_case_variant(field, &key)));
                return;
            };
            if spans.fields[at].replace(span_of(text, value)).is_some() {
                duplicate.get_or_insert(FIELD_NAMES[at]);
            }
        })
        .map_err(|error| ParamsError::NotJson { why: error.to_string() })?;
        if let Some(key) = duplicate {
            return Err(ParamsError::Duplicate(key));
        }
        if let Some(key) = alike {
            return Err(ParamsError::CaseVariant(key));
        }
        if has_control {
            return Err(ParamsError::ControlInKey("params"));
        }
        spans.locate_entries(text)?;
        Ok(spans)
    }

    /// Locates the entries of `_meta`. `null` counts as absent: some clients write out every unset member.
    fn locate_entries(&mut self, text: &str) -> Result<(), ParamsError> {
        let Some(meta) = self.field(ParamsField::Meta) else { return Ok(()) };
        let meta = &text[meta.start as usize..meta.end as usize];
        if meta == "null" {
            return Ok(());
        }
        if !is_object(meta.as_bytes()) {
            return Err(ParamsError::MetaNotAnObject);
        }
        let (mut duplicate, mut alike, mut has_control) = (None, None, false);
        for_each_member(meta, |key, value| {
            let name = key.text();
            let Some(ours) = MetaKey::from_name(&name) else {
                self.has_unknown_members |= !TRACE_KEYS.contains(&&*name);
                has_control |= name.contains(char::is_control);
                let names = || MetaKey::ALL.into_iter().map(MetaKey::name);
                alike = alike.or_else(|| names().find(|ours| is_case_variant(ours, &name)));
                return;
            };
            let (key, value) = (span_of(text, key.0), span_of(text, value));
            let entry = MetaEntry { whole: TextSpan { start: key.start, end: value.end }, value };
            if self.entries[ours as usize].replace(entry).is_some() {
                duplicate.get_or_insert(ours.name());
            }
        })
        .map_err(|error| ParamsError::NotJson { why: error.to_string() })?;
        match (duplicate, alike) {
            (Some(key), _) => Err(ParamsError::Duplicate(key)),
            (None, Some(key)) => Err(ParamsError::CaseVariant(key)),
            (None, None) if has_control => Err(ParamsError::ControlInKey("_meta")),
            (None, None) => Ok(()),
        }
    }

    pub(crate) fn field(&self, field: ParamsField) -> Option<TextSpan> {
        self.fields[field as usize]
    }

    pub(crate) fn entry(&self, key: MetaKey) -> Option<MetaEntry> {
        self.entries[key as usize]
    }

    /// Records the span of a field in a text that is being written.
    pub(crate) fn set_field(&mut self, field: ParamsField, span: TextSpan) {
        self.fields[field as usize] = Some(span);
        self.has_members = true;
    }

    /// Moves every span that starts at `from` or after it.
    pub(crate) fn shift(&mut self, from: u32, by: i64) {
        self.fields.iter_mut().flatten().for_each(|span| span.shift(from, by));
        for entry in self.entries.iter_mut().flatten() {
            entry.whole.shift(from, by);
            entry.value.shift(from, by);
        }
    }
}

/// Returns whether a key is another one than `field` to us, but the same to a parser that ignores case, as
/// Go's and .NET's do. Two non-ASCII letters fold to ASCII ones as well.
pub fn is_case_variant(field: &str, key: &str) -> bool {
    if field == key {
        return false;
    }
    if key.is_ascii() {
        return field.eq_ignore_ascii_case(key);
    }
    let fold = |letter: char| match letter {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        letter => letter.to_ascii_lowercase(),
    };
    field.chars().map(fold).eq(key.chars().map(fold))
}

/// Returns the span of `part`, a slice of `text`. The text's length fits 32 bits.
fn span_of(text: &str, part: &str) -> TextSpan {
    let start = part.as_ptr() as usize - text.as_ptr() as usize;
    TextSpan { start: start as u32, end: (start + part.len()) as u32 }
}

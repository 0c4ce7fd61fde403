//! Parameters of a request: raw text, opened one level.

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::value::RawValue;

use self::spans::{FIELD_NAMES, ParamsField, ParamsSpans, TextSpan};
use crate::json_string::{decode_string, push_string};
use crate::meta::MetaKey;
use crate::object::is_object;

mod item;
mod spans;

pub use self::item::{ItemParam, ItemParamError, MAX_NAME_BYTES, MAX_URI_BYTES, is_valid_name, is_valid_uri};
pub use self::spans::is_case_variant;

/// A parameters object. Keeps the text as it was written and the spans of the members that decide something,
/// so that reading and rewriting need no second parse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// One JSON object without surrounding whitespace.
    raw: Bytes,
    /// The spans match `raw`.
    pub(crate) spans: ParamsSpans,
}

/// Reason why bytes are no parameters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParamsError {
    /// The bytes are no UTF-8.
    #[error("params are not UTF-8")]
    NotUtf8,
    /// The text is no JSON.
    #[error("params are not JSON: {why}")]
    NotJson {
        /// The parser's message and position.
        why: String,
    },
    /// MCP has named parameters only.
    #[error("params are not a JSON object")]
    NotAnObject,
    /// A member that decides something occurs twice.
    #[error("the key `{0}` occurs twice in params")]
    Duplicate(&'static str),
    /// A key differs only in case from a member that decides something: servers that ignore case would take
    /// it for that one.
    #[error("a key in params is spelled almost like `{0}`, and some servers would take it for that")]
    CaseVariant(&'static str),
    /// A key has a control character: servers that cut a text there, or drop the character, would read
    /// another key.
    #[error("a key in `{0}` has a control character")]
    ControlInKey(&'static str),
    /// `_meta` is no object.
    #[error("`_meta` is not a JSON object")]
    MetaNotAnObject,
    /// `arguments` is no object.
    #[error("`arguments` is not a JSON object")]
    ArgumentsNotAnObject,
    /// The text has 4 GiB or more.
    #[error("params are too large")]
    TooLarge,
}

impl Params {
    /// Returns an empty object; written as an absent `params` if `_meta` stays empty too.
    pub fn empty() -> Params {
        Params { raw: Bytes::from_static(b"{}"), spans: ParamsSpans::default() }
    }

    /// Parses a parameters object. Members we read may occur once, in `_meta` too.
    pub fn parse(raw: Bytes) -> Result<Params, ParamsError> {
        let raw = raw.slice_ref(raw.trim_ascii());
        let text = std::str::from_utf8(&raw).map_err(|_| ParamsError::NotUtf8)?;
        let spans = ParamsSpans::locate(text)?;
        Ok(Params { raw, spans })
    }

    /// Creates parameters of `tools/call`. The arguments' text is copied unchanged.
    pub fn tool_call(name: &str, arguments: Option<&RawValue>) -> Result<Params, ParamsError> {
        Params::named(name, arguments)
    }

    /// Creates parameters of `prompts/get`.
    pub fn prompt_get(name: &str, arguments: Option<&RawValue>) -> Result<Params, ParamsError> {
        Params::named(name, arguments)
    }

    /// Creates parameters of `resources/read`.
    pub fn resource_read(uri: &str) -> Params {
        let mut builder = ParamsBuilder::new(uri.len());
        builder.text(ParamsField::Uri, uri);
        builder.finish()
    }

    /// Creates parameters of a list method: without a cursor for the first page, else for the page after it.
    pub fn list(cursor: Option<&str>) -> Params {
        let Some(cursor) = cursor else { return Params::empty() };
        let mut builder = ParamsBuilder::new(cursor.len());
        builder.text(ParamsField::Cursor, cursor);
        builder.finish()
    }

    fn named(name: &str, arguments: Option<&RawValue>) -> Result<Params, ParamsError> {
        let mut builder =
            ParamsBuilder::new(name.len() + arguments.map_or(0, |arguments| arguments.get().len()));
        builder.text(ParamsField::Name, name);
        if let Some(arguments) = arguments {
            if !is_object(arguments.get().as_bytes()) {
                return Err(ParamsError::ArgumentsNotAnObject);
            }
            builder.raw(ParamsField::Arguments, arguments.get());
        }
        if u32::try_from(builder.out.len()).is_err() {
            return Err(ParamsError::TooLarge);
        }
        Ok(builder.finish())
    }

    /// Returns the whole object as it was written.
    pub fn raw(&self) -> &Bytes {
        &self.raw
    }

    /// Returns the `name` of a tool or prompt; `None` if absent or no string.
    pub fn name(&self) -> Option<Cow<'_, str>> {
        self.text(ParamsField::Name)
    }

    /// Returns the `uri` of a resource; `None` if absent or no string.
    pub fn uri(&self) -> Option<Cow<'_, str>> {
        self.text(ParamsField::Uri)
    }

    /// Returns the `cursor` of a list; `None` if absent or no string.
    pub fn cursor(&self) -> Option<Cow<'_, str>> {
        self.text(ParamsField::Cursor)
    }

    /// Returns the `taskId` of a task; `None` if absent or no string.
    pub fn task_id(&self) -> Option<Cow<'_, str>> {
        self.text(ParamsField::TaskId)
    }

    /// Returns the raw `ref` of a completion, of any JSON type.
    pub fn reference(&self) -> Option<&[u8]> {
        self.field(ParamsField::Ref)
    }

    /// Returns whether there is a member unknown to this crate: a vendor's, or one of a later revision.
    pub fn has_unknown_members(&self) -> bool {
        self.spans.has_unknown_members
    }

    /// Returns the raw `arguments`, of any JSON type.
    pub fn arguments(&self) -> Option<&[u8]> {
        self.field(ParamsField::Arguments)
    }

    /// Returns the raw `_meta`: an object or `null`.
    pub fn meta(&self) -> Option<&[u8]> {
        self.field(ParamsField::Meta)
    }

    /// Returns the raw value of one entry of `_meta`.
    pub fn meta_entry(&self, key: MetaKey) -> Option<&[u8]> {
        self.spans.entry(key).map(|entry| entry.value.slice(&self.raw))
    }

    /// Returns the raw `inputResponses` of a continued request.
    pub fn input_responses(&self) -> Option<&[u8]> {
        self.field(ParamsField::InputResponses)
    }

    /// Returns the raw `requestState` of a continued request, forwarded byte for byte.
    pub fn request_state(&self) -> Option<&[u8]> {
        self.field(ParamsField::RequestState)
    }

    /// Returns the raw token under which the client wants progress notifications.
    pub fn progress_token(&self) -> Option<&[u8]> {
        self.meta_entry(MetaKey::ProgressToken)
    }

    /// Returns whether the request continues an earlier one. Such a request is never retried.
    pub fn is_continuation(&self) -> bool {
        self.input_responses().is_some() || self.request_state().is_some()
    }

    /// Returns whether `_meta` names a protocol version. That identifies the modern era before any method is
    /// read.
    pub fn has_modern_meta(&self) -> bool {
        self.meta_entry(MetaKey::ProtocolVersion).is_some()
    }

    /// Returns the parameters with another `name`; every other byte stays. A missing name is added in front.
    ///
    /// Costs one copy of the text. Name and text together stay below 4 GiB.
    #[must_use]
    pub fn with_name(&self, name: &str) -> Params {
        let key: &[u8] = if self.spans.field(ParamsField::Name).is_some() { b"" } else { b"\"name\":" };
        let comma: &[u8] = if key.is_empty() || !self.spans.has_members { b"" } else { b"," };
        let old = self.spans.field(ParamsField::Name).unwrap_or(TextSpan { start: 1, end: 1 });

        let mut out = Vec::with_capacity(self.raw.len() + key.len() + name.len() + 2 + comma.len());
        out.extend_from_slice(&self.raw[..old.start as usize]);
        out.extend_from_slice(key);
        let start = out.len() as u32;
        push_string(&mut out, name);
        let end = out.len() as u32;
        out.extend_from_slice(comma);
        out.extend_from_slice(&self.raw[old.end as usize..]);

        let mut spans = self.spans.clone();
        spans.shift(old.end, out.len() as i64 - self.raw.len() as i64);
        spans.set_field(ParamsField::Name, TextSpan { start, end });
        Params { raw: out.into(), spans }
    }

    pub(crate) fn field(&self, field: ParamsField) -> Option<&[u8]> {
        self.spans.field(field).map(|span| span.slice(&self.raw))
    }

    pub(crate) fn text(&self, field: ParamsField) -> Option<Cow<'_, str>> {
        decode_string(std::str::from_utf8(self.field(field)?).ok()?)
    }
}

impl Default for Params {
    fn default() -> Params {
        Params::empty()
    }
}

/// Builder of parameters that records the spans of the members it writes.
struct ParamsBuilder {
    out: Vec<u8>,
    spans: ParamsSpans,
}

impl ParamsBuilder {
    /// Creates a builder with room for texts of `size` bytes and the syntax around them.
    fn new(size: usize) -> ParamsBuilder {
        let mut out = Vec::with_capacity(size + 48);
        out.push(b'{');
        ParamsBuilder { out, spans: ParamsSpans::default() }
    }

    fn text(&mut self, field: ParamsField, text: &str) {
        let start = self.begin(field);
        push_string(&mut self.out, text);
        self.end(field, start);
    }

    fn raw(&mut self, field: ParamsField, json: &str) {
        let start = self.begin(field);
        self.out.extend_from_slice(json.as_bytes());
        self.end(field, start);
    }

    fn begin(&mut self, field: ParamsField) -> usize {
        if self.spans.has_members {
            self.out.push(b',');
        }
        push_string(&mut self.out, FIELD_NAMES[field as usize]);
        self.out.push(b':');
        self.out.len()
    }

    fn end(&mut self, field: ParamsField, start: usize) {
        self.spans.set_field(field, TextSpan { start: start as u32, end: self.out.len() as u32 });
    }

    fn finish(mut self) -> Params {
        self.out.push(b'}');
        Params { raw: self.out.into(), spans: self.spans }
    }
}

#[cfg(test)]
mod tests;

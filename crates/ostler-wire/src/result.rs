//! Results, opened one level: the members that decide about caching and paging, and the items of a list.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::LazyLock;

use bytes::Bytes;
use memchr::memmem;

use crate::json_string::decode_string;
use crate::object::{ObjectError, for_each_element, select_members, select_members_str};
use crate::params::{MAX_NAME_BYTES, MAX_URI_BYTES, is_valid_name, is_valid_uri};

/// The members of a result that [`ResultHead`] reads.
const HEAD_KEYS: [&str; 5] = ["resultType", "isError", "ttlMs", "cacheScope", "nextCursor"];

/// The members of a result that decide something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResultHead {
    /// The kind of result.
    pub kind: ResultKind,
    /// True if the tool itself reports an error. Anything but `false` or `null` counts, so that doubt forbids
    /// caching.
    pub is_error: bool,
    /// Lifetime the server gives the result, in milliseconds: fractions rounded down, huge values clamped,
    /// negative ones kept. `None` if absent or no number.
    pub ttl_ms: Option<i64>,
    /// The callers that may share it.
    pub cache_scope: CacheScopeHint,
    /// The cursor of the next page. An empty cursor is a cursor.
    pub next_cursor: Option<String>,
}

/// `resultType`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ResultKind {
    /// A complete result; also when the type is absent, as in the legacy era.
    #[default]
    Complete,
    /// The server needs input before it can answer.
    InputRequired,
    /// The server runs the request as a task.
    Task,
    /// An extension's type, or the raw text of a type that is no string.
    Other(String),
}

/// `cacheScope`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheScopeHint {
    /// The same for every caller.
    Public,
    /// For one caller only; also when the scope is absent or unknown.
    #[default]
    Private,
}

/// Reason why a result could not be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResultError {
    /// The bytes are no UTF-8.
    #[error("the result is not UTF-8")]
    NotUtf8,
    /// The text is no JSON.
    #[error("the result is not JSON: {why}")]
    NotJson {
        /// The parser's message and position.
        why: String,
    },
    /// Results of MCP are objects.
    #[error("the result is not a JSON object")]
    NotAnObject,
    /// A member that decides something occurs twice.
    #[error("the key `{0}` occurs twice in the result")]
    Duplicate(String),
    /// `nextCursor` is no string; ignoring it would silently truncate the list.
    #[error("`nextCursor` is not a string")]
    BadCursor,
    /// The list itself is missing, which differs from an empty list.
    #[error("the result has no list `{0}`")]
    NoList(String),
}

/// Returns whether a result may contain a member that [`ResultHead`] reads. It searches the bytes, many times
/// faster than a parse, and has no false negatives: inside strings quotes are escaped, so the usual text
/// content does not match, and `\u00` covers every escaped spelling of a key, since no other escape encodes a
/// letter. `cacheScope` alone is not searched for: without a lifetime it decides nothing.
pub fn may_carry_hints(raw: &[u8]) -> bool {
    const NEEDLES: [&[u8]; 5] =
        [b"\"isError\"", b"\"resultType\"", b"\"ttlMs\"", b"\"nextCursor\"", b"\\u00"];
    NEEDLES.iter().any(|needle| memmem::find(raw, needle).is_some())
}

/// Returns whether a result may contain a lifetime; see [`may_carry_hints`].
pub fn may_carry_ttl(raw: &[u8]) -> bool {
    // The search runs on every answer, so its needles are prepared once.
    static NEEDLES: LazyLock<[memmem::Finder<'static>; 2]> =
        LazyLock::new(|| [memmem::Finder::new("\"ttlMs\""), memmem::Finder::new("\\u00")]);
    NEEDLES.iter().any(|needle| needle.find(raw).is_some())
}

/// Returns whether a result may report a failed tool. A result with `"isError": false`, as many have, is not
/// parsed.
pub fn may_be_error(raw: &[u8]) -> bool {
    static KEY: LazyLock<memmem::Finder<'static>> = LazyLock::new(|| memmem::Finder::new("\"isError\""));
    static ESCAPE: LazyLock<memmem::Finder<'static>> = LazyLock::new(|| memmem::Finder::new("\\u00"));
    let says_no = |found: usize| {
        let after = raw[found + KEY.needle().len()..].trim_ascii_start();
        let value = after.strip_prefix(b":").map(<[u8]>::trim_ascii_start);
        value.is_some_and(|value| value.starts_with(b"false") || value.starts_with(b"null"))
    };
    KEY.find_iter(raw).any(|found| !says_no(found)) || ESCAPE.find(raw).is_some()
}

impl ResultHead {
    /// Parses the head of a result. A result in which [`may_carry_hints`] finds nothing is not parsed a
    /// second time and has the default head; [`crate::Message::parse`] has checked already that it is JSON.
    pub fn parse(raw: &[u8]) -> Result<ResultHead, ResultError> {
        if raw.first() != Some(&b'{') {
            return Err(ResultError::NotAnObject);
        }
        if !may_carry_hints(raw) {
            return Ok(ResultHead::default());
        }
        let members = select_members(raw, &HEAD_KEYS).map_err(|why| result_error(why, &HEAD_KEYS))?;
        ResultHead::from_members(members)
    }

    fn from_members(members: [Option<&str>; 5]) -> Result<ResultHead, ResultError> {
        let [kind, is_error, ttl, scope, cursor] = members;
        Ok(ResultHead {
            kind: kind.map_or(ResultKind::Complete, ResultKind::from_json),
            is_error: !matches!(is_error, None | Some("false" | "null")),
            ttl_ms: ttl.and_then(milliseconds),
            cache_scope: match scope.and_then(decode_string).as_deref() {
                Some("public") => CacheScopeHint::Public,
                _ => CacheScopeHint::Private,
            },
            next_cursor: match cursor {
                None | Some("null") => None,
                Some(raw) => Some(decode_string(raw).ok_or(ResultError::BadCursor)?.into_owned()),
            },
        })
    }
}

impl ResultKind {
    fn from_json(raw: &str) -> ResultKind {
        match decode_string(raw).as_deref() {
            Some("complete") => ResultKind::Complete,
            Some("input_required") => ResultKind::InputRequired,
            Some("task") => ResultKind::Task,
            other => ResultKind::Other(other.unwrap_or(raw).to_owned()),
        }
    }
}

/// Converts a JSON number to whole milliseconds. The cast saturates, which clamps huge values.
fn milliseconds(raw: &str) -> Option<i64> {
    raw.parse::<i64>().ok().or_else(|| raw.parse::<f64>().ok().map(|float| float.floor() as i64))
}

/// Most dropped items that are reported one by one. A person reads a few, and a hostile list has a million.
const MAX_REPORTED_DROPS: usize = 16;

/// One page of a list result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListPage {
    /// The good items, in the server's order and with unique names. At most `max_items`.
    pub items: Vec<ListItem>,
    /// The first of the items that were dropped as invalid.
    pub dropped: Vec<DroppedItem>,
    /// The number of items dropped as invalid.
    pub dropped_count: usize,
    /// The number of items beyond `max_items`, good or bad.
    pub excess_count: usize,
    /// Names that occur more than once; the first item of each is among the good ones.
    pub duplicate_names: Vec<String>,
    /// Cache hints and the next page.
    pub head: ResultHead,
}

/// One item of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListItem {
    /// The value of its name key.
    pub name: String,
    /// The whole item, as it was written.
    pub raw: Bytes,
}

/// An item that was dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DroppedItem {
    /// Its index in the page.
    pub index: usize,
    /// The problem, for people.
    pub why: String,
}

impl ListPage {
    /// Parses the list under `key`, whose items are named by `name_key`. A bad item is dropped alone. At most
    /// `max_items` are kept, and nothing is allocated for the rest.
    pub fn parse(raw: &Bytes, key: &str, name_key: &str, max_items: usize) -> Result<ListPage, ResultError> {
        let [a, b, c, d, e] = HEAD_KEYS;
        let keys = [a, b, c, d, e, key];
        let [head @ .., list] = select_members(raw, &keys).map_err(|why| result_error(why, &keys))?;
        let mut page = ListPage { head: ResultHead::from_members(head)?, ..ListPage::default() };
        let (mut names, mut repeated, mut index) = (HashSet::new(), HashSet::new(), 0);
        let visit = |item: &str| {
            match item_name(item, name_key) {
                // A repeated name is recorded even beyond `max_items`: it is unknown which of the items a
                // call reaches.
                Ok(name) if names.contains(&*name) => {
                    page.drop_item(index, || format!("the {name_key} `{name}` is taken"));
                    repeated.insert(name.into_owned());
                }
                Ok(_) | Err(_) if page.items.len() >= max_items => page.excess_count += 1,
                Ok(name) => {
                    let name = name.into_owned();
                    names.insert(name.clone());
                    page.items.push(ListItem { name, raw: raw.slice_ref(item.as_bytes()) });
                }
                Err(why) => page.drop_item(index, || why.message(name_key)),
            }
            index += 1;
        };
        list.and_then(|list| for_each_element(list, visit))
            .ok_or_else(|| ResultError::NoList(key.to_owned()))?;
        page.duplicate_names = repeated.into_iter().collect();
        Ok(page)
    }

    fn drop_item(&mut self, index: usize, why: impl FnOnce() -> String) {
        self.dropped_count += 1;
        if self.dropped.len() < MAX_REPORTED_DROPS {
            self.dropped.push(DroppedItem { index, why: why() });
        }
    }
}

/// Problem of an item.
enum ListItemError {
    NotAnObject,
    Nameless,
    Twice,
    NotText,
    Unfit,
}

impl ListItemError {
    fn message(&self, name_key: &str) -> String {
        match self {
            Self::NotAnObject => "not an object".to_owned(),
            Self::Nameless => format!("no `{name_key}`"),
            Self::Twice => format!("`{name_key}` occurs twice"),
            Self::NotText => format!("`{name_key}` is not a string"),
            Self::Unfit => {
                let longest = if name_key == "name" { MAX_NAME_BYTES } else { MAX_URI_BYTES };
                format!("`{name_key}` has more than {longest} bytes or a control character")
            }
        }
    }
}

/// Returns the name of an item; an error if no request could carry it.
fn item_name<'a>(item: &'a str, name_key: &str) -> Result<Cow<'a, str>, ListItemError> {
    let is_fit = if name_key == "name" { is_valid_name } else { is_valid_uri };
    match select_members_str(item, &[name_key]) {
        Ok([Some(raw)]) => match decode_string(raw) {
            Some(name) if is_fit(&name) => Ok(name),
            Some(_) => Err(ListItemError::Unfit),
            None => Err(ListItemError::NotText),
        },
        Ok([None]) => Err(ListItemError::Nameless),
        Err(ObjectError::Duplicate(_)) => Err(ListItemError::Twice),
        Err(_) => Err(ListItemError::NotAnObject),
    }
}

fn result_error<const N: usize>(why: ObjectError, keys: &[&str; N]) -> ResultError {
    match why {
        ObjectError::NotUtf8 => ResultError::NotUtf8,
        ObjectError::NotAnObject => ResultError::NotAnObject,
        ObjectError::NotJson(error) => ResultError::NotJson { why: error.to_string() },
        ObjectError::Duplicate(at) => ResultError::Duplicate(keys[at].to_owned()),
    }
}

#[cfg(test)]
#[path = "result_tests.rs"]
mod tests;

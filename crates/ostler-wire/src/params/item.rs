//! The member of `params` that names the item of a request. Each method of MCP has at most one, and none of
//! the others may be present: policy, cache, audit and server would otherwise read different ones.

use std::borrow::Cow;

use super::Params;
use super::spans::{FIELD_NAMES, ParamsField};

/// Longest name of a tool, prompt or method, in bytes. Clients accept 64 to 128 characters; the rest is for
/// servers that put a path into a name.
pub const MAX_NAME_BYTES: usize = 1 << 10;

/// Longest URI or URI template, in bytes: the limit that HTTP servers commonly put on a request line.
pub const MAX_URI_BYTES: usize = 8 << 10;

/// The members that name an item.
const ITEM_FIELDS: [ParamsField; 5] =
    [ParamsField::Name, ParamsField::Uri, ParamsField::Cursor, ParamsField::TaskId, ParamsField::Ref];

/// The member that names the item of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemParam {
    /// `name`: a tool or a prompt.
    Name,
    /// `uri`: a resource.
    Uri,
    /// `cursor`: a page of a list. The first page has none.
    Cursor,
    /// `taskId`: a task.
    TaskId,
    /// `ref`: a prompt or a resource template to complete arguments for.
    Ref,
    /// The method has no item.
    Nothing,
    /// The method is none of MCP, and its members are the server's own.
    UnknownMethod,
}

/// Reason why parameters do not name exactly one item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ItemParamError {
    /// A member names an item that does not belong to the method.
    #[error("`{0}` does not belong to this method")]
    Unexpected(&'static str),
    /// The member is missing or of the wrong type.
    #[error("`{0}` is missing or not {kind}", kind = if *.0 == "ref" { "an object" } else { "a string" })]
    MissingOrMistyped(&'static str),
}

impl ItemParam {
    /// Returns the member that names the item of a method.
    pub fn for_method(method: &str) -> Self {
        match method {
            "tools/call" | "prompts/get" => Self::Name,
            "resources/read" | "resources/subscribe" | "resources/unsubscribe" => Self::Uri,
            "tools/list" | "prompts/list" | "resources/list" | "resources/templates/list" | "tasks/list" => {
                Self::Cursor
            }
            "tasks/get" | "tasks/result" | "tasks/update" | "tasks/cancel" => Self::TaskId,
            "completion/complete" => Self::Ref,
            "initialize" | "ping" | "server/discover" | "logging/setLevel" | "subscriptions/listen" => {
                Self::Nothing
            }
            _ => Self::UnknownMethod,
        }
    }

    /// Checks that parameters name an item of the method, if it has any, and nothing else. A `null` counts as
    /// absent: some clients write out unset members.
    pub fn check(method: &str, params: &Params) -> Result<Self, ItemParamError> {
        let item = Self::for_method(method);
        if item == Self::UnknownMethod {
            return Ok(item);
        }
        let is_set = |field: ParamsField| params.field(field).is_some_and(|value| value != b"null");
        let expected = item.field();
        let is_unexpected = |field: &ParamsField| Some(*field) != expected && is_set(*field);
        if let Some(unexpected) = ITEM_FIELDS.into_iter().find(is_unexpected) {
            return Err(ItemParamError::Unexpected(FIELD_NAMES[unexpected as usize]));
        }
        let is_readable = match (item, expected) {
            (Self::Cursor, Some(field)) => !is_set(field) || params.text(field).is_some(),
            (Self::Ref, Some(field)) => params.field(field).is_some_and(|value| value.starts_with(b"{")),
            (_, Some(field)) => params.text(field).is_some(),
            (_, None) => true,
        };
        match expected {
            Some(field) if !is_readable => {
                Err(ItemParamError::MissingOrMistyped(FIELD_NAMES[field as usize]))
            }
            _ => Ok(item),
        }
    }

    /// Returns the text of the member, `None` if it is no string.
    pub fn text(self, params: &Params) -> Option<Cow<'_, str>> {
        self.field().and_then(|field| params.text(field))
    }

    fn field(self) -> Option<ParamsField> {
        match self {
            Self::Name => Some(ParamsField::Name),
            Self::Uri => Some(ParamsField::Uri),
            Self::Cursor => Some(ParamsField::Cursor),
            Self::TaskId => Some(ParamsField::TaskId),
            Self::Ref => Some(ParamsField::Ref),
            Self::Nothing | Self::UnknownMethod => None,
        }
    }
}

/// Returns whether a tool, prompt or method can have this name: at most [`MAX_NAME_BYTES`], none of them a
/// control character. Other names are unknown before any rule is evaluated.
pub fn is_valid_name(name: &str) -> bool {
    name.len() <= MAX_NAME_BYTES && !name.contains(char::is_control)
}

/// Returns whether a resource or a template can have this URI: at most [`MAX_URI_BYTES`], none of them a
/// control character.
pub fn is_valid_uri(uri: &str) -> bool {
    uri.len() <= MAX_URI_BYTES && !uri.contains(char::is_control)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    /// The methods of both revisions, each with its member.
    const TABLE: [(&str, &str); 21] = [
        ("tools/call", "name"),
        ("prompts/get", "name"),
        ("resources/read", "uri"),
        ("resources/subscribe", "uri"),
        ("resources/unsubscribe", "uri"),
        ("tools/list", "cursor"),
        ("prompts/list", "cursor"),
        ("resources/list", "cursor"),
        ("resources/templates/list", "cursor"),
        ("tasks/list", "cursor"),
        ("tasks/get", "taskId"),
        ("tasks/result", "taskId"),
        ("tasks/update", "taskId"),
        ("tasks/cancel", "taskId"),
        ("completion/complete", "ref"),
        ("initialize", ""),
        ("ping", ""),
        ("server/discover", ""),
        ("logging/setLevel", ""),
        ("subscriptions/listen", ""),
        ("vendor/anything", "name uri cursor taskId ref"),
    ];

    fn params(text: &str) -> Params {
        Params::parse(Bytes::copy_from_slice(text.as_bytes())).unwrap()
    }

    #[test]
    fn a_member_that_names_another_kind_of_item_is_refused() {
        for (method, field) in TABLE {
            for member in ITEM_FIELDS.map(|field| FIELD_NAMES[field as usize]) {
                let value = if member == "ref" { "{}" } else { "\"x\"" };
                let mut text = format!("{{\"vendor\":1,\"{member}\":{value}");
                if !field.is_empty() && !field.contains(' ') && field != member {
                    text += &format!(",\"{field}\":{}", if field == "ref" { "{}" } else { "\"x\"" });
                }
                let checked = ItemParam::check(method, &params(&(text + "}")));
                let is_own = field.split(' ').any(|field| field == member);
                assert_eq!(checked.is_ok(), is_own, "{method} {member}: {checked:?}");
            }
        }
    }

    #[test]
    fn an_item_is_named_by_a_text() {
        for (method, field) in
            TABLE.into_iter().filter(|(_, field)| !field.is_empty() && !field.contains(' '))
        {
            for value in ["7", "[]", "\"\\ud800\"", "true"] {
                let checked = ItemParam::check(method, &params(&format!("{{\"{field}\":{value}}}")));
                assert!(checked.is_err(), "{method} {field} {value}");
            }
            let is_optional = field == "cursor";
            for text in ["{}".to_owned(), format!("{{\"{field}\":null}}")] {
                assert_eq!(ItemParam::check(method, &params(&text)).is_ok(), is_optional, "{method} {text}");
            }
        }
    }

    #[test]
    fn an_unset_member_names_nothing() {
        let text = r#"{"name":"a","uri":null,"cursor":null,"taskId":null,"ref":null}"#;
        assert_eq!(ItemParam::check("tools/call", &params(text)), Ok(ItemParam::Name));
    }

    #[test]
    fn names_are_bounded_and_printable() {
        assert!(
            is_valid_name(&"n".repeat(MAX_NAME_BYTES))
                && is_valid_uri(&"u".repeat(MAX_URI_BYTES))
                && is_valid_name("größe")
        );
        assert!(
            !is_valid_name(&"n".repeat(MAX_NAME_BYTES + 1)) && !is_valid_uri(&"u".repeat(MAX_URI_BYTES + 1))
        );
        for character in ['\0', '\t', '\n', '\u{1b}', '\u{7f}', '\u{9b}'] {
            let text = format!("a{character}b");
            assert!(!is_valid_name(&text) && !is_valid_uri(&text), "{text:?}");
        }
    }
}

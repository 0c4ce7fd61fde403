//! Kinds of notifications, and the parameters of progress.

use bytes::Bytes;

use crate::object::select_members;
use crate::request_id::RequestId;

/// Kind of a notification, by its method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NotificationKind {
    /// The server's list of tools has changed.
    ToolsChanged,
    /// The server's list of resources has changed.
    ResourcesChanged,
    /// The server's list of prompts has changed.
    PromptsChanged,
    /// One resource has new content.
    ResourceUpdated,
    /// A request makes progress.
    Progress,
    /// A line of the server's log.
    Log,
    /// The peer has cancelled a request.
    Cancelled,
    /// A task has changed its state. It names the task by the server's own id.
    Task,
    /// Anything else.
    Other,
}

impl NotificationKind {
    /// Returns the kind of a method.
    pub fn from_method(method: &str) -> NotificationKind {
        match method {
            "notifications/tools/list_changed" => NotificationKind::ToolsChanged,
            "notifications/resources/list_changed" => NotificationKind::ResourcesChanged,
            "notifications/prompts/list_changed" => NotificationKind::PromptsChanged,
            "notifications/resources/updated" => NotificationKind::ResourceUpdated,
            "notifications/progress" => NotificationKind::Progress,
            "notifications/message" => NotificationKind::Log,
            "notifications/cancelled" => NotificationKind::Cancelled,
            _ if method.starts_with("notifications/tasks") => NotificationKind::Task,
            _ => NotificationKind::Other,
        }
    }
}

/// The parameters of `notifications/progress` for a request of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgressParams {
    /// The number we gave as a token; a server may have made it a string.
    pub token: u64,
    /// The whole parameters, as they were written.
    pub raw: Bytes,
    /// The token's range in `raw`.
    token_range: std::ops::Range<usize>,
}

impl ProgressParams {
    /// Parses the parameters; `None` if the token is missing, repeated, or none of ours.
    pub fn parse(params: &Bytes) -> Option<ProgressParams> {
        let [Some(token)] = select_members(params, &["progressToken"]).ok()? else { return None };
        let start = token.as_ptr() as usize - params.as_ptr() as usize;
        let range = start..start + token.len();
        let token = RequestId::from_token(params.slice(range.clone())).ok()?.number()?;
        Some(ProgressParams { token, raw: params.clone(), token_range: range })
    }

    /// Returns the parameters with the client's token, given as raw JSON text, in range of ours; every other
    /// byte stays.
    pub fn with_token(&self, token: &[u8]) -> Vec<u8> {
        [&self.raw[..self.token_range.start], token, &self.raw[self.token_range.end..]].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<ProgressParams> {
        ProgressParams::parse(&Bytes::copy_from_slice(text.as_bytes()))
    }

    #[test]
    fn our_token_is_found_and_replaced_by_the_clients() {
        for token in ["17", "\"17\""] {
            let text =
                format!(r#"{{"message":"progressToken", "progressToken" : {token} ,"progress":1e400}}"#);
            let progress = parse(&text).unwrap();
            assert_eq!((progress.token, &progress.raw[..]), (17, text.as_bytes()));
            let expected = r#"{"message":"progressToken", "progressToken" : "mine" ,"progress":1e400}"#;
            assert_eq!(progress.with_token(b"\"mine\""), expected.as_bytes());
        }
    }

    #[test]
    fn a_token_that_is_none_of_ours_is_nothing() {
        for text in [
            "{}",
            "[]",
            r#"{"progressToken":"abc"}"#,
            r#"{"progressToken":1.5}"#,
            r#"{"progressToken":{"progressToken":1}}"#,
            r#"{"progressToken":1,"progressToken":1}"#,
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn notices_are_told_by_their_method() {
        assert_eq!(
            NotificationKind::from_method("notifications/tools/list_changed"),
            NotificationKind::ToolsChanged
        );
        assert_eq!(
            NotificationKind::from_method("notifications/resources/updated"),
            NotificationKind::ResourceUpdated
        );
        assert_eq!(NotificationKind::from_method("notifications/cancelled"), NotificationKind::Cancelled);
        assert_eq!(NotificationKind::from_method("notifications/tasks/status"), NotificationKind::Task);
        assert_eq!(
            NotificationKind::from_method("notifications/toolz/list_changed"),
            NotificationKind::Other
        );
    }
}

//! Notifications, told apart.

use bytes::Bytes;

use crate::id::Id;
use crate::object::open;

/// What a notification is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Notice {
    /// The server's tools are others now.
    ToolsChanged,
    /// The server's resources are others now.
    ResourcesChanged,
    /// The server's prompts are others now.
    PromptsChanged,
    /// One resource has new content.
    ResourceUpdated,
    /// A request makes progress.
    Progress,
    /// A line of the server's log.
    Log,
    /// The peer has given a request up.
    Cancelled,
    /// A task is in another state. It names the task by the server's own id.
    Task,
    /// Anything else.
    Other,
}

impl Notice {
    /// Tells a notification by its method.
    pub fn of(method: &str) -> Notice {
        match method {
            "notifications/tools/list_changed" => Notice::ToolsChanged,
            "notifications/resources/list_changed" => Notice::ResourcesChanged,
            "notifications/prompts/list_changed" => Notice::PromptsChanged,
            "notifications/resources/updated" => Notice::ResourceUpdated,
            "notifications/progress" => Notice::Progress,
            "notifications/message" => Notice::Log,
            "notifications/cancelled" => Notice::Cancelled,
            _ if method.starts_with("notifications/tasks") => Notice::Task,
            _ => Notice::Other,
        }
    }
}

/// The parameters of `notifications/progress` for a request of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The number we gave as a token; a server may have made it a string.
    pub token: u64,
    /// The whole parameters, as they were written.
    pub raw: Bytes,
    /// The token's place in `raw`.
    place: std::ops::Range<usize>,
}

impl Progress {
    /// Reads the parameters; `None` if the token is missing, given twice, or none of ours.
    pub fn parse(params: &Bytes) -> Option<Progress> {
        let [Some(token)] = open(params, &["progressToken"]).ok()? else { return None };
        let start = token.as_ptr() as usize - params.as_ptr() as usize;
        let place = start..start + token.len();
        let token = Id::from_token(params.slice(place.clone())).ok()?.number()?;
        Some(Progress { token, raw: params.clone(), place })
    }

    /// The parameters under the token that the client gave, in its raw JSON text; every other byte stays.
    pub fn with_token(&self, token: &[u8]) -> Vec<u8> {
        [&self.raw[..self.place.start], token, &self.raw[self.place.end..]].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<Progress> {
        Progress::parse(&Bytes::copy_from_slice(text.as_bytes()))
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
        assert_eq!(Notice::of("notifications/tools/list_changed"), Notice::ToolsChanged);
        assert_eq!(Notice::of("notifications/resources/updated"), Notice::ResourceUpdated);
        assert_eq!(Notice::of("notifications/cancelled"), Notice::Cancelled);
        assert_eq!(Notice::of("notifications/tasks/status"), Notice::Task);
        assert_eq!(Notice::of("notifications/toolz/list_changed"), Notice::Other);
    }
}

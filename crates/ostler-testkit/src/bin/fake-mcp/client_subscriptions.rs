//! Subscriptions of the client, by `resources/subscribe` (legacy) or `subscriptions/listen`
//! (modern).

use std::collections::BTreeSet;

use crate::message::FakeParams;
use crate::response::{self, ErrorReply, quote};

/// Everything that the client has subscribed to.
#[derive(Debug, Default)]
pub(crate) struct ClientSubscriptions {
    /// The resources of a legacy client.
    uris: BTreeSet<String>,
    /// The log level that the client has set.
    level: Option<String>,
    /// The raw id of the open request to listen, and its raw filter.
    listening: Option<(String, String)>,
}

impl ClientSubscriptions {
    pub(crate) fn update(&mut self, method: &str, params: &FakeParams<'_>) -> Result<String, ErrorReply> {
        match (method, &params.uri, &params.level) {
            ("resources/subscribe", Some(uri), _) if uri.0 == "fake://forbidden" => {
                return Err(ErrorReply::bad_params("not for you"));
            }
            ("resources/subscribe", Some(uri), _) => {
                self.uris.insert(uri.0.clone().into_owned());
            }
            ("resources/unsubscribe", Some(uri), _) => {
                self.uris.remove(&*uri.0);
            }
            ("logging/setLevel", _, Some(level)) => self.level = Some(level.0.clone().into_owned()),
            _ => return Err(ErrorReply::bad_params("`uri` or `level` is missing")),
        }
        Ok(String::new())
    }

    /// Replaces the previous request to listen; returns the acknowledgement.
    pub(crate) fn listen(&mut self, id: &str, params: &FakeParams<'_>) -> Vec<u8> {
        let filter = params.notifications.map_or("{}", |raw| raw.get()).to_owned();
        self.listening = Some((id.to_owned(), filter.clone()));
        let acknowledged = self.with_subscription_id(&format!(r#""notifications":{filter}"#));
        response::notification("notifications/subscriptions/acknowledged", &acknowledged)
    }

    /// Ends the request to listen with this id.
    pub(crate) fn stop_listening(&mut self, id: &str) {
        self.listening.take_if(|(open, _)| open == id);
    }

    /// Returns an object with these members, tagged with the subscription id if there is one.
    pub(crate) fn with_subscription_id(&self, members: &str) -> String {
        let Some((id, _)) = &self.listening else { return format!("{{{members}}}") };
        let comma = if members.is_empty() { "" } else { "," };
        format!(r#"{{"_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}}{comma}{members}}}"#)
    }

    /// Returns everything as a JSON object.
    pub(crate) fn to_json(&self) -> String {
        let uris: Vec<String> = self.uris.iter().map(|uri| quote(uri)).collect();
        let level = self.level.as_deref().map_or("null".into(), quote);
        let (id, filter) = self.listening.as_ref().map_or(("null", "null"), |(id, filter)| (id, filter));
        format!(r#"{{"uris":[{}],"level":{level},"listen":{id},"filter":{filter}}}"#, uris.join(","))
    }
}

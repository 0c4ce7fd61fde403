//! Listen requests of a modern server, and their acknowledgement.

use ostler_wire::{Params, ServerInfo};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::ServerNotification;
use crate::lists::Kind;

/// The first notification that a server sends for a listen request.
pub(crate) const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";

/// Lists whose changes a server has agreed to announce.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NotifiedLists {
    tools_list_changed: bool,
    prompts_list_changed: bool,
    resources_list_changed: bool,
}

/// A server's acknowledgement of a listen request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SubscriptionAck {
    pub(crate) lists: NotifiedLists,
    /// The id of the listen request, if given.
    pub(crate) request_id: Option<u64>,
}

impl NotifiedLists {
    /// Returns the changes that a server declares.
    pub(crate) fn announced(hello: &ServerInfo) -> Self {
        let has = |kind: Kind| hello.has_capability(kind.list_changed_capability());
        Self {
            tools_list_changed: has(Kind::Tools),
            prompts_list_changed: has(Kind::Prompts),
            resources_list_changed: has(Kind::Resources),
        }
    }

    /// Returns whether changes of this list are announced.
    pub(crate) fn includes(self, kind: Kind) -> bool {
        match kind {
            Kind::Tools => self.tools_list_changed,
            Kind::Prompts => self.prompts_list_changed,
            Kind::Resources | Kind::Templates => self.resources_list_changed,
        }
    }

    /// Returns the changes to assume after a time without announcements.
    pub(crate) fn assumed_changes(self) -> impl Iterator<Item = ServerNotification> {
        [Kind::Tools, Kind::Prompts, Kind::Resources]
            .into_iter()
            .filter(move |kind| self.includes(*kind))
            .map(Kind::list_changed)
    }
}

impl SubscriptionAck {
    /// Parses the parameters of an acknowledgement.
    pub(crate) fn parse(params: &[u8]) -> Option<Self> {
        let told: AckParams = serde_json::from_slice(params).ok()?;
        let number = told.meta.subscription.and_then(|id| match id {
            Value::Number(number) => number.as_u64(),
            Value::String(text) => text.parse().ok(),
            _ => None,
        });
        // An acknowledgement without a list of changes covers all of them.
        let all = NotifiedLists {
            tools_list_changed: true,
            prompts_list_changed: true,
            resources_list_changed: true,
        };
        Some(Self { lists: told.notifications.unwrap_or(all), request_id: number })
    }
}

/// Parameters of an acknowledgement.
#[derive(Deserialize)]
struct AckParams {
    notifications: Option<NotifiedLists>,
    #[serde(default, rename = "_meta")]
    meta: AckMeta,
}

#[derive(Default, Deserialize)]
struct AckMeta {
    #[serde(rename = "io.modelcontextprotocol/subscriptionId")]
    subscription: Option<Value>,
}

/// Makes the parameters that request every change a server announces and these resources; `None` if that is nothing.
pub(crate) fn subscription_params(hello: &ServerInfo, resources: &[String]) -> Option<Params> {
    let lists = [
        ("toolsListChanged", Kind::Tools),
        ("promptsListChanged", Kind::Prompts),
        ("resourcesListChanged", Kind::Resources),
    ];
    let announced =
        lists.into_iter().filter(|(_, kind)| hello.has_capability(kind.list_changed_capability()));
    let mut wanted: Map<String, Value> =
        announced.map(|(member, _)| (member.to_owned(), Value::Bool(true))).collect();
    if !resources.is_empty() {
        wanted.insert("resourceSubscriptions".into(), json!(resources));
    }
    (!wanted.is_empty()).then(|| params(&Value::Object(wanted)))
}

/// Makes the parameters that request nothing.
pub(crate) fn empty_subscription_params() -> Params {
    params(&json!({}))
}

fn params(wanted: &Value) -> Params {
    let text = json!({ "notifications": wanted }).to_string();
    // An object that was just written can be read.
    Params::parse(text.into()).unwrap_or_else(|_| Params::empty())
}

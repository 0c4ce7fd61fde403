//! What a modern server is asked to tell of, and what it agrees to.

use ostler_wire::{Params, ServerInfo};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::ServerNotification;
use crate::lists::Kind;

/// The first thing that a server says because of it.
pub(crate) const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";

/// Which changes a server has agreed to tell of.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NotifiedLists {
    tools_list_changed: bool,
    prompts_list_changed: bool,
    resources_list_changed: bool,
}

/// What a server has agreed to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SubscriptionAck {
    pub(crate) lists: NotifiedLists,
    /// The number of the request, if it is said.
    pub(crate) request_id: Option<u64>,
}

impl NotifiedLists {
    /// Everything that a server announces.
    pub(crate) fn announced(hello: &ServerInfo) -> Self {
        let has = |kind: Kind| hello.has_capability(kind.list_changed_capability());
        Self {
            tools_list_changed: has(Kind::Tools),
            prompts_list_changed: has(Kind::Prompts),
            resources_list_changed: has(Kind::Resources),
        }
    }

    /// Whether changes of this list are told.
    pub(crate) fn includes(self, kind: Kind) -> bool {
        match kind {
            Kind::Tools => self.tools_list_changed,
            Kind::Prompts => self.prompts_list_changed,
            Kind::Resources | Kind::Templates => self.resources_list_changed,
        }
    }

    /// What must be taken for changed after a time in which nothing was heard.
    pub(crate) fn assumed_changes(self) -> impl Iterator<Item = ServerNotification> {
        [Kind::Tools, Kind::Prompts, Kind::Resources]
            .into_iter()
            .filter(move |kind| self.includes(*kind))
            .map(Kind::list_changed)
    }
}

impl SubscriptionAck {
    /// Reads the parameters of an acknowledgement.
    pub(crate) fn parse(params: &[u8]) -> Option<Self> {
        let told: AckParams = serde_json::from_slice(params).ok()?;
        let number = told.meta.subscription.and_then(|id| match id {
            Value::Number(number) => number.as_u64(),
            Value::String(text) => text.parse().ok(),
            _ => None,
        });
        // One that does not say what it has agreed to has agreed to it all.
        let all = NotifiedLists {
            tools_list_changed: true,
            prompts_list_changed: true,
            resources_list_changed: true,
        };
        Some(Self { lists: told.notifications.unwrap_or(all), request_id: number })
    }
}

/// The parameters of an acknowledgement.
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

/// The parameters that ask for every change a server announces and for these
/// resources; `None` if that is nothing.
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

/// The parameters that ask for nothing.
pub(crate) fn empty_subscription_params() -> Params {
    params(&json!({}))
}

fn params(wanted: &Value) -> Params {
    let text = json!({ "notifications": wanted }).to_string();
    // An object that was just written can be read.
    Params::parse(text.into()).unwrap_or_else(|_| Params::empty())
}

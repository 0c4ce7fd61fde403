//! What a modern server is asked to tell of, and what it agrees to.

use ostler_wire::{Hello, Params};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::Event;
use crate::lists::Kind;

/// The first thing that a server says because of it.
pub(crate) const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";

/// Which changes a server has agreed to tell of.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Heard {
    tools_list_changed: bool,
    prompts_list_changed: bool,
    resources_list_changed: bool,
}

/// What a server has agreed to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Agreement {
    pub(crate) heard: Heard,
    /// The number of the request, if it is said.
    pub(crate) number: Option<u64>,
}

impl Heard {
    /// Everything that a server announces.
    pub(crate) fn announced(hello: &Hello) -> Self {
        let has = |kind: Kind| hello.has_capability(kind.announcement());
        Self {
            tools_list_changed: has(Kind::Tools),
            prompts_list_changed: has(Kind::Prompts),
            resources_list_changed: has(Kind::Resources),
        }
    }

    /// Whether changes of this list are told.
    pub(crate) fn tells(self, kind: Kind) -> bool {
        match kind {
            Kind::Tools => self.tools_list_changed,
            Kind::Prompts => self.prompts_list_changed,
            Kind::Resources | Kind::Templates => self.resources_list_changed,
        }
    }

    /// What must be taken for changed after a time in which nothing was heard.
    pub(crate) fn missed(self) -> impl Iterator<Item = Event> {
        [Kind::Tools, Kind::Prompts, Kind::Resources]
            .into_iter()
            .filter(move |kind| self.tells(*kind))
            .map(Kind::change)
    }
}

impl Agreement {
    /// Reads the parameters of an acknowledgement.
    pub(crate) fn parse(params: &[u8]) -> Option<Self> {
        let told: Acknowledged = serde_json::from_slice(params).ok()?;
        let number = told.meta.subscription.and_then(|id| match id {
            Value::Number(number) => number.as_u64(),
            Value::String(text) => text.parse().ok(),
            _ => None,
        });
        // One that does not say what it has agreed to has agreed to it all.
        let all =
            Heard { tools_list_changed: true, prompts_list_changed: true, resources_list_changed: true };
        Some(Self { heard: told.notifications.unwrap_or(all), number })
    }
}

/// The parameters of an acknowledgement.
#[derive(Deserialize)]
struct Acknowledged {
    notifications: Option<Heard>,
    #[serde(default, rename = "_meta")]
    meta: About,
}

#[derive(Default, Deserialize)]
struct About {
    #[serde(rename = "io.modelcontextprotocol/subscriptionId")]
    subscription: Option<Value>,
}

/// The parameters that ask for every change a server announces and for these
/// resources; `None` if that is nothing.
pub(crate) fn wishes(hello: &Hello, resources: &[String]) -> Option<Params> {
    let lists = [
        ("toolsListChanged", Kind::Tools),
        ("promptsListChanged", Kind::Prompts),
        ("resourcesListChanged", Kind::Resources),
    ];
    let announced = lists.into_iter().filter(|(_, kind)| hello.has_capability(kind.announcement()));
    let mut wanted: Map<String, Value> =
        announced.map(|(member, _)| (member.to_owned(), Value::Bool(true))).collect();
    if !resources.is_empty() {
        wanted.insert("resourceSubscriptions".into(), json!(resources));
    }
    (!wanted.is_empty()).then(|| params(&Value::Object(wanted)))
}

/// The parameters that ask for nothing.
pub(crate) fn no_wishes() -> Params {
    params(&json!({}))
}

fn params(wanted: &Value) -> Params {
    let text = json!({ "notifications": wanted }).to_string();
    // An object that was just written can be read.
    Params::parse(text.into()).unwrap_or_else(|_| Params::empty())
}

//! Hearing of changes from a modern server: one request that stays open.

use ostler_wire::{Meta, Params, write_cancelled, write_request};
use serde::Deserialize;
use serde_json::Value;

use super::{Line, MAX_OUTBOX, State};
use crate::lists::Kind;

const METHOD: &str = "subscriptions/listen";

/// Requests for news that may wait for each other's acknowledgement; a server
/// that acknowledges none has the oldest one taken back.
const MAX_OPEN: usize = 4;

/// The requests for news that are open, oldest first. The newest one counts;
/// those before it are taken back as soon as it is acknowledged.
#[derive(Debug, Default)]
pub(super) struct Listening {
    open: Vec<u64>,
    heard: Heard,
}

/// Which changes the server has agreed to tell of.
#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Heard {
    tools_list_changed: bool,
    prompts_list_changed: bool,
    resources_list_changed: bool,
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

impl Line {
    /// Asks for news. What was asked for before goes on until this is acknowledged.
    pub(crate) fn listen(&self, params: &Params) {
        let mut state = self.lock();
        if state.closed.is_some() || state.outbox.len() >= MAX_OUTBOX {
            return;
        }
        let id = state.next_id;
        state.next_id += 1;
        let meta = Meta { session: self.meta.as_ref(), ..Meta::default() };
        write_request(&mut state.outbox, id, METHOD, params, &meta);
        state.listening.open.push(id);
        let surplus = state.listening.open.len().saturating_sub(MAX_OPEN);
        state.take_back_listening(surplus);
        drop(state);
        self.wake.notify_one();
    }

    /// Whether any request for news is open.
    pub(crate) fn is_listening(&self) -> bool {
        !self.lock().listening.open.is_empty()
    }

    /// Whether the server has agreed to tell of changes of a list.
    pub(crate) fn hears(&self, kind: Kind) -> bool {
        let heard = self.lock().listening.heard;
        match kind {
            Kind::Tools => heard.tools_list_changed,
            Kind::Prompts => heard.prompts_list_changed,
            Kind::Resources | Kind::Templates => heard.resources_list_changed,
        }
    }

    /// The server has agreed to tell, so whatever it was asked before may end.
    pub(crate) fn acknowledge(&self, params: &[u8]) {
        let Ok(told) = serde_json::from_slice::<Acknowledged>(params) else { return };
        let number = told.meta.subscription.and_then(|id| match id {
            Value::Number(number) => number.as_u64(),
            Value::String(text) => text.parse().ok(),
            _ => None,
        });
        let mut state = self.lock();
        let open = &state.listening.open;
        let Some(at) = number.map_or(open.len().checked_sub(1), |id| open.iter().position(|it| *it == id))
        else {
            return;
        };
        // One that does not say what it has agreed to has agreed to it all.
        let all =
            Heard { tools_list_changed: true, prompts_list_changed: true, resources_list_changed: true };
        state.listening.heard = told.notifications.unwrap_or(all);
        state.take_back_listening(at);
        drop(state);
        self.wake.notify_one();
    }

    /// The server ends a request for news by itself.
    pub(crate) fn end_listening(&self, number: u64) {
        self.lock().listening.end(number);
    }
}

impl Listening {
    /// A request for news has come to its end, for whatever reason; true if it
    /// was one. Lists are then as good as their server says that they are.
    pub(super) fn end(&mut self, number: u64) -> bool {
        let Some(at) = self.open.iter().position(|open| *open == number) else { return false };
        self.open.remove(at);
        if self.open.is_empty() {
            self.heard = Heard::default();
        }
        true
    }
}

impl State {
    /// Takes the oldest so many requests for news back.
    fn take_back_listening(&mut self, count: usize) {
        for id in self.listening.open.drain(..count) {
            write_cancelled(&mut self.outbox, id, "replaced");
        }
    }
}

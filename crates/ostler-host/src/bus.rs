//! What servers say without being asked, on its way to whoever listens.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use ostler_core::caller::Caller;
use ostler_core::name::ServerName;
use ostler_core::policy::Subject;
use tokio::sync::broadcast;

use crate::host::Host;
use crate::registry::Current;
use crate::upstream::Event;

/// Events that a slow listener may be behind before it loses the oldest.
const BACKLOG: usize = 1_024;

/// An event with more text than this is not told: a listener that is behind
/// must not cost more than 64 MiB.
const MAX_TEXT: usize = 64 << 10;

/// Something that a server has said, and to whom it may be told.
#[derive(Debug, Clone)]
pub struct ServerEvent {
    /// Who said it.
    pub server: ServerName,
    /// Whose session it was; empty where everybody shares one.
    pub partition: Arc<str>,
    /// What it said.
    pub event: Event,
}

/// Where events of all servers of a host meet.
#[derive(Debug)]
pub(crate) struct Bus {
    events: broadcast::Sender<ServerEvent>,
    /// Counts changes of what is known of any list, and of which servers there are.
    lists: AtomicU64,
}

impl Default for Bus {
    fn default() -> Self {
        Self { events: broadcast::Sender::new(BACKLOG), lists: AtomicU64::new(0) }
    }
}

impl Bus {
    /// Tells everybody who listens; nobody listening is no loss.
    pub(crate) fn tell(&self, mut event: ServerEvent) {
        if !self.has_listeners() {
            return;
        }
        if let Some(text) = text_of(&mut event.event) {
            if text.len() > MAX_TEXT {
                tracing::warn!(server = %event.server, bytes = text.len(), "an event was too long to be told");
                return;
            }
            // It is a slice of a read buffer; who is behind would keep the buffer.
            *text = Bytes::copy_from_slice(text);
        }
        // The last listener may have left meanwhile.
        let _ = self.events.send(event);
    }

    /// Whether anybody listens.
    pub(crate) fn has_listeners(&self) -> bool {
        self.events.receiver_count() > 0
    }

    pub(crate) fn version(&self) -> u64 {
        self.lists.load(Ordering::Acquire)
    }

    pub(crate) fn raise_version(&self) {
        self.lists.fetch_add(1, Ordering::AcqRel);
    }
}

fn text_of(event: &mut Event) -> Option<&mut Bytes> {
    match event {
        Event::ResourceUpdated(text) | Event::Log(text) => Some(text),
        Event::Other { params, .. } => params.as_mut(),
        Event::ToolsChanged | Event::ResourcesChanged | Event::PromptsChanged => None,
    }
}

impl Host {
    /// What servers say from now on. A receiver that falls behind by more than
    /// 1,024 events loses the oldest, and is told so by the channel.
    pub fn events(&self) -> broadcast::Receiver<ServerEvent> {
        self.bus().events.subscribe()
    }

    /// Returns whether a caller may hear of an event: it may see the server and use
    /// what the event is about, and the session is everybody's or its own.
    pub fn may_hear(&self, caller: &Caller, event: &ServerEvent) -> bool {
        self.current().may_hear(caller, event)
    }
}

impl Current {
    fn may_hear(&self, caller: &Caller, event: &ServerEvent) -> bool {
        if !self.may_see(caller, &event.server) || !self.may_hear_of(caller, event) {
            return false;
        }
        // Of a server that is gone, whoever could see it may know that it is.
        self.server(event.server.as_str())
            .is_none_or(|server| event.partition.is_empty() || *server.partition(caller) == *event.partition)
    }

    fn may_hear_of(&self, caller: &Caller, event: &ServerEvent) -> bool {
        let about = |subject| self.may(caller, &event.server, Some(subject));
        match &event.event {
            Event::ResourceUpdated(params) => {
                let uri = ostler_wire::text_member(params, "uri").unwrap_or_default();
                about(Subject::Resource(&uri))
            }
            Event::Other { method, .. } => about(Subject::Method(method.as_str())),
            // A line of a session that callers share may be about any of them.
            Event::Log(_) => {
                let server = self.server(event.server.as_str());
                let is_shared = event.partition.is_empty()
                    || server.is_some_and(|server| server.spec.isolation.has_several_callers());
                !is_shared || !self.is_restricted_at(caller, event.server.as_str())
            }
            // What becomes of a list is for everybody who may see a part of it.
            Event::ToolsChanged | Event::ResourcesChanged | Event::PromptsChanged => true,
        }
    }
}

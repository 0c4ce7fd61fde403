//! What servers say without being asked, on its way to whoever listens.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use ostler_core::caller::Caller;
use ostler_core::policy::Subject;
use ostler_core::server_name::ServerName;
use tokio::sync::broadcast;

use crate::host::Host;
use crate::registry::RegistrySnapshot;
use crate::upstream::ServerNotification;

/// Events that a slow listener may be behind before it loses the oldest.
const BACKLOG: usize = 1_024;

/// An event with more text than this is not told: a listener that is behind
/// must not cost more than 64 MiB.
const MAX_TEXT: usize = 64 << 10;

/// Something that a server has said, and to whom it may be told.
#[derive(Debug, Clone)]
pub struct HostNotification {
    /// Who said it.
    pub server: ServerName,
    /// Whose session it was; empty where everybody shares one.
    pub partition: Arc<str>,
    /// What it said.
    pub notification: ServerNotification,
}

/// Where events of all servers of a host meet.
#[derive(Debug)]
pub(crate) struct NotificationBus {
    events: broadcast::Sender<HostNotification>,
    /// Counts changes of what is known of any list, and of which servers there are.
    lists_version: AtomicU64,
}

impl Default for NotificationBus {
    fn default() -> Self {
        Self { events: broadcast::Sender::new(BACKLOG), lists_version: AtomicU64::new(0) }
    }
}

impl NotificationBus {
    /// Tells everybody who listens; nobody listening is no loss.
    pub(crate) fn publish(&self, mut event: HostNotification) {
        if !self.has_listeners() {
            return;
        }
        if let Some(text) = payload_mut(&mut event.notification) {
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

    pub(crate) fn lists_version(&self) -> u64 {
        self.lists_version.load(Ordering::Acquire)
    }

    pub(crate) fn bump_lists_version(&self) {
        self.lists_version.fetch_add(1, Ordering::AcqRel);
    }
}

fn payload_mut(event: &mut ServerNotification) -> Option<&mut Bytes> {
    match event {
        ServerNotification::ResourceUpdated(text) | ServerNotification::Log(text) => Some(text),
        ServerNotification::Other { params, .. } => params.as_mut(),
        ServerNotification::ToolsChanged
        | ServerNotification::ResourcesChanged
        | ServerNotification::PromptsChanged => None,
    }
}

impl Host {
    /// What servers say from now on. A receiver that falls behind by more than
    /// 1,024 events loses the oldest, and is told so by the channel.
    pub fn notifications(&self) -> broadcast::Receiver<HostNotification> {
        self.bus().events.subscribe()
    }

    /// Returns whether a caller may hear of an event: it may see the server and use
    /// what the event is about, and the session is everybody's or its own.
    pub fn may_receive(&self, caller: &Caller, event: &HostNotification) -> bool {
        self.current().may_receive(caller, event)
    }
}

impl RegistrySnapshot {
    fn may_receive(&self, caller: &Caller, event: &HostNotification) -> bool {
        if !self.may_see(caller, &event.server) || !self.may_receive_content(caller, event) {
            return false;
        }
        // Of a server that is gone, whoever could see it may know that it is.
        self.server(event.server.as_str())
            .is_none_or(|server| event.partition.is_empty() || *server.partition(caller) == *event.partition)
    }

    fn may_receive_content(&self, caller: &Caller, event: &HostNotification) -> bool {
        let about = |subject| self.may_use(caller, &event.server, Some(subject));
        match &event.notification {
            ServerNotification::ResourceUpdated(params) => {
                let uri = ostler_wire::text_member(params, "uri").unwrap_or_default();
                about(Subject::Resource(&uri))
            }
            ServerNotification::Other { method, .. } => about(Subject::Method(method.as_str())),
            // A line of a session that callers share may be about any of them.
            ServerNotification::Log(_) => {
                let server = self.server(event.server.as_str());
                let is_shared = event.partition.is_empty()
                    || server.is_some_and(|server| server.spec.isolation.is_shared_by_callers());
                !is_shared || !self.is_restricted_at(caller, event.server.as_str())
            }
            // What becomes of a list is for everybody who may see a part of it.
            ServerNotification::ToolsChanged
            | ServerNotification::ResourcesChanged
            | ServerNotification::PromptsChanged => true,
        }
    }
}

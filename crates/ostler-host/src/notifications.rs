//! Notifications of servers, passed on to listeners.

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

/// Bounds the notifications that a slow listener may be behind before it loses the oldest.
const BACKLOG: usize = 1_024;

/// Largest text of a notification that is passed on: with the backlog, a slow listener costs at most 64 MiB.
const MAX_TEXT: usize = 64 << 10;

/// A notification with its server and partition, which decide who may receive it.
#[derive(Debug, Clone)]
pub struct HostNotification {
    /// Server that sent it.
    pub server: ServerName,
    /// Partition of the session; empty if all callers share one.
    pub partition: Arc<str>,
    /// The notification itself.
    pub notification: ServerNotification,
}

/// Broadcast channel for the notifications of all servers of a host.
#[derive(Debug)]
pub(crate) struct NotificationBus {
    events: broadcast::Sender<HostNotification>,
    /// Counts changes of known lists and of the set of servers.
    lists_version: AtomicU64,
}

impl Default for NotificationBus {
    fn default() -> Self {
        Self { events: broadcast::Sender::new(BACKLOG), lists_version: AtomicU64::new(0) }
    }
}

impl NotificationBus {
    /// Publishes a notification; without listeners it is dropped.
    pub(crate) fn publish(&self, mut event: HostNotification) {
        if !self.has_listeners() {
            return;
        }
        if let Some(text) = payload_mut(&mut event.notification) {
            if text.len() > MAX_TEXT {
                tracing::warn!(server = %event.server, bytes = text.len(), "an event was too long to be told");
                return;
            }
            // The text is a slice of a read buffer, which a slow listener would keep alive.
            *text = Bytes::copy_from_slice(text);
        }
        // The last listener may have left meanwhile.
        let _ = self.events.send(event);
    }

    /// Returns whether there is a listener.
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
    /// Subscribes to the notifications of servers from now on. A receiver that falls behind by more than 1,024
    /// notifications loses the oldest, and the channel reports that to it.
    pub fn notifications(&self) -> broadcast::Receiver<HostNotification> {
        self.bus().events.subscribe()
    }

    /// Returns whether a caller may receive a notification: it may see the server and use the subject, and the session
    /// is shared or its own.
    pub fn may_receive(&self, caller: &Caller, event: &HostNotification) -> bool {
        self.current().may_receive(caller, event)
    }
}

impl RegistrySnapshot {
    fn may_receive(&self, caller: &Caller, event: &HostNotification) -> bool {
        if !self.may_see(caller, &event.server) || !self.may_receive_content(caller, event) {
            return false;
        }
        // A caller that could see a removed server may learn that it is gone.
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
            // A log line of a shared session may be about any caller.
            ServerNotification::Log(_) => {
                let server = self.server(event.server.as_str());
                let is_shared = event.partition.is_empty()
                    || server.is_some_and(|server| server.spec.isolation.is_shared_by_callers());
                !is_shared || !self.is_restricted_at(caller, event.server.as_str())
            }
            // A list change concerns every caller that may see a part of the list.
            ServerNotification::ToolsChanged
            | ServerNotification::ResourcesChanged
            | ServerNotification::PromptsChanged => true,
        }
    }
}

//! Server notifications, distributed to listens and sessions.

use std::cell::LazyCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use ostler_core::rate_limit::Coalescer;
use ostler_core::server_name::ServerName;
use ostler_host::upstream::ServerNotification;
use ostler_host::{Host, HostNotification, Kind, LogLevel};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{self, Receiver, Sender};
use tokio::time::Instant;

use crate::client_session::ClientSession;
use crate::gateway::GatewayShared;
use ostler_host::Scope;

/// Events that a listener may lag behind before it loses the oldest.
const BACKLOG: usize = 256;

/// Number of lists above which those without a pending change are dropped.
const MAX_TRACKED_LISTS: usize = 1_024;

/// Minimum time between two change notifications of one list.
const COALESCE_INTERVAL: Duration = Duration::from_secs(1);

/// Event source for listens of modern clients, and the sessions that are not in the HTTP session table.
#[derive(Debug)]
pub(crate) struct ClientNotifications {
    listeners: Sender<ListenEvent>,
    stream_sessions: Mutex<Vec<Weak<ClientSession>>>,
}

/// Event for a listener.
#[derive(Debug, Clone)]
pub(crate) enum ListenEvent {
    /// A server has sent a notification.
    FromServer(Arc<HostNotification>),
    /// Some events are lost, so everything may have changed.
    Lost,
}

impl ClientNotifications {
    pub(crate) fn new() -> Self {
        Self { listeners: broadcast::Sender::new(BACKLOG), stream_sessions: Mutex::default() }
    }

    /// Adds a session over stdio, which receives events as long as it lives.
    pub(crate) fn add_session(&self, session: &Arc<ClientSession>) {
        let mut lines = self.stream_sessions();
        lines.retain(|line| line.strong_count() > 0);
        lines.push(Arc::downgrade(session));
    }

    fn stream_sessions(&self) -> MutexGuard<'_, Vec<Weak<ClientSession>>> {
        self.stream_sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn subscribe(&self) -> Receiver<ListenEvent> {
        self.listeners.subscribe()
    }
}

/// Starts the task that distributes the events of a gateway's host.
pub(crate) fn spawn_event_task(gateway: &Arc<GatewayShared>) {
    tokio::spawn(forward_events(Arc::downgrade(gateway), gateway.host.clone()));
}

/// Coalescer of list changes: at most one notification per list and second, none lost.
#[derive(Debug, Default)]
struct ListChangeCoalescer(HashMap<(ServerName, Arc<str>, u8), (Coalescer, HostNotification)>);

impl ListChangeCoalescer {
    /// Returns whether an event passes now.
    fn admit(&mut self, event: &HostNotification, now: Instant) -> bool {
        let Some(kind) = changed_list(&event.notification) else { return true };
        let key = (event.server.clone(), Arc::clone(&event.partition), kind);
        let (coalescer, _) =
            self.0.entry(key).or_insert_with(|| (Coalescer::new(COALESCE_INTERVAL), event.clone()));
        coalescer.on_event(now.into_std())
    }

    fn next_wake(&self) -> Option<Instant> {
        self.0.values().filter_map(|(coalescer, _)| coalescer.next_wake()).min().map(Instant::from_std)
    }

    fn due(&mut self, now: Instant) -> Vec<HostNotification> {
        if self.0.len() > MAX_TRACKED_LISTS {
            self.0.retain(|_, (coalescer, _)| coalescer.next_wake().is_some());
        }
        let due = self
            .0
            .values_mut()
            .filter_map(|(coalescer, event)| coalescer.on_wake(now.into_std()).then(|| event.clone()));
        due.collect()
    }
}

fn changed_list(event: &ServerNotification) -> Option<u8> {
    match event {
        ServerNotification::ToolsChanged => Some(0),
        ServerNotification::PromptsChanged => Some(1),
        ServerNotification::ResourcesChanged => Some(2),
        ServerNotification::ResourceUpdated(_)
        | ServerNotification::Log(_)
        | ServerNotification::Other { .. } => None,
    }
}

async fn forward_events(gateway: Weak<GatewayShared>, host: Host) {
    let mut events = host.notifications();
    // The task must not keep the host alive.
    drop(host);
    let mut calm = ListChangeCoalescer::default();
    loop {
        let wake = calm.next_wake();
        let received = tokio::select! {
            received = events.recv() => Some(received),
            () = sleep_until(wake) => None,
        };
        let Some(gateway) = gateway.upgrade() else { return };
        match received {
            None => calm.due(Instant::now()).into_iter().for_each(|event| broadcast_event(&gateway, event)),
            Some(Ok(event)) if calm.admit(&event, Instant::now()) => broadcast_event(&gateway, event),
            Some(Ok(_)) => {}
            Some(Err(RecvError::Lagged(_))) => broadcast_lost(&gateway),
            Some(Err(RecvError::Closed)) => return,
        }
    }
}

async fn sleep_until(wake: Option<Instant>) {
    match wake {
        Some(wake) => tokio::time::sleep_until(wake).await,
        None => std::future::pending().await,
    }
}

fn for_each_session(gateway: &GatewayShared, tell: impl Fn(&Arc<ClientSession>)) {
    gateway.sessions.for_each(&tell);
    let lines: Vec<Weak<ClientSession>> = gateway.notifications.stream_sessions().clone();
    lines.iter().filter_map(Weak::upgrade).for_each(|session| tell(&session));
}

/// Announces every possible change, after events were lost.
fn broadcast_lost(gateway: &GatewayShared) {
    let lists = [
        ServerNotification::ToolsChanged,
        ServerNotification::PromptsChanged,
        ServerNotification::ResourcesChanged,
    ];
    let frame =
        |event: &ServerNotification| gateway.sessions.retained.counted_frame(notification_frame(event, None));
    let lists = lists.map(|event| frame(&event));
    let is_scarce = gateway.sessions.retained.is_over_limit();
    for_each_session(gateway, |session| {
        lists.iter().for_each(|list| session.streams.push(list.clone(), is_scarce));
        for (server, uri) in gateway.subscriptions.resources_of(session.id()) {
            // The rules may have changed since the session subscribed.
            if gateway.host.may_use(session.caller(), server.as_str(), Kind::Resources, &uri) {
                session.streams.push(frame(&resource_updated(&uri)), is_scarce);
            }
        }
    });
    gateway.sessions.discard_excess(None);
    let _ = gateway.notifications.listeners.send(ListenEvent::Lost);
}

/// Returns the notification of one changed resource.
pub(crate) fn resource_updated(uri: &str) -> ServerNotification {
    let mut params = b"{\"uri\":".to_vec();
    ostler_wire::push_json_string(&mut params, uri);
    params.push(b'}');
    ServerNotification::ResourceUpdated(params.into())
}

/// Sends an event to every session that should receive it, as one shared frame.
fn broadcast_event(gateway: &GatewayShared, event: HostNotification) {
    let kept = &gateway.sessions.retained;
    let is_scarce = kept.is_over_limit();
    let frame = LazyCell::new(|| kept.counted_frame(notification_frame(&event.notification, None)));
    for_each_session(gateway, |session| {
        if should_receive(gateway, session, &event) == Some(true) {
            session.streams.push(frame.clone(), is_scarce);
        }
    });
    drop(frame);
    gateway.sessions.discard_excess(None);
    let _ = gateway.notifications.listeners.send(ListenEvent::FromServer(Arc::new(event)));
}

/// Returns whether a legacy session receives an event; an event that can't be parsed goes to none.
fn should_receive(
    gateway: &GatewayShared,
    session: &ClientSession,
    event: &HostNotification,
) -> Option<bool> {
    let is_here = match session.scope() {
        Scope::All => true,
        Scope::Server(server) => *server == event.server,
    };
    if !is_here || !gateway.host.may_receive(session.caller(), event) {
        return None;
    }
    Some(match &event.notification {
        ServerNotification::ResourceUpdated(params) => {
            let uri = ostler_wire::text_member(params, "uri")?;
            gateway.subscriptions.is_subscribed(session.id(), &event.server, &uri)
        }
        // Log lines that belong to no call go only to sessions that set a level.
        ServerNotification::Log(params) => {
            let wanted = LogLevel::parse(&session.log_level()?)?;
            LogLevel::parse(&ostler_wire::text_member(params, "level")?)? >= wanted
        }
        // Notifications of a task go only to the caller that created it.
        ServerNotification::Other { method, .. } => {
            *session.scope() != Scope::All && !method.as_str().starts_with("notifications/tasks")
        }
        ServerNotification::ToolsChanged
        | ServerNotification::PromptsChanged
        | ServerNotification::ResourcesChanged => true,
    })
}

/// Returns the notification frame of an event, with the id of a listen if there is one.
pub(crate) fn notification_frame(event: &ServerNotification, listen: Option<&[u8]>) -> Vec<u8> {
    let (method, params) = match event {
        ServerNotification::ToolsChanged => ("notifications/tools/list_changed", None),
        ServerNotification::PromptsChanged => ("notifications/prompts/list_changed", None),
        ServerNotification::ResourcesChanged => ("notifications/resources/list_changed", None),
        ServerNotification::ResourceUpdated(params) => {
            ("notifications/resources/updated", Some(params.clone()))
        }
        ServerNotification::Log(params) => ("notifications/message", Some(params.clone())),
        ServerNotification::Other { method, params } => (method.as_str(), params.clone()),
    };
    let params = match listen {
        None => params,
        Some(id) => Some(super::listen::with_subscription_id(params.as_deref().unwrap_or(b"{}"), id)),
    };
    let mut frame = Vec::with_capacity(method.len() + params.as_ref().map_or(0, Bytes::len) + 48);
    ostler_wire::write_notification(&mut frame, method, params.as_deref());
    frame.pop();
    frame
}

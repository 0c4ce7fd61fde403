//! What servers say without being asked, carried to listens and sessions.

use std::cell::LazyCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use ostler_core::meter::Coalescer;
use ostler_core::name::ServerName;
use ostler_host::upstream::Event;
use ostler_host::{Host, Kind, LogLevel, ServerEvent};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{self, Receiver, Sender};
use tokio::time::Instant;

use crate::gateway::Shared;
use crate::session::Session;
use ostler_host::Scope;

/// Events that a listener may be behind before it loses the oldest.
const BACKLOG: usize = 256;

/// Lists beyond this many are forgotten once they are calm.
const MANY: usize = 1_024;

/// A list may change this often for those who listen.
const CALM: Duration = Duration::from_secs(1);

/// Where listens of modern clients get their events, and which sessions are
/// not among those over HTTP.
#[derive(Debug)]
pub(crate) struct Hub {
    listens: Sender<Told>,
    lines: Mutex<Vec<Weak<Session>>>,
}

/// What listeners are told.
#[derive(Debug, Clone)]
pub(crate) enum Told {
    /// A server has said something.
    Said(Arc<ServerEvent>),
    /// Some events are lost: everything may have changed.
    Lost,
}

impl Hub {
    pub(crate) fn new() -> Self {
        Self { listens: broadcast::Sender::new(BACKLOG), lines: Mutex::default() }
    }

    /// A session over a stream, which hears of events as long as it lives.
    pub(crate) fn join(&self, session: &Arc<Session>) {
        let mut lines = self.lines();
        lines.retain(|line| line.strong_count() > 0);
        lines.push(Arc::downgrade(session));
    }

    fn lines(&self) -> MutexGuard<'_, Vec<Weak<Session>>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn listen(&self) -> Receiver<Told> {
        self.listens.subscribe()
    }
}

/// Starts the task that carries the events of a gateway's host.
pub(crate) fn follow_events(gateway: &Arc<Shared>) {
    tokio::spawn(follow(Arc::downgrade(gateway), gateway.host.clone()));
}

/// One announced change per list and second, none lost.
#[derive(Debug, Default)]
struct Calm(HashMap<(ServerName, Arc<str>, u8), (Coalescer, ServerEvent)>);

impl Calm {
    /// Whether an event passes now.
    fn admit(&mut self, event: &ServerEvent, now: Instant) -> bool {
        let Some(kind) = list_of(&event.event) else { return true };
        let key = (event.server.clone(), Arc::clone(&event.partition), kind);
        let (coalescer, _) = self.0.entry(key).or_insert_with(|| (Coalescer::new(CALM), event.clone()));
        coalescer.on_event(now.into_std())
    }

    fn next_wake(&self) -> Option<Instant> {
        self.0.values().filter_map(|(coalescer, _)| coalescer.next_wake()).min().map(Instant::from_std)
    }

    fn due(&mut self, now: Instant) -> Vec<ServerEvent> {
        if self.0.len() > MANY {
            self.0.retain(|_, (coalescer, _)| coalescer.next_wake().is_some());
        }
        let due = self
            .0
            .values_mut()
            .filter_map(|(coalescer, event)| coalescer.on_wake(now.into_std()).then(|| event.clone()));
        due.collect()
    }
}

fn list_of(event: &Event) -> Option<u8> {
    match event {
        Event::ToolsChanged => Some(0),
        Event::PromptsChanged => Some(1),
        Event::ResourcesChanged => Some(2),
        Event::ResourceUpdated(_) | Event::Log(_) | Event::Other { .. } => None,
    }
}

async fn follow(gateway: Weak<Shared>, host: Host) {
    let mut events = host.events();
    // The task must not keep the host alive.
    drop(host);
    let mut calm = Calm::default();
    loop {
        let wake = calm.next_wake();
        let received = tokio::select! {
            received = events.recv() => Some(received),
            () = at(wake) => None,
        };
        let Some(gateway) = gateway.upgrade() else { return };
        match received {
            None => calm.due(Instant::now()).into_iter().for_each(|event| tell(&gateway, event)),
            Some(Ok(event)) if calm.admit(&event, Instant::now()) => tell(&gateway, event),
            Some(Ok(_)) => {}
            Some(Err(RecvError::Lagged(_))) => tell_lost(&gateway),
            Some(Err(RecvError::Closed)) => return,
        }
    }
}

async fn at(wake: Option<Instant>) {
    match wake {
        Some(wake) => tokio::time::sleep_until(wake).await,
        None => std::future::pending().await,
    }
}

fn each_session(gateway: &Shared, tell: impl Fn(&Arc<Session>)) {
    gateway.sessions.each(&tell);
    let lines: Vec<Weak<Session>> = gateway.hub.lines().clone();
    lines.iter().filter_map(Weak::upgrade).for_each(|session| tell(&session));
}

/// Some events are lost, so all that may have happened is said to have happened.
fn tell_lost(gateway: &Shared) {
    let lists = [Event::ToolsChanged, Event::PromptsChanged, Event::ResourcesChanged];
    let frame = |event: &Event| gateway.sessions.kept.frame(notification(event, None));
    let lists = lists.map(|event| frame(&event));
    let is_scarce = gateway.sessions.kept.is_too_much();
    each_session(gateway, |session| {
        lists.iter().for_each(|list| session.streams.push(list.clone(), is_scarce));
        for (server, uri) in gateway.subscriptions.of(session.id()) {
            // The rules may be others than when it subscribed.
            if gateway.host.may_use(session.caller(), server.as_str(), Kind::Resources, &uri) {
                session.streams.push(frame(&updated(&uri)), is_scarce);
            }
        }
    });
    gateway.sessions.make_room(None);
    let _ = gateway.hub.listens.send(Told::Lost);
}

/// The event of one changed resource.
pub(crate) fn updated(uri: &str) -> Event {
    let mut params = b"{\"uri\":".to_vec();
    ostler_wire::push_text(&mut params, uri);
    params.push(b'}');
    Event::ResourceUpdated(params.into())
}

/// Tells every session that is to hear of an event: one frame, however many they are.
fn tell(gateway: &Shared, event: ServerEvent) {
    let kept = &gateway.sessions.kept;
    let is_scarce = kept.is_too_much();
    let frame = LazyCell::new(|| kept.frame(notification(&event.event, None)));
    each_session(gateway, |session| {
        if is_for(gateway, session, &event) == Some(true) {
            session.streams.push(frame.clone(), is_scarce);
        }
    });
    drop(frame);
    gateway.sessions.make_room(None);
    let _ = gateway.hub.listens.send(Told::Said(Arc::new(event)));
}

/// Whether a legacy session is told of an event; what can't be read is for none.
fn is_for(gateway: &Shared, session: &Session, event: &ServerEvent) -> Option<bool> {
    let is_here = match session.scope() {
        Scope::All => true,
        Scope::Server(server) => *server == event.server,
    };
    if !is_here || !gateway.host.may_hear(session.caller(), event) {
        return None;
    }
    Some(match &event.event {
        Event::ResourceUpdated(params) => {
            let uri = ostler_wire::text_member(params, "uri")?;
            gateway.subscriptions.wants(session.id(), &event.server, &uri)
        }
        // Lines that belong to no call go only to sessions that set a level.
        Event::Log(params) => {
            let wanted = LogLevel::parse(&session.log_level()?)?;
            LogLevel::parse(&ostler_wire::text_member(params, "level")?)? >= wanted
        }
        // What becomes of a task is its maker's business.
        Event::Other { method, .. } => {
            *session.scope() != Scope::All && !method.as_str().starts_with("notifications/tasks")
        }
        Event::ToolsChanged | Event::PromptsChanged | Event::ResourcesChanged => true,
    })
}

/// The notification of an event; with the id of a listen, it says so.
pub(crate) fn notification(event: &Event, listen: Option<&[u8]>) -> Vec<u8> {
    let (method, params) = match event {
        Event::ToolsChanged => ("notifications/tools/list_changed", None),
        Event::PromptsChanged => ("notifications/prompts/list_changed", None),
        Event::ResourcesChanged => ("notifications/resources/list_changed", None),
        Event::ResourceUpdated(params) => ("notifications/resources/updated", Some(params.clone())),
        Event::Log(params) => ("notifications/message", Some(params.clone())),
        Event::Other { method, params } => (method.as_str(), params.clone()),
    };
    let params = match listen {
        None => params,
        Some(id) => Some(super::listen::stamped(params.as_deref().unwrap_or(b"{}"), id)),
    };
    let mut frame = Vec::with_capacity(method.len() + params.as_ref().map_or(0, Bytes::len) + 48);
    ostler_wire::write_notification(&mut frame, method, params.as_deref());
    frame.pop();
    frame
}

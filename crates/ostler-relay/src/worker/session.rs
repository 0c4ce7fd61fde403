//! A session with a server elsewhere.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use ostler_core::fault::{Delivery, Fault, FaultKind};
use ostler_core::name::ServerName;
use ostler_core::supervisor::Failure;
use ostler_host::Kind;
use ostler_host::upstream::{Ask, BoxFuture, ClientMeta, Event, Events, Force, Session, Vitals};
use ostler_wire::{Hello, Message, Meta, MetaKey, Outcome};
use tokio::sync::watch;
use tokio::time::Instant;

use super::exchange::{Letter, Sending};
use super::pending::Times;
use super::table::Entry;
use super::{Core, Worker, manifest};
use crate::envelope::CallHead;

/// What a call gets beyond the host's own time: its answer that the time is
/// over says more than ours.
pub(super) const SLACK: Duration = Duration::from_secs(2);

/// A session with a server elsewhere. It ends when it is closed and never by
/// itself.
pub(super) struct RelaySession {
    worker: Worker,
    server: ServerName,
    number: u64,
    hello: Hello,
    events: Events,
    closed: watch::Sender<bool>,
}

/// The sessions that hear of changes. There are as many as the host above has,
/// which forgets those that it has closed.
#[derive(Default)]
pub(super) struct Sessions(Mutex<Vec<Weak<RelaySession>>>);

impl Sessions {
    pub(super) fn add(&self, session: &Arc<RelaySession>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|session| session.strong_count() > 0);
        all.push(Arc::downgrade(session));
    }

    /// Tells the sessions of servers that something of them has changed.
    pub(super) fn tell(&self, event: &Event, is_changed: impl Fn(&str) -> bool) {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let living = all.iter().filter_map(Weak::upgrade);
        living
            .filter(|session| is_changed(session.server.as_str()))
            .for_each(|session| (session.events)(event.clone()));
    }
}

impl RelaySession {
    pub(super) fn begin(worker: Worker, server: ServerName, hello: Hello, events: Events) -> Arc<Self> {
        let number = worker.core().number();
        let session =
            Arc::new(Self { worker, server, number, hello, events, closed: watch::Sender::new(false) });
        session.core().sessions.add(&session);
        session
    }

    fn core(&self) -> &Arc<Core> {
        self.worker.core()
    }

    async fn exchange(&self, ask: Ask<'_>) -> Result<Outcome, Fault> {
        match ask.method {
            // Whether the server elsewhere is well is for its own host to find
            // out; all that can be missing here is the way to it.
            "server/discover" | "ping" => return Ok(Outcome::Result(self.discovered())),
            "tools/list" => return self.core().listed_tools(self.server.as_str(), ask.until).await,
            _ => {}
        }
        let mut closed = self.closed.subscribe();
        tokio::select! {
            biased;
            outcome = self.relay(&ask) => outcome,
            // What has left is ended by the table; this is what has not.
            _ = closed.wait_for(|is_closed| *is_closed) => Err(Fault::not_sent(FaultKind::Retired)),
        }
    }

    async fn relay(&self, ask: &Ask<'_>) -> Result<Outcome, Fault> {
        let core = self.core();
        let subject = core.subjects.call(&core.role, &core.name);
        let (call, number) = (core.call_id(ask.idempotency_key), core.number());
        let began = Instant::now();
        let times =
            Times { began, until: ask.until, at_most: ask.at_most, patience: self.patience(ask, began) };
        let entry =
            Entry { subject: subject.clone(), times, session: Some(self.number), voice: ask.voice.cloned() };
        let ticket = core.table.enter(call, entry)?;
        let (version, trace) = (core.manifest_version(), trace(ask));
        let headers = |sending: Sending| {
            CallHead {
                call,
                instance: core.instance,
                server: self.server.clone(),
                begin_by: core.host_time(sending.begin_by, sending.ahead),
                deadline: core.host_time(ask.at_most, sending.ahead),
                manifest: version.clone(),
                trace: trace.clone(),
            }
            .headers()
        };
        let letter = Letter {
            call,
            subject: &subject,
            body: self.body(ask, number).into(),
            headers: &headers,
            until: ask.until,
            is_fit: ask.is_fit,
        };
        read(core.carry(&ticket, &letter).await?)
    }

    /// What a call gets after progress: as much as the server gives it.
    fn patience(&self, ask: &Ask<'_>, now: Instant) -> Duration {
        let listed = self.core().manifest.borrow().clone();
        let listed = listed.as_deref().and_then(|manifest| manifest::find(manifest, self.server.as_str()));
        match listed {
            Some(listed) => Duration::from_millis(listed.call_timeout).saturating_add(SLACK),
            None => ask.until.saturating_duration_since(now),
        }
    }

    /// The request as it is carried, under our number.
    fn body(&self, ask: &Ask<'_>, number: u64) -> Vec<u8> {
        let session = match ask.client {
            ClientMeta::Host => self.hello.session_meta.as_ref(),
            ClientMeta::Session(client) => Some(client),
            ClientMeta::Own => None,
        };
        let meta = Meta {
            session,
            idempotency_key: ask.idempotency_key,
            progress_token: ask.voice.filter(|voice| voice.wants_progress()).map(|_| number),
            is_legacy: false,
        };
        let mut body = Vec::new();
        ostler_wire::write_request(&mut body, number, ask.method, ask.params, &meta);
        // A message of its own needs no end of line.
        body.pop();
        body
    }

    /// What the server says of itself, as far as anybody here knows.
    fn discovered(&self) -> Bytes {
        let mut out = br#"{"resultType":"complete","supportedVersions":[""#.to_vec();
        out.extend_from_slice(self.hello.version.as_bytes());
        out.extend_from_slice(br#""],"capabilities":"#);
        out.extend_from_slice(&self.hello.capabilities);
        out.push(b'}');
        out.into()
    }
}

/// The trace that a call belongs to, if it can stand in a header.
fn trace(ask: &Ask<'_>) -> Option<String> {
    let raw = ask.params.meta_entry(MetaKey::Traceparent)?;
    let text: String = serde_json::from_slice(raw).ok()?;
    (text.len() <= 128 && text.bytes().all(|byte| byte.is_ascii_graphic())).then_some(text)
}

/// The outcome in a response.
fn read(body: Bytes) -> Result<Outcome, Fault> {
    let unusable = |why: String| Fault { delivery: Delivery::Answered, kind: FaultKind::Malformed(why) };
    match Message::parse(body) {
        // The subject says whose answer it is. Its id may be another one: that
        // of the attempt which was carried out.
        Ok(Message::Response { outcome, .. }) => Ok(outcome),
        Ok(_) => Err(unusable("the answer is no response".into())),
        Err(error) => Err(unusable(error.to_string())),
    }
}

impl Session for RelaySession {
    fn hello(&self) -> &Hello {
        &self.hello
    }

    fn request<'a>(&'a self, ask: Ask<'a>) -> BoxFuture<'a, Result<Outcome, Fault>> {
        Box::pin(self.exchange(ask))
    }

    fn hears_changes(&self, _kind: Kind) -> bool {
        true
    }

    fn ended(&self) -> BoxFuture<'_, Failure> {
        Box::pin(std::future::pending())
    }

    fn close(&self, _force: Force) -> BoxFuture<'_, ()> {
        self.core().table.end_session(self.number);
        self.closed.send_replace(true);
        Box::pin(std::future::ready(()))
    }

    fn vitals(&self) -> Vitals {
        Vitals::default()
    }

    /// It is always well: see [`Self::exchange`].
    fn signs(&self) -> (Option<Instant>, Option<Instant>) {
        (Some(Instant::now()), None)
    }
}

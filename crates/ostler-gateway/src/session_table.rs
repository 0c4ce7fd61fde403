//! Session table: sessions of legacy clients over HTTP, bounded and expired by one timer.

use std::cmp::Reverse;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use hashbrown::{HashMap, HashSet};
use ostler_core::caller::Caller;
use tokio::time::Instant;

use self::eviction::EvictionQueue;
use crate::client_request::GatewayReply;
use crate::client_session::ClientSession;
use crate::dispatch;
use crate::frame_queue::FrameQueue;
use crate::gateway::{Gateway, GatewayShared};
use crate::initialize_params::InitializeParams;
use crate::retained_bytes::RetainedBytes;

mod eviction;

/// Sweeps per idle timeout; an expired session is removed at most one interval later.
const SWEEPS_PER_IDLE_TIMEOUT: u32 = 16;

/// Minimum interval between two sweeps.
const MIN_SWEEP_INTERVAL: Duration = Duration::from_millis(10);

/// Unused owner names and `initialize` parameters that are kept between two sweeps, beyond the number of sessions:
/// enough that not every new session scans them.
const MAX_UNUSED: usize = 64;

/// Sessions of legacy clients over HTTP, by their random ids. An abandoned one is a map entry and some text: no task,
/// no timer, no descriptor. One sweep for all of them runs as long as there are any.
#[derive(Debug)]
pub(crate) struct SessionTable {
    max: usize,
    idle: Duration,
    start: Instant,
    /// Answers and notifications that wait for clients.
    pub(crate) retained: RetainedBytes,
    state: Mutex<SessionTableState>,
}

#[derive(Debug, Default)]
struct SessionTableState {
    sessions: HashMap<u128, OwnedSession>,
    /// Names of principals that have sessions, or had some at the last sweep.
    owners: HashSet<Arc<str>>,
    /// `initialize` parameters of the clients, each stored once.
    initialize_params: HashSet<Arc<InitializeParams>>,
    eviction: EvictionQueue,
    is_swept: bool,
}

/// Session and its owner. All sessions of one principal share its name, so that the reference count of the name is
/// their number.
#[derive(Debug)]
struct OwnedSession {
    session: Arc<ClientSession>,
    owner: Arc<str>,
}

/// Error: all sessions are in use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SessionTableFull;

impl SessionTable {
    pub(crate) fn new(max: usize, idle: Duration) -> Self {
        Self { max, idle, start: Instant::now(), retained: RetainedBytes::default(), state: Mutex::default() }
    }

    /// Returns the time in milliseconds on the clock of all sessions.
    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Returns the number of sessions.
    pub(crate) fn len(&self) -> usize {
        self.lock().sessions.len()
    }

    /// Returns the session with this id, if it is open.
    pub(crate) fn find(&self, id: &str) -> Option<Arc<ClientSession>> {
        let key = parse_session_id(id)?;
        self.lock().sessions.get(&key).map(|owned| Arc::clone(&owned.session))
    }

    /// Calls `visit` for every session.
    pub(crate) fn for_each(&self, visit: impl FnMut(&Arc<ClientSession>)) {
        // Collected first: `visit` takes other locks.
        let all: Vec<Arc<ClientSession>> = {
            let open = self.lock();
            open.sessions.values().map(|owned| Arc::clone(&owned.session)).collect()
        };
        all.iter().for_each(visit);
    }

    /// Returns the shared copy of a client's `initialize` parameters.
    pub(crate) fn intern(&self, said: InitializeParams) -> Arc<InitializeParams> {
        let mut open = self.lock();
        if let Some(known) = open.initialize_params.get(&said) {
            return Arc::clone(known);
        }
        // Parameters of clients that left between two sweeps must not accumulate.
        if open.initialize_params.len() > open.sessions.len() + MAX_UNUSED {
            open.prune_initialize_params();
        }
        let said = Arc::new(said);
        open.initialize_params.insert(Arc::clone(&said));
        said
    }

    /// Adds a session whose id is one of [`random_session_id`]. If the table is full, evicts the longest idle session
    /// of the principal with the most sessions, so that no principal can evict the sessions of one with fewer.
    pub(crate) fn add(
        &self,
        gateway: &Gateway,
        session: &Arc<ClientSession>,
    ) -> Result<(), SessionTableFull> {
        let Some(key) = parse_session_id(session.id()) else { return Err(SessionTableFull) };
        session.mark_used(self.now());
        let evicted = {
            let mut open = self.lock();
            let owner = open.owner(session.caller().principal());
            let evicted = open.evict_for(self.max, &owner)?;
            open.sessions.insert(key, OwnedSession { session: Arc::clone(session), owner });
            if !open.is_swept {
                open.is_swept = true;
                tokio::spawn(sweep(Arc::downgrade(&gateway.0), self.sweep_interval()));
            }
            evicted
        };
        if let Some(evicted) = evicted {
            end_session(gateway, &evicted);
        }
        Ok(())
    }

    /// Ends a session; false if it is not open.
    pub(crate) fn remove(&self, gateway: &Gateway, id: &str) -> bool {
        let removed = parse_session_id(id).and_then(|key| self.lock().sessions.remove(&key));
        let Some(OwnedSession { session, .. }) = removed else { return false };
        end_session(gateway, &session);
        true
    }

    /// Ends every session whose caller has ended; returns their number.
    pub(crate) fn end_sessions_of(&self, gateway: &Gateway, is_over: impl Fn(&Caller) -> bool) -> usize {
        let ended: Vec<Arc<ClientSession>> = {
            let mut open = self.lock();
            let is_over = |session: &ClientSession| is_over(session.caller());
            open.extract(is_over)
        };
        // Ended outside the lock: that takes other locks.
        for session in &ended {
            session.requests.answer_all(|id| GatewayReply::credential_revoked().frame(Some(id)));
            end_session(gateway, session);
        }
        ended.len()
    }

    /// Counts the answer of a stream that may be resumed.
    pub(crate) fn retain_answer(&self, session: &ClientSession, stream: &Arc<FrameQueue>) {
        session.streams.retain(stream, &self.retained);
        self.discard_excess(Some(stream));
    }

    /// Discards retained bytes above the limit, oldest first, of the caller with the most. A discarded answer can't be
    /// resumed, but a connected client still reads it to its end; `newest` stays.
    pub(crate) fn discard_excess(&self, newest: Option<&Arc<FrameQueue>>) {
        if !self.retained.is_over_limit() {
            return;
        }
        let mut counted = Vec::new();
        self.for_each(|session| {
            let of_it = session.streams.retained().into_iter();
            counted.extend(of_it.map(|(since, queue)| (since, Arc::clone(session), queue)));
        });
        counted.sort_by_key(|(since, ..)| Reverse(*since));
        // From the newest on, so that each is ranked by the bytes that its caller has left when it goes.
        let mut held = HashMap::<&str, usize>::new();
        let mut ranked = Vec::with_capacity(counted.len());
        for (since, session, queue) in &counted {
            let of_caller = held.entry(session.caller().principal()).or_default();
            *of_caller += queue.size();
            ranked.push((Reverse(*of_caller), *since, session, queue));
        }
        ranked.sort_by_key(|(held, since, ..)| (*held, *since));
        for (_, _, session, queue) in ranked {
            if self.retained.is_below_target() {
                return;
            }
            if !newest.is_some_and(|newest| Arc::ptr_eq(newest, queue)) {
                session.streams.discard(queue);
            }
        }
    }

    fn sweep_interval(&self) -> Duration {
        (self.idle / SWEEPS_PER_IDLE_TIMEOUT).max(MIN_SWEEP_INTERVAL)
    }

    /// Removes expired sessions and returns them. `None` if no session is left.
    fn remove_expired(&self) -> Option<Vec<Arc<ClientSession>>> {
        let now = self.now();
        let idle = u64::try_from(self.idle.as_millis()).unwrap_or(u64::MAX);
        let mut open = self.lock();
        if open.sessions.is_empty() {
            *open = SessionTableState::default();
            return None;
        }
        let is_over = |session: &ClientSession| {
            session.idle_since().is_some_and(|since| now.saturating_sub(since) >= idle)
        };
        let expired = open.extract(is_over);
        open.prune_owners();
        open.prune_initialize_params();
        open.eviction = EvictionQueue::default();
        let moment = Instant::now();
        for owned in open.sessions.values() {
            owned.session.streams.discard_abandoned(moment);
        }
        Some(expired)
    }

    fn lock(&self) -> MutexGuard<'_, SessionTableState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SessionTableState {
    /// Returns the shared name of a principal.
    fn owner(&mut self, principal: &str) -> Arc<str> {
        if let Some(owner) = self.owners.get(principal) {
            return Arc::clone(owner);
        }
        // Names of principals that left between two sweeps must not accumulate.
        if self.owners.len() > self.sessions.len() + MAX_UNUSED {
            self.prune_owners();
        }
        let owner: Arc<str> = principal.into();
        self.owners.insert(Arc::clone(&owner));
        owner
    }

    fn prune_owners(&mut self) {
        self.owners.retain(|owner| Arc::strong_count(owner) > 1);
    }

    fn prune_initialize_params(&mut self) {
        self.initialize_params.retain(|said| Arc::strong_count(said) > 1);
    }

    /// Evicts a session for one of `newcomer`, which counts as its owner already; returns the evicted session.
    fn evict_for(
        &mut self,
        max: usize,
        newcomer: &Arc<str>,
    ) -> Result<Option<Arc<ClientSession>>, SessionTableFull> {
        if self.sessions.len() < max {
            self.eviction.note_added(newcomer);
            return Ok(None);
        }
        let key = self.eviction.choose(&self.sessions, newcomer).ok_or(SessionTableFull)?;
        Ok(self.sessions.remove(&key).map(|owned| owned.session))
    }

    fn extract(&mut self, is_over: impl Fn(&ClientSession) -> bool) -> Vec<Arc<ClientSession>> {
        let out = self.sessions.extract_if(|_, owned| is_over(&owned.session));
        out.map(|(_, owned)| owned.session).collect()
    }
}

/// Runs the one timer of all sessions. It ends with the last of them.
async fn sweep(gateway: Weak<GatewayShared>, pause: Duration) {
    loop {
        tokio::time::sleep(pause).await;
        let Some(gateway) = gateway.upgrade().map(Gateway) else { return };
        let Some(expired) = gateway.0.sessions.remove_expired() else { return };
        for session in expired {
            end_session(&gateway, &session);
        }
    }
}

fn end_session(gateway: &Gateway, session: &ClientSession) {
    session.end();
    dispatch::release_session(gateway, session);
}

/// Returns an id that can't be guessed; `None` on a machine without randomness.
pub(crate) fn random_session_id() -> Option<Box<str>> {
    let mut bits = [0; 16];
    getrandom::fill(&mut bits).ok()?;
    Some(format!("{:032x}", u128::from_be_bytes(bits)).into())
}

fn parse_session_id(id: &str) -> Option<u128> {
    if id.len() != 32 {
        return None;
    }
    id.bytes().try_fold(0, |key: u128, byte| {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ => return None,
        };
        Some(key << 4 | u128::from(digit))
    })
}

#[cfg(test)]
mod tests;

//! Server list: one list of a server, as last fetched.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use hashbrown::{HashMap, HashSet};
use ostler_core::caller::Caller;
use ostler_core::pins::{LockSection, PinPolicy, PinStatus};
use ostler_core::server_name::ServerName;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::pin_verdicts::PinVerdicts;
use crate::lists::conformance::ConformanceIssue;

/// Time for which a list of a server that does not announce changes counts as complete; calls of unknown tools fetch
/// it at most this often.
const RECENT: Duration = Duration::from_secs(1);

/// One item of a list as its server defines it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerItem {
    /// The server's own name for it: a name, a URI or a URI template.
    pub name: Arc<str>,
    /// The whole definition, byte for byte.
    pub definition: Bytes,
    /// Reason for which validating clients reject the definition, if any.
    pub(crate) flaw: Option<Arc<ConformanceIssue>>,
}

/// One list of a server as of its last fetch.
#[derive(Debug)]
pub(crate) struct ServerList {
    pub(crate) items: Arc<Vec<ServerItem>>,
    /// Total size of all definitions in bytes.
    pub(crate) size: usize,
    /// Index into `items` by name.
    names: HashMap<Arc<str>, usize>,
    /// Names that the server listed more than once.
    repeated: HashSet<Arc<str>>,
    received: Instant,
    /// Time to live that the server gives for the list.
    ttl: Duration,
    /// True if the server marks the list as visible to all callers.
    pub(crate) is_public: bool,
    /// Items of the server's list that are left out: invalid ones, and those beyond the cap.
    pub(crate) left_out: usize,
    /// The principal that fetched the list, if it is private.
    owner: Option<Arc<str>>,
    /// The session that returned the list; `None` for a list kept from an earlier run, and for one whose pages come
    /// from several sessions.
    generation: Option<u64>,
    /// The announced changes at the time of the fetch.
    seen_changes: u64,
    /// The server promises to announce changes of the list.
    is_announced: bool,
    is_stale: AtomicBool,
    /// The pin verdicts, once computed.
    pin_verdicts: ArcSwapOption<PinVerdicts>,
    /// The hash of each definition for which one was requested.
    hashes: OnceLock<Box<[OnceLock<DefinitionHash>]>>,
}

/// The SHA-256 of a definition's text.
pub(crate) type DefinitionHash = [u8; 32];

/// Returns the principal whose private lists a caller is shown. The operator shares the process of callers on this
/// machine, and they know what it has fetched.
pub(crate) fn list_owner(caller: &Caller) -> Cow<'_, str> {
    match caller.is_operator() {
        true => Caller::local().principal().to_owned().into(),
        false => caller.principal().into(),
    }
}

impl ServerList {
    /// Makes a list that was just received.
    pub(crate) fn fresh(items: Vec<ServerItem>, ttl: Duration, generation: u64, is_announced: bool) -> Self {
        Self { ttl, generation: Some(generation), is_announced, ..Self::restored(items) }
    }

    /// Makes a list kept from an earlier run: known, but never fresh.
    pub(crate) fn restored(items: Vec<ServerItem>) -> Self {
        Self {
            names: items.iter().enumerate().map(|(at, item)| (Arc::clone(&item.name), at)).collect(),
            size: items.iter().map(|item| item.definition.len()).sum(),
            repeated: HashSet::new(),
            items: Arc::new(items),
            received: Instant::now(),
            ttl: Duration::ZERO,
            is_public: false,
            left_out: 0,
            owner: None,
            generation: None,
            seen_changes: 0,
            is_announced: false,
            is_stale: AtomicBool::new(false),
            pin_verdicts: ArcSwapOption::empty(),
            hashes: OnceLock::new(),
        }
    }

    /// Makes the list private to one principal.
    #[must_use]
    pub(crate) fn owned_by(mut self, principal: impl Into<Arc<str>>) -> Self {
        self.owner = Some(principal.into());
        self
    }

    /// Returns the principal that owns the list; `None` for a shared list.
    pub(crate) fn owner(&self) -> Option<&str> {
        self.owner.as_deref()
    }

    /// Returns whether the server lets a caller see the list.
    pub(crate) fn is_for(&self, caller: &Caller) -> bool {
        self.owner().is_none_or(|owner| owner == list_owner(caller))
    }

    /// Returns whether the list need not be fetched again.
    pub(crate) fn is_fresh(&self, current: u64) -> bool {
        let is_kept_current = self.is_announced && self.generation == Some(current);
        !self.is_outdated() && (!self.remaining().is_zero() || is_kept_current)
    }

    /// Returns the remaining time to live that the server gives for the list.
    pub(crate) fn remaining(&self) -> Duration {
        self.ttl.saturating_sub(self.received.elapsed())
    }

    /// Returns whether a name that is missing from the list does not exist: the list comes from this session, and the
    /// server announces changes or has had no time for one.
    pub(crate) fn is_definite(&self, current: u64) -> bool {
        let is_current = self.generation == Some(current) && !self.is_outdated();
        is_current && (self.is_announced || self.received.elapsed() < RECENT)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }

    /// Records names that the server listed more than once.
    #[must_use]
    pub(crate) fn with_repeated(mut self, repeated: HashSet<Arc<str>>) -> Self {
        self.repeated = repeated;
        self
    }

    /// Records the number of announced changes at the time of the fetch.
    #[must_use]
    pub(crate) fn with_seen_changes(mut self, changes: u64) -> Self {
        self.seen_changes = changes;
        self
    }

    /// Clears the session of the list: its pages come from several sessions.
    #[must_use]
    pub(crate) fn of_no_session(mut self) -> Self {
        self.generation = None;
        self
    }

    pub(crate) fn is_repeated(&self, name: &str) -> bool {
        self.repeated.contains(name)
    }

    /// Returns whether no session of this run has returned the list.
    pub(crate) fn is_of_no_session(&self) -> bool {
        self.generation.is_none()
    }

    /// Returns whether both lists come from the same session.
    pub(crate) fn is_of_same_session(&self, other: &Self) -> bool {
        self.generation == other.generation
    }

    /// Returns whether the list is the current one of this session, as far as the server has announced.
    pub(crate) fn is_current_for(&self, generation: u64, changes: u64) -> bool {
        self.generation == Some(generation) && self.seen_changes == changes
    }

    /// Returns the pin verdicts of the list. They are computed once per lock.
    pub(crate) fn pin_verdicts(
        &self,
        pins: &Arc<PinPolicy>,
        of: (&ServerName, LockSection),
    ) -> Arc<PinVerdicts> {
        match self.pin_verdicts.load_full() {
            Some(judgement) if judgement.is_by_pins(pins) => judgement,
            _ => {
                let judgement = Arc::new(PinVerdicts::new(pins, of, self));
                self.pin_verdicts.store(Some(Arc::clone(&judgement)));
                judgement
            }
        }
    }

    /// Returns the pin status of one item; `None` if it is not in the list.
    pub(crate) fn pin_status(
        &self,
        pins: &Arc<PinPolicy>,
        of: (&ServerName, LockSection),
        name: &str,
    ) -> Option<PinStatus> {
        let at = *self.names.get(name)?;
        match &*self.pin_verdicts.load() {
            Some(judgement) if judgement.is_by_pins(pins) => judgement.status(at),
            _ => self.pin_verdicts(pins, of).status(at),
        }
    }

    /// Returns the definition of an item.
    pub(crate) fn definition(&self, name: &str) -> Option<Bytes> {
        self.names.get(name).and_then(|at| self.items.get(*at)).map(|item| item.definition.clone())
    }

    /// Returns the hash of an item's definition.
    pub(crate) fn definition_hash(&self, name: &str) -> Option<DefinitionHash> {
        let at = *self.names.get(name)?;
        let hashes = self.hashes.get_or_init(|| self.items.iter().map(|_| OnceLock::new()).collect());
        let hash = || Sha256::digest(&self.items[at].definition).into();
        Some(*hashes.get(at)?.get_or_init(hash))
    }

    /// Returns whether a change was announced since the fetch.
    pub(crate) fn is_outdated(&self) -> bool {
        self.is_stale.load(Ordering::Acquire)
    }

    pub(crate) fn outdate(&self) {
        self.is_stale.store(true, Ordering::Release);
    }
}

//! What a server offers, as far as is known.

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

/// How long a list of a server that does not announce changes is taken for
/// complete; calls of unknown tools ask for it at most this often.
const RECENT: Duration = Duration::from_secs(1);

/// One item of a list as its server defines it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerItem {
    /// The server's own name for it: a name, a URI or a URI template.
    pub name: Arc<str>,
    /// The whole definition, byte for byte.
    pub definition: Bytes,
    /// Why validating clients refuse it as it is, if they do.
    pub(crate) flaw: Option<Arc<ConformanceIssue>>,
}

/// One list of a server at the time it was last asked for.
#[derive(Debug)]
pub(crate) struct ServerList {
    pub(crate) items: Arc<Vec<ServerItem>>,
    /// The bytes of all definitions.
    pub(crate) size: usize,
    /// Where in `items` each name is.
    names: HashMap<Arc<str>, usize>,
    /// Names that the server listed more than once.
    repeated: HashSet<Arc<str>>,
    received: Instant,
    /// How long the server says that the list is good.
    ttl: Duration,
    /// Whether the server says that everybody may see it.
    pub(crate) is_public: bool,
    /// Items of the server's list that are not here: bad ones, and those beyond the cap.
    pub(crate) left_out: usize,
    /// The principal that asked for it, where it is nobody else's.
    owner: Option<Arc<str>>,
    /// The session that gave it; `None` for a list kept from an earlier run,
    /// and for one whose pages come from several sessions.
    generation: Option<u64>,
    /// The changes that the server had announced when it was asked.
    seen_changes: u64,
    /// The server promises to say when the list changes.
    is_announced: bool,
    is_stale: AtomicBool,
    /// What the pins say of it, once somebody wanted to know.
    pin_verdicts: ArcSwapOption<PinVerdicts>,
    /// The hash of each definition that was asked for.
    hashes: OnceLock<Box<[OnceLock<DefinitionHash>]>>,
}

/// The SHA-256 of a definition's text.
pub(crate) type DefinitionHash = [u8; 32];

/// Returns whose private lists a caller is shown. The operator uses the process of callers on this machine, and what it
/// has asked for is known to them.
pub(crate) fn list_owner(caller: &Caller) -> Cow<'_, str> {
    match caller.is_operator() {
        true => Caller::local().principal().to_owned().into(),
        false => caller.principal().into(),
    }
}

impl ServerList {
    /// A list that was just received.
    pub(crate) fn fresh(items: Vec<ServerItem>, ttl: Duration, generation: u64, is_announced: bool) -> Self {
        Self { ttl, generation: Some(generation), is_announced, ..Self::restored(items) }
    }

    /// A list kept from an earlier run: known, but never fresh.
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

    /// Makes it the list of one principal.
    #[must_use]
    pub(crate) fn owned_by(mut self, principal: impl Into<Arc<str>>) -> Self {
        self.owner = Some(principal.into());
        self
    }

    /// The principal whose list it is; `None` for everybody's.
    pub(crate) fn owner(&self) -> Option<&str> {
        self.owner.as_deref()
    }

    /// Whether it may be shown to a caller, as far as its server says.
    pub(crate) fn is_for(&self, caller: &Caller) -> bool {
        self.owner().is_none_or(|owner| owner == list_owner(caller))
    }

    /// Whether the list need not be asked for again.
    pub(crate) fn is_fresh(&self, current: u64) -> bool {
        let is_kept_current = self.is_announced && self.generation == Some(current);
        !self.is_outdated() && (!self.remaining().is_zero() || is_kept_current)
    }

    /// How much longer the server says that the list is good.
    pub(crate) fn remaining(&self) -> Duration {
        self.ttl.saturating_sub(self.received.elapsed())
    }

    /// Whether a name that is not in it does not exist: it comes from this
    /// session, and the server announces changes or has had no time for one.
    pub(crate) fn is_definite(&self, current: u64) -> bool {
        let is_current = self.generation == Some(current) && !self.is_outdated();
        is_current && (self.is_announced || self.received.elapsed() < RECENT)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }

    /// Notes names that the server listed more than once.
    #[must_use]
    pub(crate) fn with_repeated(mut self, repeated: HashSet<Arc<str>>) -> Self {
        self.repeated = repeated;
        self
    }

    /// Notes how many changes the server had announced when it was asked.
    #[must_use]
    pub(crate) fn with_seen_changes(mut self, changes: u64) -> Self {
        self.seen_changes = changes;
        self
    }

    /// Forgets whose list it is: its pages come from several sessions.
    #[must_use]
    pub(crate) fn of_no_session(mut self) -> Self {
        self.generation = None;
        self
    }

    pub(crate) fn is_repeated(&self, name: &str) -> bool {
        self.repeated.contains(name)
    }

    /// Whether no session of this run has given it.
    pub(crate) fn is_of_no_session(&self) -> bool {
        self.generation.is_none()
    }

    /// Whether the same session has given both.
    pub(crate) fn is_of_same_session(&self, other: &Self) -> bool {
        self.generation == other.generation
    }

    /// Whether it is what this very session lists, as far as the server has said.
    pub(crate) fn is_current_for(&self, generation: u64, changes: u64) -> bool {
        self.generation == Some(generation) && self.seen_changes == changes
    }

    /// What the pins say of each item. The list is judged once for each lock.
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

    /// What the pins say of one item; `None` if it is not in the list.
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

    /// The definition of an item.
    pub(crate) fn definition(&self, name: &str) -> Option<Bytes> {
        self.names.get(name).and_then(|at| self.items.get(*at)).map(|item| item.definition.clone())
    }

    /// The hash of an item's definition.
    pub(crate) fn definition_hash(&self, name: &str) -> Option<DefinitionHash> {
        let at = *self.names.get(name)?;
        let hashes = self.hashes.get_or_init(|| self.items.iter().map(|_| OnceLock::new()).collect());
        let hash = || Sha256::digest(&self.items[at].definition).into();
        Some(*hashes.get(at)?.get_or_init(hash))
    }

    /// Whether a change was announced since it was asked for.
    pub(crate) fn is_outdated(&self) -> bool {
        self.is_stale.load(Ordering::Acquire)
    }

    pub(crate) fn outdate(&self) {
        self.is_stale.store(true, Ordering::Release);
    }
}

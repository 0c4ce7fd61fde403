//! What a server offers, as far as is known.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hashbrown::HashSet;
use tokio::time::Instant;

/// How long a list of a server that does not announce changes is taken for
/// complete; calls of unknown tools ask for it at most this often.
const RECENT: Duration = Duration::from_secs(1);

/// One item of a list as its server defines it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// The server's own name for it: a name, a URI or a URI template.
    pub name: Arc<str>,
    /// The whole definition, byte for byte.
    pub definition: Bytes,
}

/// One list of a server at the time it was last asked for.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) items: Arc<Vec<Item>>,
    names: HashSet<Arc<str>>,
    received: Instant,
    /// How long the server says that the list is good.
    ttl: Duration,
    /// Whether the server says that everybody may see it.
    pub(crate) is_public: bool,
    /// The session that gave it; `None` for a list kept from an earlier run.
    generation: Option<u64>,
    /// The server promises to say when the list changes.
    is_announced: bool,
    is_stale: AtomicBool,
}

impl Known {
    /// A list that was just received.
    pub(crate) fn fresh(items: Vec<Item>, ttl: Duration, generation: u64, is_announced: bool) -> Self {
        Self { ttl, generation: Some(generation), is_announced, ..Self::remembered(items) }
    }

    /// A list kept from an earlier run: known, but never fresh.
    pub(crate) fn remembered(items: Vec<Item>) -> Self {
        Self {
            names: items.iter().map(|item| Arc::clone(&item.name)).collect(),
            items: Arc::new(items),
            received: Instant::now(),
            ttl: Duration::ZERO,
            is_public: false,
            generation: None,
            is_announced: false,
            is_stale: AtomicBool::new(false),
        }
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
        self.names.contains(name)
    }

    /// The definition of an item.
    pub(crate) fn definition(&self, name: &str) -> Option<Bytes> {
        self.items.iter().find(|item| &*item.name == name).map(|item| item.definition.clone())
    }

    /// Whether a change was announced since it was asked for.
    pub(crate) fn is_outdated(&self) -> bool {
        self.is_stale.load(Ordering::Acquire)
    }

    pub(crate) fn outdate(&self) {
        self.is_stale.store(true, Ordering::Release);
    }
}

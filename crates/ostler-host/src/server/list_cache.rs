//! List cache: one list of a slot, shared or per principal, and the fetch that renews it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::{ArcSwap, ArcSwapOption};
use ostler_core::error::CallError;

use super::PartitionOwner;
use super::server_list::ServerList;

/// Upper bound on principals with a cached private list. One more evicts the oldest list, which its principal then
/// fetches again.
const MAX_PRIVATE_LISTS: usize = 64;

/// Result of the last fetch of a list.
pub(crate) type LastFetch = Option<Result<Arc<ServerList>, CallError>>;

/// One list of a server: the latest value and the fetch in progress.
#[derive(Default)]
pub(crate) struct ListCache {
    latest: ArcSwapOption<ServerList>,
    /// The latest list of each principal if lists are private, oldest first. At most [`MAX_PRIVATE_LISTS`].
    latest_private: ArcSwap<Vec<Arc<ServerList>>>,
    /// Held while the list is fetched; holds the result of the last fetch.
    pub(crate) last_fetch: Arc<tokio::sync::Mutex<LastFetch>>,
    /// Fetches that have finished.
    pub(crate) fetches: AtomicU64,
    /// Changes announced by the server, and sessions that it has forgotten. A list fetched at a smaller count is
    /// stale.
    pub(crate) changes: AtomicU64,
    /// A caller was answered without the list because the fetch timed out.
    pub(crate) was_omitted: AtomicBool,
}

impl ListCache {
    /// Returns the latest list, at any age and for any principal.
    pub(crate) fn latest(&self) -> Option<Arc<ServerList>> {
        self.latest.load_full()
    }

    /// Returns the latest list that a principal may see, at any age.
    pub(crate) fn latest_for(&self, principal: &str) -> Option<Arc<ServerList>> {
        let last = self.latest.load();
        match last.as_ref()?.owner() {
            Some(owner) if owner != principal => {
                self.latest_private.load().iter().find(|known| known.owner() == Some(principal)).cloned()
            }
            _ => last.clone(),
        }
    }

    /// Returns the latest list, or the latest of each principal if lists are private.
    pub(crate) fn all(&self) -> Vec<Arc<ServerList>> {
        match self.latest() {
            Some(last) if last.owner().is_none() => vec![last],
            Some(_) => self.latest_private.load().to_vec(),
            None => Vec::new(),
        }
    }

    /// Returns whether any of [all](Self::all) satisfies the predicate.
    pub(crate) fn any(&self, is_so: impl Fn(&ServerList) -> bool) -> bool {
        match &*self.latest.load() {
            Some(last) if last.owner().is_none() => is_so(last),
            Some(_) => self.latest_private.load().iter().any(|known| is_so(known)),
            None => false,
        }
    }

    pub(crate) fn store(&self, known: Arc<ServerList>) {
        self.latest_private.rcu(|private| match known.owner() {
            Some(owner) => {
                let others = private.iter().filter(|other| other.owner() != Some(owner));
                let mut lists: Vec<_> = others.chain([&known]).cloned().collect();
                lists.drain(..lists.len().saturating_sub(MAX_PRIVATE_LISTS));
                lists
            }
            // The list is shared now.
            None => Vec::new(),
        });
        self.latest.store(Some(known));
    }

    /// Removes the private list of a principal that has gone.
    pub(crate) fn remove_owned(&self, owner: PartitionOwner<'_>) {
        let is_owned = |known: &ServerList| known.owner().is_some_and(|other| owner.owns(other));
        self.latest_private
            .rcu(|private| private.iter().filter(|known| !is_owned(known)).cloned().collect::<Vec<_>>());
        self.latest.rcu(|latest| match latest {
            Some(known) if is_owned(known) => self.latest_private.load().last().cloned(),
            _ => latest.clone(),
        });
    }

    /// Removes every list; a fetch in progress is stale.
    pub(crate) fn clear(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.latest.store(None);
        self.latest_private.store(Arc::default());
    }

    /// Stores a list if none is known. Returns whether it was stored.
    pub(crate) fn store_if_empty(&self, known: Arc<ServerList>) -> bool {
        let before = self.latest.rcu(|current| current.clone().or_else(|| Some(Arc::clone(&known))));
        if before.is_none() && known.owner().is_some() {
            self.latest_private.rcu(|private| match private.is_empty() {
                true => vec![Arc::clone(&known)],
                false => private.to_vec(),
            });
        }
        before.is_none()
    }
}

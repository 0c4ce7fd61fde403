//! Where a slot keeps one of its lists.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::{ArcSwap, ArcSwapOption};
use ostler_core::error::CallError;

use super::PartitionOwner;
use super::server_list::ServerList;

/// Principals whose private lists are kept at once. Who comes beyond that
/// displaces the one whose list is the oldest, and costs it another request.
const MAX_PRIVATE_LISTS: usize = 64;

/// What the last round of asking for a list has brought.
pub(crate) type LastFetch = Option<Result<Arc<ServerList>, CallError>>;

/// One list of a server: the last one known, and the round of asking for it.
#[derive(Default)]
pub(crate) struct ListCache {
    latest: ArcSwapOption<ServerList>,
    /// Where the last one is private: the last one of each principal, the
    /// oldest first. At most [`MOST_PRIVATE`].
    latest_private: ArcSwap<Vec<Arc<ServerList>>>,
    /// Held while the list is asked for; what the last round has brought.
    pub(crate) last_fetch: Arc<tokio::sync::Mutex<LastFetch>>,
    /// Rounds of asking for the list that are over.
    pub(crate) fetches: AtomicU64,
    /// Changes of the list that the server has announced, and sessions that
    /// it has forgotten: a list from before is not what there is now.
    pub(crate) changes: AtomicU64,
    /// Somebody was answered without the list, because it took too long.
    pub(crate) was_omitted: AtomicBool,
}

impl ListCache {
    /// The last list, however old and whoever's it is.
    pub(crate) fn latest(&self) -> Option<Arc<ServerList>> {
        self.latest.load_full()
    }

    /// The last list that a principal may see, however old.
    pub(crate) fn latest_for(&self, principal: &str) -> Option<Arc<ServerList>> {
        let last = self.latest.load();
        match last.as_ref()?.owner() {
            Some(owner) if owner != principal => {
                self.latest_private.load().iter().find(|known| known.owner() == Some(principal)).cloned()
            }
            _ => last.clone(),
        }
    }

    /// The last list, or the last one of each principal where they are private.
    pub(crate) fn all(&self) -> Vec<Arc<ServerList>> {
        match self.latest() {
            Some(last) if last.owner().is_none() => vec![last],
            Some(_) => self.latest_private.load().to_vec(),
            None => Vec::new(),
        }
    }

    /// Whether any of [all](Self::all) is so.
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
            // It is everybody's now.
            None => Vec::new(),
        });
        self.latest.store(Some(known));
    }

    /// Forgets the private list of a principal that has gone.
    pub(crate) fn remove_owned(&self, owner: PartitionOwner<'_>) {
        let is_owned = |known: &ServerList| known.owner().is_some_and(|other| owner.owns(other));
        self.latest_private
            .rcu(|private| private.iter().filter(|known| !is_owned(known)).cloned().collect::<Vec<_>>());
        self.latest.rcu(|latest| match latest {
            Some(known) if is_owned(known) => self.latest_private.load().last().cloned(),
            _ => latest.clone(),
        });
    }

    /// Forgets every list; one that is being fetched is not what there is now.
    pub(crate) fn clear(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.latest.store(None);
        self.latest_private.store(Arc::default());
    }

    /// True if nothing was known before.
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

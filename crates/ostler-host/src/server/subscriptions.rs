//! Resource subscriptions of one slot, counted by resource and caller. One caller subscribes to at most its share of
//! the resources. A resource without subscriptions is kept, and charged to its last caller, until the server is
//! unsubscribed.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Mutex as Turn, Semaphore};

/// Upper bound on the subscribed resources of one slot.
pub(crate) const MAX_RESOURCES: usize = 1_024;

/// Unsubscribe requests sent at once: a client session with many subscriptions may end in a moment.
const ENDING_AT_ONCE: usize = 8;

/// The resource subscriptions of one slot.
pub(crate) struct ResourceSubscriptions {
    /// Limit on the resources of one caller. At least one.
    share: usize,
    hasher: RandomState,
    state: Mutex<SubscriptionState>,
    /// Held while a modern server is sent all subscribed resources, so that the newest set is sent last.
    pub(crate) listen_lock: Mutex<()>,
    /// Permits for unsubscribe requests.
    pub(crate) unsubscribe_permits: Semaphore,
}

#[derive(Default)]
struct SubscriptionState {
    /// At most [`MAX_RESOURCES`].
    resources: BTreeMap<Arc<str>, SubscribedResource>,
    /// Resources of each caller, by the keyed hash of its principal: two principals with one hash share their limit
    /// and nothing else. None is zero.
    callers: HashMap<u64, usize>,
}

#[derive(Default)]
struct SubscribedResource {
    /// Subscriptions of each caller. Only the last one may be zero.
    holders: BTreeMap<u64, usize>,
    server_subscribed: Arc<Turn<bool>>,
    /// True while the unsubscribe request is due.
    is_ending: bool,
}

/// One counted subscription.
pub(crate) struct HeldSubscription {
    /// The same text for all subscriptions to the resource.
    pub(crate) uri: Arc<str>,
    caller: u64,
    /// True while the server is subscribed; held while a subscribe or unsubscribe request runs.
    pub(crate) server_subscribed: Arc<Turn<bool>>,
}

/// The limit that one more resource would exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SubscriptionLimit {
    /// The limit of all callers together.
    Server,
    /// The caller's share.
    Caller(usize),
}

impl SubscribedResource {
    fn is_wanted(&self) -> bool {
        self.holders.values().any(|count| *count > 0)
    }
}

impl SubscriptionState {
    fn is_over(&mut self, uri: &str) -> bool {
        let Some(resource) = self.resources.get_mut(uri) else { return false };
        resource.is_ending = !resource.is_wanted();
        resource.is_ending
    }

    /// Decrements a caller's resource count.
    fn discharge(&mut self, caller: u64) {
        if let Some(count) = self.callers.get_mut(&caller) {
            *count -= 1;
            if *count == 0 {
                self.callers.remove(&caller);
            }
        }
    }
}

impl ResourceSubscriptions {
    /// Makes subscriptions of which one caller may have `share`.
    pub(crate) fn new(share: usize) -> Self {
        Self {
            share: share.max(1),
            hasher: RandomState::new(),
            state: Mutex::default(),
            listen_lock: Mutex::default(),
            unsubscribe_permits: Semaphore::new(ENDING_AT_ONCE),
        }
    }

    fn state(&self) -> MutexGuard<'_, SubscriptionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a subscription.
    pub(crate) fn add(&self, uri: &str, principal: &str) -> Result<HeldSubscription, SubscriptionLimit> {
        let caller = self.hasher.hash_one(principal);
        let mut state = self.state();
        let known = state.resources.get_key_value(uri);
        let is_held = known.is_some_and(|(_, resource)| resource.holders.contains_key(&caller));
        if !is_held && state.callers.get(&caller).is_some_and(|count| *count >= self.share) {
            return Err(SubscriptionLimit::Caller(self.share));
        }
        if known.is_none() && state.resources.len() >= MAX_RESOURCES {
            return Err(SubscriptionLimit::Server);
        }
        let uri = known.map_or_else(|| uri.into(), |(uri, _)| Arc::clone(uri));
        let resource = state.resources.entry(Arc::clone(&uri)).or_default();
        let telling = Arc::clone(&resource.server_subscribed);
        let gone = resource.holders.iter().find(|(holder, count)| **count == 0 && **holder != caller);
        let gone = gone.map(|(holder, _)| *holder);
        if let Some(gone) = gone {
            resource.holders.remove(&gone);
        }
        *resource.holders.entry(caller).or_default() += 1;
        if let Some(gone) = gone {
            state.discharge(gone);
        }
        if !is_held {
            *state.callers.entry(caller).or_default() += 1;
        }
        Ok(HeldSubscription { uri, caller, server_subscribed: telling })
    }

    /// Removes a subscription. Returns whether the server is to be unsubscribed, by [`Self::is_over`] and
    /// [`Self::forget`].
    pub(crate) fn remove(&self, held: &HeldSubscription) -> bool {
        let mut state = self.state();
        let Some(resource) = state.resources.get_mut(&held.uri) else { return false };
        let Some(count) = resource.holders.get_mut(&held.caller) else { return false };
        *count = count.saturating_sub(1);
        if *count > 0 {
            return false;
        }
        if resource.holders.len() > 1 {
            resource.holders.remove(&held.caller);
            state.discharge(held.caller);
            return false;
        }
        !std::mem::replace(&mut resource.is_ending, true)
    }

    /// Returns whether there is still no subscription; otherwise the server stays subscribed.
    pub(crate) fn is_over(&self, uri: &str) -> bool {
        self.state().is_over(uri)
    }

    /// Removes a resource after the server was unsubscribed, unless there is a subscription again.
    pub(crate) fn forget(&self, uri: &str) {
        let mut state = self.state();
        if !state.is_over(uri) {
            return;
        }
        let Some(resource) = state.resources.remove(uri) else { return };
        resource.holders.into_keys().for_each(|caller| state.discharge(caller));
    }

    /// Returns the subscribed resources.
    pub(crate) fn resources(&self) -> Vec<String> {
        let state = self.state();
        let wanted = state.resources.iter().filter(|(_, resource)| resource.is_wanted());
        wanted.map(|(uri, _)| uri.as_ref().to_owned()).collect()
    }

    /// Returns the lock of a subscribed resource.
    pub(crate) fn server_subscribed(&self, uri: &str) -> Option<Arc<Turn<bool>>> {
        let state = self.state();
        let resource = state.resources.get(uri).filter(|resource| resource.is_wanted())?;
        Some(Arc::clone(&resource.server_subscribed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_one_out_ends_it() {
        let interests = ResourceSubscriptions::new(8);
        let (first, second) = (interests.add("a", "ada").unwrap(), interests.add("a", "ada").unwrap());
        assert!(Arc::ptr_eq(&first.uri, &second.uri));
        assert!(!interests.remove(&first) && interests.remove(&second));
        assert!(interests.resources().is_empty());
        // A subscription before the unsubscribe request keeps the server subscribed.
        let third = interests.add("a", "bob").unwrap();
        assert!(Arc::ptr_eq(&first.server_subscribed, &third.server_subscribed) && !interests.is_over("a"));
        assert!(interests.remove(&third) && interests.is_over("a"));
        // One that comes and goes during the unsubscribe request needs no second one.
        let fourth = interests.add("a", "bob").unwrap();
        assert!(!interests.remove(&fourth));
        interests.forget("a");
        let state = interests.state();
        assert!(state.resources.is_empty() && state.callers.is_empty());
    }

    #[test]
    fn there_is_room_for_so_many_resources_and_not_one_more() {
        let interests = ResourceSubscriptions::new(MAX_RESOURCES / 2);
        let fill = |principal: &str| {
            (0..).map_while(|n| interests.add(&format!("{principal}{n}"), principal).ok()).collect::<Vec<_>>()
        };
        let hers = fill("ada");
        assert_eq!(hers.len(), MAX_RESOURCES / 2);
        assert_eq!(interests.add("x", "ada").err(), Some(SubscriptionLimit::Caller(MAX_RESOURCES / 2)));
        assert_eq!(fill("bob").len(), MAX_RESOURCES / 2);
        assert_eq!(interests.add("x", "cyd").err(), Some(SubscriptionLimit::Server));
        assert!(interests.add("ada0", "ada").is_ok() && interests.add("ada1", "cyd").is_ok());
        // It is charged to her until the server is unsubscribed, or until another caller subscribes.
        assert!(interests.remove(&hers[2]) && interests.add("bob0", "ada").is_err());
        let _cyd = interests.add("ada2", "cyd").unwrap();
        assert!(interests.add("bob0", "ada").is_ok());
    }
}

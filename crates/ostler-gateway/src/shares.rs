//! What one caller may hold of what there is for all.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashMap;

/// Room for a number of things at once for each principal, so that none can
/// take the places of all. Only those who hold something are counted, so there
/// are never more entries than things that are held.
#[derive(Debug)]
pub(crate) struct Shares {
    max: usize,
    held: Mutex<HashMap<Arc<str>, usize>>,
}

/// A part of a principal's share, given back when dropped.
#[derive(Debug)]
pub(crate) struct Share {
    shares: Arc<Shares>,
    principal: Arc<str>,
    amount: usize,
}

impl Shares {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        // Who may hold nothing at all could not even be told so.
        Arc::new(Self { max: max.max(1), held: Mutex::default() })
    }

    /// How many one principal may hold.
    pub(crate) fn max(&self) -> usize {
        self.max
    }

    /// One more thing for a principal; `None` if it holds its share already.
    pub(crate) fn take(self: &Arc<Self>, principal: &str) -> Option<Share> {
        self.take_many(principal, 1)
    }

    /// Takes as many things for a principal; `None` if it would hold more than its share.
    pub(crate) fn take_many(self: &Arc<Self>, principal: &str, amount: usize) -> Option<Share> {
        let mut held = self.lock();
        if held.get(principal).copied().unwrap_or(0).saturating_add(amount) > self.max {
            return None;
        }
        // Its name is copied only where it holds nothing else.
        let name =
            held.get_key_value(principal).map_or_else(|| principal.into(), |(name, _)| Arc::clone(name));
        *held.entry(Arc::clone(&name)).or_default() += amount;
        drop(held);
        Some(Share { shares: Arc::clone(self), principal: name, amount })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, usize>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut held = self.shares.lock();
        if let Some(count) = held.get_mut(&*self.principal) {
            *count -= self.amount;
            if *count == 0 {
                held.remove(&*self.principal);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_principal_does_not_take_the_share_of_another() {
        let shares = Shares::new(2);
        let own = [shares.take("ada").unwrap(), shares.take("ada").unwrap()];
        assert!(shares.take("ada").is_none());
        assert!(shares.take("bob").is_some());
        drop(own);
        assert!(shares.lock().is_empty(), "who holds nothing is forgotten");
        assert!(shares.take("ada").is_some());
    }
}

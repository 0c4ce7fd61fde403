//! How many requests are under way, over all servers and of each caller.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hashbrown::HashTable;
use ostler_core::error::CallError;

/// How soon a caller that was one too many may come back.
const COME_BACK: Duration = Duration::from_secs(1);

/// What is counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Errand {
    /// Something that budgets count and the `max_in_flight` of a role bounds.
    Call,
    /// Asking what there is, which must go on while calls are under way.
    Look,
}

/// How many requests are under way.
pub(crate) struct Tally {
    max: usize,
    max_per_caller: usize,
    hasher: RandomState,
    book: Mutex<Book>,
}

#[derive(Default)]
struct Book {
    /// The sum over all callers; never more than `max`.
    total: usize,
    /// By the keyed hash of the principal, so that nothing is allocated for a
    /// caller that comes and goes; two of one hash would share their bounds and
    /// nothing else. None is zero, so there are never more than `max`.
    callers: HashTable<Count>,
}

#[derive(Clone, Copy)]
struct Count {
    caller: u64,
    requests: usize,
    /// Those of the requests that are calls.
    calls: usize,
}

/// A request that is counted; dropping it counts it out.
pub(crate) struct InFlight {
    tally: Arc<Tally>,
    caller: u64,
    errand: Errand,
}

impl Tally {
    pub(crate) fn new(max: usize, max_per_caller: usize) -> Arc<Self> {
        Arc::new(Self { max, max_per_caller, hasher: RandomState::new(), book: Mutex::default() })
    }

    /// Counts a request in; `max_calls` is what the role of its caller allows.
    pub(crate) fn enter(
        self: &Arc<Self>,
        principal: &str,
        errand: Errand,
        max_calls: Option<usize>,
    ) -> Result<InFlight, CallError> {
        let caller = self.hasher.hash_one(principal);
        let mut book = self.book();
        if book.total >= self.max {
            return Err(overloaded(format!("{} calls are in flight", self.max)));
        }
        let known = book.callers.find(caller, |count| count.caller == caller).copied();
        let mut count = known.unwrap_or(Count { caller, requests: 0, calls: 0 });
        if count.requests >= self.max_per_caller {
            let what =
                format!("{} of your calls are in flight, and one caller may have no more", count.requests);
            return Err(overloaded(what));
        }
        count.requests += 1;
        if errand == Errand::Call {
            if max_calls.is_some_and(|max| count.calls >= max) {
                let what =
                    format!("{} of your calls are in flight, and your role allows no more", count.calls);
                return Err(overloaded(what));
            }
            count.calls += 1;
        }
        match book.callers.find_mut(caller, |count| count.caller == caller) {
            Some(known) => *known = count,
            None => drop(book.callers.insert_unique(caller, count, |count| count.caller)),
        }
        book.total += 1;
        Ok(InFlight { tally: Arc::clone(self), caller, errand })
    }

    /// Returns how many calls are under way, over all callers.
    pub(crate) fn calls(&self) -> usize {
        self.book().callers.iter().map(|count| count.calls).sum()
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn overloaded(what: String) -> CallError {
    CallError::Overloaded { what, retry_after: COME_BACK }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut book = self.tally.book();
        book.total -= 1;
        let found = book.callers.find_entry(self.caller, |count| count.caller == self.caller);
        let Ok(mut entry) = found else { return };
        let count = entry.get_mut();
        count.requests -= 1;
        if self.errand == Errand::Call {
            count.calls -= 1;
        }
        if count.requests == 0 {
            entry.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_caller_gets_its_share_and_the_others_the_rest() {
        let tally = Tally::new(3, 2);
        let enter = |principal| tally.enter(principal, Errand::Call, None);
        let (first, _second) = (enter("ada").unwrap(), enter("ada").unwrap());
        let error = enter("ada").err().unwrap();
        assert!(error.to_string().contains("2 of your calls"), "{error}");
        let _third = enter("bob").unwrap();
        assert!(enter("bob").err().unwrap().to_string().contains("3 calls are in flight"));
        drop(first);
        enter("ada").unwrap();
    }

    #[test]
    fn a_role_bounds_calls_and_not_the_look_at_what_there_is() {
        let tally = Tally::new(10, 10);
        let call = tally.enter("ada", Errand::Call, Some(1)).unwrap();
        assert!(tally.enter("ada", Errand::Call, Some(1)).is_err());
        tally.enter("ada", Errand::Look, Some(1)).unwrap();
        tally.enter("bob", Errand::Call, Some(1)).unwrap();
        drop(call);
        tally.enter("ada", Errand::Call, Some(1)).unwrap();
    }

    #[test]
    fn a_caller_without_requests_leaves_nothing_behind() {
        let tally = Tally::new(10, 10);
        for n in 0..100 {
            drop(tally.enter(&n.to_string(), Errand::Call, None));
        }
        let book = tally.book();
        assert_eq!((book.total, book.callers.len()), (0, 0));
    }
}

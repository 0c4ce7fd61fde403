//! Wall clock that never goes back within a run: an expired credential stays expired.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Latest wall time that was seen.
#[derive(Debug, Default)]
pub(crate) struct MonotonicClock(AtomicU64);

impl MonotonicClock {
    /// Returns the time in seconds since 1970; never less than before.
    pub(crate) fn now(&self) -> u64 {
        let told = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        self.advance_to(told)
    }

    /// Raises the time. Only the number itself is shared, so no ordering with other memory is needed.
    fn advance_to(&self, told: u64) -> u64 {
        // Written once a second and not by every request, which would move the cache line between processors.
        let latest = self.0.load(Ordering::Relaxed);
        if told > latest { self.0.fetch_max(told, Ordering::Relaxed).max(told) } else { latest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_back_brings_nothing_back() {
        let clock = MonotonicClock::default();
        assert_eq!(
            [clock.advance_to(10), clock.advance_to(7), clock.advance_to(11), clock.advance_to(0)],
            [10, 10, 11, 11]
        );
    }
}

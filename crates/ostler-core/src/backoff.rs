//! Exponential backoff: the delay before the next start.
//!
//! ```text
//!    reset ──skip──▶ first ──next──▶ 2·first ──next──▶ 4·first ── … ──▶ max ─┐
//!     │ ▲                               ▲                              ▲    next
//!     │ └── reset, from anywhere        │                              └──────┘
//!     └──────────────next───────────────┘
//! ```
//!
//! The diagram shows ceilings; the ceiling after a reset is `first`. The delay itself is drawn evenly from
//! the upper half of the ceiling ("equal jitter"): servers that failed together do not start together, and a
//! series of delays takes at least half the sum of its ceilings.

use std::time::Duration;

/// A doubling ceiling and the random draw below it.
#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    /// Never below `first`.
    max: Duration,
    /// Ceiling of the next draw; between `first` and `max`.
    ceiling: Duration,
    /// True if nothing has failed since the last reset.
    is_reset: bool,
}

impl Backoff {
    /// Creates a backoff whose ceiling doubles from `first` up to `max`; a `max` below `first` is raised to
    /// `first`.
    ///
    /// A `first` of zero never grows: the operator wants no delay at all.
    pub fn new(first: Duration, max: Duration) -> Self {
        Self { first, max: max.max(first), ceiling: first, is_reset: true }
    }

    /// Draws the delay before the next start.
    pub fn next(&mut self, rng: &mut fastrand::Rng) -> Duration {
        self.is_reset = false;
        let ceiling = self.ceiling;
        self.ceiling = ceiling.saturating_mul(2).min(self.max);
        // Saturates at 584 years, longer than any delay.
        let nanos = u64::try_from(ceiling.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(rng.u64(nanos / 2..=nanos))
    }

    /// Draws the delay with a ceiling of at least `times` the first.
    pub fn next_at_least(&mut self, times: u32, rng: &mut fastrand::Rng) -> Duration {
        self.ceiling = self.ceiling.max(self.first.saturating_mul(times)).min(self.max);
        self.next(rng)
    }

    /// Returns the longest delay without a draw, for the last attempt.
    pub fn take_max(&mut self) -> Duration {
        self.is_reset = false;
        self.ceiling = self.max;
        self.max
    }

    /// Returns whether nothing has failed since the last reset.
    pub fn is_reset(&self) -> bool {
        self.is_reset
    }

    /// Returns a delay of zero; the next failure starts at the first ceiling.
    pub fn skip(&mut self) -> Duration {
        self.is_reset = false;
        Duration::ZERO
    }

    /// Resets the ceiling after a success.
    pub fn reset(&mut self) {
        self.ceiling = self.first;
        self.is_reset = true;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::test_clock::ms;

    #[test]
    fn the_ceiling_doubles_up_to_the_maximum_and_starts_over_after_a_reset() {
        let mut rng = fastrand::Rng::with_seed(7);
        let mut backoff = Backoff::new(ms(100), ms(5_000));
        for expected in [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000] {
            assert_eq!(backoff.ceiling, ms(expected));
            let wait = backoff.next(&mut rng);
            assert!(wait <= ms(expected) && wait >= ms(expected) / 2, "{wait:?} of {expected} ms");
        }
        backoff.reset();
        assert_eq!(backoff.ceiling, ms(100));
    }

    #[test]
    fn a_wait_that_is_skipped_leaves_the_ceiling_where_it_was() {
        let mut rng = fastrand::Rng::with_seed(7);
        let mut backoff = Backoff::new(ms(100), ms(5_000));
        assert!(backoff.is_reset());
        assert_eq!((backoff.skip(), backoff.is_reset(), backoff.ceiling), (ms(0), false, ms(100)));
        backoff.next(&mut rng);
        assert_eq!((backoff.is_reset(), backoff.ceiling), (false, ms(200)));
        backoff.reset();
        assert!(backoff.is_reset());
    }

    #[test]
    fn a_higher_start_and_the_longest_wait_move_the_ceiling() {
        let mut rng = fastrand::Rng::with_seed(7);
        let mut backoff = Backoff::new(ms(100), ms(5_000));
        assert!(backoff.next_at_least(5, &mut rng) >= ms(250));
        assert_eq!(backoff.ceiling, ms(1_000));
        assert!(backoff.next_at_least(5, &mut rng) >= ms(500));
        assert_eq!((backoff.take_max(), backoff.ceiling), (ms(5_000), ms(5_000)));
        let mut short = Backoff::new(ms(100), ms(200));
        assert!(short.next_at_least(5, &mut rng) <= ms(200));
    }

    #[test]
    fn draws_are_spread_over_the_upper_half() {
        let mut rng = fastrand::Rng::with_seed(7);
        let mut backoff = Backoff::new(ms(1_000), ms(1_000));
        let mut quarters = [0; 4];
        for _ in 0..4_000 {
            quarters[usize::try_from(backoff.next(&mut rng).as_millis() / 250).unwrap().min(3)] += 1;
        }
        assert_eq!(quarters[..2], [0, 0]);
        assert!(quarters[2..].iter().all(|&hits| (1_850..2_150).contains(&hits)), "{quarters:?}");
    }

    #[test]
    fn a_million_failures_overflow_nothing() {
        let mut rng = fastrand::Rng::with_seed(7);
        let mut backoff = Backoff::new(Duration::from_nanos(1), Duration::MAX);
        for _ in 0..1_000_000 {
            backoff.next(&mut rng);
        }
        assert_eq!(backoff.ceiling, Duration::MAX);
    }

    #[test]
    fn a_maximum_below_the_first_is_taken_as_the_first() {
        let mut rng = fastrand::Rng::with_seed(7);
        let mut backoff = Backoff::new(ms(100), ms(10));
        backoff.next(&mut rng);
        assert_eq!(backoff.ceiling, ms(100));
    }

    proptest! {
        #[test]
        fn every_wait_stays_below_its_doubled_ceiling(
            first in 0u64..5_000,
            max in 0u64..60_000,
            seed: u64,
            events in prop::collection::vec(prop::bool::weighted(0.8), 0..60),
        ) {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut backoff = Backoff::new(ms(first), ms(max));
            let mut ceiling = first;
            for is_failure in events {
                if is_failure {
                    let wait = backoff.next(&mut rng);
                    prop_assert!(wait <= ms(ceiling) && wait >= ms(ceiling) / 2);
                    ceiling = (ceiling * 2).min(max.max(first));
                } else {
                    backoff.reset();
                    ceiling = first;
                }
                prop_assert_eq!(backoff.ceiling, ms(ceiling));
            }
        }
    }
}

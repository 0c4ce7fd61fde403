//! Restart budget: restarts allowed before a failing server is ejected.
//!
//! ```text
//!               failure, fewer than `max` restarts in the window
//!                 ┌─────────┐
//!                 ▼         │            failure, `max` restarts in the window
//!              ┌──────────────┐  ────────────────────────────────▶  Eject
//!              │ 0..max used  │
//!              └──────────────┘
//!                 ▲         │
//!                 └─────────┘
//!               a restart grows older than the window, or `clear`
//! ```

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Decision about a failed server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestartDecision {
    /// Start it again, after the backoff.
    Restart,
    /// Leave it out until it is readmitted.
    Eject,
}

/// Restarts allowed in a sliding window of time.
#[derive(Debug, Clone)]
pub struct RestartBudget {
    max: u32,
    window: Duration,
    /// Times of granted restarts, oldest first; never more than `max`.
    granted: VecDeque<Instant>,
}

impl RestartBudget {
    /// Creates a budget of `max` restarts in any `window`; with a `max` of 0 the first failure ejects.
    pub fn new(max: u32, window: Duration) -> Self {
        Self { max, window, granted: VecDeque::new() }
    }

    /// Decides about a failure: the server crashed, could not be started, or was ended because it hung.
    ///
    /// A failure that ejects is not counted, so a repeated call gives the same answer until the window has
    /// moved on or the budget is cleared.
    pub fn on_failure(&mut self, now: Instant) -> RestartDecision {
        let window = self.window;
        while self.granted.front().is_some_and(|&then| !is_within(window, then, now)) {
            self.granted.pop_front();
        }
        if self.granted.len() >= self.max as usize {
            return RestartDecision::Eject;
        }
        self.granted.push_back(now);
        RestartDecision::Restart
    }

    /// Returns the number of restarts granted in the window that ends now.
    pub fn used(&self, now: Instant) -> u32 {
        let used = self.granted.iter().filter(|&&then| is_within(self.window, then, now)).count();
        u32::try_from(used).unwrap_or(self.max)
    }

    /// Returns whether the next failure now would eject.
    pub fn is_spent(&self, now: Instant) -> bool {
        self.used(now) >= self.max
    }

    /// Returns the number of restarts allowed in a window.
    pub fn max(&self) -> u32 {
        self.max
    }

    /// Clears all granted restarts: an operator declares that the cause is gone.
    pub fn clear(&mut self) {
        self.granted.clear();
    }
}

fn is_within(window: Duration, then: Instant, now: Instant) -> bool {
    now.saturating_duration_since(then) < window
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::test_clock::{at, ms};

    #[test]
    fn five_restarts_are_granted_and_the_sixth_failure_ejects() {
        let mut budget = RestartBudget::new(5, ms(300_000));
        for i in 0..5 {
            assert_eq!(budget.on_failure(at(i)), RestartDecision::Restart);
        }
        assert_eq!((budget.used(at(5)), budget.is_spent(at(5))), (5, true));
        assert_eq!(budget.on_failure(at(5)), RestartDecision::Eject);
        assert_eq!(budget.on_failure(at(299_999)), RestartDecision::Eject);
    }

    #[test]
    fn a_restart_stops_counting_when_the_window_has_passed_it() {
        let mut budget = RestartBudget::new(1, ms(100));
        assert_eq!(budget.on_failure(at(0)), RestartDecision::Restart);
        assert_eq!((budget.used(at(99)), budget.used(at(100))), (1, 0));
        assert_eq!(budget.on_failure(at(99)), RestartDecision::Eject);
        assert_eq!(budget.on_failure(at(100)), RestartDecision::Restart);
    }

    #[test]
    fn clearing_gives_the_whole_budget_back() {
        let mut budget = RestartBudget::new(2, ms(100));
        let _ = (budget.on_failure(at(0)), budget.on_failure(at(0)));
        budget.clear();
        assert_eq!(budget.used(at(0)), 0);
        assert_eq!(budget.on_failure(at(0)), RestartDecision::Restart);
    }

    #[test]
    fn a_budget_of_none_ejects_at_once() {
        assert_eq!(RestartBudget::new(0, ms(100)).on_failure(at(0)), RestartDecision::Eject);
    }

    proptest! {
        #[test]
        fn the_budget_agrees_with_the_list_of_all_failures(
            max in 0u32..6,
            window in 0u64..50,
            steps in prop::collection::vec((0u64..20, prop::bool::weighted(0.05)), 0..80),
        ) {
            let mut budget = RestartBudget::new(max, ms(window));
            let mut restarts: Vec<u64> = Vec::new();
            let mut now = 0;
            for (step, is_cleared) in steps {
                now += step;
                if is_cleared {
                    budget.clear();
                    restarts.clear();
                    continue;
                }
                let recent = |all: &[u64]| all.iter().filter(|&&then| now - then < window).count();
                prop_assert_eq!(budget.used(at(now)) as usize, recent(&restarts));
                if recent(&restarts) < max as usize {
                    restarts.push(now);
                    prop_assert_eq!(budget.on_failure(at(now)), RestartDecision::Restart);
                } else {
                    prop_assert_eq!(budget.on_failure(at(now)), RestartDecision::Eject);
                }
                prop_assert!(budget.granted.len() <= max as usize);
            }
        }
    }
}

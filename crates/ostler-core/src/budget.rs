//! How many calls somebody may make in a window of time.
//!
//! ```text
//!   charge, fewer than `calls` in the window ──▶ Ok, remembered
//!   charge, `calls` in the window            ──▶ Over{when the oldest leaves}
//!   refund                                   ──▶ that charge never was
//! ```

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Calls allowed in a sliding window, counted exactly.
///
/// Exactness costs memory: 16 bytes for each call in the window and never more
/// than `calls` of them, so 16 kB for a thousand. Nothing is reserved for calls
/// that are not made.
#[derive(Debug, Clone)]
pub struct CallBudget {
    calls: u32,
    per: Duration,
    /// The time of each charge in the window, oldest first; never more than `calls`.
    charges: VecDeque<Instant>,
}

/// The budget is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the call budget is used up")]
pub struct Over {
    /// Until the next call fits; the whole window when no call ever fits.
    pub reset_after: Duration,
}

impl CallBudget {
    /// Allows `calls` in any window of length `per`.
    pub fn new(calls: u32, per: Duration) -> Self {
        Self { calls, per, charges: VecDeque::new() }
    }

    /// Charges one call. A refused call costs nothing.
    pub fn charge(&mut self, now: Instant) -> Result<(), Over> {
        self.expire(now);
        if self.charges.len() < self.calls as usize {
            // Callers on several threads read their clocks before they get
            // here, so the newest charge is not always the last.
            let place = self.charges.partition_point(|&charge| charge <= now);
            self.charges.insert(place, now);
            return Ok(());
        }
        let age =
            self.charges.front().map_or(Duration::ZERO, |&oldest| now.saturating_duration_since(oldest));
        Err(Over { reset_after: self.per.saturating_sub(age) })
    }

    /// Takes back the charge made at `charged`: the call was not sent after all.
    /// No effect when that charge has left the window.
    pub fn refund(&mut self, charged: Instant) {
        if let Ok(place) = self.charges.binary_search(&charged) {
            self.charges.remove(place);
        }
    }

    /// Calls that fit now.
    pub fn left(&mut self, now: Instant) -> u32 {
        self.expire(now);
        self.calls - u32::try_from(self.charges.len()).unwrap_or(self.calls)
    }

    fn expire(&mut self, now: Instant) {
        while self.charges.front().is_some_and(|&oldest| now.saturating_duration_since(oldest) >= self.per) {
            self.charges.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::clock::{at, ms};

    #[test]
    fn a_call_fits_again_when_the_oldest_leaves_the_window() {
        let mut budget = CallBudget::new(2, ms(100));
        assert_eq!(budget.charge(at(0)), Ok(()));
        assert_eq!(budget.charge(at(30)), Ok(()));
        assert_eq!(budget.charge(at(40)), Err(Over { reset_after: ms(60) }));
        assert_eq!(budget.charge(at(99)), Err(Over { reset_after: ms(1) }));
        assert_eq!(budget.charge(at(100)), Ok(()));
        assert_eq!(budget.charge(at(100)), Err(Over { reset_after: ms(30) }));
    }

    #[test]
    fn refused_calls_cost_nothing() {
        let mut budget = CallBudget::new(1, ms(100));
        budget.charge(at(0)).unwrap();
        for now in 1..100 {
            budget.charge(at(now)).unwrap_err();
        }
        assert_eq!(budget.left(at(100)), 1);
    }

    #[test]
    fn a_refund_takes_back_its_own_charge_and_no_other() {
        let mut budget = CallBudget::new(2, ms(100));
        budget.charge(at(0)).unwrap();
        budget.charge(at(50)).unwrap();
        budget.refund(at(0));
        assert_eq!(budget.left(at(60)), 1);
        budget.charge(at(60)).unwrap();
        assert_eq!(budget.charge(at(60)), Err(Over { reset_after: ms(90) }));
        budget.refund(at(1));
        assert_eq!(budget.left(at(60)), 0);
    }

    #[test]
    fn a_budget_of_none_lets_nothing_pass() {
        let mut budget = CallBudget::new(0, ms(100));
        assert_eq!(budget.charge(at(0)), Err(Over { reset_after: ms(100) }));
        assert_eq!(budget.left(at(0)), 0);
    }

    proptest! {
        #[test]
        fn the_budget_agrees_with_the_list_of_all_charges(
            calls in 0u32..6,
            per in 1u64..50,
            steps in prop::collection::vec((0u64..15, prop::bool::weighted(0.1)), 0..100),
        ) {
            let mut budget = CallBudget::new(calls, ms(per));
            let mut charged: Vec<u64> = Vec::new();
            let mut now = 0;
            for (step, is_refund) in steps {
                now += step;
                if is_refund && let Some(last) = charged.pop() {
                    budget.refund(at(last));
                }
                let recent = charged.iter().filter(|&&then| now - then < per).count();
                prop_assert_eq!(budget.left(at(now)) as usize, calls as usize - recent);
                let answer = budget.charge(at(now));
                prop_assert_eq!(answer.is_ok(), recent < calls as usize);
                match answer {
                    Ok(()) => charged.push(now),
                    Err(over) => {
                        prop_assert!(!over.reset_after.is_zero());
                        let mut later = budget.clone();
                        prop_assert_eq!(later.charge(at(now) + over.reset_after).is_ok(), calls > 0);
                    }
                }
                prop_assert!(budget.charges.len() <= calls as usize);
            }
        }
    }
}

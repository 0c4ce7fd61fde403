//! Call budget: calls allowed in a sliding window of time.
//!
//! ```text
//!   charge, fewer than `calls` in the window ──▶ Ok, recorded
//!   charge, `calls` in the window            ──▶ BudgetExhausted{until the oldest leaves}
//!   refund                                   ──▶ that charge is removed
//! ```
//!
//! Up to [`MAX_EXACT_CALLS`] every charge is recorded by itself and expires to the nanosecond. Above that,
//! charges are grouped in buckets of 1/1024 of the window, and a bucket counts as if all of its charges had
//! been made at its end: no window ever admits more than `calls`, and a charge may count for up to a
//! thousandth of the window too long.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Largest number of calls whose charges are recorded one by one: 96 KiB of them.
pub const MAX_EXACT_CALLS: u64 = 4_096;

/// Number of buckets of a window above that.
const BUCKETS: u32 = 1_024;

/// Calls allowed in a sliding window.
///
/// Memory is bounded by [`MAX_EXACT_CALLS`] entries of 24 bytes, and the buckets of one window for calls made
/// beyond the budget. Nothing is reserved for calls that are not made.
#[derive(Debug, Clone)]
pub struct CallBudget {
    calls: u64,
    per: Duration,
    /// Charges by the time they count from, oldest first; none has a count of zero.
    charges: VecDeque<(Instant, u64)>,
    /// The sum of all charges.
    used: u64,
}

/// Error of an exhausted budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the call budget is used up")]
pub struct BudgetExhausted {
    /// Time until the next call fits; the whole window if no call ever fits.
    pub reset_after: Duration,
}

/// A charge, identified by the time it counts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallCharge(pub Instant);

impl CallBudget {
    /// Creates a budget of `calls` in any window of length `per`.
    pub fn new(calls: u64, per: Duration) -> Self {
        Self { calls, per, charges: VecDeque::new(), used: 0 }
    }

    /// Changes the number of calls or the window from now on. Earlier charges still count.
    pub fn resize(&mut self, calls: u64, per: Duration) {
        (self.calls, self.per) = (calls, per);
    }

    /// Charges one call. A refused call costs nothing.
    pub fn charge(&mut self, now: Instant) -> Result<CallCharge, BudgetExhausted> {
        match self.check(now) {
            Ok(()) => Ok(self.charge_unchecked(now)),
            Err(over) => Err(over),
        }
    }

    /// Checks whether a call fits now, without charging it.
    pub fn check(&mut self, now: Instant) -> Result<(), BudgetExhausted> {
        self.expire(now);
        if self.used < self.calls {
            Ok(())
        } else {
            Err(BudgetExhausted { reset_after: self.reset_after(now) })
        }
    }

    /// Charges a call that has already been made, even beyond the budget.
    pub fn charge_unchecked(&mut self, now: Instant) -> CallCharge {
        self.used += 1;
        if self.calls <= MAX_EXACT_CALLS && self.charges.len() < MAX_EXACT_CALLS as usize {
            return self.charge_exact_unchecked(now);
        }
        // Callers on several threads read their clocks before they get here, so the newest charge is not
        // always the last. It then counts from the later time.
        if let Some((end, count)) = self.charges.back_mut()
            && now <= *end
        {
            *count += 1;
            return CallCharge(*end);
        }
        let end = now + self.per / BUCKETS;
        self.charges.push_back((end, 1));
        CallCharge(end)
    }

    /// Charges calls that an earlier budget had charged at `at`, in any order.
    pub fn restore(&mut self, at: Instant, calls: u64) {
        if calls == 0 {
            return;
        }
        self.used = self.used.saturating_add(calls);
        match self.charges.binary_search_by_key(&at, |charge| charge.0) {
            Ok(same) => self.charges[same].1 = self.charges[same].1.saturating_add(calls),
            Err(place) => self.charges.insert(place, (at, calls)),
        }
    }

    fn charge_exact_unchecked(&mut self, now: Instant) -> CallCharge {
        match self.charges.binary_search_by_key(&now, |charge| charge.0) {
            Ok(same) => self.charges[same].1 += 1,
            Err(place) => self.charges.insert(place, (now, 1)),
        }
        CallCharge(now)
    }

    /// Refunds a charge of a call that was not sent after all. No effect once it has left the window.
    pub fn refund(&mut self, CallCharge(at): CallCharge) {
        let Ok(place) = self.charges.binary_search_by_key(&at, |charge| charge.0) else { return };
        self.used -= 1;
        self.charges[place].1 -= 1;
        if self.charges[place].1 == 0 {
            self.charges.remove(place);
        }
    }

    /// Returns the number of calls in the window.
    pub fn used(&mut self, now: Instant) -> u64 {
        self.expire(now);
        self.used
    }

    /// Returns the time until the next charge expires; `None` without charges.
    pub fn next_expiry(&mut self, now: Instant) -> Option<Duration> {
        self.expire(now);
        self.charges.front().map(|&(at, _)| self.remaining(at, now))
    }

    /// Returns the time until a call fits, if none does now.
    fn reset_after(&self, now: Instant) -> Duration {
        let mut left = self.used;
        for &(at, count) in &self.charges {
            left -= count;
            if left < self.calls {
                return self.remaining(at, now);
            }
        }
        self.per
    }

    /// Returns how much longer a charge counts.
    fn remaining(&self, at: Instant, now: Instant) -> Duration {
        // A bucket ends in the future, so its charges stay for more than a window.
        (self.per + at.saturating_duration_since(now)).saturating_sub(now.saturating_duration_since(at))
    }

    fn expire(&mut self, now: Instant) {
        while let Some(&(at, count)) = self.charges.front()
            && now.saturating_duration_since(at) >= self.per
        {
            self.charges.pop_front();
            self.used = self.used.saturating_sub(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::test_clock::{at, ms};

    #[test]
    fn a_call_fits_again_when_the_oldest_leaves_the_window() {
        let mut budget = CallBudget::new(2, ms(100));
        assert_eq!(budget.charge(at(0)), Ok(CallCharge(at(0))));
        assert_eq!(budget.charge(at(30)), Ok(CallCharge(at(30))));
        assert_eq!(budget.charge(at(40)), Err(BudgetExhausted { reset_after: ms(60) }));
        assert_eq!(budget.charge(at(99)), Err(BudgetExhausted { reset_after: ms(1) }));
        assert_eq!(budget.charge(at(100)), Ok(CallCharge(at(100))));
        assert_eq!(budget.charge(at(100)), Err(BudgetExhausted { reset_after: ms(30) }));
    }

    #[test]
    fn refused_calls_cost_nothing() {
        let mut budget = CallBudget::new(1, ms(100));
        budget.charge(at(0)).unwrap();
        for now in 1..100 {
            budget.charge(at(now)).unwrap_err();
        }
        assert_eq!(budget.used(at(100)), 0);
    }

    #[test]
    fn a_refund_takes_back_its_own_charge_and_no_other() {
        let mut budget = CallBudget::new(2, ms(100));
        let first = budget.charge(at(0)).unwrap();
        budget.charge(at(50)).unwrap();
        budget.refund(first);
        assert_eq!(budget.used(at(60)), 1);
        budget.charge(at(60)).unwrap();
        assert_eq!(budget.charge(at(60)), Err(BudgetExhausted { reset_after: ms(90) }));
        budget.refund(CallCharge(at(1)));
        assert_eq!(budget.used(at(60)), 2);
    }

    #[test]
    fn a_budget_of_none_lets_nothing_pass() {
        let mut budget = CallBudget::new(0, ms(100));
        assert_eq!(budget.charge(at(0)), Err(BudgetExhausted { reset_after: ms(100) }));
        assert_eq!((budget.used(at(0)), budget.next_expiry(at(0))), (0, None));
    }

    #[test]
    fn what_was_charged_stays_charged_when_the_budget_changes() {
        let mut budget = CallBudget::new(3, ms(100));
        for now in [0, 10, 20] {
            budget.charge(at(now)).unwrap();
        }
        budget.resize(1, ms(100));
        assert_eq!(
            budget.charge(at(30)),
            Err(BudgetExhausted { reset_after: ms(90) }),
            "two more have to leave first"
        );
        budget.resize(5, ms(25));
        assert_eq!(budget.used(at(30)), 2);
        budget.resize(1_000_000, ms(100));
        budget.charge(at(30)).unwrap();
        assert_eq!(budget.used(at(30)), 3);
    }

    #[test]
    fn a_restored_charge_leaves_when_it_would_have_left() {
        let mut budget = CallBudget::new(3, ms(100));
        budget.restore(at(60), 1);
        budget.restore(at(50), 2);
        assert_eq!(budget.charge(at(70)), Err(BudgetExhausted { reset_after: ms(80) }));
        assert_eq!(budget.used(at(150)), 1);
        budget.restore(at(200), u64::MAX);
        budget.restore(at(200), u64::MAX);
        assert_eq!(budget.used(at(300)), 0, "numbers nobody has counted do no harm");
    }

    #[test]
    fn the_next_charge_to_leave_is_the_oldest() {
        let mut budget = CallBudget::new(3, ms(100));
        for now in [0, 30] {
            budget.charge(at(now)).unwrap();
        }
        assert_eq!(budget.next_expiry(at(40)), Some(ms(60)));
        assert_eq!(budget.next_expiry(at(100)), Some(ms(30)));
        assert_eq!(budget.next_expiry(at(130)), None);
    }

    #[test]
    fn the_charges_of_a_bucket_leave_a_window_after_its_end() {
        let mut budget = CallBudget::new(MAX_EXACT_CALLS + 1, ms(1_024_000));
        assert_eq!(budget.charge(at(0)), Ok(CallCharge(at(1_000))));
        assert_eq!(budget.charge(at(1_000)), Ok(CallCharge(at(1_000))));
        assert_eq!(budget.charge(at(1_001)), Ok(CallCharge(at(2_001))));
        assert_eq!(budget.next_expiry(at(0)), Some(ms(1_025_000)));
        assert_eq!(budget.used(at(1_024_999)), 3);
        assert_eq!(budget.used(at(1_025_000)), 1);
    }

    #[test]
    fn calls_made_beyond_the_budget_are_put_together_when_there_are_many() {
        let mut budget = CallBudget::new(1, ms(1_024_000));
        for now in 0..MAX_EXACT_CALLS {
            assert_eq!(budget.charge_unchecked(at(now)), CallCharge(at(now)));
        }
        for now in MAX_EXACT_CALLS..MAX_EXACT_CALLS + 1_000 {
            assert_eq!(budget.charge_unchecked(at(now)), CallCharge(at(MAX_EXACT_CALLS + 1_000)));
        }
        assert_eq!(budget.used(at(MAX_EXACT_CALLS)), MAX_EXACT_CALLS + 1_000);
        assert_eq!(budget.charges.len(), MAX_EXACT_CALLS as usize + 1);
    }

    #[test]
    fn a_large_budget_takes_little_memory() {
        let mut budget = CallBudget::new(1_000_000, ms(1_000_000));
        for now in 0..2_000_000 {
            let _ = budget.charge(at(now));
        }
        assert!(budget.charges.len() <= BUCKETS as usize + 2, "{}", budget.charges.len());
        assert!(budget.used(at(2_000_000)) <= 1_000_000);
    }

    proptest! {
        #[test]
        fn a_small_budget_agrees_with_the_list_of_all_charges(
            calls in 0u64..6,
            per in 1u64..50,
            steps in prop::collection::vec((0u64..15, prop::bool::weighted(0.1)), 0..100),
        ) {
            let mut budget = CallBudget::new(calls, ms(per));
            let mut charged: Vec<u64> = Vec::new();
            let mut now = 0;
            for (step, is_refund) in steps {
                now += step;
                if is_refund && let Some(last) = charged.pop() {
                    budget.refund(CallCharge(at(last)));
                }
                let recent = charged.iter().filter(|&&then| now - then < per).count() as u64;
                prop_assert_eq!(budget.used(at(now)), recent);
                let answer = budget.charge(at(now));
                prop_assert_eq!(answer.is_ok(), recent < calls);
                match answer {
                    Ok(_) => charged.push(now),
                    Err(over) => {
                        prop_assert!(!over.reset_after.is_zero());
                        let mut later = budget.clone();
                        prop_assert_eq!(later.charge(at(now) + over.reset_after).is_ok(), calls > 0);
                    }
                }
                prop_assert!(budget.charges.len() as u64 <= calls);
            }
        }

        #[test]
        fn a_large_budget_never_lets_more_into_any_window_and_hardly_fewer(
            per in 2_048u64..20_000,
            bursts in prop::collection::vec((0u64..8_000, 0usize..3_000, 0usize..3), 1..20),
        ) {
            let calls = MAX_EXACT_CALLS + 1;
            let mut budget = CallBudget::new(calls, ms(per));
            // The time of each admitted call, and its charge.
            let mut passed: Vec<(u64, CallCharge)> = Vec::new();
            let mut now = 0;
            for (pause, burst, refunds) in bursts {
                now += pause;
                for _ in 0..refunds {
                    // Only charges still in the window can be refunded.
                    if let Some((_, charged)) = passed.pop_if(|(then, _)| now - *then < per) {
                        budget.refund(charged);
                    }
                }
                for _ in 0..burst {
                    // The naive count of the same window, and of one that is a bucket longer.
                    let within = |long: u64| {
                        (passed.len() - passed.partition_point(|(then, _)| now - *then >= long)) as u64
                    };
                    match budget.charge(at(now)) {
                        Ok(charged) => {
                            prop_assert!(within(per) < calls);
                            passed.push((now, charged));
                        }
                        Err(over) => {
                            prop_assert!(within(per + per / 1_024 + 1) >= calls, "refused without need");
                            let mut later = budget.clone();
                            prop_assert!(later.charge(at(now) + over.reset_after).is_ok());
                            break;
                        }
                    }
                }
                prop_assert!(budget.charges.len() <= BUCKETS as usize + 2);
            }
        }
    }
}

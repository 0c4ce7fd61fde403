//! Rate limit and coalescing of notifications.

use std::time::{Duration, Instant};

/// Token bucket: lets events pass at a steady rate, with bursts.
///
/// ```text
///   tokens: 0 ──── refilled at `per_second` ────▶ burst
///   try_acquire:   a token is left ─▶ true, one less;  none ─▶ false, counted as dropped
/// ```
#[derive(Debug, Clone)]
pub struct RateLimiter {
    per_second: u32,
    burst: u32,
    /// Tokens in billionths, so that refilling by nanoseconds is exact; at most `burst` tokens.
    nano_tokens: u128,
    /// The time up to which `nano_tokens` is filled; `None` before the first event.
    filled: Option<Instant>,
    dropped: u64,
}

/// One token, in the unit of `nano_tokens`.
const TOKEN: u128 = 1_000_000_000;

impl RateLimiter {
    /// Creates a bucket of `burst` events at once and `per_second` in the long run.
    pub fn new(per_second: u32, burst: u32) -> Self {
        Self { per_second, burst, nano_tokens: u128::from(burst) * TOKEN, filled: None, dropped: 0 }
    }

    /// Returns whether one event passes now; otherwise it is counted as dropped.
    pub fn try_acquire(&mut self, now: Instant) -> bool {
        self.refill(now);
        match self.nano_tokens.checked_sub(TOKEN) {
            Some(rest) => {
                self.nano_tokens = rest;
                true
            }
            None => {
                self.dropped += 1;
                false
            }
        }
    }

    fn refill(&mut self, now: Instant) {
        let passed = self.filled.map_or(Duration::ZERO, |then| now.saturating_duration_since(then));
        let added = passed.as_nanos() * u128::from(self.per_second);
        self.nano_tokens = (self.nano_tokens + added).min(u128::from(self.burst) * TOKEN);
        self.filled = self.filled.max(Some(now));
    }

    /// Returns the number of dropped events.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

/// Coalesces equal events: the first passes at once, those within `interval` after it become a single one at
/// the end of that time.
///
/// ```text
///            event: passes              event
///   Idle ────────────────▶ Cooldown{since} ───────▶ Pending{since}
///    ▲                        │    ▲                    │
///    └── `interval` is over ──┘    └── on_wake: passes ─┘
/// ```
#[derive(Debug, Clone)]
pub struct Coalescer {
    interval: Duration,
    state: CoalescerState,
}

#[derive(Debug, Clone, Copy)]
enum CoalescerState {
    /// No event has passed for at least one interval.
    Idle,
    /// An event passed at this time.
    Cooldown(Instant),
    /// An event passed at this time, and at least one more waits.
    Pending(Instant),
}

impl Coalescer {
    /// Creates a coalescer: at most one event in any `interval`, and none lost.
    pub fn new(interval: Duration) -> Self {
        Self { interval, state: CoalescerState::Idle }
    }

    /// Records an event. Returns whether it passes now; otherwise it passes at
    /// [`next_wake`](Self::next_wake).
    pub fn on_event(&mut self, now: Instant) -> bool {
        match self.state {
            CoalescerState::Cooldown(since) | CoalescerState::Pending(since)
                if !self.is_interval_over(since, now) =>
            {
                self.state = CoalescerState::Pending(since);
                false
            }
            CoalescerState::Idle | CoalescerState::Cooldown(_) | CoalescerState::Pending(_) => {
                self.state = CoalescerState::Cooldown(now);
                true
            }
        }
    }

    /// Returns the time for [`on_wake`](Self::on_wake); `None` while no event waits.
    pub fn next_wake(&self) -> Option<Instant> {
        match self.state {
            CoalescerState::Idle | CoalescerState::Cooldown(_) => None,
            CoalescerState::Pending(since) => since.checked_add(self.interval),
        }
    }

    /// Returns whether the waiting event passes now. Calling it early does no harm.
    pub fn on_wake(&mut self, now: Instant) -> bool {
        match self.state {
            CoalescerState::Pending(since) if self.is_interval_over(since, now) => {
                self.state = CoalescerState::Cooldown(now);
                true
            }
            CoalescerState::Idle | CoalescerState::Cooldown(_) | CoalescerState::Pending(_) => false,
        }
    }

    fn is_interval_over(&self, since: Instant, now: Instant) -> bool {
        now.saturating_duration_since(since) >= self.interval
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::test_clock::{at, ms};

    #[test]
    fn a_burst_passes_and_then_the_steady_rate() {
        let mut limiter = RateLimiter::new(200, 1_000);
        let passed = (0..1_500).filter(|_| limiter.try_acquire(at(0))).count();
        assert_eq!((passed, limiter.dropped()), (1_000, 500));
        let passed = (1..=1_000).filter(|&now| limiter.try_acquire(at(now))).count();
        assert_eq!(passed, 200);
        assert_eq!((0..2_000).filter(|_| limiter.try_acquire(at(3_600_000))).count(), 1_000);
    }

    #[test]
    fn thirds_of_a_second_add_up_exactly() {
        let mut limiter = RateLimiter::new(3, 2);
        assert!(limiter.try_acquire(at(0)) && limiter.try_acquire(at(0)));
        let passed: Vec<u64> = (1..=3_000).filter(|&now| limiter.try_acquire(at(now))).collect();
        assert_eq!(passed, [334, 667, 1_000, 1_334, 1_667, 2_000, 2_334, 2_667, 3_000]);
    }

    #[test]
    fn the_first_passes_and_the_rest_become_one_at_the_end() {
        let mut coalescer = Coalescer::new(ms(1_000));
        assert!(coalescer.on_event(at(0)));
        assert_eq!(coalescer.next_wake(), None);
        assert!(!coalescer.on_event(at(10)) && !coalescer.on_event(at(20)));
        assert_eq!(coalescer.next_wake(), Some(at(1_000)));
        assert!(!coalescer.on_wake(at(999)));
        assert!(coalescer.on_wake(at(1_000)));
        assert!(!coalescer.on_wake(at(1_000)));
        assert!(!coalescer.on_event(at(1_500)));
        assert_eq!(coalescer.next_wake(), Some(at(2_000)));
        assert!(coalescer.on_event(at(2_100)), "the wake is late and the event takes its place");
        assert_eq!(coalescer.next_wake(), None);
    }

    proptest! {
        #[test]
        fn no_window_lets_more_pass_than_burst_and_rate(
            rate in 0u32..50, burst in 0u32..20, steps in prop::collection::vec(0u64..200, 1..100),
        ) {
            let mut limiter = RateLimiter::new(rate, burst);
            let mut passed: Vec<u64> = Vec::new();
            let (mut now, mut level, mut last) = (0, u64::from(burst) * 1_000, 0);
            for step in steps {
                now += step;
                level = (level + (now - last) * u64::from(rate)).min(u64::from(burst) * 1_000);
                last = now;
                let expected = level >= 1_000;
                level -= if expected { 1_000 } else { 0 };
                prop_assert_eq!(limiter.try_acquire(at(now)), expected);
                if expected { passed.push(now) }
            }
            for (i, first) in passed.iter().enumerate() {
                for (j, last) in passed.iter().enumerate().skip(i) {
                    let allowed = u64::from(burst) + (last - first) * u64::from(rate) / 1_000;
                    prop_assert!((j - i + 1) as u64 <= allowed);
                }
            }
        }

        #[test]
        fn passes_are_apart_and_no_event_is_lost(
            every in 1u64..50,
            steps in prop::collection::vec((0u64..30, any::<bool>()), 0..100),
        ) {
            let mut coalescer = Coalescer::new(ms(every));
            let (mut now, mut last_pass, mut has_waiting) = (0, None::<u64>, false);
            for (step, is_event) in steps {
                now += step;
                let is_free = last_pass.is_none_or(|then| now - then >= every);
                let expected = is_free && (is_event || has_waiting);
                let passed = if is_event { coalescer.on_event(at(now)) } else { coalescer.on_wake(at(now)) };
                prop_assert_eq!(passed, expected);
                has_waiting = !passed && (is_event || has_waiting);
                if passed { last_pass = Some(now) }
                let wake = last_pass.filter(|_| has_waiting).map(|then| at(then + every));
                prop_assert_eq!(coalescer.next_wake(), wake);
            }
        }
    }
}

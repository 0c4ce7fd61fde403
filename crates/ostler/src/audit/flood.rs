//! Refusals at the door, so many a second and no more: whoever knocks as often
//! as it can must not be able to fill the disk.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Refusals that get a row of their own in one second; the rest share one.
const EACH_SECOND: u32 = 10;
const SECOND: Duration = Duration::from_secs(1);

/// Counts refusals.
#[derive(Debug, Default)]
pub(super) struct Flood(Mutex<Option<Window>>);

#[derive(Debug)]
struct Window {
    since: Instant,
    let_through: u32,
    held_back: u64,
}

/// What becomes of one refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Passage {
    /// It gets a row, after one for so many others.
    Row { others: u64 },
    /// It is counted.
    Counted,
}

impl Flood {
    pub(super) fn pass(&self, now: Instant) -> Passage {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let window = held.get_or_insert(Window { since: now, let_through: 0, held_back: 0 });
        let mut others = 0;
        if now.saturating_duration_since(window.since) >= SECOND {
            others = window.held_back;
            *window = Window { since: now, let_through: 0, held_back: 0 };
        }
        if window.let_through >= EACH_SECOND {
            window.held_back += 1;
            return Passage::Counted;
        }
        window.let_through += 1;
        Passage::Row { others }
    }

    /// Takes those that have no row yet.
    pub(super) fn rest(&self) -> u64 {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.take().map_or(0, |window| window.held_back)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_becomes_ten_rows_a_second_and_a_count() {
        let flood = Flood::default();
        let start = Instant::now();
        let passed: Vec<_> = (0..1_000).map(|_| flood.pass(start)).collect();
        assert_eq!(passed.iter().filter(|passage| **passage == Passage::Row { others: 0 }).count(), 10);
        assert_eq!(flood.pass(start + SECOND), Passage::Row { others: 990 });
        assert_eq!(flood.pass(start + SECOND), Passage::Row { others: 0 });
        assert_eq!(flood.rest(), 0);
    }

    #[test]
    fn what_was_counted_last_is_not_forgotten() {
        let flood = Flood::default();
        let start = Instant::now();
        let passed = (0..12).filter(|_| flood.pass(start) != Passage::Counted).count();
        assert_eq!(passed, 10);
        assert_eq!((flood.rest(), flood.rest()), (2, 0));
    }
}

//! The rows on their way to the writer. Nobody who brings one ever waits for
//! the disk: a row for which there is no room is counted and dropped.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::flood::Flood;
use super::row::{self, Arguments, Class, Row};

/// Rows that wait at most. At ten thousand calls a second this is most of a
/// second in which the disk may do something else.
pub(super) const MOST_ROWS: usize = 8_192;
/// Bytes of them. Arguments for which there is no room are left out before a
/// row is dropped.
pub(super) const MOST_BYTES: usize = 16 << 20;
/// Rows that callers can't take from operators and servers.
const RESERVED: usize = MOST_ROWS / 8;
/// How long rows are gathered before they are written together.
pub(super) const GATHER: Duration = Duration::from_millis(200);
/// Rows that are not gathered any longer.
const ENOUGH: usize = MOST_ROWS / 4;

/// The rows on their way.
#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// Rung for the first row, when there are enough, when refusals begin to be counted, and at the end.
    bell: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// At most [`MOST_ROWS`], of at most [`MOST_BYTES`].
    rows: Vec<Row>,
    bytes: usize,
    lost: Lost,
    /// Refusals that are only counted.
    flood: Flood,
    is_closed: bool,
}

/// Rows that were dropped, all of them after those that wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Lost {
    pub(super) count: u64,
    /// When the first and the last were.
    pub(super) first: i64,
    pub(super) last: i64,
}

/// What the writer is to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    /// There are rows, or the time is over.
    Work,
    /// No row will come any more.
    End,
}

impl Queue {
    /// Brings a row; true if it is the first for which there was no room.
    pub(super) fn push(&self, mut row: Row) -> bool {
        let class = row.class();
        let mut state = self.state();
        if class == Class::Refusals && !state.is_closed {
            let due = state.flood.due();
            if !state.flood.admit(&row, Instant::now()) {
                if state.flood.due() != due {
                    self.bell.notify_one();
                }
                return false;
            }
        }
        let most_rows = match class {
            Class::Calls | Class::Refusals => MOST_ROWS - RESERVED,
            Class::Servers | Class::Operators => MOST_ROWS,
        };
        if state.bytes + row.weight() > MOST_BYTES {
            row.arguments = Arguments::LeftOut;
        }
        let weight = row.weight();
        let is_full = state.rows.len() >= most_rows || state.bytes + weight > MOST_BYTES;
        if is_full || state.is_closed {
            state.lost.note(row.at);
            return state.lost.count == 1;
        }
        state.bytes += weight;
        state.rows.push(row);
        let waiting = state.rows.len();
        drop(state);
        if waiting == 1 || waiting == ENOUGH {
            self.bell.notify_one();
        }
        false
    }

    /// Waits until there are rows and they have been gathered, or for so long.
    pub(super) fn wait(&self, patience: Duration) -> Call {
        let end = Instant::now() + patience;
        let mut state = self.state();
        while !state.is_closed && state.rows.is_empty() && state.lost.count == 0 {
            let until = state.flood.due().map_or(end, |due| due.min(end));
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Call::Work;
            }
            state = self.bell.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let gathered = end.min(Instant::now() + GATHER);
        let state = self.wait_while(state, gathered, |state| state.rows.len() < ENOUGH);
        call_of(&state)
    }

    /// Waits for so long, unless it is the end: what there is can't be written now.
    pub(super) fn pause(&self, patience: Duration) -> Call {
        call_of(&self.wait_while(self.state(), Instant::now() + patience, |_| true))
    }

    fn wait_while<'q>(
        &'q self,
        mut state: MutexGuard<'q, State>,
        end: Instant,
        is_early: impl Fn(&State) -> bool,
    ) -> MutexGuard<'q, State> {
        while !state.is_closed && is_early(&state) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.bell.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state
    }

    /// Takes what waits, in exchange for an empty list, and how many rows are missing after it.
    pub(super) fn take(&self, rows: &mut Vec<Row>) -> Lost {
        debug_assert!(rows.is_empty());
        let mut state = self.state();
        std::mem::swap(&mut state.rows, rows);
        state.bytes = 0;
        rows.extend(match state.is_closed {
            true => state.flood.take_all(),
            false => state.flood.take(Instant::now()),
        });
        std::mem::take(&mut state.lost)
    }

    /// No row is taken from now on.
    pub(super) fn close(&self) {
        self.state().is_closed = true;
        self.bell.notify_one();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn call_of(state: &State) -> Call {
    if state.is_closed { Call::End } else { Call::Work }
}

impl Lost {
    fn note(&mut self, at: i64) {
        if self.count == 0 {
            self.first = at;
        }
        self.count += 1;
        self.last = at;
    }

    /// The row that stands for all of them.
    pub(super) fn row(&self) -> Option<Row> {
        (self.count > 0).then(|| {
            let detail = format!(
                "the queue was full for {}; see the daemon's log",
                ostler_core::fault::Span(Duration::from_micros((self.last - self.first).unsigned_abs()))
            );
            let said = row::Said { action: "dropped", detail: &detail, ..Default::default() };
            Row { at: self.first, count: Some(self.count), ..Row::now(row::Kind::Gap, "lost", &said) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::row::{Kind, Said};

    fn row(bytes: usize) -> Row {
        let arguments = Arguments::Kept(vec![b'x'; bytes].into());
        Row { arguments, ..Row::now(Kind::Call, "ok", &Said::default()) }
    }

    #[test]
    fn what_does_not_fit_is_counted_to_the_last() {
        let queue = Queue::default();
        const CALLS: usize = MOST_ROWS - RESERVED;
        let firsts = (0..CALLS + 500).filter(|_| queue.push(row(1))).count();
        let mut rows = Vec::new();
        let lost = queue.take(&mut rows);
        assert_eq!((rows.len(), lost.count, firsts), (CALLS, 500, 1));
        assert_eq!(lost.row().unwrap().count, Some(500));
        rows.clear();
        queue.push(row(1));
        assert_eq!((queue.take(&mut rows).count, rows.len()), (0, 1));
    }

    #[test]
    fn calls_leave_room_for_what_operators_do() {
        let queue = Queue::default();
        for _ in 0..MOST_ROWS {
            queue.push(row(1));
        }
        for _ in 0..RESERVED {
            queue.push(Row::now(Kind::Admin, "ok", &Said { action: "token-revoked", ..Said::default() }));
        }
        let mut rows = Vec::new();
        assert_eq!(queue.take(&mut rows).count, RESERVED as u64, "calls alone are lost");
        assert_eq!(rows.iter().filter(|row| row.kind == Kind::Admin).count(), RESERVED);
    }

    #[test]
    fn large_arguments_are_left_out_before_a_row_is() {
        let queue = Queue::default();
        for _ in 0..40 {
            queue.push(row(1 << 20));
        }
        let mut rows = Vec::new();
        assert_eq!((queue.take(&mut rows).count, rows.len()), (0, 40));
        let kept = rows.iter().filter(|row| matches!(row.arguments, Arguments::Kept(_))).count();
        assert_eq!(kept, 15);
    }

    #[test]
    fn a_closed_queue_is_at_its_end_at_once() {
        let queue = Queue::default();
        queue.close();
        assert_eq!(queue.wait(Duration::from_secs(600)), Call::End);
        assert_eq!(queue.pause(Duration::from_secs(600)), Call::End);
    }
}

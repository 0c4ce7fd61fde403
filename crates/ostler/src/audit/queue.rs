//! Queue of rows on their way to the writer: bounded in rows and bytes, those in the writer's hands included.
//!
//! Without [`room`](Queue::room) nothing waits for the disk: a row without room is counted and dropped.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hashbrown::HashSet;
use tokio::sync::Notify;

use super::flood::Flood;
use super::row::{self, About, Arguments, Class, Queued, Row};

/// Rows that wait at most: a second of what a daemon can serve, in which the disk may do something else.
pub(super) const MOST_ROWS: usize = 65_536;
/// Bytes of them.
pub(super) const MOST_BYTES: usize = 8 << 20;
/// Bytes beyond which arguments are left out, so that rows are not dropped for them.
const MOST_ARGUMENTS: usize = MOST_BYTES / 2;
/// Rows that callers can't take from operators and servers.
const RESERVED: usize = MOST_ROWS / 8;
/// How long rows are gathered before they are written together.
pub(super) const GATHER: Duration = Duration::from_millis(200);
/// Rows that are not gathered any longer.
const ENOUGH: usize = 4_096;
/// Bytes of rows that are not gathered any longer: large arguments are hashed while there is room for others.
const ENOUGH_BYTES: usize = MOST_BYTES / 8;
/// Shared parts that are looked up. Rows beyond have one each.
const SHARED: usize = 1_024;
/// Rows from which calls wait for room. The other half is for calls that are under way.
const CROWDED: usize = MOST_ROWS / 2;
/// Bytes from which calls wait for room.
const CROWDED_BYTES: usize = MOST_ARGUMENTS / 2;
/// How long a call waits for room. After that the disk counts as stalled, and no call waits until rows are written again.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// The rows on their way.
#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// Rung for the first row, when there are enough, when refusals begin to be counted, and at the end.
    bell: Condvar,
    /// Wakes calls that wait for room.
    written: Notify,
}

#[derive(Debug, Default)]
struct State {
    rows: Vec<Queued>,
    /// The shared parts of `rows`, at most [`SHARED`].
    abouts: HashSet<Arc<About>>,
    /// Bytes of `rows`.
    bytes: usize,
    /// Rows and bytes that the writer has taken and not written. Together with
    /// `rows` at most [`MOST_ROWS`] and [`MOST_BYTES`].
    taken: (usize, usize),
    lost: Lost,
    /// Refusals that are only counted.
    flood: Flood,
    /// A call has waited for [`PATIENCE`], and nothing was written since.
    is_stalled: bool,
    is_closed: bool,
}

impl State {
    fn is_enough(&self) -> bool {
        self.rows.len() >= ENOUGH || self.bytes >= ENOUGH_BYTES
    }

    fn is_crowded(&self) -> bool {
        self.rows.len() + self.taken.0 >= CROWDED || self.bytes + self.taken.1 >= CROWDED_BYTES
    }

    /// Makes a row of the queue, and tells the bytes that it adds.
    fn share(&mut self, row: Row) -> (Queued, usize) {
        let mut added = 0;
        let abouts = &mut self.abouts;
        let queued = row.queued(|about| {
            if let Some(shared) = abouts.get(&about) {
                return Arc::clone(shared);
            }
            added = about.weight();
            let about = Arc::new(about);
            if abouts.len() < SHARED {
                abouts.insert(Arc::clone(&about));
            }
            about
        });
        let weight = added + queued.weight();
        (queued, weight)
    }
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
    pub(super) fn push(&self, row: Row) -> bool {
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
        let (mut row, mut weight) = state.share(row);
        let held = state.bytes + state.taken.1;
        if held + weight > MOST_ARGUMENTS && matches!(row.arguments, Arguments::Kept(_)) {
            weight -= row.weight();
            row.arguments = Arguments::LeftOut;
            weight += row.weight();
        }
        let is_full = state.rows.len() + state.taken.0 >= most_rows || held + weight > MOST_BYTES;
        if is_full || state.is_closed {
            state.lost.note(row.at);
            return state.lost.count == 1;
        }
        let was_enough = state.is_enough();
        state.bytes += weight;
        state.rows.push(row);
        let is_awaited = state.rows.len() == 1 || state.is_enough() != was_enough;
        drop(state);
        if is_awaited {
            self.bell.notify_one();
        }
        false
    }

    /// Waits until calls have room for their rows; returns at once while they have, and
    /// while the disk is stalled. True if this wait has found out that it is.
    pub(super) async fn room(&self) -> bool {
        let wait = async {
            loop {
                let mut written = std::pin::pin!(self.written.notified());
                // A wake between the look and the wait is not missed.
                written.as_mut().enable();
                if !self.is_worth_waiting() {
                    return;
                }
                written.await;
            }
        };
        match tokio::time::timeout(PATIENCE, wait).await {
            Ok(()) => false,
            Err(_) => !std::mem::replace(&mut self.state().is_stalled, true),
        }
    }

    /// Returns whether a call is to wait for room.
    pub(super) fn is_worth_waiting(&self) -> bool {
        let state = self.state();
        state.is_crowded() && !state.is_stalled && !state.is_closed
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
        let state = self.wait_while(state, gathered, |state| !state.is_enough());
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
    pub(super) fn take(&self, rows: &mut Vec<Queued>) -> Lost {
        debug_assert!(rows.is_empty());
        let mut state = self.state();
        std::mem::swap(&mut state.rows, rows);
        state.abouts.clear();
        state.taken = (rows.len(), std::mem::take(&mut state.bytes));
        let counted = match state.is_closed {
            true => state.flood.take_all(),
            false => state.flood.take(Instant::now()),
        };
        rows.extend(counted.into_iter().map(Queued::from));
        std::mem::take(&mut state.lost)
    }

    /// Gives back the room of the rows that were taken, and empties the list. True if the disk was stalled.
    pub(super) fn done(&self, rows: &mut Vec<Queued>) -> bool {
        rows.clear();
        // What a stall has made grow is given back.
        rows.shrink_to(ENOUGH);
        let mut state = self.state();
        state.taken = (0, 0);
        let was_stalled = std::mem::take(&mut state.is_stalled);
        drop(state);
        self.written.notify_waiters();
        was_stalled
    }

    /// No row is taken from now on.
    pub(super) fn close(&self) {
        self.state().is_closed = true;
        self.bell.notify_one();
        self.written.notify_waiters();
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
        queue.push(row(1));
        let mut more = Vec::new();
        assert_eq!(queue.take(&mut more).count, 1, "what is being written still takes room");
        queue.done(&mut rows);
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
        assert_eq!(rows.iter().filter(|row| row.about.kind == Kind::Admin).count(), RESERVED);
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
        assert_eq!(kept, 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_waits_for_room_until_rows_are_written() {
        let queue = Queue::default();
        assert!(!queue.room().await);
        for _ in 0..CROWDED {
            queue.push(row(1));
        }
        let mut rows = Vec::new();
        queue.take(&mut rows);
        let (is_stalled, ()) = tokio::join!(queue.room(), async {
            tokio::task::yield_now().await;
            queue.done(&mut rows);
        });
        assert!(!is_stalled);
    }

    #[tokio::test(start_paused = true)]
    async fn on_a_disk_that_never_answers_one_call_waits_and_the_next_ones_do_not() {
        let queue = Queue::default();
        for _ in 0..CROWDED {
            queue.push(row(1));
        }
        let began = tokio::time::Instant::now();
        assert!(queue.room().await, "told once");
        assert_eq!(began.elapsed(), PATIENCE);
        assert!(!queue.room().await);
        assert_eq!(began.elapsed(), PATIENCE);
        let mut rows = Vec::new();
        queue.take(&mut rows);
        assert!(queue.done(&mut rows));
        assert!(!queue.is_worth_waiting());
    }

    #[test]
    fn a_closed_queue_is_at_its_end_at_once() {
        let queue = Queue::default();
        queue.close();
        assert_eq!(queue.wait(Duration::from_secs(600)), Call::End);
        assert_eq!(queue.pause(Duration::from_secs(600)), Call::End);
    }
}

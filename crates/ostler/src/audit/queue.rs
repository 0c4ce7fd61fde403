//! Queue of rows on their way to the writer: bounded in rows and bytes, those in the writer's hands included.
//!
//! Without [`room`](RowQueue::room) nothing waits for the disk: a row without room is counted and dropped.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::HashSet;
use ostler_store::{Queue, Urgency, Waiting};
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
const GATHER: Duration = Duration::from_millis(200);
/// Rows that are not gathered any longer, and that are written in one transaction.
pub(super) const ENOUGH: usize = 4_096;
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

/// The queue, and what wakes calls that wait for room in it.
#[derive(Debug, Clone)]
pub(super) struct RowQueue {
    pub(super) rows: Arc<Queue<Rows>>,
    written: Arc<Notify>,
}

/// The rows on their way.
#[derive(Debug, Default)]
pub(super) struct Rows {
    rows: VecDeque<Queued>,
    /// The shared parts of rows that were brought since some were last taken, at most [`SHARED`].
    abouts: HashSet<Arc<About>>,
    /// Bytes of `rows` and of those that were taken, at most [`MOST_BYTES`].
    held: usize,
    taken: Taken,
    /// Rows that were dropped, all of them after those that wait.
    lost: Lost,
    /// Rows that were dropped so far.
    dropped: u64,
    /// Refusals that are only counted.
    flood: Flood,
    /// A call has waited for [`PATIENCE`], and nothing was written since.
    is_stalled: bool,
}

/// What the writer has taken and not written.
#[derive(Debug, Default)]
struct Taken {
    /// Together with those that wait at most [`MOST_ROWS`].
    rows: usize,
    bytes: usize,
    /// Rows that others stand for: dropped ones, and refusals that were only counted.
    counted: u64,
}

/// Rows that are written together.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// At most [`ENOUGH`].
    pub(super) rows: VecDeque<Queued>,
    /// Refusals that were only counted.
    pub(super) counted: Vec<Row>,
    pub(super) lost: Lost,
}

impl Waiting for Rows {
    fn urgency(&self) -> Urgency {
        if self.rows.len() >= ENOUGH || self.held - self.taken.bytes >= ENOUGH_BYTES {
            Urgency::Now
        } else if self.rows.is_empty() && self.lost.count == 0 {
            Urgency::Idle
        } else {
            Urgency::Gather
        }
    }

    fn due(&self) -> Option<Instant> {
        self.flood.due()
    }
}

impl Rows {
    fn push(&mut self, row: Row, is_closed: bool) {
        let class = row.class();
        if class == Class::Refusals && !is_closed && !self.flood.admit(&row, Instant::now()) {
            return;
        }
        let most_rows = match class {
            Class::Calls | Class::Refusals => MOST_ROWS - RESERVED,
            Class::Servers | Class::Operators => MOST_ROWS,
        };
        let (mut row, mut weight) = self.share(row);
        if self.held + weight > MOST_ARGUMENTS && matches!(row.arguments, Arguments::Kept(_)) {
            weight -= row.weight();
            row.arguments = Arguments::LeftOut;
            weight += row.weight();
        }
        let is_full = self.rows.len() + self.taken.rows >= most_rows || self.held + weight > MOST_BYTES;
        if is_full || is_closed {
            if Arc::strong_count(&row.about) <= 2 {
                // Its room is not counted, so nothing may share it.
                self.abouts.remove(&row.about);
            }
            self.dropped += 1;
            return self.lost.note(row.at);
        }
        self.held += weight;
        self.rows.push_back(row);
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

    fn take(&mut self, batch: &mut Batch, is_closed: bool) {
        debug_assert!(batch.rows.is_empty());
        // What is brought from now on shares nothing with what is taken.
        self.abouts.clear();
        if self.rows.len() <= ENOUGH {
            std::mem::swap(&mut self.rows, &mut batch.rows);
            self.taken.bytes = self.held;
        } else {
            batch.rows.extend(self.rows.drain(..ENOUGH));
            self.taken.bytes = batch.rows.iter().map(Queued::weight).sum();
        }
        // What a stall has made grow is given back.
        self.rows.shrink_to(self.rows.len().max(ENOUGH));
        batch.counted = match is_closed {
            true => self.flood.take_all(),
            false => self.flood.take(Instant::now()),
        };
        if self.rows.is_empty() {
            batch.lost = std::mem::take(&mut self.lost);
        }
        self.taken.rows = batch.rows.len();
        self.taken.counted = batch.lost.count + batch.counted.iter().filter_map(|row| row.count).sum::<u64>();
    }

    /// Gives back the room of what was taken. True if the disk was stalled.
    fn done(&mut self, bytes: usize) -> bool {
        self.held -= bytes;
        self.taken = Taken::default();
        std::mem::take(&mut self.is_stalled)
    }

    fn is_crowded(&self) -> bool {
        self.rows.len() + self.taken.rows >= CROWDED || self.held >= CROWDED_BYTES
    }
}

/// Rows that were dropped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Lost {
    pub(super) count: u64,
    /// When the first and the last were.
    pub(super) first: i64,
    pub(super) last: i64,
}

impl RowQueue {
    pub(super) fn new() -> Self {
        Self { rows: Arc::new(Queue::new(GATHER)), written: Arc::default() }
    }

    /// Brings a row, or counts it where it has no room.
    pub(super) fn push(&self, row: Row) {
        self.rows.change(|rows, is_closed| rows.push(row, is_closed));
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
            Err(_) => self.rows.change(|rows, _| !std::mem::replace(&mut rows.is_stalled, true)),
        }
    }

    /// Returns whether a call is to wait for room.
    pub(super) fn is_worth_waiting(&self) -> bool {
        self.rows.look(|rows, is_closed| rows.is_crowded() && !rows.is_stalled && !is_closed)
    }

    /// Takes some of what waits.
    pub(super) fn take(&self, batch: &mut Batch) {
        self.rows.change(|rows, is_closed| rows.take(batch, is_closed));
    }

    /// Gives back the room of what was taken, and empties the batch. True if the disk was stalled.
    pub(super) fn done(&self, batch: &mut Batch) -> bool {
        // Counted and freed before callers are kept from the queue.
        let bytes = batch.rows.drain(..).map(|row| row.freed()).sum();
        batch.counted.clear();
        batch.lost = Lost::default();
        let was_stalled = self.rows.change(|rows, _| rows.done(bytes));
        self.written.notify_waiters();
        was_stalled
    }

    /// Lets go of calls that wait for room, when nothing will be written any more.
    pub(super) fn release(&self) {
        self.written.notify_waiters();
    }

    /// Returns how many rows were dropped so far.
    pub(super) fn dropped(&self) -> u64 {
        self.rows.look(|rows, _| rows.dropped)
    }

    /// Returns how many rows are neither written nor dropped, and how many that were dropped have no row that says so.
    pub(super) fn unwritten(&self) -> u64 {
        self.rows.look(|rows, _| {
            let waiting = (rows.rows.len() + rows.taken.rows) as u64;
            waiting + rows.taken.counted + rows.lost.count + rows.flood.counted()
        })
    }
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

    /// Takes and gives back everything, and tells of each row its kind and whether it has its arguments, and how many
    /// rows were lost.
    fn drain(queue: &RowQueue) -> (Vec<(Kind, bool)>, u64) {
        let (mut rows, mut lost, mut batch) = (Vec::new(), 0, Batch::default());
        loop {
            queue.take(&mut batch);
            assert!(batch.rows.len() <= ENOUGH, "a transaction is bounded");
            let seen = rows.len();
            rows.extend(
                batch.rows.iter().map(|row| (row.about.kind, matches!(row.arguments, Arguments::Kept(_)))),
            );
            lost += batch.lost.count;
            queue.done(&mut batch);
            if rows.len() == seen {
                return (rows, lost);
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_counted_to_the_last() {
        let queue = RowQueue::new();
        const CALLS: usize = MOST_ROWS - RESERVED;
        (0..CALLS + 500).for_each(|_| queue.push(row(1)));
        assert_eq!(queue.unwritten(), CALLS as u64 + 500);
        let mut batch = Batch::default();
        queue.take(&mut batch);
        assert_eq!(
            (batch.rows.len(), batch.lost.count),
            (ENOUGH, 0),
            "what is lost comes after all that waits"
        );
        queue.push(row(1));
        assert_eq!(queue.dropped(), 501, "what is being written still takes room");
        queue.done(&mut batch);
        queue.push(row(1));
        let (rows, lost) = drain(&queue);
        assert_eq!((rows.len(), lost), (CALLS - ENOUGH + 1, 501));
        assert_eq!((queue.dropped(), queue.unwritten()), (501, 0));
    }

    #[test]
    fn calls_leave_room_for_what_operators_do() {
        let queue = RowQueue::new();
        for _ in 0..MOST_ROWS {
            queue.push(row(1));
        }
        for _ in 0..RESERVED {
            queue.push(Row::now(Kind::Admin, "ok", &Said { action: "token-revoked", ..Said::default() }));
        }
        let (rows, lost) = drain(&queue);
        assert_eq!(lost, RESERVED as u64, "calls alone are lost");
        assert_eq!(rows.iter().filter(|(kind, _)| *kind == Kind::Admin).count(), RESERVED);
    }

    #[test]
    fn large_arguments_are_left_out_before_a_row_is() {
        let queue = RowQueue::new();
        for _ in 0..40 {
            queue.push(row(1 << 20));
        }
        let (rows, lost) = drain(&queue);
        assert_eq!((rows.len(), lost), (40, 0));
        let kept = rows.iter().filter(|(_, has_arguments)| *has_arguments).count();
        assert_eq!(kept, 3);
    }

    #[test]
    fn memory_is_counted_exactly_whoever_shares_it() {
        let queue = RowQueue::new();
        let held = || queue.rows.look(|rows, _| rows.held);
        for round in 0..3 {
            for n in 0..MOST_ROWS + 100 {
                let subject = (n % (SHARED * 2)).to_string();
                let said = Said { subject: &subject, ..Said::default() };
                queue.push(Row::now(Kind::Call, "ok", &said));
            }
            assert!(held() <= MOST_BYTES, "{round}");
            let mut batch = Batch::default();
            queue.take(&mut batch);
            queue.push(row(100));
            queue.done(&mut batch);
            queue.push(row(100));
            drain(&queue);
            assert_eq!(held(), 0, "{round}");
        }
    }

    /// Until calls wait.
    fn crowd(queue: &RowQueue) {
        (0..CROWDED).for_each(|_| queue.push(row(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_waits_for_room_until_rows_are_written() {
        let queue = RowQueue::new();
        assert!(!queue.room().await);
        crowd(&queue);
        let mut batch = Batch::default();
        queue.take(&mut batch);
        let (is_stalled, ()) = tokio::join!(queue.room(), async {
            tokio::task::yield_now().await;
            queue.done(&mut batch);
        });
        assert!(!is_stalled);
    }

    #[tokio::test(start_paused = true)]
    async fn on_a_disk_that_never_answers_one_call_waits_and_the_next_ones_do_not() {
        let queue = RowQueue::new();
        crowd(&queue);
        let began = tokio::time::Instant::now();
        assert!(queue.room().await, "told once");
        assert_eq!(began.elapsed(), PATIENCE);
        assert!(!queue.room().await);
        assert_eq!(began.elapsed(), PATIENCE);
        let mut batch = Batch::default();
        queue.take(&mut batch);
        assert!(queue.done(&mut batch));
        assert!(!queue.is_worth_waiting());
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_wait_go_on_when_nothing_will_be_written_any_more() {
        let queue = RowQueue::new();
        crowd(&queue);
        let (is_stalled, ()) = tokio::join!(queue.room(), async {
            tokio::task::yield_now().await;
            queue.rows.close();
            queue.release();
        });
        assert!(!is_stalled);
    }
}

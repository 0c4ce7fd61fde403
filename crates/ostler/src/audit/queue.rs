//! Queue of rows for the writer thread: bounded in rows and bytes, including those that the writer holds.
//!
//! Without [`wait_for_room`](RowQueue::wait_for_room) nothing waits for the disk: a row without room is counted and dropped.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::{HashMap, HashSet};
use ostler_store::{Backlog, Urgency, WriterQueue};
use tokio::sync::Notify;

use super::refusal_limiter::RefusalLimiter;
use super::row::{self, AuditRow, QueuedRow, RowArguments, RowClass, SharedColumns};

/// Upper bound on queued rows: one second of a daemon's peak throughput, in which the disk may stall.
pub(super) const MAX_ROWS: usize = 65_536;
/// Upper bound on bytes of queued rows.
pub(super) const MAX_BYTES: usize = 8 << 20;
/// Bytes from which arguments are left out, so that rows are not dropped for them.
const MAX_ARGUMENTS_BYTES: usize = MAX_BYTES / 2;
/// Rows reserved for operators and servers; calls can't take them.
const RESERVED_ROWS: usize = MAX_ROWS / 8;
/// Time in which rows gather for one batch.
const GATHER_TIME: Duration = Duration::from_millis(200);
/// Rows that end the gathering of a batch, and upper bound on rows of one transaction.
pub(super) const ROWS_PER_TRANSACTION: usize = 4_096;
/// Bytes of rows that end the gathering of a batch: large arguments are hashed while there is room for others.
const BYTES_PER_TRANSACTION: usize = MAX_BYTES / 8;
/// Upper bound on shared parts in the lookup set. Rows beyond it have a part each.
const MAX_SHARED: usize = 1_024;
/// Rows from which calls wait for room. The other half is reserved for calls in flight.
const WAIT_ROWS: usize = MAX_ROWS / 2;
/// Bytes from which calls wait for room.
const WAIT_BYTES: usize = MAX_ARGUMENTS_BYTES / 2;
/// Bytes of long arguments of one caller from which only its calls wait. A caller's excess delays no other caller.
const CALLER_SHARE: usize = WAIT_BYTES / 8;
/// Shortest arguments that count against their caller. Rows with shorter ones are bounded by their number.
const LONG_ARGUMENTS: usize = 256;
/// Timeout of a call's wait for room. After it the disk counts as stalled, and no call waits until rows are written
/// again.
pub(super) const ROOM_TIMEOUT: Duration = Duration::from_secs(5);

/// Queue, and the notification that wakes calls that wait for room in it.
#[derive(Debug, Clone)]
pub(super) struct RowQueue {
    pub(super) rows: Arc<WriterQueue<PendingRows>>,
    rows_written: Arc<Notify>,
    /// Hashes principals. Two principals of one hash share their room and nothing else.
    hasher: RandomState,
}

/// Queued rows and their accounts.
#[derive(Debug, Default)]
pub(super) struct PendingRows {
    rows: VecDeque<QueuedRow>,
    /// Shared parts of rows that were pushed since the last take, at most [`MAX_SHARED`].
    shared_parts: HashSet<Arc<SharedColumns>>,
    /// Bytes of `rows` and of rows in writing, at most [`MAX_BYTES`].
    held_bytes: usize,
    /// Bytes of long arguments among them, by the hash of their caller. No entry is zero.
    by_caller: HashMap<u64, usize>,
    /// Bytes that callers hold beyond [`CALLER_SHARE`].
    excess_bytes: usize,
    in_writing: RowsInWriting,
    /// Dropped rows without a gap row; all are newer than the queued rows.
    unreported: DroppedRows,
    /// Rows dropped since the start.
    dropped: u64,
    /// Refusals that are counted without a row each.
    refusals: RefusalLimiter,
    /// True after a call waited for [`ROOM_TIMEOUT`], until rows are written again.
    is_stalled: bool,
}

/// Rows that the writer has taken and not written.
#[derive(Debug, Default)]
struct RowsInWriting {
    /// Together with the queued rows at most [`MAX_ROWS`].
    rows: usize,
    bytes: usize,
    /// Rows that other rows stand for: dropped ones, and refusals that were only counted.
    counted: u64,
}

/// Rows that are written together.
#[derive(Debug, Default)]
pub(super) struct AuditBatch {
    /// At most [`ROWS_PER_TRANSACTION`].
    pub(super) rows: VecDeque<QueuedRow>,
    /// Refusals that were only counted.
    pub(super) refusal_counts: Vec<AuditRow>,
    pub(super) dropped: DroppedRows,
}

impl Backlog for PendingRows {
    fn urgency(&self) -> Urgency {
        if self.rows.len() >= ROWS_PER_TRANSACTION
            || self.held_bytes - self.in_writing.bytes >= BYTES_PER_TRANSACTION
        {
            Urgency::Now
        } else if self.rows.is_empty() && self.unreported.count == 0 {
            Urgency::Idle
        } else {
            Urgency::Batch
        }
    }

    fn due(&self) -> Option<Instant> {
        self.refusals.due()
    }
}

impl PendingRows {
    /// Queues a row of the caller with this hash, and counts its arguments if they are long.
    fn push(&mut self, row: AuditRow, caller: u64, is_closed: bool) {
        let class = row.class();
        if class == RowClass::Refusals && !is_closed && !self.refusals.admit(&row, Instant::now()) {
            return;
        }
        let most_rows = match class {
            RowClass::Calls | RowClass::Refusals => MAX_ROWS - RESERVED_ROWS,
            RowClass::Servers | RowClass::Operators => MAX_ROWS,
        };
        let (mut row, mut weight) = self.queue_row(row);
        // Rows of other callers leave the share of each caller free.
        let held = || self.by_caller.get(&caller).copied().unwrap_or_default();
        let is_full = self.held_bytes + weight > MAX_ARGUMENTS_BYTES
            && (held() + weight > CALLER_SHARE
                || self.held_bytes + weight > MAX_ARGUMENTS_BYTES + WAIT_BYTES);
        if is_full && matches!(row.arguments, RowArguments::Kept(_)) {
            weight -= row.memory_bytes();
            row.arguments = RowArguments::Omitted;
            weight += row.memory_bytes();
        }
        let is_full =
            self.rows.len() + self.in_writing.rows >= most_rows || self.held_bytes + weight > MAX_BYTES;
        if is_full || is_closed {
            if Arc::strong_count(&row.shared) <= 2 {
                // A row that is not queued holds no counted bytes, so nothing may share its part.
                self.shared_parts.remove(&row.shared);
            }
            self.dropped += 1;
            return self.unreported.add(row.at);
        }
        self.held_bytes += weight;
        if let Some(bytes) = row.long_arguments() {
            let held = self.by_caller.entry(caller).or_default();
            self.excess_bytes += excess(*held + bytes) - excess(*held);
            *held += bytes;
        }
        self.rows.push_back(row);
    }

    /// Releases the bytes of a caller's long arguments.
    fn release(&mut self, caller: u64, bytes: usize) {
        let Some(held) = self.by_caller.get_mut(&caller) else { return };
        self.excess_bytes -= excess(*held) - excess(*held - bytes);
        *held -= bytes;
        if *held == 0 {
            self.by_caller.remove(&caller);
        }
    }

    /// Converts a row for the queue, and returns it with the bytes that it adds.
    fn queue_row(&mut self, row: AuditRow) -> (QueuedRow, usize) {
        let mut added = 0;
        let abouts = &mut self.shared_parts;
        let queued = row.into_queued(|about| {
            if let Some(shared) = abouts.get(&about) {
                return Arc::clone(shared);
            }
            added = about.memory_bytes();
            let about = Arc::new(about);
            if abouts.len() < MAX_SHARED {
                abouts.insert(Arc::clone(&about));
            }
            about
        });
        let weight = added + queued.memory_bytes();
        (queued, weight)
    }

    fn take(&mut self, batch: &mut AuditBatch, is_closed: bool) {
        debug_assert!(batch.rows.is_empty());
        // Rows that are pushed from now on share nothing with taken ones.
        self.shared_parts.clear();
        if self.rows.len() <= ROWS_PER_TRANSACTION {
            std::mem::swap(&mut self.rows, &mut batch.rows);
            self.in_writing.bytes = self.held_bytes;
        } else {
            batch.rows.extend(self.rows.drain(..ROWS_PER_TRANSACTION));
            self.in_writing.bytes = batch.rows.iter().map(QueuedRow::memory_bytes).sum();
        }
        // Releases the memory that a stall has claimed.
        self.rows.shrink_to(self.rows.len().max(ROWS_PER_TRANSACTION));
        batch.refusal_counts = match is_closed {
            true => self.refusals.take_all(),
            false => self.refusals.take_due(Instant::now()),
        };
        if self.rows.is_empty() {
            batch.dropped = std::mem::take(&mut self.unreported);
        }
        self.in_writing.rows = batch.rows.len();
        self.in_writing.counted =
            batch.dropped.count + batch.refusal_counts.iter().filter_map(|row| row.count).sum::<u64>();
    }

    /// Releases the room of taken rows. Returns whether the disk was stalled.
    fn finish(&mut self, bytes: usize) -> bool {
        self.held_bytes -= bytes;
        self.in_writing = RowsInWriting::default();
        std::mem::take(&mut self.is_stalled)
    }

    /// Returns whether a caller has to wait. `caller` computes its hash, only where it is needed.
    fn is_nearly_full(&self, caller: impl FnOnce() -> u64) -> bool {
        if self.rows.len() + self.in_writing.rows >= WAIT_ROWS
            || self.held_bytes - self.excess_bytes >= WAIT_BYTES
        {
            return true;
        }
        self.held_bytes >= WAIT_BYTES
            && self.by_caller.get(&caller()).is_some_and(|held| *held > CALLER_SHARE)
    }
}

/// Returns the bytes of a caller beyond its share.
fn excess(held: usize) -> usize {
    held.saturating_sub(CALLER_SHARE)
}

impl QueuedRow {
    /// Returns the bytes of the arguments, if they count against their caller.
    fn long_arguments(&self) -> Option<usize> {
        match &self.arguments {
            RowArguments::Kept(bytes) if bytes.len() >= LONG_ARGUMENTS => Some(bytes.len()),
            _ => None,
        }
    }
}

/// Account of dropped rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct DroppedRows {
    pub(super) count: u64,
    /// Times of the first and of the last one.
    pub(super) first: i64,
    pub(super) last: i64,
}

impl RowQueue {
    pub(super) fn new() -> Self {
        Self {
            rows: Arc::new(WriterQueue::new(GATHER_TIME)),
            rows_written: Arc::default(),
            hasher: RandomState::new(),
        }
    }

    /// Queues a row, or counts it as dropped where it has no room.
    pub(super) fn push(&self, row: AuditRow) {
        let caller = match &row.arguments {
            RowArguments::Kept(bytes) if bytes.len() >= LONG_ARGUMENTS => {
                self.hasher.hash_one(row.fields.unpack().principal)
            }
            _ => 0,
        };
        self.rows.update(|rows, is_closed| rows.push(row, caller, is_closed));
    }

    /// Waits until calls of a principal have room for their rows; returns at once while they have room or the disk is
    /// stalled. Returns true if this wait has detected the stall.
    pub(super) async fn wait_for_room(&self, principal: &str) -> bool {
        let wait = async {
            loop {
                let mut written = std::pin::pin!(self.rows_written.notified());
                // Registered before the check, so that no wake is missed.
                written.as_mut().enable();
                if !self.should_wait(principal) {
                    return;
                }
                written.await;
            }
        };
        match tokio::time::timeout(ROOM_TIMEOUT, wait).await {
            Ok(()) => false,
            Err(_) => self.rows.update(|rows, _| !std::mem::replace(&mut rows.is_stalled, true)),
        }
    }

    /// Returns whether a call of a principal has to wait for room.
    pub(super) fn should_wait(&self, principal: &str) -> bool {
        let caller = || self.hasher.hash_one(principal);
        self.rows.inspect(|rows, is_closed| rows.is_nearly_full(caller) && !rows.is_stalled && !is_closed)
    }

    /// Moves queued rows into a batch.
    pub(super) fn take(&self, batch: &mut AuditBatch) {
        self.rows.update(|rows, is_closed| rows.take(batch, is_closed));
    }

    /// Releases the room of a batch and empties it. Returns whether the disk was stalled.
    pub(super) fn finish(&self, batch: &mut AuditBatch) -> bool {
        // Counted and freed before the lock is taken.
        let mut by_caller: HashMap<u64, usize> = HashMap::new();
        let mut free = |row: QueuedRow| {
            if let Some(bytes) = row.long_arguments() {
                let caller = self.hasher.hash_one(row.shared.fields.unpack().principal);
                *by_caller.entry(caller).or_default() += bytes;
            }
            row.into_freed_bytes()
        };
        let bytes = batch.rows.drain(..).map(&mut free).sum();
        batch.refusal_counts.clear();
        batch.dropped = DroppedRows::default();
        let was_stalled = self.rows.update(|rows, _| {
            by_caller.into_iter().for_each(|(caller, bytes)| rows.release(caller, bytes));
            rows.finish(bytes)
        });
        self.rows_written.notify_waiters();
        was_stalled
    }

    /// Wakes all calls that wait for room, when nothing will be written any more.
    pub(super) fn release_waiters(&self) {
        self.rows_written.notify_waiters();
    }

    /// Returns how many rows were dropped so far.
    pub(super) fn dropped(&self) -> u64 {
        self.rows.inspect(|rows, _| rows.dropped)
    }

    /// Returns how many rows were dropped and are in no batch yet.
    pub(super) fn unreported(&self) -> u64 {
        self.rows.inspect(|rows, _| rows.unreported.count)
    }

    /// Returns how many rows are neither written nor dropped, and how many dropped rows have no gap row.
    pub(super) fn unwritten(&self) -> u64 {
        self.rows.inspect(|rows, _| {
            let waiting = (rows.rows.len() + rows.in_writing.rows) as u64;
            waiting + rows.in_writing.counted + rows.unreported.count + rows.refusals.unrecorded()
        })
    }
}

impl DroppedRows {
    fn add(&mut self, at: i64) {
        if self.count == 0 {
            self.first = at;
        }
        self.count += 1;
        self.last = at;
    }

    /// Returns the gap row that stands for all of them, with the cause.
    pub(super) fn gap_row(&self, cause: &str) -> Option<AuditRow> {
        (self.count > 0).then(|| {
            let detail = format!(
                "the queue was full for {}: {cause}",
                ostler_core::fault::HumanDuration(Duration::from_micros(
                    (self.last - self.first).unsigned_abs()
                ))
            );
            let said = row::RowFields { action: "dropped", detail: &detail, ..Default::default() };
            AuditRow {
                at: self.first,
                count: Some(self.count),
                ..AuditRow::now(row::RowKind::Gap, "lost", &said)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::row::{RowFields, RowKind};

    fn row(bytes: usize) -> AuditRow {
        let arguments = RowArguments::Kept(vec![b'x'; bytes].into());
        AuditRow { arguments, ..AuditRow::now(RowKind::Call, "ok", &RowFields::default()) }
    }

    /// Takes and gives back everything, and tells of each row its kind and whether it has its arguments, and how many
    /// rows were lost.
    fn drain(queue: &RowQueue) -> (Vec<(RowKind, bool)>, u64) {
        let (mut rows, mut lost, mut batch) = (Vec::new(), 0, AuditBatch::default());
        loop {
            queue.take(&mut batch);
            assert!(batch.rows.len() <= ROWS_PER_TRANSACTION, "a transaction is bounded");
            let seen = rows.len();
            rows.extend(
                batch
                    .rows
                    .iter()
                    .map(|row| (row.shared.kind, matches!(row.arguments, RowArguments::Kept(_)))),
            );
            lost += batch.dropped.count;
            queue.finish(&mut batch);
            if rows.len() == seen {
                return (rows, lost);
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_counted_to_the_last() {
        let queue = RowQueue::new();
        const CALLS: usize = MAX_ROWS - RESERVED_ROWS;
        (0..CALLS + 500).for_each(|_| queue.push(row(1)));
        assert_eq!(queue.unwritten(), CALLS as u64 + 500);
        let mut batch = AuditBatch::default();
        queue.take(&mut batch);
        assert_eq!(
            (batch.rows.len(), batch.dropped.count),
            (ROWS_PER_TRANSACTION, 0),
            "what is lost comes after all that waits"
        );
        queue.push(row(1));
        assert_eq!(queue.dropped(), 501, "what is being written still takes room");
        queue.finish(&mut batch);
        queue.push(row(1));
        let (rows, lost) = drain(&queue);
        assert_eq!((rows.len(), lost), (CALLS - ROWS_PER_TRANSACTION + 1, 501));
        assert_eq!((queue.dropped(), queue.unwritten()), (501, 0));
    }

    #[test]
    fn calls_leave_room_for_what_operators_do() {
        let queue = RowQueue::new();
        for _ in 0..MAX_ROWS {
            queue.push(row(1));
        }
        for _ in 0..RESERVED_ROWS {
            queue.push(AuditRow::now(
                RowKind::Admin,
                "ok",
                &RowFields { action: "token-revoked", ..RowFields::default() },
            ));
        }
        let (rows, lost) = drain(&queue);
        assert_eq!(lost, RESERVED_ROWS as u64, "calls alone are lost");
        assert_eq!(rows.iter().filter(|(kind, _)| *kind == RowKind::Admin).count(), RESERVED_ROWS);
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
        let held = || queue.rows.inspect(|rows, _| rows.held_bytes);
        for round in 0..3 {
            for n in 0..MAX_ROWS + 100 {
                let subject = (n % (MAX_SHARED * 2)).to_string();
                let said = RowFields { subject: &subject, ..RowFields::default() };
                queue.push(AuditRow::now(RowKind::Call, "ok", &said));
            }
            assert!(held() <= MAX_BYTES, "{round}");
            let mut batch = AuditBatch::default();
            queue.take(&mut batch);
            queue.push(row(100));
            queue.finish(&mut batch);
            queue.push(row(100));
            drain(&queue);
            assert_eq!(held(), 0, "{round}");
        }
    }

    /// Until calls wait.
    fn crowd(queue: &RowQueue) {
        (0..WAIT_ROWS).for_each(|_| queue.push(row(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_waits_for_room_until_rows_are_written() {
        let queue = RowQueue::new();
        assert!(!queue.wait_for_room("ada").await);
        crowd(&queue);
        let mut batch = AuditBatch::default();
        queue.take(&mut batch);
        let (is_stalled, ()) = tokio::join!(queue.wait_for_room("ada"), async {
            tokio::task::yield_now().await;
            queue.finish(&mut batch);
        });
        assert!(!is_stalled);
    }

    #[tokio::test(start_paused = true)]
    async fn on_a_disk_that_never_answers_one_call_waits_and_the_next_ones_do_not() {
        let queue = RowQueue::new();
        crowd(&queue);
        let began = tokio::time::Instant::now();
        assert!(queue.wait_for_room("ada").await, "told once");
        assert_eq!(began.elapsed(), ROOM_TIMEOUT);
        assert!(!queue.wait_for_room("ada").await);
        assert_eq!(began.elapsed(), ROOM_TIMEOUT);
        let mut batch = AuditBatch::default();
        queue.take(&mut batch);
        assert!(queue.finish(&mut batch));
        assert!(!queue.should_wait("ada"));
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_wait_go_on_when_nothing_will_be_written_any_more() {
        let queue = RowQueue::new();
        crowd(&queue);
        let (is_stalled, ()) = tokio::join!(queue.wait_for_room("ada"), async {
            tokio::task::yield_now().await;
            queue.rows.close();
            queue.release_waiters();
        });
        assert!(!is_stalled);
    }

    /// A row of a caller, with arguments of so many bytes.
    fn row_of(principal: &str, bytes: usize) -> AuditRow {
        let arguments = RowArguments::Kept(vec![b'x'; bytes].into());
        AuditRow {
            arguments,
            ..AuditRow::now(RowKind::Call, "ok", &RowFields { principal, ..RowFields::default() })
        }
    }

    #[test]
    fn large_arguments_of_one_caller_keep_that_caller_waiting_and_no_other() {
        let queue = RowQueue::new();
        queue.push(row_of("bob", MAX_ARGUMENTS_BYTES - 4_096));
        assert!(queue.should_wait("bob") && !queue.should_wait("ann"));
        queue.push(row_of("ann", 100_000));
        assert!(!queue.should_wait("ann"), "it has its share of the room");
        let (kept, _) = drain(&queue);
        assert!(
            kept.iter().all(|(_, has_arguments)| *has_arguments),
            "the arguments of others were left out"
        );
        assert!(!queue.should_wait("bob"));
        queue.rows.inspect(|rows, _| assert!(rows.by_caller.is_empty() && rows.excess_bytes == 0));
    }

    #[test]
    fn many_callers_with_their_shares_wait_together() {
        let queue = RowQueue::new();
        for n in 0..WAIT_BYTES / CALLER_SHARE {
            assert!(!queue.should_wait("ann"));
            queue.push(row_of(&n.to_string(), CALLER_SHARE));
        }
        assert!(queue.should_wait("ann") && queue.should_wait("0"));
    }
}

//! Frame queue of one stream: frames wait for their reader, and are kept for a reader that lost the connection.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use tokio::time::Instant;

/// Bounds of a queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueBounds {
    pub(crate) frames: usize,
    /// A single larger frame is accepted if the queue is empty.
    pub(crate) bytes: usize,
}

/// Frame queue of one stream. Writers never wait: a frame that does not fit is refused.
///
/// ```text
///  open ──finish──▶ finished      the answer is in; readers end after it
///    └───cancel───▶ cancelled     no more frames; readers end at once
/// ```
///
/// Frames are numbered from 1. Read frames are dropped, unless the queue [keeps](FrameQueue::keep_read) them for a
/// reader that comes back.
#[derive(Debug)]
pub(crate) struct FrameQueue {
    bounds: QueueBounds,
    state: Mutex<FrameQueueState>,
}

#[derive(Debug)]
struct FrameQueueState {
    /// Read frames that are kept, then `unread` frames.
    frames: VecDeque<Bytes>,
    unread: usize,
    /// Bytes of the unread frames.
    unread_bytes: usize,
    /// Number of the first frame held.
    first_number: u64,
    /// Bytes of all frames held.
    bytes: usize,
    phase: FrameQueuePhase,
    /// True if every frame but the answer is refused.
    accepts_only_answer: bool,
    keeps_read: bool,
    /// Number of readers so far; only the last one gets frames.
    readers: u64,
    /// Time at which the last reader went away.
    detached_since: Option<Instant>,
    reader: Option<Waker>,
    producer: Option<Waker>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FrameQueuePhase {
    Open,
    Finished,
    Cancelled,
}

impl FrameQueue {
    pub(crate) fn new(bounds: QueueBounds) -> Self {
        let state = FrameQueueState {
            frames: VecDeque::new(),
            unread: 0,
            unread_bytes: 0,
            first_number: 1,
            bytes: 0,
            phase: FrameQueuePhase::Open,
            accepts_only_answer: false,
            keeps_read: false,
            readers: 0,
            detached_since: None,
            reader: None,
            producer: None,
        };
        Self { bounds, state: Mutex::new(state) }
    }

    /// Adds a frame; false if the queue is closed or full.
    pub(crate) fn push(&self, frame: Bytes) -> bool {
        let mut state = self.state();
        let is_closed = state.phase != FrameQueuePhase::Open || state.accepts_only_answer;
        if is_closed || !state.has_room(&self.bounds, frame.len()) {
            return false;
        }
        state.append(frame);
        wake(state.reader.take(), state);
        true
    }

    /// Refuses every frame but the answer from now on: the client could not read it.
    pub(crate) fn accept_only_answer(&self) {
        self.state().accepts_only_answer = true;
    }

    /// Ends the stream with the answer, which is accepted even if the queue is full.
    pub(crate) fn finish(&self, answer: Option<Bytes>) {
        let mut state = self.state();
        if state.phase != FrameQueuePhase::Open {
            return;
        }
        state.phase = FrameQueuePhase::Finished;
        if let Some(answer) = answer {
            state.append(answer);
        }
        wake(state.reader.take(), state);
    }

    /// Closes the queue, since the answer is no longer needed.
    pub(crate) fn cancel(&self) {
        let mut state = self.state();
        if state.phase != FrameQueuePhase::Open {
            return;
        }
        state.phase = FrameQueuePhase::Cancelled;
        let runner = state.producer.take();
        wake(state.reader.take(), state);
        if let Some(runner) = runner {
            runner.wake();
        }
    }

    /// Ready once the queue is cancelled.
    pub(crate) fn poll_cancelled(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state();
        if state.phase == FrameQueuePhase::Cancelled {
            return Poll::Ready(());
        }
        store_waker(&mut state.producer, cx);
        Poll::Pending
    }

    /// Ready once there is a frame to read.
    pub(crate) fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state();
        if state.unread > 0 {
            return Poll::Ready(());
        }
        store_waker(&mut state.reader, cx);
        Poll::Pending
    }

    /// Returns whether there is nothing to read.
    pub(crate) fn is_empty(&self) -> bool {
        self.state().unread == 0
    }

    /// Returns the next frame, if there is one.
    pub(crate) fn pop(&self) -> Option<Bytes> {
        self.state().pop_unread(&self.bounds).map(|(_, frame)| frame)
    }

    /// Keeps read frames, up to the bounds, for a reader that comes back.
    pub(crate) fn keep_read(&self) {
        self.state().keeps_read = true;
    }

    /// Attaches a reader that starts behind the frame `last`, and replaces the previous reader.
    pub(crate) fn attach(self: &Arc<Self>, last: Option<u64>) -> FrameReader {
        let mut state = self.state();
        state.readers += 1;
        state.detached_since = None;
        if let Some(last) = last {
            state.rewind(last);
        }
        let number = state.readers;
        wake(state.reader.take(), state);
        FrameReader { queue: Arc::clone(self), number }
    }

    /// Returns the time since which a closed queue has had no reader; `None` while it is open or read.
    pub(crate) fn abandoned_since(&self) -> Option<Instant> {
        let state = self.state();
        state.detached_since.filter(|_| state.phase != FrameQueuePhase::Open)
    }

    /// Returns the time since which there has been no reader; `None` while there is one.
    pub(crate) fn detached_since(&self) -> Option<Instant> {
        self.state().detached_since
    }

    /// Drops read frames, and unread ones too if there is no reader.
    pub(crate) fn discard(&self) {
        let mut state = self.state();
        if state.detached_since.is_some() {
            (state.unread, state.unread_bytes) = (0, 0);
        }
        state.trim(&QueueBounds { frames: 0, bytes: 0 });
    }

    /// Returns the bytes of all frames held.
    pub(crate) fn size(&self) -> usize {
        self.state().bytes
    }

    /// Returns whether the queue is closed for new frames.
    pub(crate) fn is_closed(&self) -> bool {
        self.state().phase != FrameQueuePhase::Open
    }

    fn state(&self) -> MutexGuard<'_, FrameQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FrameQueueState {
    fn has_room(&self, bounds: &QueueBounds, size: usize) -> bool {
        self.unread == 0 || self.unread < bounds.frames && self.unread_bytes + size <= bounds.bytes
    }

    fn append(&mut self, frame: Bytes) {
        self.bytes += frame.len();
        self.unread_bytes += frame.len();
        self.frames.push_back(frame);
        self.unread += 1;
    }

    fn pop_unread(&mut self, bounds: &QueueBounds) -> Option<(u64, Bytes)> {
        if self.unread == 0 {
            return None;
        }
        let at = self.frames.len() - self.unread;
        let taken = (self.first_number + at as u64, self.frames[at].clone());
        self.unread -= 1;
        self.unread_bytes -= taken.1.len();
        self.trim(bounds);
        Some(taken)
    }

    /// Drops read frames, oldest first, until the bounds are met.
    fn trim(&mut self, bounds: &QueueBounds) {
        while self.frames.len() > self.unread {
            let fits = self.frames.len() <= bounds.frames && self.bytes <= bounds.bytes;
            if self.keeps_read && fits {
                return;
            }
            if let Some(frame) = self.frames.pop_front() {
                self.bytes -= frame.len();
                self.first_number += 1;
            }
        }
    }

    /// Marks every frame behind `last` as unread again, as far as it is still held.
    fn rewind(&mut self, last: u64) {
        let seen = last.saturating_add(1).saturating_sub(self.first_number).min(self.frames.len() as u64);
        self.unread = self.frames.len() - seen as usize;
        self.unread_bytes = self.frames.iter().skip(seen as usize).map(Bytes::len).sum();
    }
}

/// Reader of a queue, until the queue ends, the client goes, or another reader attaches.
#[derive(Debug)]
pub(crate) struct FrameReader {
    queue: Arc<FrameQueue>,
    number: u64,
}

impl FrameReader {
    /// Returns the next frame and its number, or `None` at the end.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<(u64, Bytes)>> {
        let mut state = self.queue.state();
        if state.readers != self.number || state.phase == FrameQueuePhase::Cancelled {
            return Poll::Ready(None);
        }
        if let Some(taken) = state.pop_unread(&self.queue.bounds) {
            return Poll::Ready(Some(taken));
        }
        if state.phase == FrameQueuePhase::Finished {
            return Poll::Ready(None);
        }
        store_waker(&mut state.reader, cx);
        Poll::Pending
    }

    /// Returns whether the queue is cancelled, or finished and read to its end.
    pub(crate) fn is_done(&self) -> bool {
        let state = self.queue.state();
        state.phase == FrameQueuePhase::Cancelled
            || state.phase == FrameQueuePhase::Finished && state.unread == 0
    }

    /// Returns the number of the last frame that was read.
    pub(crate) fn position(&self) -> u64 {
        let state = self.queue.state();
        state.first_number + (state.frames.len() - state.unread) as u64 - 1
    }

    pub(crate) fn queue(&self) -> &Arc<FrameQueue> {
        &self.queue
    }
}

impl Drop for FrameReader {
    fn drop(&mut self) {
        let mut state = self.queue.state();
        if state.readers == self.number {
            state.detached_since = Some(Instant::now());
        }
    }
}

fn store_waker(place: &mut Option<Waker>, cx: &Context<'_>) {
    match place {
        Some(waker) => waker.clone_from(cx.waker()),
        None => *place = Some(cx.waker().clone()),
    }
}

/// Wakes after the lock is released, so that the woken task does not wait for it.
fn wake(waker: Option<Waker>, state: MutexGuard<'_, FrameQueueState>) {
    drop(state);
    if let Some(waker) = waker {
        waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: QueueBounds = QueueBounds { frames: 2, bytes: 8 };

    fn read(reader: &mut FrameReader) -> Option<(u64, Bytes)> {
        let mut cx = Context::from_waker(Waker::noop());
        match reader.poll_next(&mut cx) {
            Poll::Ready(next) => next,
            Poll::Pending => None,
        }
    }

    #[test]
    fn what_nobody_reads_is_refused_at_the_bounds() {
        let queue = FrameQueue::new(SMALL);
        assert!(queue.push("123".into()));
        assert!(!queue.push("123456".into()), "too many bytes");
        assert!(queue.push("4".into()));
        assert!(!queue.push("5".into()), "too many frames");
        assert_eq!(queue.pop().unwrap(), "123");
        assert!(queue.push("5".into()));
    }

    #[test]
    fn a_frame_larger_than_the_bounds_goes_alone() {
        let queue = FrameQueue::new(SMALL);
        assert!(queue.push("123456789".into()));
        assert!(!queue.push("0".into()));
    }

    #[test]
    fn the_answer_always_finds_room_and_is_the_last() {
        let queue = Arc::new(FrameQueue::new(SMALL));
        let mut reader = queue.attach(None);
        queue.push("1".into());
        queue.push("2".into());
        queue.finish(Some("answer".into()));
        assert!(!queue.push("late".into()));
        let all: Vec<_> = std::iter::from_fn(|| read(&mut reader)).map(|(at, _)| at).collect();
        assert_eq!(all, [1, 2, 3]);
        assert!(reader.is_done());
    }

    #[test]
    fn a_reader_that_comes_back_reads_on_where_it_was() {
        let queue = Arc::new(FrameQueue::new(SMALL));
        queue.keep_read();
        let mut reader = queue.attach(None);
        queue.push("1".into());
        assert_eq!(read(&mut reader).unwrap().0, 1);
        queue.push("2".into());
        assert_eq!(read(&mut reader).unwrap().0, 2);
        drop(reader);
        queue.finish(Some("3".into()));
        let mut again = queue.attach(Some(1));
        assert_eq!(read(&mut again).unwrap(), (2, "2".into()));
        assert_eq!(read(&mut again).unwrap(), (3, "3".into()));
        assert_eq!(read(&mut again), None);
    }

    #[test]
    fn a_later_reader_takes_the_stream_over() {
        let queue = Arc::new(FrameQueue::new(SMALL));
        let mut old = queue.attach(None);
        let mut new = queue.attach(None);
        queue.push("1".into());
        assert_eq!(read(&mut old), None);
        assert_eq!(read(&mut new).unwrap().0, 1);
        drop(old);
        assert!(queue.state().detached_since.is_none(), "the one who reads is still there");
    }
}

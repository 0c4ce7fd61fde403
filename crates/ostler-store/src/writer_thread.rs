//! Writer thread and its queue: work is added under a short lock and never waits for the disk; the thread writes it in
//! batches.

use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

/// Work that waits for the thread, bounded by the code that adds to it.
pub trait Backlog: Default + Send + 'static {
    /// Returns the urgency of the work.
    fn urgency(&self) -> Urgency;

    /// Returns the time at which there will be work without an addition.
    fn due(&self) -> Option<Instant> {
        None
    }
}

/// Urgency of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// There is no work.
    Idle,
    /// More work is gathered first.
    Batch,
    /// At once: a caller waits for it, or there is enough.
    Now,
}

/// Queue of work for a writer thread.
pub struct WriterQueue<W> {
    state: Mutex<WriterQueueState<W>>,
    /// Wakes the thread.
    wake: Condvar,
    /// Time for which work that is not urgent is gathered.
    batch_delay: Duration,
}

struct WriterQueueState<W> {
    backlog: W,
    is_closed: bool,
}

/// Writer of batches, on a thread of its own.
pub trait BatchWriter: Send + 'static {
    /// Work that waits for it.
    type Waiting: Backlog;

    /// Writes a part of the waiting work. The last call writes all of it, as far as it ever can.
    fn write_batch(&mut self, queue: &WriterQueue<Self::Waiting>, is_last: bool) -> NextBatch;
}

/// Time of the next batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextBatch {
    /// As soon as there is work, or after that long.
    Wait(Duration),
    /// After that long, even if work arrives: the waiting work can't be written now.
    Pause(Duration),
}

impl<W: Backlog> WriterQueue<W> {
    /// Makes an empty queue, in which work that is not urgent is gathered for that long.
    pub fn new(batch_delay: Duration) -> Self {
        let state = WriterQueueState { backlog: W::default(), is_closed: false };
        Self { state: Mutex::new(state), wake: Condvar::new(), batch_delay }
    }

    /// Changes the waiting work, and wakes the thread if it is due earlier than before. The change gets `true` if the
    /// queue is closed, since work added then may never be written.
    pub fn update<R>(&self, change: impl FnOnce(&mut W, bool) -> R) -> R {
        let mut state = self.lock();
        let WriterQueueState { backlog: waiting, is_closed } = &mut *state;
        let (urgency, due) = (waiting.urgency(), waiting.due());
        let result = change(waiting, *is_closed);
        let is_sooner = waiting.urgency() > urgency || waiting.due() != due;
        drop(state);
        if is_sooner {
            self.wake.notify_one();
        }
        result
    }

    /// Reads the waiting work.
    pub fn inspect<R>(&self, look: impl FnOnce(&W, bool) -> R) -> R {
        let state = self.lock();
        look(&state.backlog, state.is_closed)
    }

    /// Closes the queue: the thread writes its last batch.
    pub fn close(&self) {
        self.lock().is_closed = true;
        self.wake.notify_one();
    }

    /// Waits until there is work and it has been gathered, or until the timeout. Returns whether the queue is closed.
    fn wait(&self, patience: Duration) -> bool {
        let end = Instant::now() + patience;
        let mut state = self.lock();
        while !state.is_closed && state.backlog.urgency() == Urgency::Idle {
            let until = state.backlog.due().map_or(end, |due| due.min(end));
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.wake.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let gathered = end.min(Instant::now() + self.batch_delay);
        self.wait_until(state, gathered, |waiting| waiting.urgency() == Urgency::Now)
    }

    /// Waits for the timeout or the close of the queue. Returns whether it is closed.
    fn pause(&self, patience: Duration) -> bool {
        self.wait_until(self.lock(), Instant::now() + patience, |_| false)
    }

    fn wait_until(
        &self,
        mut state: MutexGuard<'_, WriterQueueState<W>>,
        end: Instant,
        is_time: impl Fn(&W) -> bool,
    ) -> bool {
        while !state.is_closed && !is_time(&state.backlog) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.wake.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.is_closed
    }

    fn lock(&self) -> MutexGuard<'_, WriterQueueState<W>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<W> fmt::Debug for WriterQueue<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}

/// Writer thread. Dropping it closes the queue; the thread writes the remaining work and ends by itself.
pub struct WriterThread<W: Backlog> {
    queue: Arc<WriterQueue<W>>,
    /// Disconnects when the thread has ended.
    ended: Mutex<mpsc::Receiver<()>>,
}

impl<W: Backlog> WriterThread<W> {
    /// Starts a thread for a queue.
    pub fn spawn<S>(name: &str, queue: Arc<WriterQueue<W>>, server: S) -> io::Result<Self>
    where
        S: BatchWriter<Waiting = W>,
    {
        let (ending, ended) = mpsc::channel::<()>();
        let serving = Arc::clone(&queue);
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            // Dropped with the thread, also if it panics.
            let _ending = ending;
            // Dropped before: the work of its drop, such as closing a file, belongs to the thread.
            let mut server = server;
            let mut next = NextBatch::Wait(Duration::ZERO);
            loop {
                let is_last = match next {
                    NextBatch::Wait(patience) => serving.wait(patience),
                    NextBatch::Pause(patience) => serving.pause(patience),
                };
                next = server.write_batch(&serving, is_last);
                if is_last {
                    return;
                }
            }
        })?;
        Ok(Self { queue, ended: Mutex::new(ended) })
    }

    /// Returns the queue of the thread.
    pub fn queue(&self) -> &WriterQueue<W> {
        &self.queue
    }

    /// Closes the queue, and waits for the end of the thread, with a timeout. Returns whether the thread has ended.
    pub fn close(&self, within: Duration) -> bool {
        self.queue.close();
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        // No message is ever sent.
        ended.recv_timeout(within) != Err(mpsc::RecvTimeoutError::Timeout)
    }
}

impl<W: Backlog> Drop for WriterThread<W> {
    fn drop(&mut self) {
        self.queue.close();
    }
}

impl<W: Backlog> fmt::Debug for WriterThread<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Thread").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    #[derive(Default)]
    struct Numbers {
        numbers: Vec<u32>,
        due: Option<Instant>,
    }

    impl Backlog for Numbers {
        fn urgency(&self) -> Urgency {
            match self.numbers.len() {
                0 => Urgency::Idle,
                1..10 => Urgency::Batch,
                _ => Urgency::Now,
            }
        }

        fn due(&self) -> Option<Instant> {
            self.due
        }
    }

    /// Sends the items it has written.
    struct Sender(mpsc::Sender<Vec<u32>>);

    impl BatchWriter for Sender {
        type Waiting = Numbers;

        fn write_batch(&mut self, queue: &WriterQueue<Numbers>, _is_last: bool) -> NextBatch {
            let numbers = queue.update(|waiting, _| {
                waiting.due = None;
                std::mem::take(&mut waiting.numbers)
            });
            let _ = self.0.send(numbers);
            NextBatch::Wait(LONG)
        }
    }

    fn begin(gather: Duration) -> (WriterThread<Numbers>, mpsc::Receiver<Vec<u32>>) {
        let (served, to_read) = mpsc::channel();
        let thread = WriterThread::spawn("test", Arc::new(WriterQueue::new(gather)), Sender(served)).unwrap();
        assert_eq!(to_read.recv().unwrap(), [], "once at the start");
        (thread, to_read)
    }

    fn bring(thread: &WriterThread<Numbers>, numbers: impl IntoIterator<Item = u32>) {
        for number in numbers {
            thread.queue().update(|waiting, _| waiting.numbers.push(number));
        }
    }

    #[test]
    fn a_little_is_gathered_and_enough_is_served_at_once() {
        let (thread, served) = begin(LONG);
        bring(&thread, 0..10);
        assert_eq!(served.recv().unwrap(), (0..10).collect::<Vec<_>>());
        bring(&thread, 0..3);
        assert_eq!(served.try_recv(), Err(mpsc::TryRecvError::Empty));
        assert!(thread.close(LONG));
        assert_eq!(served.recv().unwrap(), [0, 1, 2], "the end waits for nothing more");
        assert!(thread.close(LONG), "closed twice is closed");
    }

    #[test]
    fn what_is_due_is_served_though_nothing_is_brought() {
        let (thread, served) = begin(LONG);
        thread.queue().update(|waiting, _| waiting.due = Some(Instant::now()));
        assert_eq!(served.recv().unwrap(), []);
    }

    #[test]
    fn what_is_brought_after_the_end_learns_so() {
        let (thread, _served) = begin(LONG);
        thread.close(LONG);
        assert!(thread.queue().update(|_, is_closed| is_closed));
    }

    /// Blocks for ever, as on a disk that does not answer.
    struct Stuck;

    impl BatchWriter for Stuck {
        type Waiting = Numbers;

        fn write_batch(&mut self, _queue: &WriterQueue<Numbers>, _is_last: bool) -> NextBatch {
            loop {
                std::thread::park();
            }
        }
    }

    /// Drops slowly, as a writer that closes a file.
    struct Leaving(mpsc::Receiver<()>);

    impl BatchWriter for Leaving {
        type Waiting = Numbers;

        fn write_batch(&mut self, _queue: &WriterQueue<Numbers>, _is_last: bool) -> NextBatch {
            NextBatch::Wait(LONG)
        }
    }

    impl Drop for Leaving {
        fn drop(&mut self) {
            let _ = self.0.recv_timeout(LONG);
        }
    }

    #[test]
    fn a_thread_has_not_ended_before_its_writer_is_gone() {
        let (go, gone) = mpsc::channel();
        let thread = WriterThread::spawn("leaving", Arc::new(WriterQueue::new(LONG)), Leaving(gone)).unwrap();
        assert!(!thread.close(Duration::from_millis(50)));
        go.send(()).unwrap();
        assert!(thread.close(LONG));
    }

    #[test]
    fn a_thread_that_is_stuck_holds_up_neither_who_brings_nor_who_closes() {
        let thread = WriterThread::spawn("stuck", Arc::new(WriterQueue::new(LONG)), Stuck).unwrap();
        bring(&thread, 0..10);
        assert!(!thread.close(Duration::from_millis(10)));
        bring(&thread, 0..10);
        assert_eq!(thread.queue().inspect(|waiting, _| waiting.numbers.len()), 20);
    }
}

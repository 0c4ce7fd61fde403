//! Writer of the console: a bounded queue and the thread that empties it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use crate::output::print_stderr;

/// Upper bound on lines that wait for a terminal that does not read. A line has less than 2 KiB.
const QUEUE_CAPACITY: usize = 256;

/// Queue of lines.
#[derive(Debug)]
pub(super) struct ConsoleWriter {
    lines: SyncSender<WriterCommand>,
    /// Lines that were dropped because the queue was full.
    dropped: AtomicU64,
}

#[derive(Debug)]
enum WriterCommand {
    Line(String),
    /// Acknowledges once all lines before it are written.
    Flush(SyncSender<()>),
}

impl ConsoleWriter {
    /// Returns a writer to stderr.
    pub(super) fn stderr() -> Self {
        Self::with_sink(print_stderr)
    }

    pub(super) fn with_sink(mut write: impl FnMut(&str) + Send + 'static) -> Self {
        let (lines, orders) = sync_channel(QUEUE_CAPACITY);
        let work = move || drain(&orders, &mut write);
        // Without a thread the queue fills up, and lines are dropped as for a terminal that does not read.
        let _ = std::thread::Builder::new().name("ostler-console".into()).spawn(work);
        Self { lines, dropped: AtomicU64::new(0) }
    }

    /// Queues a line, or drops it where the queue is full.
    pub(super) fn write(&self, line: String) {
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        let line = match dropped {
            0 => line,
            _ => format!("{dropped} lines are missing here, since the console did not take them\n{line}"),
        };
        if let Err(TrySendError::Full(_)) = self.lines.try_send(WriterCommand::Line(line)) {
            self.dropped.fetch_add(dropped + 1, Ordering::Relaxed);
        }
    }

    /// Waits until the queue is empty, at most `patience`.
    pub(super) fn close(&self, patience: Duration) {
        let (done, is_done) = sync_channel(1);
        if self.lines.try_send(WriterCommand::Flush(done)).is_ok() {
            let _ = is_done.recv_timeout(patience);
        }
    }
}

fn drain(orders: &Receiver<WriterCommand>, write: &mut impl FnMut(&str)) {
    while let Ok(order) = orders.recv() {
        match order {
            WriterCommand::Line(line) => write(&line),
            WriterCommand::Flush(done) => {
                let _ = done.try_send(());
            }
        }
    }
}

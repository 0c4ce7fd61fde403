//! Buffer in front of stdout, shared by the read loop and the delay queue.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A batch of this size is written even while more requests wait.
const BATCH: usize = 256 << 10;

/// Whole lines for stdout, in the order they were pushed.
#[derive(Debug)]
pub(crate) struct StdoutBuffer {
    pending: Mutex<Vec<u8>>,
    /// Keeps the process running after a reader has closed the pipe.
    survives_broken_pipe: bool,
}

impl StdoutBuffer {
    pub(crate) fn new(survives_broken_pipe: bool) -> Self {
        Self { pending: Mutex::default(), survives_broken_pipe }
    }

    /// Adds a line, or a piece of one that the caller completes before any other writer.
    pub(crate) fn push(&self, line: &[u8]) {
        self.write_with(|pending| pending.extend_from_slice(line));
    }

    /// Lets the caller write into the batch itself.
    pub(crate) fn write_with(&self, write: impl FnOnce(&mut Vec<u8>)) {
        let mut pending = self.lock();
        write(&mut pending);
        if pending.len() >= BATCH {
            self.write_out(&mut pending);
        }
    }

    /// Writes the pending batch.
    pub(crate) fn flush(&self) {
        self.write_out(&mut self.lock());
    }

    /// Locks the buffer until the guard is dropped, so that a line written in pieces stays one
    /// line.
    pub(crate) fn reserve(&self) -> StdoutGuard<'_> {
        StdoutGuard { buffer: self, pending: self.lock() }
    }

    /// Closes the pipe; later output is discarded. `/dev/null` takes its place, because a free
    /// descriptor 1 would be handed to the next file opened.
    pub(crate) fn close(&self) -> io::Result<()> {
        self.flush();
        let null = OpenOptions::new().write(true).open("/dev/null")?;
        nix::unistd::dup2_stdout(&null)?;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_out(&self, pending: &mut Vec<u8>) {
        if pending.is_empty() {
            return;
        }
        let mut stdout = io::stdout().lock();
        let written = stdout.write_all(pending).and_then(|()| stdout.flush());
        pending.clear();
        if written.is_err() && !self.survives_broken_pipe {
            std::process::exit(0);
        }
    }
}

/// Exclusive use of the buffer.
#[derive(Debug)]
pub(crate) struct StdoutGuard<'a> {
    buffer: &'a StdoutBuffer,
    pending: MutexGuard<'a, Vec<u8>>,
}

impl StdoutGuard<'_> {
    pub(crate) fn push(&mut self, piece: &[u8]) {
        self.pending.extend_from_slice(piece);
        if self.pending.len() >= BATCH {
            self.buffer.write_out(&mut self.pending);
        }
    }

    pub(crate) fn flush(&mut self) {
        self.buffer.write_out(&mut self.pending);
    }
}

//! Counters of a session; read by status and liveness.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

#[derive(Debug)]
pub(crate) struct HttpCounters {
    born: Instant,
    /// Milliseconds from `born` to the last byte read, plus one; 0 before the first.
    heard: AtomicU64,
    /// Messages that were malformed, or that matched no pending call.
    skipped: AtomicU64,
    /// Notifications dropped by the rate limit.
    dropped: AtomicU64,
}

impl HttpCounters {
    pub(crate) fn new() -> Self {
        Self {
            born: Instant::now(),
            heard: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        }
    }

    pub(crate) fn note_read(&self) {
        let ms = u64::try_from(self.born.elapsed().as_millis()).unwrap_or(u64::MAX - 1);
        self.heard.store(ms + 1, Ordering::Relaxed);
    }

    pub(crate) fn skip(&self) {
        self.skipped.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn drop_one(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn skipped(&self) -> u64 {
        self.skipped.load(Ordering::Relaxed)
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Returns the time of the server's last message.
    pub(crate) fn last_heard(&self) -> Option<Instant> {
        let ms = self.heard.load(Ordering::Relaxed).checked_sub(1)?;
        Some(self.born + Duration::from_millis(ms))
    }
}

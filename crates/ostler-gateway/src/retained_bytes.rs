//! Retained bytes: answers that may be resumed and notifications that wait for clients, bounded over all sessions.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use tokio::time::Instant;

/// Bytes of answers and notifications that wait. Above it the caller with the most loses its oldest ones, and only the
/// newest may be larger by itself.
pub(crate) const MAX_RETAINED: usize = 64 << 20;

/// Bytes that remain after a discard; below the maximum, so that not every answer scans all sessions.
const RETAINED_AFTER_DISCARD: usize = MAX_RETAINED / 4 * 3;

/// Counter of all retained bytes.
#[derive(Debug, Default)]
pub(crate) struct RetainedBytes(Arc<AtomicUsize>);

/// Share of the counter, released when dropped.
#[derive(Debug)]
pub(crate) struct RetainedShare {
    all: Arc<AtomicUsize>,
    bytes: usize,
    pub(crate) since: Instant,
}

impl RetainedBytes {
    pub(crate) fn retain(&self, bytes: usize) -> RetainedShare {
        self.0.fetch_add(bytes, Ordering::Relaxed);
        RetainedShare { all: Arc::clone(&self.0), bytes, since: Instant::now() }
    }

    /// Counts a notification once for all streams that hold it, until the last of them drops it.
    pub(crate) fn counted_frame(&self, text: Vec<u8>) -> Bytes {
        Bytes::from_owner(CountedFrame { _share: self.retain(text.len()), text })
    }

    pub(crate) fn is_over_limit(&self) -> bool {
        self.0.load(Ordering::Relaxed) > MAX_RETAINED
    }

    /// Returns whether enough was discarded.
    pub(crate) fn is_below_target(&self) -> bool {
        self.0.load(Ordering::Relaxed) <= RETAINED_AFTER_DISCARD
    }
}

/// Notification that counts.
struct CountedFrame {
    text: Vec<u8>,
    _share: RetainedShare,
}

impl AsRef<[u8]> for CountedFrame {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

impl Drop for RetainedShare {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

//! Bytes that wait for clients, over all sessions: answers that may be resumed, and notifications.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use tokio::time::Instant;

/// Bytes of answers and notifications that wait. Beyond it the caller with the
/// most loses its oldest ones, and only the newest may be larger by itself.
pub(crate) const MAX_KEPT: usize = 64 << 20;

/// What is left then, so that all sessions are not looked through for each answer.
const LEFT: usize = MAX_KEPT / 4 * 3;

/// The size of all that waits.
#[derive(Debug, Default)]
pub(crate) struct Kept(Arc<AtomicUsize>);

/// A part of it, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Share {
    all: Arc<AtomicUsize>,
    bytes: usize,
    pub(crate) since: Instant,
}

impl Kept {
    pub(crate) fn share(&self, bytes: usize) -> Share {
        self.0.fetch_add(bytes, Ordering::Relaxed);
        Share { all: Arc::clone(&self.0), bytes, since: Instant::now() }
    }

    /// Makes a notification count, once for all streams that hold it, until the last of them drops it.
    pub(crate) fn frame(&self, text: Vec<u8>) -> Bytes {
        Bytes::from_owner(Counted { _share: self.share(text.len()), text })
    }

    pub(crate) fn is_too_much(&self) -> bool {
        self.0.load(Ordering::Relaxed) > MAX_KEPT
    }

    /// Whether enough was forgotten.
    pub(crate) fn is_enough(&self) -> bool {
        self.0.load(Ordering::Relaxed) <= LEFT
    }
}

/// A notification that counts.
struct Counted {
    text: Vec<u8>,
    _share: Share,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

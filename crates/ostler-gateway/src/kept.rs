//! How much waits for clients that lost their connection, over all sessions.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::time::Instant;

/// Bytes of answers that wait to be resumed. Beyond it the oldest are
/// forgotten, and only the newest may be larger than that by itself.
pub(crate) const MAX_KEPT: usize = 64 << 20;

/// What is left then, so that all sessions are not looked through for each answer.
const LEFT: usize = MAX_KEPT / 4 * 3;

/// The size of all answers that wait.
#[derive(Debug, Default)]
pub(crate) struct Kept(Arc<AtomicUsize>);

/// One answer's part of it, for as long as this lives.
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

    pub(crate) fn is_too_much(&self) -> bool {
        self.0.load(Ordering::Relaxed) > MAX_KEPT
    }

    /// Whether enough was forgotten.
    pub(crate) fn is_enough(&self) -> bool {
        self.0.load(Ordering::Relaxed) <= LEFT
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

//! How many unusable answers one session may give.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::Failure;
use crate::fault::{FaultKind, Span};

/// So many malformed answers within [`WINDOW`] restart the server.
const LIMIT: usize = 3;
/// See [`LIMIT`].
const WINDOW: Duration = Duration::from_secs(30);

/// When a session gave malformed answers, oldest first; never more than [`LIMIT`].
#[derive(Debug, Default)]
pub(super) struct Malformed(VecDeque<Instant>);

impl Malformed {
    /// Counts one more; true when there have been too many.
    pub(super) fn count(&mut self, now: Instant) -> bool {
        while self.0.front().is_some_and(|at| now.saturating_duration_since(*at) >= WINDOW) {
            self.0.pop_front();
        }
        if self.0.len() == LIMIT {
            self.0.pop_front();
        }
        self.0.push_back(now);
        self.0.len() == LIMIT
    }

    /// Another session is not held to account for them.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

impl Failure {
    /// The failure to report when [`settle`](super::Supervisor::settle) has
    /// counted too many malformed answers.
    pub fn babble(now: Instant) -> Self {
        let why = format!("{LIMIT} malformed answers in {}", Span(WINDOW));
        Self::new(FaultKind::Malformed(why), now)
    }
}

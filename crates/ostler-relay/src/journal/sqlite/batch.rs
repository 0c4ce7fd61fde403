//! Claims and ends of calls that wait for the thread that writes.

use std::time::Duration;

use ostler_store::{Backlog, Urgency};
use tokio::sync::oneshot;

use super::super::{ClaimError, ClaimOutcome};
use crate::call_id::CallId;

/// Claims that wait at most: several times what a host has in flight.
const MOST_CLAIMS: usize = 8_192;
/// Ends of calls that wait at most. One that is dropped costs nothing but that
/// its call counts as unknown should it be asked for again after a restart.
pub(super) const MAX_ANSWERED: usize = 65_536;
/// How long ends of calls are gathered while nobody claims.
pub(super) const GATHER: Duration = Duration::from_millis(100);
/// Ends that are not gathered any longer.
const WRITE_NOW_AT: usize = 1_024;

/// Where a claim is answered.
pub(super) type ClaimReply = oneshot::Sender<Result<ClaimOutcome, ClaimError>>;

/// What waits, and is written together.
#[derive(Debug, Default)]
pub(super) struct ClaimBatch {
    /// At most [`MOST_CLAIMS`].
    pub(super) claims: Vec<(CallId, ClaimReply)>,
    /// At most [`MOST_SETTLED`].
    pub(super) answered: Vec<CallId>,
    /// Answered when all before is written.
    pub(super) flushes: Vec<oneshot::Sender<()>>,
}

impl Backlog for ClaimBatch {
    fn urgency(&self) -> Urgency {
        if !self.claims.is_empty() || !self.flushes.is_empty() || self.answered.len() >= WRITE_NOW_AT {
            Urgency::Now
        } else if self.answered.is_empty() {
            Urgency::Idle
        } else {
            Urgency::Batch
        }
    }
}

impl ClaimBatch {
    pub(super) fn push_claim(&mut self, call: CallId, reply: ClaimReply) -> Result<(), ClaimError> {
        if self.claims.len() >= MOST_CLAIMS {
            return Err(ClaimError(format!("{MOST_CLAIMS} claims wait for the disk")));
        }
        self.claims.push((call, reply));
        Ok(())
    }

    pub(super) fn push_answered(&mut self, call: CallId) {
        if self.answered.len() < MAX_ANSWERED {
            self.answered.push(call);
        }
    }
}

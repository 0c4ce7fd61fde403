//! Claims and ends of calls that wait for the thread that writes.

use std::time::Duration;

use ostler_store::{Urgency, Waiting};
use tokio::sync::oneshot;

use super::super::{Claim, Unclaimed};
use crate::call_id::CallId;

/// Claims that wait at most: several times what a host has in flight.
const MOST_CLAIMS: usize = 8_192;
/// Ends of calls that wait at most. One that is dropped costs nothing but that
/// its call counts as unknown should it be asked for again after a restart.
pub(super) const MOST_SETTLED: usize = 65_536;
/// How long ends of calls are gathered while nobody claims.
pub(super) const GATHER: Duration = Duration::from_millis(100);
/// Ends that are not gathered any longer.
const ENOUGH: usize = 1_024;

/// Where a claim is answered.
pub(super) type Reply = oneshot::Sender<Result<Claim, Unclaimed>>;

/// What waits, and is written together.
#[derive(Debug, Default)]
pub(super) struct Orders {
    /// At most [`MOST_CLAIMS`].
    pub(super) claims: Vec<(CallId, Reply)>,
    /// At most [`MOST_SETTLED`].
    pub(super) settled: Vec<CallId>,
    /// Answered when all before is written.
    pub(super) flushes: Vec<oneshot::Sender<()>>,
}

impl Waiting for Orders {
    fn urgency(&self) -> Urgency {
        if !self.claims.is_empty() || !self.flushes.is_empty() || self.settled.len() >= ENOUGH {
            Urgency::Now
        } else if self.settled.is_empty() {
            Urgency::Idle
        } else {
            Urgency::Gather
        }
    }
}

impl Orders {
    pub(super) fn claim(&mut self, call: CallId, reply: Reply) -> Result<(), Unclaimed> {
        if self.claims.len() >= MOST_CLAIMS {
            return Err(Unclaimed(format!("{MOST_CLAIMS} claims wait for the disk")));
        }
        self.claims.push((call, reply));
        Ok(())
    }

    pub(super) fn settle(&mut self, call: CallId) {
        if self.settled.len() < MOST_SETTLED {
            self.settled.push(call);
        }
    }
}

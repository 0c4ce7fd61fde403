//! A journal that is forgotten with its host.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use ostler_host::upstream::BoxFuture;
use tokio::time::Instant;

use super::{CLAIM_RETENTION, CallJournal, ClaimError, ClaimOutcome};
use crate::call_id::CallId;
use crate::name::RelayName;

/// Claims at once; reaching it means a hundred times what a host can answer.
const MAX: usize = 1 << 20;

/// A journal in memory, for tests and for embedders whose tools do no harm.
#[derive(Debug, Default)]
pub struct MemoryJournal(Mutex<MemoryClaims>);

#[derive(Debug, Default)]
struct MemoryClaims {
    answered: HashMap<CallId, bool>,
    in_order: VecDeque<(Instant, CallId)>,
}

impl MemoryJournal {
    /// An empty journal.
    pub fn new() -> Self {
        Self::default()
    }

    fn claim_now(&self, call: CallId) -> Result<ClaimOutcome, ClaimError> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        while let Some((at, old)) = kept.in_order.front().copied()
            && now.duration_since(at) > CLAIM_RETENTION
        {
            kept.in_order.pop_front();
            kept.answered.remove(&old);
        }
        if let Some(is_settled) = kept.answered.get(&call) {
            return Ok(ClaimOutcome::Taken { is_answered: *is_settled });
        }
        if kept.answered.len() >= MAX {
            return Err(ClaimError(format!("it has {MAX} calls of the last ten minutes")));
        }
        kept.answered.insert(call, false);
        kept.in_order.push_back((now, call));
        Ok(ClaimOutcome::Ours)
    }
}

impl CallJournal for MemoryJournal {
    fn claim<'a>(
        &'a self,
        call: CallId,
        _worker: &'a RelayName,
    ) -> BoxFuture<'a, Result<ClaimOutcome, ClaimError>> {
        let claim = self.claim_now(call);
        Box::pin(std::future::ready(claim))
    }

    fn mark_answered(&self, call: CallId) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(is_settled) = kept.answered.get_mut(&call) {
            *is_settled = true;
        }
    }

    fn flush(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

//! A journal that is forgotten with its host.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use ostler_host::upstream::BoxFuture;
use tokio::time::Instant;

use super::{Claim, Journal, KEPT, Unclaimed};
use crate::call_id::CallId;
use crate::name::Name;

/// Claims at once; reaching it means a hundred times what a host can answer.
const MAX: usize = 1 << 20;

/// A journal in memory, for tests and for embedders whose tools do no harm.
#[derive(Debug, Default)]
pub struct MemoryJournal(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    settled: HashMap<CallId, bool>,
    in_order: VecDeque<(Instant, CallId)>,
}

impl MemoryJournal {
    /// An empty journal.
    pub fn new() -> Self {
        Self::default()
    }

    fn claim_now(&self, call: CallId) -> Result<Claim, Unclaimed> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        while let Some((at, old)) = kept.in_order.front().copied()
            && now.duration_since(at) > KEPT
        {
            kept.in_order.pop_front();
            kept.settled.remove(&old);
        }
        if let Some(is_settled) = kept.settled.get(&call) {
            return Ok(Claim::Taken { is_settled: *is_settled });
        }
        if kept.settled.len() >= MAX {
            return Err(Unclaimed(format!("it has {MAX} calls of the last ten minutes")));
        }
        kept.settled.insert(call, false);
        kept.in_order.push_back((now, call));
        Ok(Claim::Ours)
    }
}

impl Journal for MemoryJournal {
    fn claim<'a>(&'a self, call: CallId, _worker: &'a Name) -> BoxFuture<'a, Result<Claim, Unclaimed>> {
        let claim = self.claim_now(call);
        Box::pin(std::future::ready(claim))
    }

    fn settle(&self, call: CallId) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(is_settled) = kept.settled.get_mut(&call) {
            *is_settled = true;
        }
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

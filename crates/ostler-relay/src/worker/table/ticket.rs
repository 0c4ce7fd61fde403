//! The caller's end of a call that waits.

use ostler_core::fault::{Fault, FaultKind};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{Table, Verdict, Waiting, closed};
use crate::call_id::CallId;

/// A call that waits. Dropping it cancels.
#[derive(Debug)]
pub(in crate::worker) struct Ticket<'a> {
    pub(super) table: &'a Table,
    pub(super) call: CallId,
}

impl Ticket<'_> {
    /// The call is about to be handed to a connection; what comes of that is
    /// told through the channel.
    pub(in crate::worker) fn hand(&self) -> oneshot::Receiver<Verdict> {
        let (tell, told) = oneshot::channel();
        let mut state = self.table.lock();
        if state.is_closed {
            let _ = tell.send(Verdict::Fault(closed()));
            return told;
        }
        let Some(waiting) = state.waiting.get_mut(&self.call) else { return told };
        match waiting.early.take() {
            Some(verdict) => drop(tell.send(verdict)),
            None => {
                waiting.pending.on_handing();
                waiting.tell = Some(tell);
            }
        }
        told
    }

    /// The fault of a call that is given up before it is sent, again or at all.
    pub(in crate::worker) fn unsent_fault(&self, kind: FaultKind) -> Fault {
        let state = self.table.lock();
        let has_left = state.waiting.get(&self.call).is_some_and(|waiting| waiting.pending.may_have_left());
        if has_left { Fault::unknown(kind) } else { Fault::not_sent(kind) }
    }

    /// The connection has taken it.
    pub(in crate::worker) fn published(&self, epoch: u64) {
        let now = Instant::now();
        let mut state = self.table.lock();
        let current = state.epoch;
        let Some(waiting) = state.waiting.get_mut(&self.call) else { return };
        waiting.pending.on_published(now);
        let mut is_asked = false;
        if current != Some(epoch) {
            waiting.pending.on_link_lost();
            is_asked = current.is_some() && waiting.pending.is_severed();
            if is_asked {
                waiting.pending.on_resumed(now);
            }
        }
        let wake = waiting.pending.next_wake();
        self.table.look_by(&mut state, wake);
        drop(state);
        if is_asked {
            self.table.outbox.resume(self.call);
        }
    }

    /// The connection has not taken it.
    pub(in crate::worker) fn unsent(&self) {
        let mut state = self.table.lock();
        if let Some(waiting) = state.waiting.get_mut(&self.call) {
            waiting.pending.on_unsent();
            waiting.tell = None;
        }
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let removed = self.table.lock().waiting.remove(&self.call);
        // Without an end a caller has gone away.
        let is_left = |waiting: &Waiting| {
            waiting.tell.is_some() && waiting.entry.session.is_some() && waiting.pending.may_have_left()
        };
        if removed.is_some_and(|waiting| is_left(&waiting)) {
            self.table.cancel(self.call);
        }
    }
}

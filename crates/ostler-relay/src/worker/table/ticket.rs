//! The caller's end of a call that waits.

use ostler_core::fault::{Delivery, Fault, FaultKind};
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

    /// A verdict on a call that has left. One that was given while it was
    /// still here knows nothing of that.
    pub(in crate::worker) fn after_publishing(&self, verdict: Verdict) -> Verdict {
        match verdict {
            Verdict::Fault(Fault { delivery, kind })
                if delivery != Delivery::Unknown && !matches!(kind, FaultKind::Denied(_)) =>
            {
                self.table.cancel(self.call);
                Verdict::Fault(Fault::unknown(kind))
            }
            verdict => verdict,
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::super::Entry;
    use super::*;
    use crate::call_id::Instance;
    use crate::name::Name;
    use crate::subject::Subjects;
    use crate::worker::outbox::Outbox;
    use crate::worker::pending::Times;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap_or_else(|error| panic!("{error}"))
    }

    #[tokio::test(start_paused = true)]
    async fn what_ends_while_it_is_handed_over_is_unknown_once_it_has_left() {
        let (outbox, _sending) = Outbox::new(Arc::new(Subjects::new(name("t"))), name("w"), Instance(1));
        let table = Table::new(outbox);
        let began = Instant::now();
        let until = began + Duration::from_secs(60);
        let times = Times { began, until, at_most: until, patience: Duration::ZERO };
        let ends: [fn(&Table); 2] = [|table| table.end_session(7), Table::close];
        for (nth, end) in (0..).zip(ends) {
            let entry = Entry { subject: "s".into(), times, session: Some(7), voice: None };
            let call = CallId::new(nth, &[0; 10]);
            let ticket = table.enter(call, entry).unwrap_or_else(|fault| panic!("{fault}"));
            let told = ticket.hand();
            end(&table);
            ticket.published(1);
            let verdict = told.await.map(|verdict| ticket.after_publishing(verdict));
            assert!(
                matches!(verdict, Ok(Verdict::Fault(Fault { delivery: Delivery::Unknown, .. }))),
                "{verdict:?}"
            );
        }
    }
}

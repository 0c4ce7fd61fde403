//! The caller's end of a call that waits.

use ostler_core::fault::{Delivery, Fault, FaultKind};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{RelaySendOutcome, RelayedCall, RelayedCalls, shutdown_fault};
use crate::call_id::CallId;

/// A call that waits. Dropping it cancels.
#[derive(Debug)]
pub(in crate::worker) struct RelayedCallHandle<'a> {
    pub(super) calls: &'a RelayedCalls,
    pub(super) call: CallId,
}

impl RelayedCallHandle<'_> {
    /// The call is about to be handed to a connection; what comes of that is
    /// told through the channel.
    pub(in crate::worker) fn begin_publish(&self) -> oneshot::Receiver<RelaySendOutcome> {
        let (tell, told) = oneshot::channel();
        let mut state = self.calls.lock();
        if state.is_closed {
            let _ = tell.send(RelaySendOutcome::Fault(shutdown_fault()));
            return told;
        }
        let Some(waiting) = state.calls.get_mut(&self.call) else { return told };
        match waiting.early_outcome.take() {
            Some(verdict) => drop(tell.send(verdict)),
            None => {
                waiting.pending.on_publishing();
                waiting.outcome_sender = Some(tell);
            }
        }
        told
    }

    /// The fault of a call that is given up before it is sent, again or at all.
    pub(in crate::worker) fn unsent_fault(&self, kind: FaultKind) -> Fault {
        let state = self.calls.lock();
        let has_left = state.calls.get(&self.call).is_some_and(|waiting| waiting.pending.may_have_left());
        if has_left { Fault::unknown(kind) } else { Fault::not_sent(kind) }
    }

    /// The connection has taken it.
    pub(in crate::worker) fn on_published(&self, epoch: u64) {
        let now = Instant::now();
        let mut state = self.calls.lock();
        let current = state.epoch;
        let Some(waiting) = state.calls.get_mut(&self.call) else { return };
        waiting.pending.on_published(now);
        let mut is_asked = false;
        if current != Some(epoch) {
            waiting.pending.on_link_lost();
            is_asked = current.is_some() && waiting.pending.is_disconnected();
            if is_asked {
                waiting.pending.on_resumed(now);
            }
        }
        let wake = waiting.pending.next_wake();
        self.calls.wake_by(&mut state, wake);
        drop(state);
        if is_asked {
            self.calls.outbox.resume(self.call);
        }
    }

    /// A verdict on a call that has left. One that was given while it was
    /// still here knows nothing of that.
    pub(in crate::worker) fn correct_delivery(&self, verdict: RelaySendOutcome) -> RelaySendOutcome {
        match verdict {
            RelaySendOutcome::Fault(Fault { delivery, kind })
                if delivery != Delivery::Unknown && !matches!(kind, FaultKind::Denied(_)) =>
            {
                self.calls.cancel(self.call);
                RelaySendOutcome::Fault(Fault::unknown(kind))
            }
            verdict => verdict,
        }
    }

    /// The connection has not taken it.
    pub(in crate::worker) fn on_publish_failed(&self) {
        let mut state = self.calls.lock();
        if let Some(waiting) = state.calls.get_mut(&self.call) {
            waiting.pending.on_publish_failed();
            waiting.outcome_sender = None;
        }
    }
}

impl Drop for RelayedCallHandle<'_> {
    fn drop(&mut self) {
        let removed = self.calls.lock().calls.remove(&self.call);
        // Without an end a caller has gone away.
        let is_left = |waiting: &RelayedCall| {
            waiting.outcome_sender.is_some()
                && waiting.info.session.is_some()
                && waiting.pending.may_have_left()
        };
        if removed.is_some_and(|waiting| is_left(&waiting)) {
            self.calls.cancel(self.call);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::super::RelayedCallInfo;
    use super::*;
    use crate::call_id::Instance;
    use crate::name::RelayName;
    use crate::subject::Subjects;
    use crate::worker::outbox::Outbox;
    use crate::worker::pending::CallTimes;

    fn name(text: &str) -> RelayName {
        RelayName::new(text).unwrap_or_else(|error| panic!("{error}"))
    }

    #[tokio::test(start_paused = true)]
    async fn what_ends_while_it_is_handed_over_is_unknown_once_it_has_left() {
        let (outbox, _sending) = Outbox::new(Arc::new(Subjects::new(name("t"))), name("w"), Instance(1));
        let table = RelayedCalls::new(outbox);
        let began = Instant::now();
        let until = began + Duration::from_secs(60);
        let times =
            CallTimes { began, deadline: until, hard_deadline: until, progress_extension: Duration::ZERO };
        let ends: [fn(&RelayedCalls); 2] = [|table| table.end_session(7), RelayedCalls::close];
        for (nth, end) in (0..).zip(ends) {
            let entry = RelayedCallInfo { subject: "s".into(), times, session: Some(7), observer: None };
            let call = CallId::new(nth, &[0; 10]);
            let ticket = table.register(call, entry).unwrap_or_else(|fault| panic!("{fault}"));
            let told = ticket.begin_publish();
            end(&table);
            ticket.on_published(1);
            let verdict = told.await.map(|verdict| ticket.correct_delivery(verdict));
            assert!(
                matches!(verdict, Ok(RelaySendOutcome::Fault(Fault { delivery: Delivery::Unknown, .. }))),
                "{verdict:?}"
            );
        }
    }
}

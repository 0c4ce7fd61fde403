//! Handle of a call in flight, held by its caller.

use ostler_core::fault::{Delivery, Fault, FaultKind};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{RelaySendOutcome, RelayedCall, RelayedCalls, shutdown_fault};
use crate::call_id::CallId;

/// Handle of a call in flight. Dropping it cancels the call.
#[derive(Debug)]
pub(in crate::worker) struct RelayedCallHandle<'a> {
    pub(super) calls: &'a RelayedCalls,
    pub(super) call: CallId,
}

impl RelayedCallHandle<'_> {
    /// Marks the call as being published. Its outcome arrives through the returned channel.
    pub(in crate::worker) fn begin_publish(&self) -> oneshot::Receiver<RelaySendOutcome> {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.calls.lock();
        if state.is_closed {
            let _ = sender.send(RelaySendOutcome::Fault(shutdown_fault()));
            return receiver;
        }
        let Some(relayed) = state.calls.get_mut(&self.call) else { return receiver };
        match relayed.early_outcome.take() {
            Some(outcome) => drop(sender.send(outcome)),
            None => {
                relayed.pending.on_publishing();
                relayed.outcome_sender = Some(sender);
            }
        }
        receiver
    }

    /// Returns the fault of a call that is given up before this publish.
    pub(in crate::worker) fn unsent_fault(&self, kind: FaultKind) -> Fault {
        let state = self.calls.lock();
        let has_left = state.calls.get(&self.call).is_some_and(|relayed| relayed.pending.may_have_left());
        if has_left { Fault::unknown(kind) } else { Fault::not_sent(kind) }
    }

    /// Marks the call as published over the connection of `epoch`.
    pub(in crate::worker) fn on_published(&self, epoch: u64) {
        let now = Instant::now();
        let mut state = self.calls.lock();
        let current = state.epoch;
        let Some(relayed) = state.calls.get_mut(&self.call) else { return };
        relayed.pending.on_published(now);
        let mut must_resume = false;
        if current != Some(epoch) {
            relayed.pending.on_link_lost();
            must_resume = current.is_some() && relayed.pending.is_disconnected();
            if must_resume {
                relayed.pending.on_resumed(now);
            }
        }
        let wake = relayed.pending.next_wake();
        self.calls.wake_by(&mut state, wake);
        drop(state);
        if must_resume {
            self.calls.outbox.resume(self.call);
        }
    }

    /// Corrects an outcome that was determined during the publish and assumes that the call had not
    /// left.
    pub(in crate::worker) fn correct_delivery(&self, outcome: RelaySendOutcome) -> RelaySendOutcome {
        match outcome {
            RelaySendOutcome::Fault(Fault { delivery, kind })
                if delivery != Delivery::Unknown && !matches!(kind, FaultKind::Denied(_)) =>
            {
                self.calls.cancel(self.call);
                RelaySendOutcome::Fault(Fault::unknown(kind))
            }
            outcome => outcome,
        }
    }

    /// Marks the publish as failed; the call has not left.
    pub(in crate::worker) fn on_publish_failed(&self) {
        let mut state = self.calls.lock();
        if let Some(relayed) = state.calls.get_mut(&self.call) {
            relayed.pending.on_publish_failed();
            relayed.outcome_sender = None;
        }
    }
}

impl Drop for RelayedCallHandle<'_> {
    fn drop(&mut self) {
        let removed = self.calls.lock().calls.remove(&self.call);
        // Without an outcome the caller has dropped the call.
        let is_abandoned = |relayed: &RelayedCall| {
            relayed.outcome_sender.is_some()
                && relayed.info.session.is_some()
                && relayed.pending.may_have_left()
        };
        if removed.is_some_and(|relayed| is_abandoned(&relayed)) {
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
        let calls = RelayedCalls::new(outbox);
        let began = Instant::now();
        let deadline = began + Duration::from_secs(60);
        let times =
            CallTimes { began, deadline, hard_deadline: deadline, progress_extension: Duration::ZERO };
        let ends: [fn(&RelayedCalls); 2] = [|calls| calls.end_session(7), RelayedCalls::close];
        for (nth, end) in (0..).zip(ends) {
            let info = RelayedCallInfo { subject: "s".into(), times, session: Some(7), observer: None };
            let call = CallId::new(nth, &[0; 10]);
            let handle = calls.register(call, info).unwrap_or_else(|fault| panic!("{fault}"));
            let receiver = handle.begin_publish();
            end(&calls);
            handle.on_published(1);
            let outcome = receiver.await.map(|outcome| handle.correct_delivery(outcome));
            assert!(
                matches!(outcome, Ok(RelaySendOutcome::Fault(Fault { delivery: Delivery::Unknown, .. }))),
                "{outcome:?}"
            );
        }
    }
}

//! Open server requests of a connection, and their attribution to calls.
//!
//! A legacy server that sends a request during a call does not name the call. The request belongs to the only call in
//! flight that can have caused it; with several of them it is refused.

use std::time::Duration;

use ostler_wire::RequestId;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{Multiplexer, MultiplexerState};
use crate::upstream::SharedCallObserver;
use crate::upstream::attribution::{self, CallCandidate, CallMatch};

/// Upper bound on open server requests per call. A person answers one at a time.
const MAX_OPEN: usize = 16;

/// A server request that waits for its answer.
#[derive(Debug)]
pub(super) struct OpenStdioRequest {
    /// The server's own id.
    id: RequestId,
    /// Used when the server withdraws the request; dropped when the call ends.
    cancel: oneshot::Sender<()>,
}

/// Attribution of a server request.
pub(crate) enum RequestAttribution {
    /// The caller of this call.
    To(AttributedRequest),
    /// No caller here can answer it.
    NoCall,
    /// More than one call can have caused it, and the server does not say which.
    Ambiguous,
    /// The call has too many open server requests.
    TooMany,
}

/// A server request that was attributed to a call.
pub(crate) struct AttributedRequest {
    pub(crate) observer: SharedCallObserver,
    pub(crate) call: u64,
    /// Yields a value when the server withdraws the request; closed when the call ends.
    pub(crate) cancelled: oneshot::Receiver<()>,
}

impl Multiplexer {
    /// Attributes a server request to a call and stops the call's deadline.
    pub(crate) fn attribute_request(&self, id: &RequestId, method: &str) -> RequestAttribution {
        // A modern server sends its requests in responses, so one that comes here belongs to no call.
        if self.meta.is_some() {
            return RequestAttribution::NoCall;
        }
        // Observers are foreign code and are called without the lock.
        match attribution::find_call(self.candidates(), method) {
            CallMatch::One(call, voice) => self.open_server_request(call, voice, id),
            CallMatch::Ambiguous => RequestAttribution::Ambiguous,
            CallMatch::NoCall => RequestAttribution::NoCall,
        }
    }

    /// Returns the observer of the only call that a notification can be about.
    pub(crate) fn sole_observer(&self) -> Option<SharedCallObserver> {
        attribution::sole_observer(self.candidates()).map(|(_, voice)| voice)
    }

    /// Returns the calls that have been sent and can have caused a message of the server.
    fn candidates(&self) -> Vec<CallCandidate> {
        let state = self.lock();
        let sent =
            state.pending.iter().filter(|(_, waiting)| waiting.is_sent && waiting.can_trigger_messages);
        sent.map(|(call, waiting)| CallCandidate {
            call: *call,
            observer: waiting.observer.clone(),
            has_open_request: !waiting.open_requests.is_empty(),
            accepts_unattributed: attribution::accepts_unattributed(waiting.has_other_callers.as_deref()),
        })
        .collect()
    }

    fn open_server_request(
        &self,
        call: u64,
        voice: SharedCallObserver,
        id: &RequestId,
    ) -> RequestAttribution {
        let mut state = self.lock();
        // The call may have ended while its observer was called.
        let Some(waiting) = state.pending.get_mut(&call) else { return RequestAttribution::NoCall };
        if waiting.open_requests.len() >= MAX_OPEN {
            return RequestAttribution::TooMany;
        }
        let (withdraw, withdrawn) = oneshot::channel();
        waiting.open_requests.push(OpenStdioRequest { id: id.detached(), cancel: withdraw });
        waiting.deadline = waiting.hard_deadline;
        RequestAttribution::To(AttributedRequest { observer: voice, call, cancelled: withdrawn })
    }

    /// Closes a server request that was answered or refused: the call's deadline runs again.
    pub(crate) fn close_server_request(&self, call: u64, id: &RequestId, patience: Duration) {
        let mut state = self.lock();
        let Some(waiting) = state.pending.get_mut(&call) else { return };
        waiting.open_requests.retain(|open| open.id != *id);
        if state.resume_deadline(call, patience) {
            self.deadline_changed.notify_one();
        }
    }

    /// Closes a server request that the server has cancelled.
    pub(crate) fn cancel_server_request(&self, id: &RequestId, patience: Duration) {
        let mut state = self.lock();
        let found = state.pending.iter_mut().find_map(|(call, waiting)| {
            let at = waiting.open_requests.iter().position(|open| open.id == *id)?;
            Some((*call, waiting.open_requests.swap_remove(at)))
        });
        let Some((call, open)) = found else { return };
        let is_sooner = state.resume_deadline(call, patience);
        drop(state);
        if is_sooner {
            self.deadline_changed.notify_one();
        }
        let _ = open.cancel.send(());
    }
}

impl MultiplexerState {
    /// Restarts the deadline of a call, unless another request stops it. Returns whether the timer must be woken.
    fn resume_deadline(&mut self, call: u64, patience: Duration) -> bool {
        let Some(waiting) = self.pending.get_mut(&call) else { return false };
        if !waiting.open_requests.is_empty() {
            return false;
        }
        waiting.deadline = waiting.hard_deadline.min(Instant::now() + patience);
        let until = waiting.deadline;
        self.schedule_deadline(until)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ostler_wire::Params;
    use tokio::net::unix::pipe;

    use super::*;
    use crate::upstream::{CallObserver, ClientMeta, ServerRequest, UpstreamRequest};

    struct AnyMethodObserver;

    impl CallObserver for AnyMethodObserver {
        fn can_answer(&self, _: &str) -> bool {
            true
        }

        fn on_request(&self, question: ServerRequest) {
            drop(question);
        }
    }

    fn id(number: usize) -> RequestId {
        RequestId::parse(number.to_string().into()).unwrap()
    }

    #[tokio::test]
    async fn a_call_has_so_many_questions_open_and_not_one_more() {
        let (stdin, _server) = pipe::pipe().unwrap();
        let line = Multiplexer::new(stdin, None);
        let (params, voice): (_, SharedCallObserver) = (Params::empty(), Arc::new(AnyMethodObserver));
        let until = Instant::now() + Duration::from_secs(60);
        let ask = UpstreamRequest {
            method: "tools/call",
            params: &params,
            idempotency_key: None,
            deadline: until,
            client: ClientMeta::Host,
            observer: Some(&voice),
            has_other_callers: None,
            hard_deadline: until + Duration::from_secs(60),
            headers: &[],
            may_send: None,
        };
        let (call, _answer) = line.send(&ask).await.unwrap();
        // The server can't send requests for a call that has not been sent.
        assert!(matches!(line.attribute_request(&id(0), "roots/list"), RequestAttribution::NoCall));
        line.take_batch(&mut Vec::new(), &mut Vec::new());
        let mut open = Vec::new();
        for number in 0..MAX_OPEN {
            match line.attribute_request(&id(number), "roots/list") {
                RequestAttribution::To(asked) => open.push(asked),
                _ => panic!("question {number} was refused"),
            }
        }
        assert!(matches!(line.attribute_request(&id(99), "roots/list"), RequestAttribution::TooMany));
        line.close_server_request(call, &id(0), Duration::ZERO);
        assert!(matches!(line.attribute_request(&id(99), "roots/list"), RequestAttribution::To(_)));

        // The server cancels one; the end of the call cancels the rest.
        line.cancel_server_request(&id(1), Duration::ZERO);
        assert_eq!(open[1].cancelled.try_recv(), Ok(()));
        assert_eq!(open[2].cancelled.try_recv(), Err(oneshot::error::TryRecvError::Empty));
        line.cancel_call(call, "test");
        assert_eq!(open[2].cancelled.try_recv(), Err(oneshot::error::TryRecvError::Closed));
    }
}

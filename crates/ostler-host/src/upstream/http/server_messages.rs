//! Server messages beside responses: notifications and requests.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use ostler_core::rate_limit::RateLimiter;
use ostler_wire::{
    MethodName, NotificationKind, ProgressParams, RequestId, RpcError, RpcOutcome, error_code,
};
use tokio::time::Instant;

use super::counters::HttpCounters;
use super::pending_calls::HttpPendingCalls;
use crate::upstream::attribution::{self, CallMatch};
use crate::upstream::{
    ServerNotification, ServerNotificationSink, ServerRequest, SharedCallObserver, observer,
};

/// Rate limit of a server's notifications: per second, and in one burst.
const NOTIFICATION_LIMIT: (u32, u32) = (200, 1_000);
/// Upper bound on open server requests per call. A person answers one at a time.
const MAX_OPEN_REQUESTS: usize = 16;

/// Error code of a refusal. A server that passes the error on as its own is not counted as failed.
const NOT_ATTRIBUTABLE: i64 = -31_005;
const NOT_ATTRIBUTABLE_MESSAGE: &str = "several calls are in flight and the question does not say which one it is for; \
                       such calls come one at a time from now on";

/// Handles the server's notifications and requests.
pub(crate) struct ServerMessageHandler {
    notification_sink: ServerNotificationSink,
    rate_limit: Mutex<RateLimiter>,
    /// Time that a call gets from a progress notification on.
    progress_extension: Duration,
    /// Set once a server request could not be attributed.
    has_ambiguous_requests: Arc<AtomicBool>,
}

/// A server request.
pub(crate) struct IncomingServerRequest {
    pub(crate) id: RequestId,
    pub(crate) method: MethodName,
    pub(crate) params: Option<Bytes>,
    /// The call on whose stream the request came.
    pub(crate) call: Option<u64>,
}

impl ServerMessageHandler {
    pub(crate) fn new(
        notification_sink: ServerNotificationSink,
        progress_extension: Duration,
        has_ambiguous_requests: Arc<AtomicBool>,
    ) -> Self {
        let (rate, burst) = NOTIFICATION_LIMIT;
        Self {
            notification_sink,
            rate_limit: Mutex::new(RateLimiter::new(rate, burst)),
            progress_extension,
            has_ambiguous_requests,
        }
    }

    /// Announces a change that the server did not announce.
    pub(crate) fn emit(&self, event: ServerNotification) {
        (self.notification_sink)(event);
    }

    /// Handles a notification; `call` is the one on whose stream it came.
    pub(crate) fn on_notification(
        &self,
        (calls, tally): (&HttpPendingCalls, &HttpCounters),
        (method, params): (MethodName, Option<Bytes>),
        call: Option<u64>,
    ) {
        let event = match NotificationKind::from_method(method.as_str()) {
            // Never dropped: no later message would announce the change.
            NotificationKind::ToolsChanged => ServerNotification::ToolsChanged,
            NotificationKind::ResourcesChanged => ServerNotification::ResourcesChanged,
            NotificationKind::ResourceUpdated => {
                ServerNotification::ResourceUpdated(params.unwrap_or_default())
            }
            NotificationKind::PromptsChanged => ServerNotification::PromptsChanged,
            _ if !self.allow_notification() => return tally.drop_one(),
            NotificationKind::Progress => return self.progress(calls, params),
            // A call in flight does not identify the owner of a task; clients poll its state.
            NotificationKind::Cancelled | NotificationKind::Task => return,
            kind @ (NotificationKind::Log | NotificationKind::Other) => {
                if let Some(call) = call {
                    // It belongs to that caller alone, even if the caller does not accept it.
                    let voice = calls.observer(call).filter(|voice| voice.wants_notifications());
                    return voice
                        .into_iter()
                        .for_each(|voice| voice.on_notification(method.as_str(), params.as_ref()));
                }
                match kind {
                    NotificationKind::Log => ServerNotification::Log(params.unwrap_or_default()),
                    _ => ServerNotification::Other { method, params },
                }
            }
        };
        (self.notification_sink)(event);
    }

    fn progress(&self, calls: &HttpPendingCalls, params: Option<Bytes>) {
        let Some(progress) = params.as_ref().and_then(ProgressParams::parse) else { return };
        if let Some(voice) = calls.extend_deadline(progress.token, self.progress_extension) {
            voice.on_progress(&progress);
        }
    }

    /// Answers a server request and returns the message to send back. One that came on a call's stream is that
    /// call's; any other goes to the only call that can have caused it. With several such calls it is refused.
    pub(crate) async fn answer_request(
        &self,
        calls: &HttpPendingCalls,
        asked: IncomingServerRequest,
    ) -> Vec<u8> {
        let IncomingServerRequest { id, method, params, call } = asked;
        if method == "ping" {
            return reply(&id, &RpcOutcome::Result(Bytes::from_static(b"{}")));
        }
        let found = match call {
            Some(call) => calls.observer(call).map_or(CallMatch::NoCall, |voice| CallMatch::One(call, voice)),
            None => attribution::find_call(calls.candidates(), method.as_str()),
        };
        let outcome = match found {
            CallMatch::One(call, voice) if voice.can_answer(method.as_str()) => {
                self.ask_caller(calls, (call, &voice), method, params).await
            }
            CallMatch::One(..) | CallMatch::NoCall => {
                refusal(error_code::METHOD_NOT_FOUND, &observer::not_offered_message(method.as_str()))
            }
            CallMatch::Ambiguous => {
                self.has_ambiguous_requests.store(true, Ordering::Release);
                refusal(NOT_ATTRIBUTABLE, NOT_ATTRIBUTABLE_MESSAGE)
            }
        };
        reply(&id, &outcome)
    }

    async fn ask_caller(
        &self,
        calls: &HttpPendingCalls,
        (call, voice): (u64, &SharedCallObserver),
        method: MethodName,
        params: Option<Bytes>,
    ) -> RpcOutcome {
        if !calls.open_server_request(call, MAX_OPEN_REQUESTS) {
            return refusal(error_code::INTERNAL_ERROR, "the call has too many questions open");
        }
        // Also runs when the request's stream ends, which drops this future.
        let _open = OpenServerRequest { calls, call, progress_extension: self.progress_extension };
        let (question, answer) = ServerRequest::new(method, params);
        voice.on_request(question);
        tokio::select! {
            biased;
            answer = answer => {
                answer.unwrap_or_else(|_| refusal(error_code::INTERNAL_ERROR, "the caller does not answer"))
            }
            () = calls.until_ended(call) => {
                refusal(error_code::INTERNAL_ERROR, "the call that this was asked for is over")
            }
        }
    }

    fn allow_notification(&self) -> bool {
        let mut meter = self.rate_limit.lock().unwrap_or_else(PoisonError::into_inner);
        meter.try_acquire(Instant::now().into_std())
    }
}

/// An open server request; dropping it lets the call's deadline run again.
struct OpenServerRequest<'a> {
    calls: &'a HttpPendingCalls,
    call: u64,
    progress_extension: Duration,
}

impl Drop for OpenServerRequest<'_> {
    fn drop(&mut self) {
        self.calls.close_server_request(self.call, self.progress_extension);
    }
}

fn refusal(code: i64, why: &str) -> RpcOutcome {
    RpcOutcome::Error(RpcError::new(code, why))
}

fn reply(id: &RequestId, outcome: &RpcOutcome) -> Vec<u8> {
    let mut body = Vec::new();
    match outcome {
        RpcOutcome::Result(raw) => ostler_wire::write_result(&mut body, id, raw),
        RpcOutcome::Error(error) => {
            let parts: [&[u8]; 5] =
                [b"{\"jsonrpc\":\"2.0\",\"id\":", id.raw(), b",\"error\":", &error.raw, b"}"];
            body = parts.concat();
        }
    }
    body
}

//! Server requests over stdio: every one is answered, so that no server waits for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ostler_wire::{
    MethodName, RequestId, RpcOutcome, error_code, write_error, write_error_object, write_result,
};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::multiplexer::{AttributedRequest, Multiplexer, RequestAttribution};
use crate::upstream::{ServerRequest, observer};

/// Error code of a refusal. A server that passes the error on as its own is not counted as failed.
const NOT_ATTRIBUTABLE: i64 = -31_005;

/// Handler of the server's requests. Bounded by the calls in flight and by the answers that the server reads.
#[derive(Debug)]
pub(super) struct ServerRequestHandler {
    pub(super) multiplexer: Arc<Multiplexer>,
    /// Time that a call gets after an answer.
    pub(super) progress_extension: Duration,
    /// Set once a server request could not be attributed.
    pub(super) has_ambiguous_requests: Arc<AtomicBool>,
}

impl ServerRequestHandler {
    /// Handles a server request. Its id is the server's own and may equal one of the host's: a message with a method
    /// is the server's.
    pub(super) fn handle_request(&self, id: &RequestId, method: MethodName, params: Option<Bytes>) {
        if method == "ping" {
            return self.multiplexer.send_detached(|out| write_result(out, id, b"{}"));
        }
        match self.multiplexer.attribute_request(id, method.as_str()) {
            RequestAttribution::To(asked) => self.ask_caller(id, method, params, asked),
            RequestAttribution::NoCall => {
                self.refuse(
                    id,
                    error_code::METHOD_NOT_FOUND,
                    &observer::not_offered_message(method.as_str()),
                );
            }
            RequestAttribution::Ambiguous => {
                self.has_ambiguous_requests.store(true, Ordering::Release);
                let why = "several calls are in flight and the question does not say which one it is for; \
                           such calls come one at a time from now on";
                self.refuse(id, NOT_ATTRIBUTABLE, why);
            }
            RequestAttribution::TooMany => {
                self.refuse(id, error_code::INTERNAL_ERROR, "the call has too many questions open");
            }
        }
    }

    fn ask_caller(
        &self,
        id: &RequestId,
        method: MethodName,
        params: Option<Bytes>,
        asked: AttributedRequest,
    ) {
        let (question, answer) = ServerRequest::new(method, params);
        let AttributedRequest { observer: voice, call, cancelled: withdrawn } = asked;
        voice.on_request(question);
        let (line, id, patience) = (Arc::clone(&self.multiplexer), id.detached(), self.progress_extension);
        tokio::spawn(async move {
            let Some(reply) = outcome(answer, withdrawn).await else { return };
            line.close_server_request(call, &id, patience);
            line.send_detached(|out| match &reply {
                RequestReply::Answer(RpcOutcome::Result(result)) => write_result(out, &id, result),
                RequestReply::Answer(RpcOutcome::Error(error)) => write_error_object(out, &id, &error.raw),
                RequestReply::Refusal(why) => write_error(out, &id, error_code::INTERNAL_ERROR, why, None),
            });
        });
    }

    fn refuse(&self, id: &RequestId, code: i64, why: &str) {
        self.multiplexer.send_detached(|out| write_error(out, id, code, why, None));
    }
}

enum RequestReply {
    Answer(RpcOutcome),
    Refusal(&'static str),
}

/// Waits for the answer or for the end of the call; `None` if the server has cancelled the request.
async fn outcome(
    answer: oneshot::Receiver<RpcOutcome>,
    withdrawn: oneshot::Receiver<()>,
) -> Option<RequestReply> {
    tokio::select! {
        biased;
        answer = answer => Some(match answer {
            Ok(outcome) => RequestReply::Answer(outcome),
            Err(_) => RequestReply::Refusal("the caller does not answer"),
        }),
        withdrawn = withdrawn => match withdrawn {
            Ok(()) => None,
            Err(_) => Some(RequestReply::Refusal("the call that this was asked for is over")),
        },
    }
}

/// Returns the id in the parameters of a cancellation.
pub(super) fn cancelled_id(params: &[u8]) -> Option<RequestId> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct CancellationParams<'a> {
        #[serde(borrow)]
        request_id: &'a RawValue,
    }
    let cancelled: CancellationParams<'_> = serde_json::from_slice(params).ok()?;
    RequestId::parse(Bytes::copy_from_slice(cancelled.request_id.get().as_bytes())).ok()
}

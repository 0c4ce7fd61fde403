//! HTTP+SSE, the transport of revision 2024-11-05: each message is one POST, and all responses come on one stream.

use std::sync::Arc;

use http::HeaderMap;
use ostler_core::fault::{Fault, FaultKind};
use ostler_wire::{Message, RpcOutcome};
use tokio::sync::oneshot;

use super::endpoint_client::{EndpointClient, HttpReply};
use super::event_stream::EventStream;
use super::faults;
use super::pending_calls::HttpCallReply;
use super::reply_tasks::ReplyTasks;
use super::server_messages::IncomingServerRequest;
use super::session::HttpSessionState;
use crate::upstream::attribution;

/// Sends a request and waits for its response, which comes on the stream. A server that does not know the stream any
/// more has not executed the request: it is retried on the next session.
pub(crate) async fn send_request(
    (link, out): (&HttpSessionState, &EndpointClient),
    body: Vec<u8>,
    answer: oneshot::Receiver<HttpCallReply>,
) -> Result<RpcOutcome, Fault> {
    if let HttpReply::Refused(status, body) = out.post(body, HeaderMap::new()).await? {
        let fault = faults::status_fault(status, &body);
        if matches!(status.as_u16(), 404 | 410) {
            link.fail(&fault.kind);
            return Err(Fault::not_sent(FaultKind::Closed));
        }
        return Err(fault);
    }
    answer.await.unwrap_or_else(|_| Err(Fault::unknown(FaultKind::Closed)))
}

/// Reads the stream to its end, which ends the session.
pub(crate) async fn read(link: Arc<HttpSessionState>, out: EndpointClient, mut stream: Box<EventStream>) {
    let mut answers = ReplyTasks::default();
    let kind = loop {
        let data = match stream.next().await {
            Ok(Some(event)) => event.data,
            Ok(None) => break FaultKind::Transfer("the server ended the stream".into()),
            Err(kind) => break kind,
        };
        match Message::parse(data.clone()) {
            Ok(Message::Response { id, outcome }) => {
                let id = id.and_then(|id| id.number());
                if !id.is_some_and(|id| link.pending_calls.complete(id, Ok(outcome))) {
                    link.client.counters.skip();
                }
            }
            Ok(Message::Notification { method, params }) => {
                // All messages share one stream, so this one may be about any call.
                let call = attribution::sole_observer(link.pending_calls.candidates()).map(|(call, _)| call);
                link.server_messages.on_notification(
                    (&link.pending_calls, &link.client.counters),
                    (method, params),
                    call,
                );
            }
            Ok(Message::Request { id, method, params }) => {
                let asked = IncomingServerRequest { id: id.detached(), method, params, call: None };
                answers.begin(&link, asked, (out.clone(), HeaderMap::new()));
            }
            Err(error) => {
                link.client.counters.skip();
                ostler_wire::extract_response_ids(&data, |id| {
                    if let Some(id) = id.number() {
                        link.pending_calls
                            .complete(id, Err(super::request::malformed_answer(error.to_string())));
                    }
                });
            }
        }
    };
    // Later calls find the session lost; pending ones are ended here.
    link.fail(&kind);
    link.pending_calls.fail_all(&kind);
}

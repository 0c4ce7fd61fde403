//! HTTP+SSE, the transport of revision 2024-11-05: messages go out one by one,
//! and everything comes in on one stream.

use std::sync::Arc;

use http::HeaderMap;
use ostler_core::fault::{Fault, FaultKind};
use ostler_wire::{Message, Outcome};
use tokio::sync::oneshot;

use super::answers::Answers;
use super::calls::Answer;
use super::ear::Asked;
use super::road::{Reply, Road};
use super::session::Link;
use super::stream::EventStream;
use super::turn_down;
use crate::upstream::whose;

/// Sends a request and waits for its answer, which comes on the stream. A
/// server that does not know the stream any more has not looked at the request:
/// it goes to the next session.
pub(crate) async fn talk(
    (link, out): (&Link, &Road),
    body: Vec<u8>,
    answer: oneshot::Receiver<Answer>,
) -> Result<Outcome, Fault> {
    if let Reply::Refused(status, body) = out.post(body, HeaderMap::new()).await? {
        let fault = turn_down::refusal(status, &body);
        if matches!(status.as_u16(), 404 | 410) {
            link.lose(&fault.kind);
            return Err(Fault::not_sent(FaultKind::Closed));
        }
        return Err(fault);
    }
    answer.await.unwrap_or_else(|_| Err(Fault::unknown(FaultKind::Closed)))
}

/// Reads the stream to its end, which is the session's end.
pub(crate) async fn read(link: Arc<Link>, out: Road, mut stream: Box<EventStream>) {
    let mut answers = Answers::default();
    let kind = loop {
        let data = match stream.next().await {
            Ok(Some(event)) => event.data,
            Ok(None) => break FaultKind::Transfer("the server ended the stream".into()),
            Err(kind) => break kind,
        };
        match Message::parse(data.clone()) {
            Ok(Message::Response { id, outcome }) => {
                let id = id.and_then(|id| id.number());
                if !id.is_some_and(|id| link.calls.answer(id, Ok(outcome))) {
                    link.road.tally.skip();
                }
            }
            Ok(Message::Notification { method, params }) => {
                // Everything comes on one stream, so it may be about any call.
                let call = whose::sole_listener(link.calls.candidates()).map(|(call, _)| call);
                link.ear.notice((&link.calls, &link.road.tally), (method, params), call);
            }
            Ok(Message::Request { id, method, params }) => {
                let asked = Asked { id: id.detached(), method, params, call: None };
                answers.begin(&link, asked, (out.clone(), HeaderMap::new()));
            }
            Err(error) => {
                link.road.tally.skip();
                ostler_wire::salvage_ids(&data, |id| {
                    if let Some(id) = id.number() {
                        link.calls.answer(id, Err(super::talk::unusable(error.to_string())));
                    }
                });
            }
        }
    };
    // Calls that come from now on find the session lost, those before are ended here.
    link.lose(&kind);
    link.calls.fail_all(&kind);
}

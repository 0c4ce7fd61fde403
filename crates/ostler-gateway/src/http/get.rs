//! GET and DELETE: what legacy clients do with a session beside asking.

use http::{HeaderName, StatusCode};

use super::events::{Events, Resumed};
use super::hold::long_place;
use super::payload::Response;
use super::refuse::{PROTOCOL_VERSION, empty, refuse};
use super::{Visit, not_allowed, sse};
use crate::pass::Over;
use crate::session::InUse;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Opens a stream for frames that belong to no request, or reads the stream
/// of a request on.
pub(super) fn get(visit: Visit) -> Response {
    if visit.header(&PROTOCOL_VERSION) == Some(ostler_wire::MODERN_VERSION) {
        return not_allowed();
    }
    if !visit.accepts.events {
        return refuse(
            StatusCode::NOT_ACCEPTABLE,
            "a GET stream is text/event-stream; the Accept header must name it",
        );
    }
    let session = match visit.session() {
        Ok(session) => session,
        Err(refusal) => return *refusal,
    };
    let place = match long_place(&visit.gateway, &visit.caller, None) {
        Ok(place) => place,
        Err(refusal) => return *refusal,
    };
    let keep_alive = visit.gateway.0.options.keep_alive;
    let last = visit.header(&LAST_EVENT_ID).and_then(sse::parse_id);
    let (number, reader) = match last {
        Some((0, last)) => (0, session.streams.listen(Some(last))),
        Some((number, last)) => match session.streams.resume(number, last) {
            Some(reader) => (number, reader),
            // The stream is over and was read, or its client came too late.
            None => return refuse(StatusCode::NOT_FOUND, "this stream can't be resumed any more"),
        },
        None => (0, session.streams.listen(None)),
    };
    let over = Over::of_long(visit.pass);
    Events::opened(session, place, reader, Resumed { number, keep_alive, over }).respond()
}

/// Ends a session.
pub(super) fn delete(visit: &Visit) -> Response {
    let session: InUse = match visit.session() {
        Ok(session) => session,
        Err(refusal) => return *refusal,
    };
    visit.gateway.0.sessions.remove(&visit.gateway, session.id());
    empty(StatusCode::NO_CONTENT)
}

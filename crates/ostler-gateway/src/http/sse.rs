//! Server-sent events, one message each, and long streams.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, header};
use ostler_core::caller::Caller;
use ostler_core::keyed_limit::{KeyedPermit, LimitReached};
use ostler_wire::RequestId;
use tokio::time::{Instant, Sleep};

use super::response::{Payload, Response, overloaded};
use crate::gateway::Gateway;

/// Comment that keeps an idle connection alive.
const COMMENT: &[u8] = b": \n\n";

/// Delay in milliseconds before a client resumes a stream.
const RETRY_MS: u32 = 3_000;

/// Appends a message.
pub(super) fn push_event(out: &mut Vec<u8>, frame: &[u8]) {
    out.reserve(frame.len() + 24);
    begin_event(out);
    out.extend_from_slice(frame);
    out.extend_from_slice(b"\n\n");
}

/// Appends a message with an id from which a client can resume.
pub(super) fn push_numbered(out: &mut Vec<u8>, stream: u64, number: u64, frame: &[u8]) {
    out.reserve(frame.len() + 64);
    push_id(out, stream, number);
    push_event(out, frame);
}

/// Appends an id without a message, from which a client can resume before the first message.
pub(super) fn push_priming(out: &mut Vec<u8>, stream: u64, number: u64) {
    push_id(out, stream, number);
    out.extend_from_slice(format!("retry: {RETRY_MS}\ndata: \n\n").as_bytes());
}

/// Appends the beginning of a message, up to its text, which must be one line and be followed by a blank one.
pub(super) fn begin_event(out: &mut Vec<u8>) {
    out.extend_from_slice(b"event: message\ndata: ");
}

fn push_id(out: &mut Vec<u8>, stream: u64, number: u64) {
    out.extend_from_slice(format!("id: {stream}-{number}\n").as_bytes());
}

/// Parses the id of an event.
pub(super) fn parse_id(text: &str) -> Option<(u64, u64)> {
    let (stream, number) = text.split_once('-')?;
    Some((stream.parse().ok()?, number.parse().ok()?))
}

/// Returns a response that streams.
pub(super) fn respond<B>(body: B) -> Response
where
    B: http_body::Body<Data = Bytes, Error = std::convert::Infallible> + Send + 'static,
{
    let mut response = Response::new(Payload::stream(Body::new(body)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response
}

/// Timer of keep-alive comments.
pub(super) struct KeepAlive {
    every: Duration,
    due: Pin<Box<Sleep>>,
}

impl KeepAlive {
    pub(super) fn new(every: Duration) -> Self {
        Self { every, due: Box::pin(tokio::time::sleep(every)) }
    }

    /// Restarts the timer after another event.
    pub(super) fn reset(&mut self) {
        let next = Instant::now() + self.every;
        self.due.as_mut().reset(next);
    }

    /// Returns a comment when it is due.
    pub(super) fn poll_comment(&mut self, cx: &mut Context<'_>) -> Poll<Bytes> {
        std::task::ready!(self.due.as_mut().poll(cx));
        self.reset();
        Poll::Ready(Bytes::from_static(COMMENT))
    }
}

/// Marks the response of a stream that ends only when its client does. A shutdown ends such a stream at once; others
/// get the time to finish.
#[derive(Debug, Clone, Copy)]
pub struct LongStream;

/// Permit of a long stream, limited in total and per caller.
pub(super) struct LongStreamPermit(#[expect(dead_code, reason = "held until the stream ends")] KeyedPermit);

/// Acquires a permit for a long stream of the caller, or returns the refusal.
pub(super) fn acquire_long_stream(
    gateway: &Gateway,
    caller: &Caller,
    id: Option<&RequestId>,
) -> Result<LongStreamPermit, Box<Response>> {
    let streams = &gateway.0.long_streams;
    let why = match streams.acquire(caller.principal()) {
        Ok(permit) => return Ok(LongStreamPermit(permit)),
        Err(LimitReached::All) => "too many streams are open".into(),
        Err(_) => format!("this caller has {} streams open", streams.max_per_key()),
    };
    Err(Box::new(overloaded(&why, id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_events_id_is_read_back() {
        let mut out = Vec::new();
        push_numbered(&mut out, 3, 17, b"{}");
        assert_eq!(out, b"id: 3-17\nevent: message\ndata: {}\n\n");
        assert_eq!(parse_id("3-17"), Some((3, 17)));
        for bad in ["", "3", "-", "3-", "a-1", "3-17-1", "-1-2"] {
            assert_eq!(parse_id(bad), None, "{bad}");
        }
    }
}

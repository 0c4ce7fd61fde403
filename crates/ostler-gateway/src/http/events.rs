//! The streams of a legacy session as bodies.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::Frame;

use super::hold::LongPlace;
use super::long::LongStream;
use super::payload::Response;
use super::sse::{self, KeepAlive};
use crate::pass::Over;
use crate::queue::Reader;
use crate::session::{InUse, Session};

/// The first revision whose clients understand an event without a message.
const PRIMES_SINCE: &str = "2025-11-25";

/// The body of a stream of a legacy session.
pub(super) struct Events {
    session: Arc<Session>,
    reader: Reader,
    /// Under which number a client can resume it.
    number: Option<u64>,
    keep_alive: KeepAlive,
    /// What is said before anything else.
    opening: Option<Bytes>,
    /// Kept by streams that last: their place, and the session in use.
    _held: Option<(LongPlace, InUse)>,
    is_long: bool,
    /// The end of the credential it was opened with, and then of the stream.
    over: Over,
}

impl Events {
    /// The stream of one request.
    pub(super) fn of_request(
        session: Arc<Session>,
        reader: Reader,
        number: Option<u64>,
        keep_alive: Duration,
    ) -> Self {
        let opening = priming(&session, &reader, number);
        let keep_alive = KeepAlive::new(keep_alive);
        Self {
            session,
            reader,
            number,
            keep_alive,
            opening,
            _held: None,
            is_long: false,
            over: Over::default(),
        }
    }

    /// A stream that a client has opened by itself.
    pub(super) fn opened(session: InUse, place: LongPlace, reader: Reader, resumed: Resumed) -> Self {
        let Resumed { number, keep_alive, over } = resumed;
        Self {
            session: Arc::clone(&session),
            opening: priming(&session, &reader, Some(number)),
            reader,
            number: Some(number),
            keep_alive: KeepAlive::new(keep_alive),
            _held: Some((place, session)),
            is_long: number == 0,
            over,
        }
    }

    pub(super) fn respond(self) -> Response {
        let is_long = self.is_long;
        let mut response = sse::respond(self);
        if is_long {
            response.extensions_mut().insert(LongStream);
        }
        response
    }
}

/// What lets a client come back before it has got a message.
fn priming(session: &Session, reader: &Reader, number: Option<u64>) -> Option<Bytes> {
    let number = number.filter(|_| session.version() >= PRIMES_SINCE)?;
    let mut out = Vec::new();
    sse::push_priming(&mut out, number, reader.position());
    Some(out.into())
}

/// Which stream is read on.
pub(super) struct Resumed {
    pub(super) number: u64,
    pub(super) keep_alive: Duration,
    pub(super) over: Over,
}

impl http_body::Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        if this.over.has_come(cx) {
            return Poll::Ready(None);
        }
        if let Some(opening) = this.opening.take() {
            return Poll::Ready(Some(Ok(Frame::data(opening))));
        }
        let mut out = Vec::new();
        loop {
            match this.reader.poll_next(cx) {
                Poll::Ready(Some((at, frame))) => match this.number {
                    Some(number) => sse::push_numbered(&mut out, number, at, &frame),
                    None => sse::push_event(&mut out, &frame),
                },
                Poll::Ready(None) if out.is_empty() => {
                    if this.reader.is_done() {
                        this.session.streams.forget(this.reader.queue());
                    }
                    return Poll::Ready(None);
                }
                _ if !out.is_empty() => {
                    this.keep_alive.spoke();
                    return Poll::Ready(Some(Ok(Frame::data(out.into()))));
                }
                _ => return this.keep_alive.poll_comment(cx).map(|comment| Some(Ok(Frame::data(comment)))),
            }
        }
    }
}

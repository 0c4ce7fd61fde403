//! Body and media types of a request: the body within bounds, and the types that the client accepts.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode, header};
use http_body::Body;
use http_body_util::BodyExt;

use super::response::{Response, refuse};

/// Value of `Accept` that clients following the specification send, most of them byte for byte; matched without
/// parsing.
const USUAL: &str = "application/json, text/event-stream";

/// Media types that a client accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Accepts {
    pub(super) json: bool,
    pub(super) event_stream: bool,
}

impl Accepts {
    const ALL: Self = Self { json: true, event_stream: true };

    /// The specification wants clients to name both types. A client without the header accepts both, and one that names
    /// a single type gets that.
    pub(super) fn from_headers(headers: &HeaderMap) -> Self {
        let mut accepts = Self { json: false, event_stream: false };
        let mut is_named = false;
        for value in headers.get_all(header::ACCEPT) {
            is_named = true;
            if value == USUAL {
                return Self::ALL;
            }
            for range in value.to_str().unwrap_or_default().split(',') {
                let range = range.split(';').next().unwrap_or_default().trim();
                if range == "*/*" {
                    return Self::ALL;
                }
                accepts.json |= is_one_of(range, &["application/json", "application/*"]);
                accepts.event_stream |= is_one_of(range, &["text/event-stream", "text/*"]);
            }
        }
        if is_named { accepts } else { Self::ALL }
    }
}

/// Returns whether the content type is JSON.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(header::CONTENT_TYPE) else { return false };
    let said = value.to_str().unwrap_or_default();
    value == "application/json"
        || is_one_of(said.split(';').next().unwrap_or_default().trim(), &["application/json"])
}

fn is_one_of(said: &str, wanted: &[&str]) -> bool {
    wanted.iter().any(|wanted| said.eq_ignore_ascii_case(wanted))
}

/// Returns the whole body. Holds at most `cap` bytes; after `time` the client gets a timeout error.
pub(super) async fn read_body<B>(body: B, cap: usize, time: Duration) -> Result<Bytes, Box<Response>>
where
    B: Body<Data = Bytes> + Unpin,
{
    if body.size_hint().lower() > cap as u64 {
        return Err(too_large(cap));
    }
    let mut reading = pin!(collect(body, cap));
    let read = match poll_twice(reading.as_mut()).await {
        Some(read) => Ok(read),
        None => tokio::time::timeout(time, reading).await,
    };
    match read {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(BodyError::TooLarge)) => Err(too_large(cap)),
        Ok(Err(BodyError::Interrupted)) => {
            Err(Box::new(refuse(StatusCode::BAD_REQUEST, "the body broke off")))
        }
        Err(_) => {
            let why = format!("the body did not arrive within {} s", time.as_secs_f32());
            Err(Box::new(refuse(StatusCode::REQUEST_TIMEOUT, &why)))
        }
    }
}

/// Returns the output of a future that is ready at the second poll. A body is only read once it has been polled, and
/// then mostly has arrived with its head: it needs no timer.
async fn poll_twice<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    let mut is_second = false;
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if is_second => Poll::Ready(None),
        Poll::Pending => {
            is_second = true;
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await
}

enum BodyError {
    TooLarge,
    Interrupted,
}

/// Collects a body. One that arrives in a single piece, as nearly all do, is not copied.
async fn collect<B>(mut body: B, cap: usize) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes> + Unpin,
{
    let announced = body.size_hint().exact().unwrap_or(0).min(cap as u64);
    let mut first = Bytes::new();
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(piece) = frame.map_err(|_| BodyError::Interrupted)?.into_data() else { continue };
        if first.len() + whole.len() + piece.len() > cap {
            return Err(BodyError::TooLarge);
        }
        if first.is_empty() && whole.is_empty() {
            first = piece;
            continue;
        }
        if whole.is_empty() {
            whole.reserve(usize::try_from(announced).unwrap_or(0));
            whole.extend_from_slice(&std::mem::take(&mut first));
        }
        whole.extend_from_slice(&piece);
    }
    Ok(if whole.is_empty() { first } else { whole.freeze() })
}

fn too_large(cap: usize) -> Box<Response> {
    Box::new(refuse(StatusCode::PAYLOAD_TOO_LARGE, &format!("the body is larger than {cap} bytes")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_read_is_told_by_all_accept_headers() {
        let table = [
            (&[][..], true, true),
            (&["application/json, text/event-stream"], true, true),
            (&["application/json", "Text/Event-Stream;q=0.5"], true, true),
            (&["*/*"], true, true),
            (&["application/json"], true, false),
            (&["text/event-stream"], false, true),
            (&["text/html"], false, false),
        ];
        for (values, json, events) in table {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::ACCEPT, value.parse().unwrap());
            }
            assert_eq!(Accepts::from_headers(&headers), Accepts { json, event_stream: events }, "{values:?}");
        }
    }
}

//! Reading the body of a request, within bounds.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use http_body::Body;
use http_body_util::BodyExt;

use super::payload::Response;
use super::refuse::refuse;

/// The whole body. More than `cap` bytes are never held, and after `time` the
/// client is told that it is too slow.
pub(super) async fn read<B>(body: B, cap: usize, time: Duration) -> Result<Bytes, Box<Response>>
where
    B: Body<Data = Bytes> + Unpin,
{
    if body.size_hint().lower() > cap as u64 {
        return Err(too_large(cap));
    }
    let mut reading = pin!(collect(body, cap));
    let read = match at_once(reading.as_mut()).await {
        Some(read) => Ok(read),
        None => tokio::time::timeout(time, reading).await,
    };
    match read {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(Broken::TooLarge)) => Err(too_large(cap)),
        Ok(Err(Broken::Off)) => Err(Box::new(refuse(StatusCode::BAD_REQUEST, "the body broke off"))),
        Err(_) => {
            let why = format!("the body did not arrive within {} s", time.as_secs_f32());
            Err(Box::new(refuse(StatusCode::REQUEST_TIMEOUT, &why)))
        }
    }
}

/// What the future comes to if it is ready at the second look. A body is only
/// read once somebody has asked for it, and then mostly has come with its head:
/// it needs no timer.
async fn at_once<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
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

enum Broken {
    TooLarge,
    Off,
}

/// A body that comes in one piece, as nearly all do, is not copied.
async fn collect<B>(mut body: B, cap: usize) -> Result<Bytes, Broken>
where
    B: Body<Data = Bytes> + Unpin,
{
    let announced = body.size_hint().exact().unwrap_or(0).min(cap as u64);
    let mut first = Bytes::new();
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(piece) = frame.map_err(|_| Broken::Off)?.into_data() else { continue };
        if first.len() + whole.len() + piece.len() > cap {
            return Err(Broken::TooLarge);
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

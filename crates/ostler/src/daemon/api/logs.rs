//! What servers say on stderr.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::{Path, RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use hyper::body::Frame;
use ostler_gateway::LongStream;
use ostler_host::LogReader;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::fail;
use super::query::Query;
use crate::daemon::Daemon;

/// How often somebody who follows is told news.
const EVERY: Duration = Duration::from_millis(200);

/// What is kept, one line each; with `follow`, what comes after it too.
pub(super) async fn read(
    State(daemon): State<Arc<Daemon>>,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    if let Some(error) = daemon.roster.refusal(&name) {
        return fail(&error);
    }
    let opened = daemon.host.logs(&name).and_then(|mut reader| Ok((reader.read()?, reader)));
    let (lines, reader) = match opened {
        Ok(opened) => opened,
        Err(error) => return fail(&error),
    };
    let body = if Query(query.as_deref().unwrap_or_default()).is_set("follow") {
        let mut every = interval(EVERY);
        every.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Body::new(Following { reader, every, first: Some(lines) })
    } else {
        Body::from(text_of(lines))
    };
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::OK;
    // It lasts as long as its reader wants, and no longer than the daemon.
    response.extensions_mut().insert(LongStream);
    let plain = header::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}

fn text_of(lines: Vec<String>) -> Bytes {
    lines.into_iter().fold(String::new(), |text, line| text + &line + "\n").into()
}

/// A body that ends when the server is not there any more, or the reader is gone.
struct Following {
    reader: LogReader,
    every: Interval,
    /// What was there at the beginning.
    first: Option<Vec<String>>,
}

impl HttpBody for Following {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        // Sent even if it is empty, so that the head of the answer leaves.
        if let Some(lines) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(text_of(lines)))));
        }
        loop {
            ready!(self.every.poll_tick(context));
            match self.reader.read() {
                Ok(lines) if lines.is_empty() => {}
                Ok(lines) => return Poll::Ready(Some(Ok(Frame::data(text_of(lines))))),
                Err(_) => return Poll::Ready(None),
            }
        }
    }
}

//! Tracked body: keeps its connection busy and the program active until its last byte.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::sync::watch;

use super::activity::ActivityGuard;
use super::connection::BusyGuard;
use crate::http::Payload;

type Stop = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Body that ends at shutdown if it is a long stream.
pub(super) struct TrackedBody {
    body: Payload,
    guard: RequestGuard,
    stop: Option<Stop>,
    /// Bytes that were counted as unread before they were polled.
    counted: usize,
}

/// Guards of a request, held until the last byte of its answer.
#[derive(Default)]
pub(super) struct RequestGuard {
    busy: Option<BusyGuard>,
    _active: Option<ActivityGuard>,
}

impl RequestGuard {
    pub(super) fn new(busy: BusyGuard, active: Option<ActivityGuard>) -> Self {
        Self { busy: Some(busy), _active: active }
    }
}

impl TrackedBody {
    pub(super) fn new(body: Payload, guard: RequestGuard, stop: Option<watch::Receiver<bool>>) -> Self {
        let stop = stop.map(|mut stop| -> Stop {
            Box::pin(async move {
                // A dropped sender means that the program has ended.
                let _ = stop.wait_for(|stop| *stop).await;
            })
        });
        // A whole answer takes memory from now on, also while its client has not taken the one before.
        let counted = body.whole_len();
        if let Some(busy) = &guard.busy {
            busy.add_unread(counted);
        }
        Self { body, guard, stop, counted }
    }

    /// Makes a body without guards.
    pub(super) fn untracked(body: Payload) -> Self {
        Self::new(body, RequestGuard::default(), None)
    }
}

impl http_body::Body for TrackedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Some(stop) = &mut self.stop
            && stop.as_mut().poll(cx).is_ready()
        {
            self.body = Payload::whole(Bytes::new());
            self.stop = None;
        }
        let Self { body, guard, counted, .. } = &mut *self;
        let frame = Pin::new(body).poll_frame(cx);
        if let (Poll::Ready(Some(Ok(frame))), Some(busy)) = (&frame, &guard.busy)
            && let Some(part) = frame.data_ref()
        {
            busy.add_unread(part.len().saturating_sub(std::mem::take(counted)));
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::Waker;

    use http_body::Body;

    use super::*;
    use crate::server::ConnectionLimits;
    use crate::server::connection_table::ConnectionTable;

    #[tokio::test]
    async fn a_whole_answer_counts_as_unread_before_it_is_polled_and_once() {
        let table = Arc::new(ConnectionTable::new(&ConnectionLimits::default()));
        let connection = table.admit().unwrap();
        let guard = RequestGuard::new(connection.begin_request().unwrap(), None);
        let mut body = TrackedBody::new(Payload::whole(vec![b'x'; 1 << 20]), guard, None);
        assert_eq!(table.unread_bytes(), 1 << 20);
        let polled = Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(polled, Poll::Ready(Some(Ok(_)))));
        assert_eq!(table.unread_bytes(), 1 << 20);
        connection.note_flush();
        assert_eq!(table.unread_bytes(), 0);
    }
}

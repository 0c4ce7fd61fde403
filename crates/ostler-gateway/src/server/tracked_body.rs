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

/// A body that ends when the program shuts down if it would not end by itself.
pub(super) struct TrackedBody {
    body: Payload,
    guard: RequestGuard,
    stop: Option<Stop>,
}

/// What a request holds until the last byte of its answer.
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
                // A sender that is gone is a program that is gone.
                let _ = stop.wait_for(|stop| *stop).await;
            })
        });
        Self { body, guard, stop }
    }

    /// A body that holds nothing.
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
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if let (Poll::Ready(Some(Ok(frame))), Some(busy)) = (&frame, &self.guard.busy)
            && let Some(part) = frame.data_ref()
        {
            busy.add_unread(part.len());
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

//! The body of a response, which keeps its connection busy.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::sync::watch;

use super::super::payload::Payload;
use super::seat::Busy;

type Stop = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A body that keeps its connection busy, and that ends when the program
/// shuts down if it would not end by itself.
pub(super) struct Guarded {
    body: Payload,
    busy: Option<Busy>,
    stop: Option<Stop>,
}

impl Guarded {
    pub(super) fn new(body: Payload, busy: Option<Busy>, stop: Option<watch::Receiver<bool>>) -> Self {
        let stop = stop.map(|mut stop| -> Stop {
            Box::pin(async move {
                // A sender that is gone is a program that is gone.
                let _ = stop.wait_for(|stop| *stop).await;
            })
        });
        Self { body, busy, stop }
    }

    pub(super) fn empty() -> Self {
        Self::new(Payload::whole(Bytes::new()), None, None)
    }
}

impl http_body::Body for Guarded {
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
        if let (Poll::Ready(Some(Ok(frame))), Some(busy)) = (&frame, &self.busy)
            && let Some(part) = frame.data_ref()
        {
            busy.owes(part.len());
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

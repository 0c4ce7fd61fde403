//! Where what belongs to one request goes before its answer.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::frame_queue::{FrameQueue, QueueBounds};

/// What may wait for a client that reads slowly.
const REQUEST_QUEUE_BOUNDS: QueueBounds = QueueBounds { frames: 256, bytes: 1 << 20 };

/// What frames of the size of the next one may make wait on a connection.
const MAX_CONNECTION_BACKLOG: usize = 16 << 20;

/// Takes frames, each one JSON-RPC message without a line break, that go to
/// the client on the stream of one request, before the answer.
#[derive(Debug, Clone)]
pub(crate) struct NotificationSink(SinkKind);

#[derive(Debug, Clone)]
enum SinkKind {
    /// The stream of this request alone.
    Queue(Arc<FrameQueue>),
    /// A connection that all requests share.
    SharedConnection(mpsc::Sender<Bytes>),
}

impl NotificationSink {
    /// An outlet and its other end. Nothing but the count of handles is
    /// allocated before the first frame, since most requests have none.
    pub(crate) fn new() -> (Self, FrameReceiver) {
        let queue = Arc::new(FrameQueue::new(REQUEST_QUEUE_BOUNDS));
        (Self(SinkKind::Queue(Arc::clone(&queue))), FrameReceiver(queue))
    }

    /// An outlet into a queue that outlives its reader.
    pub(crate) fn for_queue(queue: Arc<FrameQueue>) -> Self {
        Self(SinkKind::Queue(queue))
    }

    /// An outlet into the line of a connection.
    pub(crate) fn for_connection(line: mpsc::Sender<Bytes>) -> Self {
        Self(SinkKind::SharedConnection(line))
    }

    /// Whether the client has read everything.
    pub(crate) fn is_empty(&self) -> bool {
        match &self.0 {
            SinkKind::Queue(queue) => queue.is_empty(),
            SinkKind::SharedConnection(line) => line.capacity() == line.max_capacity(),
        }
    }

    /// Sends a frame on its way; false if the client is gone or does not read.
    pub(crate) fn send(&self, frame: impl Into<Bytes>) -> bool {
        match &self.0 {
            SinkKind::Queue(queue) => queue.push(frame.into()),
            SinkKind::SharedConnection(line) => {
                let frame = frame.into();
                let waiting = line.max_capacity() - line.capacity();
                let fits = frame.len().saturating_mul(waiting + 1) <= MAX_CONNECTION_BACKLOG;
                fits && line.try_send(frame).is_ok()
            }
        }
    }
}

/// The frames of one outlet, in order. Dropping it tells the outlet that the
/// client is gone.
#[derive(Debug)]
pub(crate) struct FrameReceiver(Arc<FrameQueue>);

impl FrameReceiver {
    /// A queue of the size that one request gets.
    pub(crate) fn new_queue() -> Arc<FrameQueue> {
        Arc::new(FrameQueue::new(REQUEST_QUEUE_BOUNDS))
    }

    /// The next frame, if it is here.
    pub(crate) fn try_recv(&mut self) -> Option<Bytes> {
        self.0.pop()
    }

    /// Whether no frame is here.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Ready once there is a frame.
    pub(crate) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.0.poll_ready(cx)
    }
}

impl Drop for FrameReceiver {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

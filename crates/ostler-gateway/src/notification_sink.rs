//! Notification sink: destination of frames that belong to one request and precede its answer.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::frame_queue::{FrameQueue, QueueBounds};

/// Bounds of the frames that wait for a client that reads slowly.
const REQUEST_QUEUE_BOUNDS: QueueBounds = QueueBounds { frames: 256, bytes: 1 << 20 };

/// Upper bound on bytes queued per connection, estimated from the size of the next frame.
const MAX_CONNECTION_BACKLOG: usize = 16 << 20;

/// Takes frames, each one JSON-RPC message without a line break, that go to the client on the stream of one request,
/// before the answer.
#[derive(Debug, Clone)]
pub(crate) struct NotificationSink(SinkKind);

#[derive(Debug, Clone)]
enum SinkKind {
    /// Stream of this request alone.
    Queue(Arc<FrameQueue>),
    /// Connection that all requests share.
    SharedConnection(mpsc::Sender<Bytes>),
}

impl NotificationSink {
    /// Makes a sink and its receiver. Only the reference count is allocated before the first frame, since most requests
    /// have none.
    pub(crate) fn new() -> (Self, FrameReceiver) {
        let queue = Arc::new(FrameQueue::new(REQUEST_QUEUE_BOUNDS));
        (Self(SinkKind::Queue(Arc::clone(&queue))), FrameReceiver(queue))
    }

    /// Makes a sink into a queue that outlives its reader.
    pub(crate) fn for_queue(queue: Arc<FrameQueue>) -> Self {
        Self(SinkKind::Queue(queue))
    }

    /// Makes a sink into the frame channel of a connection.
    pub(crate) fn for_connection(line: mpsc::Sender<Bytes>) -> Self {
        Self(SinkKind::SharedConnection(line))
    }

    /// Returns whether the client has read every frame.
    pub(crate) fn is_empty(&self) -> bool {
        match &self.0 {
            SinkKind::Queue(queue) => queue.is_empty(),
            SinkKind::SharedConnection(line) => line.capacity() == line.max_capacity(),
        }
    }

    /// Sends a frame; false if the client is gone or does not read.
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

/// Receiver of the frames of one sink, in order. Dropping it tells the sink that the client is gone.
#[derive(Debug)]
pub(crate) struct FrameReceiver(Arc<FrameQueue>);

impl FrameReceiver {
    /// Makes a queue with the bounds of one request.
    pub(crate) fn new_queue() -> Arc<FrameQueue> {
        Arc::new(FrameQueue::new(REQUEST_QUEUE_BOUNDS))
    }

    /// Returns the next frame, if there is one.
    pub(crate) fn try_recv(&mut self) -> Option<Bytes> {
        self.0.pop()
    }

    /// Returns whether there is no frame.
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

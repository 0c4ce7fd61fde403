//! Where what belongs to one request goes before its answer.

use bytes::Bytes;
use tokio::sync::mpsc;

/// Frames that may wait for a client that reads slowly.
const WAITING: usize = 256;

/// Takes frames, each one JSON-RPC message without a line break, that go to
/// the client on the stream of one request, before the answer.
#[derive(Debug, Clone)]
pub(crate) struct Outlet(mpsc::Sender<Bytes>);

impl Outlet {
    pub(crate) fn new() -> (Self, mpsc::Receiver<Bytes>) {
        let (sender, receiver) = mpsc::channel(WAITING);
        (Self(sender), receiver)
    }

    /// Sends a frame on its way; false if the client is gone or does not read.
    pub(crate) fn send(&self, frame: impl Into<Bytes>) -> bool {
        self.0.try_send(frame.into()).is_ok()
    }
}

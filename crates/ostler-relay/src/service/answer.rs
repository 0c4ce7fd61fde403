//! Answers on their way: in one message, or in chunks where they are too long.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use data_encoding::HEXLOWER;
use ostler_core::error::CallError;
use ostler_wire::RequestId;
use sha2::{Digest, Sha256};
use tokio::sync::watch;
use tokio::time::timeout;

use super::ServiceCore;
use super::call_registry::ReplyAddress;
use crate::broker::{BrokerMessage, LinkError};
use crate::chunk::{CHUNK_SIZE, CHUNK_WINDOW, MAX_INLINE_ANSWER};
use crate::envelope::{RelayProgress, RelayReply};
use crate::reconnect::BrokerConnection;

/// What headers and subject of a chunk may take beside its text.
const MARGIN: usize = 4 << 10;

/// A worker that takes nothing for so long has gone, or will ask anew.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is answered to a request.
#[derive(Debug, Clone)]
pub(super) enum AnswerBody {
    /// The text of the result.
    Result(Bytes),
    /// The text of the error object.
    Error(Bytes),
}

impl From<&CallError> for AnswerBody {
    fn from(error: &CallError) -> Self {
        match error.tool_result() {
            Some(result) => Self::Result(result.into()),
            None => Self::Error(error.rpc_object().into()),
        }
    }
}

impl AnswerBody {
    /// The whole response to the request `id`; none is one that could not be read.
    pub(super) fn to_response(&self, id: Option<&RequestId>) -> Bytes {
        let mut out = Vec::new();
        match (self, id) {
            (Self::Result(result), Some(id)) => ostler_wire::write_result(&mut out, id, result),
            (Self::Error(error), Some(id)) => ostler_wire::write_error_object(&mut out, id, error),
            (Self::Result(_), None) => {}
            (Self::Error(error), None) => {
                out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":");
                out.extend_from_slice(error);
                out.extend_from_slice(b"}\n");
            }
        }
        // Frames end with a line break, which means nothing in a message.
        out.pop();
        out.into()
    }
}

/// Sends an answer that is kept, as far as that is possible now: whoever does
/// not get it asks for it anew.
pub(super) async fn send(service: &ServiceCore, to: &ReplyAddress, text: Bytes) {
    let Some(up) = service.reconnector.connection() else {
        service.registry.mark_unsent(&to.key);
        return;
    };
    let sent = match text.len() <= MAX_INLINE_ANSWER {
        true => inline(service, &up, to, text.clone()).await,
        false => Err(LinkError::TooLong { limit: MAX_INLINE_ANSWER }),
    };
    match sent {
        Err(LinkError::Closed) => service.registry.mark_unsent(&to.key),
        // The broker lets us answer over the connection that the request came by.
        // Over another one the answer may be lost, and the worker does not know.
        _ if to.epoch != up.epoch => {
            service.send_accepted(&to.key).await;
        }
        Err(LinkError::TooLong { .. }) => send_chunked(service, &up, to, text).await,
        Ok(()) => {}
    }
}

/// Tells the workers of whatever they may have missed. They ask for it.
pub(super) async fn announce_unconfirmed(service: Arc<ServiceCore>) {
    for key in service.registry.take_unconfirmed() {
        if !service.send_accepted(&key).await {
            service.registry.mark_unsent(&key);
        }
    }
}

async fn inline(
    service: &ServiceCore,
    up: &BrokerConnection,
    to: &ReplyAddress,
    text: Bytes,
) -> Result<(), LinkError> {
    service.publish(up, BrokerMessage::new(to.subject.clone(), RelayReply::Answer.headers(), text)).await
}

async fn send_chunked(service: &ServiceCore, up: &BrokerConnection, to: &ReplyAddress, text: Bytes) {
    let Some(_turn) = service.chunked_answers.acquire(&to.key.worker).await else { return };
    let acks = service.registry.subscribe_acks(&to.key);
    let sent =
        ChunkedSend { service, connection: up, reply_address: to, text, acks: acks.clone() }.run().await;
    service.registry.unsubscribe_acks(&to.key, acks);
    if sent == Err(LinkError::Closed) {
        service.registry.mark_unsent(&to.key);
    }
}

/// One answer that goes out in chunks.
struct ChunkedSend<'a> {
    service: &'a ServiceCore,
    connection: &'a BrokerConnection,
    reply_address: &'a ReplyAddress,
    text: Bytes,
    acks: watch::Receiver<u32>,
}

impl ChunkedSend<'_> {
    async fn run(mut self) -> Result<(), LinkError> {
        let length = self.text.len() as u64;
        let headers = RelayReply::Chunked { length, sha256: sha256_hex(&self.text).await }.headers();
        self.publish(BrokerMessage::new(self.reply_address.subject.clone(), headers, Bytes::new())).await?;
        let size =
            CHUNK_SIZE.min(self.connection.link.broker_info().max_payload.saturating_sub(MARGIN)).max(1);
        let subject =
            self.service.subjects.progress(&self.reply_address.key.worker, self.reply_address.key.call);
        for (number, at) in (0_u32..).zip((0..self.text.len()).step_by(size)) {
            if !self.wait_for_window(number).await {
                return Ok(());
            }
            let piece = self.text.slice(at..self.text.len().min(at + size));
            let headers = RelayProgress::Chunk(number).headers();
            self.publish(BrokerMessage::new(subject.clone(), headers, piece)).await?;
        }
        Ok(())
    }

    /// Waits until no more than a window would be on the way; false if the
    /// worker takes nothing any more, or has asked anew.
    async fn wait_for_window(&mut self, number: u32) -> bool {
        loop {
            let acked = *self.acks.borrow_and_update();
            if number < acked.saturating_add(CHUNK_WINDOW) {
                return true;
            }
            match timeout(PATIENCE, self.acks.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return false,
            }
        }
    }

    async fn publish(&self, message: BrokerMessage) -> Result<(), LinkError> {
        self.service.publish(self.connection, message).await
    }
}

/// The hash of a long text, with pauses: others have something to do too.
async fn sha256_hex(text: &[u8]) -> String {
    let mut hash = Sha256::new();
    for piece in text.chunks(CHUNK_SIZE) {
        hash.update(piece);
        tokio::task::yield_now().await;
    }
    HEXLOWER.encode(&hash.finalize())
}

//! Answers: the bytes of a response, and their delivery in one message or in chunks.

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

/// Bytes reserved for the headers and subject of a chunk.
const MARGIN: usize = 4 << 10;

/// Timeout for an acknowledgement. A worker that acknowledges nothing for that long is gone or will
/// ask again.
const PATIENCE: Duration = Duration::from_secs(5);

/// Body of an answer.
#[derive(Debug, Clone)]
pub(super) enum AnswerBody {
    /// Text of the result.
    Result(Bytes),
    /// Text of the error object.
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
    /// Returns the response to the request `id`; `None` is a request whose id could not be parsed.
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
        // Frames end with a line break; a message does not.
        out.pop();
        out.into()
    }
}

/// Sends a cached answer if a connection is up. A worker that misses it asks again.
pub(super) async fn send(service: &ServiceCore, reply_address: &ReplyAddress, text: Bytes) {
    let Some(connection) = service.reconnector.connection() else {
        service.registry.mark_unsent(&reply_address.key);
        return;
    };
    let result = match text.len() <= MAX_INLINE_ANSWER {
        true => inline(service, &connection, reply_address, text.clone()).await,
        false => Err(LinkError::TooLong { limit: MAX_INLINE_ANSWER }),
    };
    match result {
        Err(LinkError::Closed) => service.registry.mark_unsent(&reply_address.key),
        // The broker lets the host answer only over the connection that the request came by. Over
        // another one the answer may be dropped unnoticed, so the worker is told to ask for it.
        _ if reply_address.epoch != connection.epoch => {
            service.send_accepted(&reply_address.key).await;
        }
        Err(LinkError::TooLong { .. }) => send_chunked(service, &connection, reply_address, text).await,
        Ok(()) => {}
    }
}

/// Tells workers about answers that they may have missed, so that they ask for them.
pub(super) async fn announce_unconfirmed(service: Arc<ServiceCore>) {
    for key in service.registry.take_unconfirmed() {
        if !service.send_accepted(&key).await {
            service.registry.mark_unsent(&key);
        }
    }
}

async fn inline(
    service: &ServiceCore,
    connection: &BrokerConnection,
    reply_address: &ReplyAddress,
    text: Bytes,
) -> Result<(), LinkError> {
    service
        .publish(
            connection,
            BrokerMessage::new(reply_address.subject.clone(), RelayReply::Answer.headers(), text),
        )
        .await
}

async fn send_chunked(
    service: &ServiceCore,
    connection: &BrokerConnection,
    reply_address: &ReplyAddress,
    text: Bytes,
) {
    let Some(_permit) = service.chunked_answers.acquire(&reply_address.key.worker).await else { return };
    let acks = service.registry.subscribe_acks(&reply_address.key);
    let result = ChunkedSend { service, connection, reply_address, text, acks: acks.clone() }.run().await;
    service.registry.unsubscribe_acks(&reply_address.key, acks);
    if result == Err(LinkError::Closed) {
        service.registry.mark_unsent(&reply_address.key);
    }
}

/// One answer on its way in chunks.
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

    /// Waits until one more chunk fits into the window. Returns `false` if the worker stops
    /// acknowledging or the answer is sent anew.
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

/// Returns the SHA-256 of a long text; yields between pieces to keep the runtime responsive.
async fn sha256_hex(text: &[u8]) -> String {
    let mut hash = Sha256::new();
    for piece in text.chunks(CHUNK_SIZE) {
        hash.update(piece);
        tokio::task::yield_now().await;
    }
    HEXLOWER.encode(&hash.finalize())
}

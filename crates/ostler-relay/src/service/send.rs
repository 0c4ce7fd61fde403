//! Answers on their way: in one message, or in chunks where they are too long.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};
use tokio::sync::watch;
use tokio::time::timeout;

use super::Shared;
use super::desk::Address;
use crate::broker::{Message, Unsent};
use crate::chunk::{CHUNK, INLINE, WINDOW};
use crate::envelope::{Progress, Reply};
use crate::tether::Up;

/// What headers and subject of a chunk may take beside its text.
const MARGIN: usize = 4 << 10;

/// A worker that takes nothing for so long has gone, or will ask anew.
const PATIENCE: Duration = Duration::from_secs(5);

/// Sends an answer that is kept, as far as that is possible now: whoever does
/// not get it asks for it anew.
pub(super) async fn send(service: &Shared, to: &Address, text: Bytes) {
    let Some(up) = service.tether.up() else {
        service.desk.put_off(&to.key);
        return;
    };
    let sent = match text.len() <= INLINE {
        true => inline(service, &up, to, text.clone()).await,
        false => Err(Unsent::TooLong { limit: INLINE }),
    };
    match sent {
        Err(Unsent::Over) => service.desk.put_off(&to.key),
        // The broker lets us answer over the connection that the request came by.
        // Over another one the answer may be lost, and the worker does not know.
        _ if to.epoch != up.epoch => {
            service.accept(&to.key).await;
        }
        Err(Unsent::TooLong { .. }) => in_chunks(service, &up, to, text).await,
        Ok(()) => {}
    }
}

/// Tells the workers of whatever they may have missed. They ask for it.
pub(super) async fn announce_doubtful(service: Arc<Shared>) {
    for key in service.desk.take_doubtful() {
        if !service.accept(&key).await {
            service.desk.put_off(&key);
        }
    }
}

async fn inline(service: &Shared, up: &Up, to: &Address, text: Bytes) -> Result<(), Unsent> {
    service.publish(up, Message::new(to.reply.clone(), Reply::Answer.headers(), text)).await
}

async fn in_chunks(service: &Shared, up: &Up, to: &Address, text: Bytes) {
    let Some(_turn) = service.sendings.take(&to.key.worker).await else { return };
    let acks = service.desk.follow(&to.key);
    let sent = Sending { service, up, to, text, acks: acks.clone() }.run().await;
    service.desk.unfollow(&to.key, acks);
    if sent == Err(Unsent::Over) {
        service.desk.put_off(&to.key);
    }
}

/// One answer that goes out in chunks.
struct Sending<'a> {
    service: &'a Shared,
    up: &'a Up,
    to: &'a Address,
    text: Bytes,
    acks: watch::Receiver<u32>,
}

impl Sending<'_> {
    async fn run(mut self) -> Result<(), Unsent> {
        let length = self.text.len() as u64;
        let headers = Reply::Chunked { length, sha256: hash(&self.text).await }.headers();
        self.publish(Message::new(self.to.reply.clone(), headers, Bytes::new())).await?;
        let size = CHUNK.min(self.up.link.welcome().max_payload.saturating_sub(MARGIN)).max(1);
        let subject = self.service.subjects.progress(&self.to.key.worker, self.to.key.call);
        for (number, at) in (0_u32..).zip((0..self.text.len()).step_by(size)) {
            if !self.has_room_for(number).await {
                return Ok(());
            }
            let piece = self.text.slice(at..self.text.len().min(at + size));
            let headers = Progress::Chunk(number).headers();
            self.publish(Message::new(subject.clone(), headers, piece)).await?;
        }
        Ok(())
    }

    /// Waits until no more than a window would be on the way; false if the
    /// worker takes nothing any more, or has asked anew.
    async fn has_room_for(&mut self, number: u32) -> bool {
        loop {
            let acked = *self.acks.borrow_and_update();
            if number < acked.saturating_add(WINDOW) {
                return true;
            }
            match timeout(PATIENCE, self.acks.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return false,
            }
        }
    }

    async fn publish(&self, message: Message) -> Result<(), Unsent> {
        self.service.publish(self.up, message).await
    }
}

/// The hash of a long text, with pauses: others have something to do too.
async fn hash(text: &[u8]) -> String {
    let mut hash = Sha256::new();
    for piece in text.chunks(CHUNK) {
        hash.update(piece);
        tokio::task::yield_now().await;
    }
    HEXLOWER.encode(&hash.finalize())
}

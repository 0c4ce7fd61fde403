//! Answers that exceed one message.

use bytes::Bytes;
use ostler_core::fault::{Delivery, FaultKind};
use ostler_relay::chunk::{ACK_EVERY, CHUNK_SIZE};
use ostler_relay::envelope::{Control, RelayProgress, RelayReply};
use sha2::{Digest, Sha256};

use crate::harness::*;

/// Returns a response of some MiB and its announcement.
fn large(id: u64, mebibytes: usize) -> (Vec<u8>, RelayReply) {
    let text = "abcdefghijklmnop".repeat(mebibytes << 16);
    let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"text":"{text}"}}}}"#).into_bytes();
    let sha256 = data_encoding::HEXLOWER.encode(&Sha256::digest(&body));
    let reply = RelayReply::Chunked { length: body.len() as u64, sha256 };
    (body, reply)
}

#[tokio::test(start_paused = true)]
async fn twenty_mebibytes_arrive_in_order_and_are_acknowledged() {
    let harness = WorkerHarness::new().await;
    let mut manual_host = ManualHost::connect_with_heartbeat(&harness.broker, "h").await;
    let call = harness.call("large");
    let received = manual_host.next_call().await;
    manual_host.accept(&received).await;
    let (body, reply) = large(received.id, 20);
    manual_host.reply(&received, reply, Bytes::new()).await;
    let mut expected = 0;
    for (number, chunk) in (0_u32..).zip(body.chunks(CHUNK_SIZE)) {
        manual_host
            .send_progress(received.head.call, RelayProgress::Chunk(number), Bytes::copy_from_slice(chunk))
            .await;
        if (number + 1).is_multiple_of(ACK_EVERY) {
            expected += ACK_EVERY;
            assert_eq!(manual_host.next_control().await.1, Control::Ack(expected));
        }
    }
    assert_eq!(call.result().await.len(), (20 << 20) + r#"{"text":""}"#.len());
    let count = u32::try_from(body.len().div_ceil(CHUNK_SIZE)).unwrap();
    assert_eq!(manual_host.next_control().await.1, Control::Ack(count), "the last one");
}

#[tokio::test(start_paused = true)]
async fn chunks_in_any_order_more_than_once_and_before_their_announcement_are_one_answer() {
    let harness = WorkerHarness::new().await;
    let mut manual_host = ManualHost::connect_with_heartbeat(&harness.broker, "h").await;
    let call = harness.call("large");
    let received = manual_host.next_call().await;
    let (body, reply) = large(received.id, 3);
    let chunks: Vec<(u32, &[u8])> = (0_u32..).zip(body.chunks(CHUNK_SIZE)).collect();
    for (number, chunk) in chunks.iter().rev().chain(chunks.iter().take(3)) {
        manual_host
            .send_progress(received.head.call, RelayProgress::Chunk(*number), Bytes::copy_from_slice(chunk))
            .await;
    }
    manual_host.reply(&received, reply, Bytes::new()).await;
    let expected =
        &body[format!(r#"{{"jsonrpc":"2.0","id":{},"result":"#, received.id).len()..body.len() - 1];
    assert_eq!(call.result().await.as_bytes(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_damaged_chunk_makes_no_answer() {
    let harness = WorkerHarness::new().await;
    let mut manual_host = ManualHost::connect_with_heartbeat(&harness.broker, "h").await;
    let call = harness.call("large");
    let received = manual_host.next_call().await;
    let (mut body, reply) = large(received.id, 3);
    body[2 << 20] ^= 1;
    manual_host.reply(&received, reply, Bytes::new()).await;
    for (number, chunk) in (0_u32..).zip(body.chunks(CHUNK_SIZE)) {
        manual_host
            .send_progress(received.head.call, RelayProgress::Chunk(number), Bytes::copy_from_slice(chunk))
            .await;
    }
    let (fault, _) = call.fault().await;
    assert_eq!(fault.delivery, Delivery::Unknown);
    assert!(matches!(&fault.kind, FaultKind::Malformed(why) if why.contains("hash")), "{fault}");
}

#[tokio::test(start_paused = true)]
async fn more_than_an_answer_may_have_is_refused_and_cancelled() {
    let harness = WorkerHarness::new().await;
    let mut manual_host = ManualHost::connect_with_heartbeat(&harness.broker, "h").await;
    let call = harness.call("large");
    let received = manual_host.next_call().await;
    let reply = RelayReply::Chunked { length: (64 << 20) + 1, sha256: "ab".repeat(32) };
    manual_host.reply(&received, reply, Bytes::new()).await;
    let (fault, _) = call.fault().await;
    assert_eq!((fault.delivery, fault.kind), (Delivery::Unknown, FaultKind::Oversize(64 << 20)));
    assert_eq!(manual_host.next_control().await.1, Control::Cancel);
}

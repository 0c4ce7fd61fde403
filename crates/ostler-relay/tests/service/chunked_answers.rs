//! Answers that exceed one message.

use bytes::Bytes;
use data_encoding::HEXLOWER;
use ostler_relay::chunk::{CHUNK_SIZE, CHUNK_WINDOW, MAX_ANSWER, MAX_INLINE_ANSWER};
use ostler_relay::envelope::{Control, RelayProgress, RelayReply};
use ostler_testkit::{Script, ScriptedReply};
use sha2::{Digest, Sha256};

use crate::harness::{ManualWorker, ServiceHarness, code, test_host};
use crate::{ms, secs};

/// Creates a service with a tool whose answer has this many bytes.
async fn harness(bytes: usize) -> ServiceHarness {
    let frame = r#"{"jsonrpc":"2.0","id":7,"result":{"text":""}}"#.len();
    let reply = ScriptedReply::result(format!(r#"{{"text":"{}"}}"#, "x".repeat(bytes - frame)));
    ServiceHarness::open(test_host().server("a", Script::echo().tool_replying("long", reply)).start().await)
        .await
}

impl ManualWorker {
    /// Waits for the announcement of a chunked answer; returns length and hash.
    async fn chunked(&mut self) -> (u64, String) {
        let message = tokio::time::timeout(secs(5), self.answers.next()).await.unwrap().unwrap();
        match RelayReply::read(&message.headers) {
            Ok(RelayReply::Chunked { length, sha256 }) => (length, sha256),
            other => panic!("{other:?}"),
        }
    }

    /// Waits for chunks until none follows.
    async fn chunks(&mut self) -> Vec<(u32, Bytes)> {
        let mut chunks = Vec::new();
        while let Ok(Some(message)) = tokio::time::timeout(ms(1), self.progress.next()).await {
            if let Ok(RelayProgress::Chunk(number)) = RelayProgress::read(&message.headers) {
                chunks.push((number, message.body));
            }
        }
        chunks
    }

    /// Receives all chunks of an answer and acknowledges four at a time.
    async fn receive_all(&mut self, call: u8, length: u64) -> Vec<u8> {
        let (mut whole, mut next) = (Vec::new(), 0);
        while (whole.len() as u64) < length {
            let chunks = self.chunks().await;
            assert!(!chunks.is_empty() && chunks.len() <= CHUNK_WINDOW as usize, "{} chunks", chunks.len());
            for (number, piece) in chunks {
                assert_eq!(number, next);
                next += 1;
                whole.extend_from_slice(&piece);
            }
            tokio::time::sleep(secs(3)).await;
            self.control(call, Control::Ack(next), "").await;
        }
        whole
    }
}

#[tokio::test(start_paused = true)]
async fn the_longest_answer_of_one_message_comes_in_one() {
    let harness = harness(MAX_INLINE_ANSWER).await;
    let mut worker = harness.worker("w1").await;
    worker.call(1, "a", "long").await;
    assert_eq!(worker.next_accepted().await, 1);
    assert_eq!(worker.next_answer().await.1.to_string().len(), MAX_INLINE_ANSWER);
}

#[tokio::test(start_paused = true)]
async fn a_byte_more_comes_in_chunks() {
    let harness = harness(MAX_INLINE_ANSWER + 1).await;
    let mut worker = harness.worker("w1").await;
    worker.call(1, "a", "long").await;
    assert_eq!(worker.chunked().await.0, (MAX_INLINE_ANSWER + 1) as u64);
    let lengths: Vec<_> = worker.chunks().await.into_iter().map(|(_, piece)| piece.len()).collect();
    assert_eq!(lengths, [CHUNK_SIZE, CHUNK_SIZE, 1]);
}

#[tokio::test(start_paused = true)]
async fn twenty_mebibytes_reach_a_slow_worker_whole() {
    let length = 20 << 20;
    let harness = harness(length).await;
    let mut worker = harness.worker("w1").await;
    worker.call(1, "a", "long").await;
    let (announced, hash) = worker.chunked().await;
    assert_eq!(announced, length as u64);
    let whole = worker.receive_all(1, announced).await;
    assert_eq!(HEXLOWER.encode(&Sha256::digest(&whole)), hash);
    let answer: serde_json::Value = serde_json::from_slice(&whole).unwrap();
    assert_eq!(answer["id"], 7);
    assert_eq!(harness.service.status().in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_acknowledges_nothing_gets_a_window_and_may_ask_again() {
    let length = 4 << 20;
    let harness = harness(length).await;
    let mut worker = harness.worker("w1").await;
    worker.call(1, "a", "long").await;
    worker.chunked().await;
    assert_eq!(worker.chunks().await.len(), CHUNK_WINDOW as usize);
    harness.test_host.advance(secs(5)).await;
    worker.control(1, Control::Ack(CHUNK_WINDOW), "").await;
    assert!(worker.chunks().await.is_empty(), "the sending has ended");
    worker.control(1, Control::Resume, "").await;
    let (announced, hash) = worker.chunked().await;
    let whole = worker.receive_all(1, announced).await;
    assert_eq!(HEXLOWER.encode(&Sha256::digest(&whole)), hash);
    assert_eq!(harness.test_host.server("a").count("long"), 1);
}

#[tokio::test(start_paused = true)]
async fn asking_again_begins_anew_and_ends_what_was_sent_before() {
    let harness = harness(4 << 20).await;
    let mut worker = harness.worker("w1").await;
    worker.call(1, "a", "long").await;
    let first = worker.chunked().await;
    worker.chunks().await;
    worker.control(1, Control::Resume, "").await;
    assert_eq!(worker.chunked().await, first);
    let whole = worker.receive_all(1, first.0).await;
    assert_eq!(HEXLOWER.encode(&Sha256::digest(&whole)), first.1);
}

#[tokio::test(start_paused = true)]
async fn an_outage_in_the_middle_of_an_answer_leaves_it_to_be_asked_for() {
    let harness = harness(4 << 20).await;
    let mut worker = harness.worker("w1").await;
    worker.call(1, "a", "long").await;
    worker.chunked().await;
    worker.chunks().await;
    harness.broker.go_down();
    harness.test_host.advance(secs(10)).await;
    harness.broker.come_up();
    harness.test_host.advance(secs(6)).await;
    let mut worker = harness.worker("w1").await;
    worker.control(1, Control::Resume, "").await;
    let (announced, hash) = worker.chunked().await;
    assert_eq!(HEXLOWER.encode(&Sha256::digest(worker.receive_all(1, announced).await)), hash);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_longer_than_the_relay_carries_is_an_error() {
    let harness = harness(MAX_ANSWER + 1_024).await;
    let mut worker = harness.worker("w1").await;
    worker.call(1, "a", "long").await;
    let (_, answer) = worker.next_answer().await;
    assert_eq!(code(&answer), "upstream-protocol");
    assert!(answer["error"]["message"].as_str().unwrap().contains("64 MiB"), "{answer}");
}

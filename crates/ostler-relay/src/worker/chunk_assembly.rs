//! Chunk assembly: reassembles and verifies an answer that arrives in chunks.

use bytes::{Bytes, BytesMut};
use sha2::{Digest, Sha256};

use crate::chunk::{ACK_EVERY, CHUNK_SIZE, MAX_ANSWER};

/// Bound on chunk numbers. A host may cut smaller chunks than `CHUNK_SIZE` if its broker takes
/// less.
const MOST: usize = MAX_ANSWER / (CHUNK_SIZE / 4);

/// Partly received answer. Chunks may arrive before the announcement, out of order and repeatedly.
#[derive(Debug, Default)]
pub(super) struct ChunkAssembly {
    chunks: Vec<Option<Bytes>>,
    /// Total bytes of the received chunks.
    buffered_bytes: usize,
    /// Number of chunks received without a gap.
    next: usize,
    /// Number of chunks acknowledged last.
    acked: usize,
    announced: Option<(usize, [u8; 32])>,
}

/// Next step after a chunk or the announcement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AssemblyStep {
    /// Wait for more chunks.
    Wait,
    /// Acknowledge all chunks before this number and wait for more.
    Ack(u32),
    /// The answer is complete; acknowledge all chunks before this number.
    Complete(u32),
    /// The answer exceeds its announced length or `MAX_ANSWER`.
    TooLong,
}

impl ChunkAssembly {
    /// Returns the number of bytes received.
    pub(super) fn buffered_bytes(&self) -> usize {
        self.buffered_bytes
    }

    /// Records length and hash of the answer.
    pub(super) fn announce(&mut self, length: u64, sha256: &str) -> AssemblyStep {
        let Some(length) = usize::try_from(length).ok().filter(|length| *length <= MAX_ANSWER) else {
            return AssemblyStep::TooLong;
        };
        let mut hash = [0; 32];
        let is_read = data_encoding::HEXLOWER_PERMISSIVE.decode_mut(sha256.as_bytes(), &mut hash);
        if is_read.is_err() {
            // An unreadable hash becomes one that no answer has, so that verification fails.
            hash = [0; 32];
        }
        self.announced.get_or_insert((length, hash));
        self.step(false)
    }

    /// Adds one chunk.
    pub(super) fn add(&mut self, number: u32, chunk: Bytes) -> AssemblyStep {
        let Some(at) = usize::try_from(number).ok().filter(|at| *at < MOST) else {
            return AssemblyStep::TooLong;
        };
        if self.chunks.len() <= at {
            self.chunks.resize(at + 1, None);
        }
        if self.chunks[at].is_some() {
            // A repeated chunk means that its acknowledgement was lost.
            return self.step(true);
        }
        self.buffered_bytes += chunk.len();
        // A chunk may be a slice of a larger read buffer. It keeps the buffer alive but is most of
        // it.
        self.chunks[at] = Some(chunk);
        while self.chunks.get(self.next).is_some_and(Option::is_some) {
            self.next += 1;
        }
        self.step(false)
    }

    fn step(&mut self, is_repeated: bool) -> AssemblyStep {
        let length = self.announced.map_or(MAX_ANSWER, |(length, _)| length);
        if self.buffered_bytes > length {
            return AssemblyStep::TooLong;
        }
        // Can't overflow: `add` bounds chunk numbers.
        let next = u32::try_from(self.next).unwrap_or(u32::MAX);
        if self.announced.is_some() && self.buffered_bytes == length && self.next == self.chunks.len() {
            self.acked = self.next;
            return AssemblyStep::Complete(next);
        }
        if is_repeated || self.next >= self.acked + ACK_EVERY as usize {
            self.acked = self.next;
            return AssemblyStep::Ack(next);
        }
        AssemblyStep::Wait
    }

    /// Returns the answer if length and hash match. Slow: it hashes the whole answer.
    pub(super) fn finish(self) -> Result<Bytes, &'static str> {
        let Some((length, hash)) = self.announced else {
            return Err("an answer in chunks was not announced");
        };
        let mut whole = BytesMut::with_capacity(length);
        for chunk in self.chunks.into_iter().flatten() {
            whole.extend_from_slice(&chunk);
        }
        if whole.len() != length {
            return Err("an answer in chunks has not the length that was announced");
        }
        if Sha256::digest(&whole)[..] != hash {
            return Err("an answer in chunks has not the hash that was announced");
        }
        Ok(whole.freeze())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hash(bytes: &[u8]) -> String {
        data_encoding::HEXLOWER.encode(&Sha256::digest(bytes))
    }

    fn bytes(length: usize) -> Vec<u8> {
        (0..length).map(|at| u8::try_from(at % 251).unwrap_or_default()).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn chunks_in_any_order_and_any_number_of_times_are_the_answer(
            count in 1..30_usize,
            order in proptest::collection::vec(0..1_000_usize, 0..60),
            announced_at in 0..60_usize,
        ) {
            let whole = bytes(count * 10 - 3);
            let chunks: Vec<&[u8]> = whole.chunks(10).collect();
            let numbers = order.iter().map(|number| number % count).chain(0..count);
            let mut assembly = ChunkAssembly::default();
            let mut is_whole = false;
            for (turn, number) in numbers.enumerate() {
                if turn == announced_at {
                    is_whole |= matches!(assembly.announce(whole.len() as u64, &hash(&whole)), AssemblyStep::Complete(_));
                }
                let chunk = Bytes::copy_from_slice(chunks[number]);
                let step = assembly.add(u32::try_from(number).unwrap_or_default(), chunk);
                prop_assert!(step != AssemblyStep::TooLong);
                is_whole |= matches!(step, AssemblyStep::Complete(_));
            }
            is_whole |= matches!(assembly.announce(whole.len() as u64, &hash(&whole)), AssemblyStep::Complete(_));
            prop_assert!(is_whole);
            prop_assert_eq!(assembly.finish(), Ok(Bytes::from(whole)));
        }
    }

    #[test]
    fn what_was_damaged_is_noticed() {
        let whole = bytes(20);
        let mut assembly = ChunkAssembly::default();
        assert_eq!(assembly.announce(20, &hash(&whole)), AssemblyStep::Wait);
        assert_eq!(assembly.add(0, Bytes::copy_from_slice(&whole[..10])), AssemblyStep::Wait);
        assert_eq!(assembly.add(1, Bytes::copy_from_slice(&whole[..10])), AssemblyStep::Complete(2));
        assert_eq!(assembly.finish(), Err("an answer in chunks has not the hash that was announced"));
    }

    #[test]
    fn more_than_an_answer_may_have_is_not_kept() {
        let mut assembly = ChunkAssembly::default();
        assert_eq!(assembly.announce(MAX_ANSWER as u64 + 1, &hash(b"")), AssemblyStep::TooLong);
        assert_eq!(assembly.add(u32::MAX, Bytes::from_static(b"x")), AssemblyStep::TooLong);
        assert_eq!(assembly.announce(3, &hash(b"abc")), AssemblyStep::Wait);
        assert_eq!(assembly.add(0, Bytes::from_static(b"abcd")), AssemblyStep::TooLong);
    }

    #[test]
    fn every_few_chunks_are_acknowledged_and_repeated_ones_at_once() {
        let mut assembly = ChunkAssembly::default();
        assembly.announce(1_000, &hash(b""));
        let mut add = |number| assembly.add(number, Bytes::from_static(b"x"));
        assert_eq!(
            [add(0), add(1), add(2), add(3)],
            [AssemblyStep::Wait, AssemblyStep::Wait, AssemblyStep::Wait, AssemblyStep::Ack(4)]
        );
        assert_eq!([add(5), add(6), add(7), add(8)], [AssemblyStep::Wait; 4], "one is missing");
        assert_eq!(add(4), AssemblyStep::Ack(9));
        assert_eq!(add(4), AssemblyStep::Ack(9));
    }
}

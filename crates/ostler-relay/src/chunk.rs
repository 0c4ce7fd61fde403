//! Chunking: sizes and window of answers that exceed one message.
//!
//! The reply carries length and hash; the chunks follow in order on the call's `progress` subject. The worker
//! acknowledges chunks as they arrive, and the host keeps at most one window in flight: a broker buffers a
//! bounded amount for a slow subscriber and drops messages beyond that.

/// Longest answer sent in one message, half the default `max_payload` of NATS. A broker may allow
/// less.
pub const MAX_INLINE_ANSWER: usize = 512 << 10;

/// Length of every chunk but the last.
pub const CHUNK_SIZE: usize = 256 << 10;

/// Chunks in flight before the first is acknowledged; at most 2 MiB per call.
pub const CHUNK_WINDOW: u32 = 8;

/// Maximum number of chunks between two acknowledgements: half a window, so that the host rarely
/// stalls.
pub const ACK_EVERY: u32 = 4;

/// Longest answer that the relay carries; the worker buffers all of it.
pub const MAX_ANSWER: usize = 64 << 20;

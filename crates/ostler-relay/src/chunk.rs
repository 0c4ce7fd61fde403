//! Answers that are too large for one message: how they are cut.
//!
//! The reply says length and hash, then the chunks come on `progress` in
//! order. The worker acknowledges as it takes them, and the host never has
//! more than a window of them on the way: what a broker holds for a slow
//! reader is bounded, and beyond a bound it drops.

/// The longest answer that goes into one message, unless the broker takes less.
pub const MAX_INLINE_ANSWER: usize = 512 << 10;

/// The length of every chunk but the last.
pub const CHUNK_SIZE: usize = 256 << 10;

/// Chunks that may be on the way before the first of them is acknowledged.
pub const CHUNK_WINDOW: u32 = 8;

/// A worker acknowledges at least every so many chunks.
pub const ACK_EVERY: u32 = 4;

/// The longest answer.
pub const MAX_ANSWER: usize = 64 << 20;

//! Streams that last as long as their client wants.

/// Marks the response of a stream that ends only when its client does. Such a
/// stream is ended at once when the program shuts down; others get the time
/// to finish.
#[derive(Debug, Clone, Copy)]
pub struct LongStream;

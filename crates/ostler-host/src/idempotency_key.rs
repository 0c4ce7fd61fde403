//! Idempotency keys: one per call, the same in each of its attempts.

use std::sync::atomic::{AtomicU64, Ordering};

/// Number of the host and of the call, in hexadecimal: `00c0ffee00c0ffee-1f`. Kept on the stack, since every call has
/// one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IdempotencyKey {
    text: [u8; LENGTH],
}

/// Generator of the keys of one host.
#[derive(Debug)]
pub(crate) struct IdempotencyKeys {
    /// Random number of this host, different from every other host's.
    host: u64,
    calls: AtomicU64,
}

impl IdempotencyKeys {
    pub(crate) fn new(host: u64) -> Self {
        Self { host, calls: AtomicU64::new(0) }
    }

    pub(crate) fn next(&self) -> IdempotencyKey {
        IdempotencyKey::new(self.host, self.calls.fetch_add(1, Ordering::Relaxed))
    }
}

const DIGITS: usize = 16;
const LENGTH: usize = 2 * DIGITS + 1;

impl IdempotencyKey {
    fn new(host: u64, call: u64) -> Self {
        let mut text = [b'-'; LENGTH];
        write_hex(&mut text[..DIGITS], host);
        write_hex(&mut text[DIGITS + 1..], call);
        Self { text }
    }

    pub(crate) fn as_str(&self) -> &str {
        // Hexadecimal digits and a dash are ASCII, so this never is the default.
        std::str::from_utf8(&self.text).unwrap_or_default()
    }
}

fn write_hex(out: &mut [u8], mut number: u64) {
    for digit in out.iter_mut().rev() {
        *digit = b"0123456789abcdef"[(number & 15) as usize];
        number >>= 4;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_names_host_and_call() {
        assert_eq!(IdempotencyKey::new(0xc0ffee, 31).as_str(), "0000000000c0ffee-000000000000001f");
        assert_eq!(IdempotencyKey::new(u64::MAX, 0).as_str(), "ffffffffffffffff-0000000000000000");
    }
}

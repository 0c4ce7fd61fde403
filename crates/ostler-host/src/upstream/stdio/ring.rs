//! The last words of a server: a bounded ring over its stderr.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use ostler_core::error::is_deceptive;

/// Bytes kept per server.
pub(crate) const CAPACITY: usize = 64 << 10;

/// The last [`CAPACITY`] bytes that a server wrote to stderr.
#[derive(Debug, Default)]
pub(crate) struct Ring(Mutex<VecDeque<u8>>);

impl Ring {
    /// Appends, forgetting the oldest bytes.
    pub(crate) fn push(&self, bytes: &[u8]) {
        let bytes = &bytes[bytes.len().saturating_sub(CAPACITY)..];
        let mut ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let excess = (ring.len() + bytes.len()).saturating_sub(CAPACITY);
        ring.drain(..excess);
        ring.extend(bytes);
    }

    /// The last lines, oldest first, with control characters escaped: what a
    /// server writes must not be able to move somebody's cursor.
    pub(crate) fn last_lines(&self, count: usize) -> Vec<String> {
        let bytes: Vec<u8> = {
            let ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            ring.iter().copied().collect()
        };
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(count)..].iter().map(|line| escape(line)).collect()
    }
}

/// Escapes what would control a terminal or hide from a reader.
fn escape(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    for c in line.chars() {
        match c {
            '\t' => out.push(' '),
            c if is_deceptive(c) => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_bytes_are_kept() {
        let ring = Ring::default();
        for n in 0..10_000 {
            ring.push(format!("line {n} with some text\n").as_bytes());
        }
        assert_eq!(ring.0.lock().unwrap().len(), CAPACITY);
        assert_eq!(ring.last_lines(2), ["line 9998 with some text", "line 9999 with some text"]);
        ring.push(&vec![b'x'; 3 * CAPACITY]);
        assert_eq!(ring.0.lock().unwrap().len(), CAPACITY);
    }

    #[test]
    fn terminal_escapes_and_bidirectional_marks_are_shown_and_not_obeyed() {
        let ring = Ring::default();
        ring.push("\u{1b}[31mred\u{202e}\tx\r\n\n\n".as_bytes());
        assert_eq!(ring.last_lines(5), ["\\u{1b}[31mred\\u{202e} x"]);
    }
}

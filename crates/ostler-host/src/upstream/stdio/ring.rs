//! The last words of a server: a bounded ring over its stderr.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use ostler_core::error::is_deceptive;

/// Bytes kept per server.
pub(crate) const CAPACITY: usize = 64 << 10;

/// The last [`CAPACITY`] bytes that a server wrote to stderr.
#[derive(Debug, Default)]
pub(crate) struct Ring(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    bytes: VecDeque<u8>,
    /// All bytes ever written: the position after the last one kept.
    written: u64,
}

impl Ring {
    /// Appends, forgetting the oldest bytes.
    pub(crate) fn push(&self, bytes: &[u8]) {
        let mut ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ring.written += bytes.len() as u64;
        let bytes = &bytes[bytes.len().saturating_sub(CAPACITY)..];
        let excess = (ring.bytes.len() + bytes.len()).saturating_sub(CAPACITY);
        ring.bytes.drain(..excess);
        ring.bytes.extend(bytes);
    }

    /// The whole lines that begin at or after a position, escaped as below,
    /// and the position after them. A line that is not ended yet is left for
    /// the next time, unless it is as long as everything that is kept.
    pub(crate) fn since(&self, position: u64) -> (Vec<String>, u64) {
        let (bytes, begin): (Vec<u8>, u64) = {
            let ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let first = ring.written - ring.bytes.len() as u64;
            let begin = position.max(first);
            let skipped = usize::try_from(begin - first).unwrap_or(usize::MAX);
            (ring.bytes.iter().skip(skipped).copied().collect(), begin)
        };
        let end = match memchr::memrchr(b'\n', &bytes) {
            Some(last) => last + 1,
            None if bytes.len() == CAPACITY => CAPACITY,
            None => 0,
        };
        let text = String::from_utf8_lossy(&bytes[..end]);
        let lines = text.lines().filter(|line| !line.trim().is_empty()).map(escape).collect();
        (lines, begin + end as u64)
    }

    /// The last lines, oldest first, with control characters escaped: what a
    /// server writes must not be able to move somebody's cursor.
    pub(crate) fn last_lines(&self, count: usize) -> Vec<String> {
        let bytes: Vec<u8> = {
            let ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            ring.bytes.iter().copied().collect()
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
        assert_eq!(ring.0.lock().unwrap().bytes.len(), CAPACITY);
        assert_eq!(ring.last_lines(2), ["line 9998 with some text", "line 9999 with some text"]);
        ring.push(&vec![b'x'; 3 * CAPACITY]);
        assert_eq!(ring.0.lock().unwrap().bytes.len(), CAPACITY);
    }

    #[test]
    fn who_reads_along_gets_every_whole_line_once() {
        let ring = Ring::default();
        ring.push(b"one\ntwo\nthr");
        let (lines, position) = ring.since(0);
        assert_eq!((lines, position), (vec!["one".to_owned(), "two".to_owned()], 8));
        assert_eq!(ring.since(position), (Vec::new(), 8));
        ring.push(b"ee\n");
        assert_eq!(ring.since(position), (vec!["three".to_owned()], 14));
        ring.push(&[b'x'; 2 * CAPACITY]);
        let (lines, position) = ring.since(14);
        assert_eq!((lines.len(), lines[0].len(), position), (1, CAPACITY, 14 + 2 * CAPACITY as u64));
    }

    #[test]
    fn terminal_escapes_and_bidirectional_marks_are_shown_and_not_obeyed() {
        let ring = Ring::default();
        ring.push("\u{1b}[31mred\u{202e}\tx\r\n\n\n".as_bytes());
        assert_eq!(ring.last_lines(5), ["\\u{1b}[31mred\\u{202e} x"]);
    }
}

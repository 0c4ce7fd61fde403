//! Tail of a server's stderr: the last bytes in a bounded buffer, read as escaped lines with the time of each.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use ostler_core::error::needs_escape;

use crate::redact::Redactor;

/// Lines that are shown as the last words of a server.
const RECENT_LINES: usize = 8;

/// Lines in which the cause of a failure is looked for: more than a runtime writes below it.
const FINAL_LINES: usize = 200;

/// Bytes kept per server.
pub(crate) const CAPACITY: usize = 64 << 10;

/// Times kept per server. They take as much room as the bytes, even if every line is short and comes alone.
const MAX_TIMES: usize = 2_048;

/// A line of a server's stderr.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StderrLine {
    /// When its first byte was read.
    pub at: SystemTime,
    /// The line, with secrets hidden and control characters escaped.
    pub text: String,
}

/// The last [`CAPACITY`] bytes that a server wrote to stderr.
#[derive(Debug, Default)]
pub(crate) struct StderrTail {
    buffer: Mutex<StderrBuffer>,
    redactor: Arc<Redactor>,
}

#[derive(Debug, Default)]
struct StderrBuffer {
    bytes: VecDeque<u8>,
    /// All bytes ever written: the position after the last one kept.
    written: u64,
    /// Positions from which on bytes came at a time, ascending; the first is at or before the first byte kept.
    times: VecDeque<(u64, SystemTime)>,
}

impl StderrBuffer {
    /// Notes that the next bytes come now.
    fn mark(&mut self, now: SystemTime) {
        self.times.push_back((self.written, now));
        if self.times.len() > MAX_TIMES {
            // The oldest lines share a time.
            self.times.remove(1);
        }
    }

    /// Forgets times of bytes that are not kept any more.
    fn trim(&mut self) {
        let first = self.written - self.bytes.len() as u64;
        while self.times.get(1).is_some_and(|(position, _)| *position <= first) {
            self.times.pop_front();
        }
    }
}

impl StderrTail {
    /// Makes an empty tail whose lines are read through a veil.
    pub(crate) fn new(redactor: Arc<Redactor>) -> Self {
        Self { buffer: Mutex::default(), redactor }
    }

    /// Appends, forgetting the oldest bytes.
    pub(crate) fn push(&self, bytes: &[u8]) {
        self.push_at(bytes, SystemTime::now());
    }

    fn push_at(&self, bytes: &[u8], now: SystemTime) {
        let mut ring = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        ring.mark(now);
        ring.written += bytes.len() as u64;
        let bytes = &bytes[bytes.len().saturating_sub(CAPACITY)..];
        let excess = (ring.bytes.len() + bytes.len()).saturating_sub(CAPACITY);
        ring.bytes.drain(..excess);
        ring.bytes.extend(bytes);
        ring.trim();
    }

    /// Ends the last line, of a server that will write no more.
    pub(crate) fn end_line(&self) {
        let is_open = self
            .buffer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .bytes
            .back()
            .is_some_and(|byte| *byte != b'\n');
        if is_open {
            self.push(b"\n");
        }
    }

    /// Returns the number of bytes ever written.
    pub(crate) fn written(&self) -> u64 {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner).written
    }

    /// Returns the last few lines.
    pub(crate) fn recent_lines(&self) -> Vec<String> {
        self.last_lines(RECENT_LINES)
    }

    /// Returns the lines in which the cause of a failure stands.
    pub(crate) fn final_lines(&self) -> Vec<String> {
        self.last_lines(FINAL_LINES)
    }

    /// The whole lines that begin at or after a position, escaped as below,
    /// and the position after them. A line that is not ended yet is left for
    /// the next time, unless it is as long as everything that is kept.
    pub(crate) fn since(&self, position: u64) -> (Vec<StderrLine>, u64) {
        let (bytes, times, begin): (Vec<u8>, Vec<(u64, SystemTime)>, u64) = {
            let ring = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
            let first = ring.written - ring.bytes.len() as u64;
            let begin = position.max(first);
            let skipped = usize::try_from(begin - first).unwrap_or(usize::MAX);
            let known = ring.times.partition_point(|(from, _)| *from <= begin).saturating_sub(1);
            (
                ring.bytes.iter().skip(skipped).copied().collect(),
                ring.times.iter().skip(known).copied().collect(),
                begin,
            )
        };
        let end = match memchr::memrchr(b'\n', &bytes) {
            Some(last) => last + 1,
            None if bytes.len() == CAPACITY => CAPACITY,
            None => 0,
        };
        // A reader that has fallen behind begins in the middle of a line.
        let mut is_cut = begin > position;
        // Where there are bytes, there is a time at or before the first of them.
        let Some(&(_, mut time)) = times.first() else { return (Vec::new(), begin) };
        let (mut lines, mut times, mut at) = (Vec::new(), times.into_iter().peekable(), begin);
        for line in bytes[..end].split_inclusive(|byte| *byte == b'\n') {
            while let Some((_, now)) = times.next_if(|(from, _)| *from <= at) {
                time = now;
            }
            at += line.len() as u64;
            let text = String::from_utf8_lossy(line);
            let text = text.strip_suffix('\n').map_or(&*text, |line| line.strip_suffix('\r').unwrap_or(line));
            let text = self.redact_line(text, std::mem::take(&mut is_cut));
            if !text.trim().is_empty() {
                lines.push(StderrLine { at: time, text });
            }
        }
        (lines, begin + end as u64)
    }

    /// The last lines, oldest first, with control characters escaped: what a
    /// server writes must not be able to move somebody's cursor.
    fn last_lines(&self, count: usize) -> Vec<String> {
        let (bytes, is_cut): (Vec<u8>, bool) = {
            let ring = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
            (ring.bytes.iter().copied().collect(), ring.written > ring.bytes.len() as u64)
        };
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<(usize, &str)> =
            text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).collect();
        let last = &lines[lines.len().saturating_sub(count)..];
        last.iter().map(|&(at, line)| self.redact_line(line, is_cut && at == 0)).collect()
    }

    /// A line as people may read it; one that was cut begins with the rest of
    /// something.
    fn redact_line(&self, line: &str, is_cut: bool) -> String {
        escape(&if is_cut { self.redactor.redact_truncated(line) } else { self.redactor.redact(line) })
    }
}

/// Escapes what would control a terminal or hide from a reader.
fn escape(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    for c in line.chars() {
        match c {
            '\t' => out.push(' '),
            c if needs_escape(c) => out.extend(c.escape_unicode()),
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
        let ring = StderrTail::default();
        for n in 0..10_000 {
            ring.push(format!("line {n} with some text\n").as_bytes());
        }
        assert_eq!(ring.buffer.lock().unwrap().bytes.len(), CAPACITY);
        assert_eq!(ring.last_lines(2), ["line 9998 with some text", "line 9999 with some text"]);
        ring.push(&vec![b'x'; 3 * CAPACITY]);
        assert_eq!(ring.buffer.lock().unwrap().bytes.len(), CAPACITY);
    }

    #[test]
    fn who_reads_along_gets_every_whole_line_once() {
        let ring = StderrTail::default();
        ring.push(b"one\ntwo\nthr");
        let (lines, position) = ring.since(0);
        assert_eq!((texts(lines), position), (vec!["one".to_owned(), "two".to_owned()], 8));
        assert_eq!(ring.since(position), (Vec::new(), 8));
        ring.push(b"ee\n");
        let (lines, position) = ring.since(position);
        assert_eq!((texts(lines), position), (vec!["three".to_owned()], 14));
        ring.push(&[b'x'; 2 * CAPACITY]);
        let (lines, position) = ring.since(14);
        assert_eq!((lines.len(), lines[0].text.len(), position), (1, CAPACITY, 14 + 2 * CAPACITY as u64));
    }

    fn texts(lines: Vec<StderrLine>) -> Vec<String> {
        lines.into_iter().map(|line| line.text).collect()
    }

    fn second(number: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(number)
    }

    #[test]
    fn every_line_has_the_time_at_which_it_began() {
        let ring = StderrTail::default();
        ring.push_at(b"one\ntw", second(1));
        ring.push_at(b"o\nthree\n", second(2));
        ring.push_at(b"four\n", second(3));
        let seen = |from| ring.since(from).0.into_iter().map(|line| (line.text, line.at)).collect::<Vec<_>>();
        let line = |text: &str, at| (text.to_owned(), second(at));
        assert_eq!(seen(0), [line("one", 1), line("two", 1), line("three", 2), line("four", 3)]);
        assert_eq!(seen(14), [line("four", 3)]);
        // Bytes that are forgotten take their times with them.
        ring.push_at(&[&b"x".repeat(CAPACITY - 6)[..], b"\nlast\n"].concat(), second(4));
        assert_eq!(seen(0).last(), Some(&line("last", 4)));
        assert_eq!(ring.buffer.lock().unwrap().times.len(), 1);
    }

    #[test]
    fn times_are_bounded_and_the_newest_stay_exact() {
        let ring = StderrTail::default();
        for number in 0..10_000 {
            ring.push_at(b"\n", second(number));
            assert!(ring.buffer.lock().unwrap().times.len() <= MAX_TIMES);
        }
        ring.push_at(b"last\n", second(10_000));
        assert_eq!(ring.since(0).0, [StderrLine { at: second(10_000), text: "last".into() }]);
    }

    #[test]
    fn no_secret_is_read_from_it_not_even_half_of_one() {
        let veil = Arc::new(Redactor::default());
        veil.add_secret("env:TOKEN", "canary-0123456789");
        let ring = StderrTail::new(veil);
        ring.push(b"key canary-0123456789\n");
        assert_eq!(ring.last_lines(1), ["key [hidden env:TOKEN]"]);
        assert_eq!(texts(ring.since(0).0), ["key [hidden env:TOKEN]"]);
        // The cut falls into the middle of the value.
        let rest = CAPACITY - "0123456789\n".len();
        ring.push(&[&b"x".repeat(rest - 1)[..], b"\n"].concat());
        assert_eq!(ring.last_lines(9)[0], "[hidden]");
        assert_eq!(ring.since(0).0[0].text, "[hidden]");
    }

    #[test]
    fn terminal_escapes_and_bidirectional_marks_are_shown_and_not_obeyed() {
        let ring = StderrTail::default();
        ring.push("\u{1b}[31mred\u{202e}\tx\r\n\n\n".as_bytes());
        assert_eq!(ring.last_lines(5), ["\\u{1b}[31mred\\u{202e} x"]);
    }
}

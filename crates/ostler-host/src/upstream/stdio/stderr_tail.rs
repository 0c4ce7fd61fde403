//! Tail of a server's stderr: the last bytes of its processes in a bounded buffer, read as escaped lines with the
//! time of each.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use ostler_core::error::needs_escape;

use crate::redact::Redactor;

/// Upper bound on the lines shown as the last output of a server.
const RECENT_LINES: usize = 8;

/// Lines in which the cause of a failure is looked for: more than a runtime writes below it.
const FINAL_LINES: usize = 200;

/// Bytes kept per server.
pub(crate) const CAPACITY: usize = 64 << 10;

/// Chunks kept per server. They take as much room as the bytes, even if every line is short and comes alone.
const MAX_CHUNKS: usize = 2_048;

/// A line of a server's stderr.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StderrLine {
    /// Time at which its first byte was read; for a mark, the start of the process.
    pub at: SystemTime,
    /// The line, with secrets hidden and control characters escaped.
    pub text: String,
    /// The line is a mark of the host before the first line of a process, and not the server's own.
    pub is_start: bool,
}

/// The last [`CAPACITY`] bytes that the processes of a slot wrote to stderr, over all its starts.
#[derive(Debug, Default)]
pub(crate) struct StderrLog {
    buffer: Mutex<StderrBuffer>,
}

/// The part of a [`StderrLog`] that one process writes.
#[derive(Debug)]
pub(crate) struct StderrTail {
    log: Arc<StderrLog>,
    /// Number of the process in its log.
    process: u64,
    pid: u32,
    started: SystemTime,
    /// All bytes that the process ever wrote.
    written: AtomicU64,
}

#[derive(Debug, Default)]
struct StderrBuffer {
    bytes: VecDeque<u8>,
    /// All bytes ever written: the position after the last one kept.
    written: u64,
    /// Bytes that came together, in ascending order; the first begins at or before the first byte kept.
    chunks: VecDeque<Chunk>,
    /// The processes whose first byte is kept, in ascending order of that.
    starts: VecDeque<ProcessStart>,
    /// Number of the newest process.
    processes: u64,
    /// Redactor of the newest process; all processes of a host have the same.
    redactor: Arc<Redactor>,
}

#[derive(Debug, Clone, Copy)]
struct Chunk {
    /// Position of its first byte.
    from: u64,
    at: SystemTime,
    process: u64,
}

#[derive(Debug, Clone, Copy)]
struct ProcessStart {
    /// Position of the first byte of the process.
    from: u64,
    at: SystemTime,
    pid: u32,
}

impl StderrBuffer {
    fn first(&self) -> u64 {
        self.written - self.bytes.len() as u64
    }

    fn begin_chunk(&mut self, at: SystemTime, process: u64) {
        self.chunks.push_back(Chunk { from: self.written, at, process });
        if self.chunks.len() <= MAX_CHUNKS {
            return;
        }
        if self.chunks[0].process == self.chunks[1].process {
            // The oldest lines share a time.
            self.chunks.remove(1);
        } else {
            self.forget(usize::try_from(self.chunks[1].from - self.first()).unwrap_or(usize::MAX));
        }
    }

    fn append(&mut self, bytes: &[u8]) {
        self.written += bytes.len() as u64;
        let kept = &bytes[bytes.len().saturating_sub(CAPACITY)..];
        let excess = (self.bytes.len() + kept.len()).saturating_sub(CAPACITY);
        self.bytes.drain(..excess);
        self.bytes.extend(kept);
        self.trim();
    }

    /// Evicts the oldest bytes.
    fn forget(&mut self, count: usize) {
        self.bytes.drain(..count.min(self.bytes.len()));
        self.trim();
    }

    /// Removes the entries of bytes that were evicted.
    fn trim(&mut self) {
        let first = self.first();
        while self.chunks.get(1).is_some_and(|chunk| chunk.from <= first) {
            self.chunks.pop_front();
        }
        while self.starts.front().is_some_and(|start| start.from < first) {
            self.starts.pop_front();
        }
    }

    /// Ends the last line if it is open.
    fn end_line(&mut self) {
        if self.bytes.back().is_some_and(|byte| *byte != b'\n') {
            self.append(b"\n");
        }
    }

    /// Copies the bytes from a position on, so that they are read without the lock.
    fn copy_from(&self, position: u64) -> StderrExcerpt {
        let first = self.first();
        let begin = position.max(first);
        let skipped = usize::try_from(begin - first).unwrap_or(usize::MAX);
        let known = self.chunks.partition_point(|chunk| chunk.from <= begin).saturating_sub(1);
        StderrExcerpt {
            begin,
            // A reader that has fallen behind begins in the middle of a line.
            is_cut: begin > position && self.starts.front().is_none_or(|start| start.from != begin),
            bytes: self.bytes.iter().skip(skipped).copied().collect(),
            chunks: self.chunks.iter().skip(known).copied().collect(),
            starts: self.starts.iter().filter(|start| start.from >= begin).copied().collect(),
            redactor: Arc::clone(&self.redactor),
        }
    }
}

/// A copy of a part of a log.
struct StderrExcerpt {
    begin: u64,
    is_cut: bool,
    bytes: Vec<u8>,
    chunks: Vec<Chunk>,
    starts: Vec<ProcessStart>,
    redactor: Arc<Redactor>,
}

impl StderrExcerpt {
    /// Returns the lines of one process, or of all with a mark before the first line of each, and the position after
    /// them.
    fn lines(self, of: Option<u64>, open_line: OpenLine) -> (Vec<StderrLine>, u64) {
        let Self { begin, mut is_cut, bytes, chunks, starts, redactor } = self;
        let end = match memchr::memrchr(b'\n', &bytes) {
            _ if open_line == OpenLine::Read => bytes.len(),
            Some(last) => last + 1,
            None if bytes.len() == CAPACITY => CAPACITY,
            None => 0,
        };
        let (mut chunks, mut starts) = (chunks.into_iter().peekable(), starts.into_iter().peekable());
        // Where there are bytes, there is a chunk at or before the first of them.
        let Some(mut chunk) = chunks.next() else { return (Vec::new(), begin) };
        let (mut lines, mut at) = (Vec::new(), begin);
        for line in bytes[..end].split_inclusive(|byte| *byte == b'\n') {
            while let Some(next) = chunks.next_if(|chunk| chunk.from <= at) {
                chunk = next;
            }
            let start = starts.next_if(|start| start.from <= at);
            lines.extend(start.filter(|_| of.is_none()).map(|start| start.line()));
            let is_cut = std::mem::take(&mut is_cut);
            at += line.len() as u64;
            if of.is_some_and(|process| process != chunk.process) {
                continue;
            }
            let text = String::from_utf8_lossy(line);
            let text = text.strip_suffix('\n').map_or(&*text, |line| line.strip_suffix('\r').unwrap_or(line));
            let text = redact_line(&redactor, text, is_cut);
            if !text.trim().is_empty() {
                lines.push(StderrLine { at: chunk.at, text, is_start: false });
            }
        }
        (lines, begin + end as u64)
    }
}

/// Returns a line as people may read it; one that was cut begins in the middle. A server's output must not be able to
/// move a terminal's cursor.
fn redact_line(redactor: &Redactor, line: &str, is_cut: bool) -> String {
    escape(&if is_cut { redactor.redact_truncated(line) } else { redactor.redact(line) })
}

/// Treatment of a line that has not ended yet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OpenLine {
    Read,
    /// It is left for the next read, unless it is as long as the whole buffer.
    Left,
}

impl ProcessStart {
    fn line(&self) -> StderrLine {
        StderrLine { at: self.at, text: format!("--- started, pid {} ---", self.pid), is_start: true }
    }
}

impl StderrLog {
    /// Begins the part of a process that has just been started, whose lines are read through a redactor.
    pub(crate) fn begin(self: &Arc<Self>, pid: u32, redactor: &Arc<Redactor>) -> StderrTail {
        let mut buffer = self.lock();
        buffer.processes += 1;
        buffer.redactor = Arc::clone(redactor);
        StderrTail {
            log: Arc::clone(self),
            process: buffer.processes,
            pid,
            started: SystemTime::now(),
            written: AtomicU64::new(0),
        }
    }

    /// Returns the whole lines of all processes that begin at or after a position, with a mark before the first line of
    /// each process, and the position after them.
    pub(crate) fn since(&self, position: u64) -> (Vec<StderrLine>, u64) {
        let excerpt = self.lock().copy_from(position);
        excerpt.lines(None, OpenLine::Left)
    }

    fn lock(&self) -> MutexGuard<'_, StderrBuffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StderrTail {
    /// Makes the tail of a process that has a log of its own.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn alone(redactor: &Arc<Redactor>) -> Self {
        Arc::<StderrLog>::default().begin(0, redactor)
    }

    /// Appends bytes and evicts the oldest.
    pub(crate) fn push(&self, bytes: &[u8]) {
        self.push_at(bytes, SystemTime::now());
    }

    fn push_at(&self, bytes: &[u8], now: SystemTime) {
        let mut buffer = self.log.lock();
        if buffer.chunks.back().is_some_and(|chunk| chunk.process != self.process) {
            buffer.end_line();
        }
        if self.written.fetch_add(bytes.len() as u64, Ordering::Relaxed) == 0 {
            let start = ProcessStart { from: buffer.written, at: self.started, pid: self.pid };
            buffer.starts.push_back(start);
        }
        buffer.begin_chunk(now, self.process);
        buffer.append(bytes);
    }

    /// Ends the last line, of a server that will write no more.
    pub(crate) fn end_line(&self) {
        let mut buffer = self.log.lock();
        if buffer.chunks.back().is_some_and(|chunk| chunk.process == self.process) {
            buffer.end_line();
        }
    }

    /// Returns the number of bytes ever written.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Returns the last few lines.
    pub(crate) fn recent_lines(&self) -> Vec<String> {
        self.last_lines(RECENT_LINES)
    }

    /// Returns the lines that are searched for the cause of a failure.
    pub(crate) fn final_lines(&self) -> Vec<String> {
        self.last_lines(FINAL_LINES)
    }

    /// Returns the whole lines of this process that begin at or after a position of its log, and the position after
    /// them.
    pub(crate) fn since(&self, position: u64) -> (Vec<StderrLine>, u64) {
        let excerpt = self.log.lock().copy_from(position);
        excerpt.lines(Some(self.process), OpenLine::Left)
    }

    /// Returns the last lines of this process, oldest first.
    fn last_lines(&self, count: usize) -> Vec<String> {
        let excerpt = self.log.lock().copy_from(0);
        let (mut lines, _) = excerpt.lines(Some(self.process), OpenLine::Read);
        lines.drain(..lines.len().saturating_sub(count));
        lines.into_iter().map(|line| line.text).collect()
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
        let ring = StderrTail::alone(&Arc::default());
        for n in 0..10_000 {
            ring.push(format!("line {n} with some text\n").as_bytes());
        }
        assert_eq!(ring.log.lock().bytes.len(), CAPACITY);
        assert_eq!(ring.last_lines(2), ["line 9998 with some text", "line 9999 with some text"]);
        ring.push(&vec![b'x'; 3 * CAPACITY]);
        assert_eq!(ring.log.lock().bytes.len(), CAPACITY);
    }

    #[test]
    fn who_reads_along_gets_every_whole_line_once() {
        let ring = StderrTail::alone(&Arc::default());
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
        let ring = StderrTail::alone(&Arc::default());
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
        assert_eq!(ring.log.lock().chunks.len(), 1);
    }

    #[test]
    fn times_are_bounded_and_the_newest_stay_exact() {
        let ring = StderrTail::alone(&Arc::default());
        for number in 0..10_000 {
            ring.push_at(b"\n", second(number));
            assert!(ring.log.lock().chunks.len() <= MAX_CHUNKS);
        }
        ring.push_at(b"last\n", second(10_000));
        assert_eq!(
            ring.since(0).0,
            [StderrLine { at: second(10_000), text: "last".into(), is_start: false }]
        );
    }

    #[test]
    fn a_log_goes_on_over_processes_and_marks_the_first_line_of_each() {
        let log: Arc<StderrLog> = Arc::default();
        let first = log.begin(11, &Arc::default());
        first.push_at(b"one\ntw", second(1));
        let silent = log.begin(12, &Arc::default());
        let next = log.begin(13, &Arc::default());
        // Both run while one replaces the other.
        next.push_at(b"three\n", second(2));
        first.push_at(b"four\n", second(3));
        let shown = |lines: Vec<StderrLine>| {
            lines.into_iter().map(|line| (line.text, line.is_start)).collect::<Vec<_>>()
        };
        let own = |text: &str| (text.to_owned(), false);
        let mark = |pid: u32| (format!("--- started, pid {pid} ---"), true);
        let (lines, position) = log.since(0);
        assert_eq!(shown(lines), [mark(11), own("one"), own("tw"), mark(13), own("three"), own("four")]);
        assert_eq!(first.last_lines(9), ["one", "tw", "four"]);
        assert_eq!(next.last_lines(9), ["three"]);
        assert_eq!((silent.last_lines(9), silent.written(), first.written()), (Vec::new(), 0, 11));
        silent.push(b"five\n");
        assert_eq!(shown(log.since(position).0), [mark(12), own("five")]);
        // All of them share one bound, and a mark goes with the line behind it.
        next.push(&[&b"x".repeat(CAPACITY - 3)[..], b"\n"].concat());
        assert!(!shown(log.since(0).0)[0].1);
        assert_eq!(log.lock().bytes.len(), CAPACITY);
        assert_eq!(first.last_lines(9), Vec::<String>::new());
    }

    #[test]
    fn many_short_lines_of_many_processes_are_bounded() {
        let log: Arc<StderrLog> = Arc::default();
        for pid in 0..3 * MAX_CHUNKS as u32 {
            log.begin(pid, &Arc::default()).push(b"x\n");
            let buffer = log.lock();
            assert!(buffer.chunks.len() <= MAX_CHUNKS && buffer.starts.len() <= MAX_CHUNKS);
        }
        assert_eq!(log.since(0).0.len(), 2 * MAX_CHUNKS, "each line with its mark");
    }

    #[test]
    fn no_secret_is_read_from_it_not_even_half_of_one() {
        let veil = Arc::new(Redactor::default());
        veil.add_secret("env:TOKEN", "canary-0123456789");
        let ring = StderrTail::alone(&veil);
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
        let ring = StderrTail::alone(&Arc::default());
        ring.push("\u{1b}[31mred\u{202e}\tx\r\n\n\n".as_bytes());
        assert_eq!(ring.last_lines(5), ["\\u{1b}[31mred\\u{202e} x"]);
    }
}

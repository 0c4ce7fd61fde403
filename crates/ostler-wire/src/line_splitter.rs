//! Lines out of a byte stream, bounded.

use bytes::{Buf, Bytes, BytesMut};
use memchr::memchr;

use crate::envelope_scan::EnvelopeScan;
use crate::request_id::RequestId;

/// Room made for one read: a pipe's usual capacity, so that a server that writes a lot is read in few calls.
/// Pages that no byte has reached cost nothing, so a silent server costs little.
pub const READ_CHUNK: usize = 64 * 1024;

/// With less room than this a read is not worth its system call.
const MIN_SPARE: usize = 4 * 1024;

/// What a stream of lines consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// One line, without its newline and without a carriage return before it.
    Line(Bytes),
    /// A line that is longer than the cap, or an object on such a line. Its bytes are gone.
    Oversize(Oversize),
}

/// What is known of a line that was too long to keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Oversize {
    /// The request that the line answers, if that is certain.
    pub answered_id: Option<RequestId>,
    /// The id of the request that the line is, if that is certain.
    pub request_id: Option<RequestId>,
}

impl Oversize {
    pub(crate) fn from_scan(scan: &EnvelopeScan) -> Self {
        Self { answered_id: scan.response_id().cloned(), request_id: scan.request_id().cloned() }
    }

    /// Returns whether everything is known that the rest of the line could tell.
    pub(crate) fn is_identified(&self) -> bool {
        self.answered_id.is_some() || self.request_id.is_some()
    }
}

/// Splits what is read from a pipe into lines of at most `cap` bytes.
///
/// The reader puts bytes into [`buffer`](LineSplitter::buffer), takes frames until
/// [`next_frame`](LineSplitter::next_frame) returns `None`, and reads again; at the end of the stream it takes
/// frames from [`finish`](LineSplitter::finish). How the bytes were cut into reads makes no difference to the
/// frames, no byte is searched twice for a newline, and the buffer never holds more than `cap` bytes and one
/// read.
///
/// ```text
///   Keeping ──newline──► Line ──► Keeping
///      └──cap passed──► Skipping ──id known, else line over──► Oversize ──line over──► Keeping
/// ```
///
/// A line that is too long is over at its newline or where its object closes, whichever comes first, so that
/// a newline left out does not cost the answer behind it. Objects that share the line's first `cap` bytes are
/// reported one by one.
///
/// Lines are slices of the buffer; splitting one off costs a reference count and, once per buffer, the
/// allocation that holds the count.
#[derive(Debug)]
pub struct LineSplitter {
    buffer: BytesMut,
    /// The size of the buffer's allocation, which `BytesMut` does not tell once parts are split off.
    allocated: usize,
    /// Length of the buffer's beginning that is known to hold no newline.
    searched: usize,
    /// Longest line, newline excluded, that is kept.
    cap: usize,
    blank_lines: u64,
    /// `Some` while the rest of an oversize line passes by.
    skipping: Option<SkippedLine>,
}

#[derive(Debug)]
struct SkippedLine {
    scan: EnvelopeScan,
    /// Whether the frame for this line has been given out.
    is_reported: bool,
    /// How many of the bytes that made the line too long are still in the buffer. They hold no newline, and
    /// are not searched for one again even if an object closes among them: many small objects would have the
    /// whole cap searched for each of them.
    oversize_remaining: usize,
}

impl SkippedLine {
    fn new(oversize_remaining: usize) -> SkippedLine {
        SkippedLine { scan: EnvelopeScan::new(), is_reported: false, oversize_remaining }
    }
}

/// What skipping came to with the bytes at hand.
enum SkipOutcome {
    Report(Oversize),
    LineOver,
    NeedsBytes,
}

impl LineSplitter {
    /// A splitter that keeps lines of at most `cap` bytes.
    pub fn new(cap: usize) -> LineSplitter {
        LineSplitter {
            buffer: BytesMut::new(),
            allocated: 0,
            searched: 0,
            cap,
            blank_lines: 0,
            skipping: None,
        }
    }

    /// Keeps lines of at most `cap` bytes from the next frame on.
    pub fn set_cap(&mut self, cap: usize) {
        self.cap = cap;
        self.searched = self.searched.min(cap);
    }

    /// The buffer to read into, with room for a read. It doubles while a long line arrives, up to the cap and
    /// one read; `BytesMut` left alone would double past the cap.
    pub fn buffer(&mut self) -> &mut BytesMut {
        let held = self.buffer.len();
        let has_room = self.buffer.capacity() - held >= MIN_SPARE || self.buffer.try_reclaim(READ_CHUNK / 2);
        if !has_room {
            let limit = self.cap.saturating_add(READ_CHUNK).max(held + MIN_SPARE);
            self.move_to(held.saturating_mul(2).max(READ_CHUNK).min(limit));
        }
        &mut self.buffer
    }

    /// The next frame, or `None` when more bytes are needed.
    pub fn next_frame(&mut self) -> Option<Frame> {
        loop {
            if self.skipping.is_some() {
                match self.skip() {
                    SkipOutcome::Report(oversize) => return Some(Frame::Oversize(oversize)),
                    SkipOutcome::LineOver => continue,
                    SkipOutcome::NeedsBytes => return None,
                }
            }
            // A newline just behind the cap still ends a line of exactly the cap's length.
            let end = self.buffer.len().min(self.cap.saturating_add(1));
            match memchr(b'\n', &self.buffer[self.searched..end]) {
                Some(at) => {
                    let line = self.split_line(self.searched + at, 1);
                    if let Some(line) = self.filter_blank(line) {
                        return Some(Frame::Line(line));
                    }
                }
                None if self.buffer.len() > self.cap => {
                    self.searched = 0;
                    self.skipping = Some(SkippedLine::new(end));
                }
                None => {
                    self.searched = end;
                    return None;
                }
            }
        }
    }

    /// The frames left at the end of the stream: call until `None`. A last line without a newline counts.
    pub fn finish(&mut self) -> Option<Frame> {
        if let Some(frame) = self.next_frame() {
            return Some(frame);
        }
        if let Some(skipping) = self.skipping.take() {
            return (!skipping.is_reported).then(|| Frame::Oversize(Oversize::from_scan(&skipping.scan)));
        }
        if self.buffer.is_empty() {
            return None;
        }
        let line = self.split_line(self.buffer.len(), 0);
        self.filter_blank(line).map(Frame::Line)
    }

    /// How many blank lines were passed over so far.
    pub fn blank_lines(&self) -> u64 {
        self.blank_lines
    }

    /// Splits off a line and the newline behind it.
    fn split_line(&mut self, length: usize, newline: usize) -> Bytes {
        let mut line = self.buffer.split_to(length + newline);
        line.truncate(length);
        self.searched = 0;
        self.shrink_buffer();
        if line.last() == Some(&b'\r') {
            line.truncate(length - 1);
        }
        line.freeze()
    }

    /// Counts a blank line instead of returning it.
    fn filter_blank(&mut self, line: Bytes) -> Option<Bytes> {
        if line.trim_ascii().is_empty() {
            self.blank_lines += 1;
            return None;
        }
        Some(line)
    }

    /// Lets an oversize line pass by, as far as the buffer goes.
    fn skip(&mut self) -> SkipOutcome {
        let Some(skipping) = &mut self.skipping else { return SkipOutcome::LineOver };
        let used = skipping.scan.feed(&self.buffer);
        self.buffer.advance(used);
        skipping.oversize_remaining = skipping.oversize_remaining.saturating_sub(used);

        let oversize = Oversize::from_scan(&skipping.scan);
        let is_due = !skipping.is_reported && (oversize.is_identified() || skipping.scan.is_complete());
        skipping.is_reported |= is_due;
        let is_over = skipping.scan.is_line_ended();
        if is_over {
            let doomed = skipping.oversize_remaining;
            self.skipping = (doomed > 0).then(|| SkippedLine::new(doomed));
        }
        self.shrink_buffer();
        match (is_due, is_over) {
            (true, _) => SkipOutcome::Report(oversize),
            (false, true) => SkipOutcome::LineOver,
            (false, false) => SkipOutcome::NeedsBytes,
        }
    }

    /// Gives the memory of a long line back as soon as the line is out, so that one long answer does not
    /// leave every idle server with a buffer of megabytes.
    fn shrink_buffer(&mut self) {
        if self.allocated > READ_CHUNK && self.buffer.len() <= READ_CHUNK / 2 {
            self.move_to(if self.buffer.is_empty() { 0 } else { READ_CHUNK });
        }
    }

    /// Moves what the buffer holds into an allocation of `size` bytes.
    fn move_to(&mut self, size: usize) {
        let mut moved = BytesMut::with_capacity(size);
        moved.extend_from_slice(&self.buffer);
        self.buffer = moved;
        self.allocated = size;
    }
}

#[cfg(test)]
#[path = "line_splitter_tests.rs"]
mod tests;

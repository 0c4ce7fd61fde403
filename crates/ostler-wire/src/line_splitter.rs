//! Line splitter: bounded lines out of a byte stream.

use bytes::{Buf, Bytes, BytesMut};
use memchr::memchr;

use crate::envelope_scan::EnvelopeScan;
use crate::request_id::RequestId;

/// Spare room for one read: a pipe's usual capacity, so that a server that writes a lot is read in few calls.
/// Untouched pages use no memory, so a silent server costs little.
pub const READ_CHUNK: usize = 64 * 1024;

/// Minimum spare room: a smaller read is not worth its system call.
const MIN_SPARE: usize = 4 * 1024;

/// One frame of a stream of lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// One line, without its newline and without a carriage return before it.
    Line(Bytes),
    /// A line longer than the cap, or an object on such a line. Its bytes are dropped.
    Oversize(Oversize),
}

/// The ids of a line that was too long to keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Oversize {
    /// The request that the line answers, if that is certain.
    pub answered_id: Option<RequestId>,
    /// The id of the request on the line, if that is certain.
    pub request_id: Option<RequestId>,
}

impl Oversize {
    pub(crate) fn from_scan(scan: &EnvelopeScan) -> Self {
        Self { answered_id: scan.response_id().cloned(), request_id: scan.request_id().cloned() }
    }

    /// Returns whether the rest of the line can add nothing.
    pub(crate) fn is_identified(&self) -> bool {
        self.answered_id.is_some() || self.request_id.is_some()
    }
}

/// Splits the bytes read from a pipe into lines of at most `cap` bytes.
///
/// The reader puts bytes into [`buffer`](LineSplitter::buffer), takes frames until
/// [`next_frame`](LineSplitter::next_frame) returns `None`, and reads again. At the end of the stream it
/// takes frames from [`finish`](LineSplitter::finish). The frames do not depend on how the bytes were split
/// into reads, no byte is searched twice for a newline, and the buffer never holds more than `cap` bytes and
/// one read.
///
/// ```text
///   Keeping ──newline──► Line ──► Keeping
///      └──cap passed──► Skipping ──id known, else line ended──► Oversize ──line ended──► Keeping
/// ```
///
/// A line that is too long ends at its newline or where its object closes, whichever comes first, so that a
/// missing newline does not cost the next answer. Objects that share the line's first `cap` bytes are
/// reported one by one.
///
/// Lines are slices of the buffer; splitting one off costs a reference count and, once per buffer, the
/// allocation that holds the count.
#[derive(Debug)]
pub struct LineSplitter {
    buffer: BytesMut,
    /// The size of the buffer's allocation, which `BytesMut` does not report once parts are split off.
    allocated: usize,
    /// Length of the buffer's prefix that is known to hold no newline.
    searched: usize,
    /// Longest line that is kept, newline excluded.
    cap: usize,
    blank_lines: u64,
    /// `Some` while the rest of an oversize line is skipped.
    skipping: Option<SkippedLine>,
}

#[derive(Debug)]
struct SkippedLine {
    scan: EnvelopeScan,
    /// True once the frame for this line has been returned.
    is_reported: bool,
    /// Number of bytes of the overlong line that are still in the buffer. They hold no newline and are not
    /// searched for one again even if an object closes among them: many small objects would have the whole
    /// cap searched for each of them.
    oversize_remaining: usize,
}

impl SkippedLine {
    fn new(oversize_remaining: usize) -> SkippedLine {
        SkippedLine { scan: EnvelopeScan::new(), is_reported: false, oversize_remaining }
    }
}

/// Result of skipping the bytes at hand.
enum SkipOutcome {
    Report(Oversize),
    LineOver,
    NeedsBytes,
}

impl LineSplitter {
    /// Creates a splitter that keeps lines of at most `cap` bytes.
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

    /// Returns the buffer to read into, with room for a read. It doubles while a long line arrives, up to the
    /// cap and one read; `BytesMut` on its own would double past the cap.
    pub fn buffer(&mut self) -> &mut BytesMut {
        let held = self.buffer.len();
        let has_room = self.buffer.capacity() - held >= MIN_SPARE || self.buffer.try_reclaim(READ_CHUNK / 2);
        if !has_room {
            let limit = self.cap.saturating_add(READ_CHUNK).max(held + MIN_SPARE);
            self.move_to(held.saturating_mul(2).max(READ_CHUNK).min(limit));
        }
        &mut self.buffer
    }

    /// Returns the next frame, or `None` when more bytes are needed.
    pub fn next_frame(&mut self) -> Option<Frame> {
        loop {
            if self.skipping.is_some() {
                match self.skip() {
                    SkipOutcome::Report(oversize) => return Some(Frame::Oversize(oversize)),
                    SkipOutcome::LineOver => continue,
                    SkipOutcome::NeedsBytes => return None,
                }
            }
            // A newline right after the cap still ends a line of exactly the cap's length.
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

    /// Returns the frames left at the end of the stream; the caller repeats it until `None`. A last line
    /// without a newline counts.
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

    /// Returns the number of blank lines skipped so far.
    pub fn blank_lines(&self) -> u64 {
        self.blank_lines
    }

    /// Splits off a line and the newline after it.
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

    /// Drops a blank line and counts it.
    fn filter_blank(&mut self, line: Bytes) -> Option<Bytes> {
        if line.trim_ascii().is_empty() {
            self.blank_lines += 1;
            return None;
        }
        Some(line)
    }

    /// Skips an oversize line as far as the buffer goes.
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
            let remaining = skipping.oversize_remaining;
            self.skipping = (remaining > 0).then(|| SkippedLine::new(remaining));
        }
        self.shrink_buffer();
        match (is_due, is_over) {
            (true, _) => SkipOutcome::Report(oversize),
            (false, true) => SkipOutcome::LineOver,
            (false, false) => SkipOutcome::NeedsBytes,
        }
    }

    /// Frees the memory of a long line as soon as the line is returned, so that one long answer does not
    /// leave every idle server with a buffer of megabytes.
    fn shrink_buffer(&mut self) {
        if self.allocated > READ_CHUNK && self.buffer.len() <= READ_CHUNK / 2 {
            self.move_to(if self.buffer.is_empty() { 0 } else { READ_CHUNK });
        }
    }

    /// Moves the buffer's content into an allocation of `size` bytes.
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

//! Server-sent events: a bounded parser, and writing.

use std::borrow::Cow;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use memchr::memchr2;

use crate::envelope_scan::{BYTE_ORDER_MARK, EnvelopeScan};
use crate::line_splitter::Oversize;

/// Longest event id that is kept. It is sent back to the server in a header, and servers limit those to a few
/// KiB.
const MAX_EVENT_ID_BYTES: usize = 1024;

/// One event. An event without data is returned too: its id or its `retry` still counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SseEvent {
    /// The event's type; `message` if the stream names none.
    pub name: Cow<'static, str>,
    /// The lines of data, joined by newlines. A slice of the stream's buffer if there is one line.
    pub data: Bytes,
    /// The id from which a stream that ends after this event resumes. It belongs to this very event: an event
    /// without an id keeps the last one valid.
    pub id: Option<String>,
    /// Time to wait before reconnecting, from here on.
    pub retry: Option<Duration>,
}

/// Splits a stream into events of at most `cap` bytes of data.
///
/// The reader [`push`](SseParser::push)es received bytes and takes events until
/// [`next_event`](SseParser::next_event) returns `None`. The events do not depend on how the bytes were
/// split. Text after the last blank line when the stream ends is no event, since it may be half of one.
///
/// ```text
///   Keeping ──blank line──► Event ──► Keeping
///      └──cap passed──► Skipping ──id known, else blank line──► Oversize ──blank line──► Keeping
/// ```
#[derive(Debug)]
pub struct SseParser {
    /// At most the cap and the bytes pushed last.
    buffer: BytesMut,
    /// Length of the buffer's prefix that is known to hold no line end.
    searched: usize,
    cap: usize,
    /// True if the last line ended with a carriage return, so that a following line feed belongs to it.
    is_after_return: bool,
    /// True while the stream may still begin with a byte order mark.
    is_at_start: bool,
    partial: PartialEvent,
    /// `Some` while the rest of an oversize event is skipped.
    skipping: Option<SkippedEvent>,
}

/// The fields of the event that is being read.
#[derive(Debug, Default)]
struct PartialEvent {
    name: Option<Cow<'static, str>>,
    data: EventData,
    id: Option<String>,
    retry: Option<Duration>,
}

#[derive(Debug, Default)]
enum EventData {
    #[default]
    None,
    Line(Bytes),
    Lines(BytesMut),
}

#[derive(Debug)]
struct SkippedEvent {
    scan: EnvelopeScan,
    is_reported: bool,
    /// True while the line on which the cap was exceeded holds data and has not ended.
    is_scanning: bool,
    /// True if the current line has bytes already, so that its end is no blank line.
    is_inside_line: bool,
}

impl SseParser {
    /// Creates a parser of events of at most `cap` bytes.
    pub fn new(cap: usize) -> SseParser {
        SseParser {
            buffer: BytesMut::new(),
            searched: 0,
            cap,
            is_after_return: false,
            is_at_start: true,
            partial: PartialEvent::default(),
            skipping: None,
        }
    }

    /// Appends received bytes. The caller takes all events before it pushes more, so the buffer stays
    /// bounded.
    pub fn push(&mut self, bytes: &[u8]) {
        let held = self.buffer.len();
        let wanted = held + bytes.len();
        if self.buffer.capacity() < wanted && !self.buffer.try_reclaim(bytes.len()) {
            // `BytesMut` on its own would double past the cap.
            let limit = self.cap.saturating_add(bytes.len()).max(wanted);
            let mut moved = BytesMut::with_capacity(wanted.saturating_mul(2).min(limit));
            moved.extend_from_slice(&self.buffer);
            self.buffer = moved;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns whether an oversize event is being skipped. A reader that knows the only request it can answer
    /// need not wait for the id.
    pub fn is_skipping(&self) -> bool {
        self.skipping.is_some()
    }

    /// Returns the next event, or `None` when more bytes are needed.
    pub fn next_event(&mut self) -> Option<Result<SseEvent, Oversize>> {
        loop {
            if self.skipping.is_some() {
                match self.skip() {
                    Some(oversize) => return Some(Err(oversize)),
                    None if self.skipping.is_some() => return None,
                    None => continue,
                }
            }
            let Some(line) = self.next_line() else {
                let held = self.partial.size().saturating_add(self.buffer.len());
                if held <= self.cap.saturating_add(b"data: ".len()) {
                    return None;
                }
                self.skip_unfinished_line();
                continue;
            };
            if line.is_empty() {
                match std::mem::take(&mut self.partial).finish() {
                    Some(event) => return Some(Ok(event)),
                    None => continue,
                }
            }
            let added = data_field(&line).map_or(line.len(), <[u8]>::len);
            if self.partial.size().saturating_add(added) > self.cap {
                self.start_skipping(&line);
                continue;
            }
            self.partial.read(&line);
        }
    }

    /// Splits off a line without its end: LF, CR or CRLF.
    fn next_line(&mut self) -> Option<Bytes> {
        if self.is_at_start && !self.skip_byte_order_mark() {
            return None;
        }
        self.skip_line_feed();
        let Some(at) = memchr2(b'\n', b'\r', &self.buffer[self.searched..]) else {
            self.searched = self.buffer.len();
            return None;
        };
        let length = self.searched + at;
        self.is_after_return = self.buffer[length] == b'\r';
        let mut line = self.buffer.split_to(length + 1);
        line.truncate(length);
        self.searched = 0;
        Some(line.freeze())
    }

    /// Removes a byte order mark. Returns false while too few bytes have arrived to decide.
    fn skip_byte_order_mark(&mut self) -> bool {
        if self.buffer.starts_with(BYTE_ORDER_MARK) {
            self.buffer.advance(BYTE_ORDER_MARK.len());
        } else if BYTE_ORDER_MARK.starts_with(&self.buffer) {
            return false;
        }
        self.is_at_start = false;
        true
    }

    fn skip_line_feed(&mut self) {
        if self.is_after_return
            && let Some(first) = self.buffer.first()
        {
            if *first == b'\n' {
                self.buffer.advance(1);
                self.searched = self.searched.saturating_sub(1);
            }
            self.is_after_return = false;
        }
    }

    /// Starts to skip the event of a line that is too long before it has ended.
    fn skip_unfinished_line(&mut self) {
        let part = self.buffer.split().freeze();
        self.searched = 0;
        self.start_skipping(&part);
        if let Some(skipping) = &mut self.skipping {
            skipping.is_scanning = data_field(&part).is_some();
            skipping.is_inside_line = true;
        }
        // Frees the memory of the long line.
        self.buffer = BytesMut::new();
    }

    fn start_skipping(&mut self, line: &[u8]) {
        let mut scan = EnvelopeScan::new();
        match std::mem::take(&mut self.partial).data {
            EventData::None => {}
            EventData::Line(data) => _ = scan.feed(&data),
            EventData::Lines(data) => {
                data[..].split(|byte| *byte == b'\n').for_each(|line| _ = scan.feed(line))
            }
        }
        if let Some(data) = data_field(line) {
            scan.feed(data);
        }
        self.skipping =
            Some(SkippedEvent { scan, is_reported: false, is_scanning: false, is_inside_line: false });
    }

    /// Skips an oversize event as far as the buffer goes.
    fn skip(&mut self) -> Option<Oversize> {
        loop {
            self.skip_line_feed();
            let skipping = self.skipping.as_mut()?;
            let end = memchr2(b'\n', b'\r', &self.buffer);
            let length = end.unwrap_or(self.buffer.len());
            if skipping.is_scanning {
                skipping.scan.feed(&self.buffer[..length]);
            }
            let is_blank = length == 0 && !skipping.is_inside_line;
            skipping.is_inside_line = end.is_none() && (length > 0 || skipping.is_inside_line);
            skipping.is_scanning &= end.is_none();
            self.is_after_return |= end.is_some_and(|end| self.buffer[end] == b'\r');
            self.buffer.advance(length + usize::from(end.is_some()));

            let oversize = Oversize::from_scan(&skipping.scan);
            let is_over = end.is_some() && is_blank;
            let is_due = !skipping.is_reported && (is_over || oversize.is_identified());
            skipping.is_reported |= is_due;
            if is_over {
                self.skipping = None;
            }
            if is_due {
                return Some(oversize);
            }
            if is_over || end.is_none() {
                return None;
            }
        }
    }
}

impl PartialEvent {
    /// Returns the number of bytes it keeps.
    fn size(&self) -> usize {
        match &self.data {
            EventData::None => 0,
            EventData::Line(data) => data.len(),
            EventData::Lines(data) => data.len(),
        }
    }

    /// Reads one line that is not blank. Comments and unknown fields are ignored.
    fn read(&mut self, line: &Bytes) {
        let (field, value) = split_field(line);
        match field {
            b"data" => self.add(line.slice_ref(value)),
            b"event" => self.name = std::str::from_utf8(value).ok().map(event_name),
            b"id" if value.len() <= MAX_EVENT_ID_BYTES && !value.contains(&0) => {
                self.id = std::str::from_utf8(value).ok().map(str::to_owned);
            }
            b"retry" if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
                let digits = std::str::from_utf8(value).unwrap_or_default();
                self.retry = Some(Duration::from_millis(digits.parse().unwrap_or(u64::MAX)));
            }
            _ => {}
        }
    }

    fn add(&mut self, value: Bytes) {
        let lines = match &mut self.data {
            EventData::None => {
                self.data = EventData::Line(value);
                return;
            }
            EventData::Line(first) => BytesMut::from(&first[..]),
            EventData::Lines(lines) => std::mem::take(lines),
        };
        let mut lines = lines;
        lines.extend_from_slice(b"\n");
        lines.extend_from_slice(&value);
        self.data = EventData::Lines(lines);
    }

    /// Returns the event, if any of its fields is set.
    fn finish(self) -> Option<SseEvent> {
        let PartialEvent { name, data, id, retry } = self;
        let data = match data {
            EventData::None if id.is_none() && retry.is_none() => return None,
            EventData::None => Bytes::new(),
            EventData::Line(data) => data,
            EventData::Lines(data) => data.freeze(),
        };
        Some(SseEvent { name: name.unwrap_or(Cow::Borrowed("message")), data, id, retry })
    }
}

/// Returns an event name without allocating for those that MCP uses.
fn event_name(name: &str) -> Cow<'static, str> {
    match name {
        "" | "message" => Cow::Borrowed("message"),
        "endpoint" => Cow::Borrowed("endpoint"),
        other => Cow::Owned(other.to_owned()),
    }
}

/// Splits a line into its field name and its value, without the one space that may precede the value.
fn split_field(line: &[u8]) -> (&[u8], &[u8]) {
    let Some(colon) = memchr::memchr(b':', line) else { return (line, b"") };
    let value = &line[colon + 1..];
    (&line[..colon], value.strip_prefix(b" ").unwrap_or(value))
}

fn data_field(line: &[u8]) -> Option<&[u8]> {
    match split_field(line) {
        (b"data", value) => Some(value),
        _ => None,
    }
}

/// Appends an event that carries one JSON text. Line breaks between its tokens become spaces, so that the
/// text stays on one line; JSON strings contain none.
pub fn write_sse_event(out: &mut Vec<u8>, id: Option<&str>, data: &[u8]) {
    if let Some(id) = id {
        out.extend_from_slice(b"id: ");
        push_line(out, id.as_bytes());
    }
    out.extend_from_slice(b"data: ");
    push_line(out, data);
    out.push(b'\n');
}

/// Appends the time a client waits before it reconnects.
pub fn write_sse_retry(out: &mut Vec<u8>, wait: Duration) {
    out.extend_from_slice(b"retry: ");
    out.extend_from_slice(wait.as_millis().to_string().as_bytes());
    out.extend_from_slice(b"\n\n");
}

/// Appends a comment, which clients ignore. It keeps a silent stream from being taken for a dead one.
pub fn write_sse_comment(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(b": ");
    push_line(out, text.as_bytes());
    out.push(b'\n');
}

fn push_line(out: &mut Vec<u8>, text: &[u8]) {
    let start = out.len();
    out.extend_from_slice(text);
    let mut at = start;
    while let Some(found) = memchr2(b'\n', b'\r', &out[at..]) {
        out[at + found] = b' ';
        at += found + 1;
    }
    out.push(b'\n');
}

#[cfg(test)]
#[path = "sse_tests.rs"]
mod tests;

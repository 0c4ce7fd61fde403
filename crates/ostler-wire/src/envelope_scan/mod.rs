//! Envelope scan: finds the id of a line that is too long to keep, tells an answer from a request, and finds
//! the line's end.
//!
//! The scan takes the line piece by piece in constant memory and follows strings and nesting from the first
//! byte on. So an `"id"` inside a result's content is never taken for the envelope's, and the id is found
//! whether it comes before or after the huge member.
//!
//! ```text
//!   Key ──"…"──► Colon ──:──► Value ──,──► Key        at depth 1; deeper levels are only counted
//!                               └─}──► the object is closed
//! ```
//!
//! The scan tolerates broken JSON and reports no id when in doubt. An id belongs to an answer only beside a
//! top-level `result` or `error` and without a `method`: a server's own request may carry an id that equals
//! one of ours. Beside a `method`, and without those two, it belongs to a request.
//!
//! A line ends at its newline, which can't be inside a string, or where its object has closed and something
//! else begins. So a server that leaves out a newline loses one answer, not the next one too.
//!
//! ```text
//!   Inside ──last }──► Closed ──newline, or anything but blanks──► Ended
//!     ├──no object, or an unmatched bracket──► Unbalanced ──newline──► Ended
//!     └──newline──► Ended
//! ```

use bytes::Bytes;
use memchr::{memchr, memchr3};

use self::nesting::Nesting;
use crate::object::{for_each_element, select_members};
use crate::request_id::RequestId;

mod nesting;

/// Returns the id of the request that a line answers although it can't be parsed as a message: the id beside
/// a top-level `result` or `error`.
pub fn extract_response_id(line: &[u8]) -> Option<RequestId> {
    let mut scan = EnvelopeScan::new();
    scan.feed(line);
    scan.response_id().cloned()
}

/// Calls `take` with the id of each request that a line answers although it can't be parsed as a message: by
/// a damaged answer, by one after a byte order mark, by one with neither `result` nor `error`, and by each
/// answer of a batch.
pub fn extract_response_ids(line: &[u8], mut take: impl FnMut(RequestId)) {
    let line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
    let mut take_one = |answer: &[u8]| {
        if let Some(id) = extract_response_id(answer).or_else(|| bare_envelope_id(answer)) {
            take(id);
        }
    };
    match std::str::from_utf8(line) {
        Ok(batch) if batch.trim_ascii_start().starts_with('[') => {
            for_each_element(batch, |answer| take_one(answer.as_bytes()));
        }
        _ => take_one(line),
    }
}

/// Returns the id of an object that declares itself a JSON-RPC message and has no method, result or error. An
/// object without `jsonrpc` does not count: log lines may have an id as well.
fn bare_envelope_id(answer: &[u8]) -> Option<RequestId> {
    match select_members(answer, &["jsonrpc", "id", "method", "result", "error"]) {
        Ok([Some(_), Some(id), None, None, None]) => {
            RequestId::parse(Bytes::copy_from_slice(id.as_bytes())).ok()
        }
        _ => None,
    }
}

/// The UTF-8 byte order mark, which some servers put at the start of a stream.
pub(crate) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Longest key or id that is read. Our own ids have at most 22 bytes.
const MAX_TOKEN_BYTES: usize = 256;

/// Progress of the line.
#[derive(Clone, Copy, Debug, PartialEq)]
enum LineState {
    /// Before or inside the object.
    Inside,
    /// The object has closed. Only blanks and the newline still belong to the line.
    Closed,
    /// The end of the object is unknown, so only the newline ends the line.
    Unbalanced,
    /// The next byte belongs to another line.
    Ended,
}

/// Position of the scan among the top-level members.
#[derive(Clone, Copy, Debug, PartialEq)]
enum EnvelopePosition {
    /// Before the opening brace.
    Start,
    /// Before a key.
    Key,
    /// After a key, before its colon.
    Colon,
    /// Inside a member's value.
    Value,
}

/// The member whose value is being read.
#[derive(Clone, Copy, Debug, PartialEq)]
enum EnvelopeMember {
    Id,
    Other,
}

#[derive(Debug)]
pub(crate) struct EnvelopeScan {
    state: LineState,
    nesting: Nesting,
    position: EnvelopePosition,
    member: EnvelopeMember,
    in_string: bool,
    /// True if the last byte was a backslash inside a string.
    escaped: bool,
    /// The text of the key or id being read, at most [`MAX_TOKEN_BYTES`] bytes.
    token: Vec<u8>,
    /// A complete id at the top level.
    id: Option<RequestId>,
    has_outcome: bool,
    has_method: bool,
    /// The kind of the message. Once it is decided, members are no longer read.
    kind: Option<EnvelopeKind>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum EnvelopeKind {
    Response,
    Request,
    Ambiguous,
}

impl EnvelopeScan {
    pub(crate) fn new() -> EnvelopeScan {
        EnvelopeScan {
            state: LineState::Inside,
            nesting: Nesting::default(),
            position: EnvelopePosition::Start,
            member: EnvelopeMember::Other,
            in_string: false,
            escaped: false,
            token: Vec::new(),
            id: None,
            has_outcome: false,
            has_method: false,
            kind: None,
        }
    }

    /// Returns the id of the request that this line answers, as soon as that is certain.
    pub(crate) fn response_id(&self) -> Option<&RequestId> {
        self.id.as_ref().filter(|_| self.kind == Some(EnvelopeKind::Response))
    }

    /// Returns the id of the request on this line, as soon as that is certain.
    pub(crate) fn request_id(&self) -> Option<&RequestId> {
        self.id.as_ref().filter(|_| self.kind == Some(EnvelopeKind::Request))
    }

    /// Returns whether the rest of the line can add nothing.
    pub(crate) fn is_complete(&self) -> bool {
        matches!(self.state, LineState::Closed | LineState::Ended)
    }

    /// Returns whether the next byte belongs to another line.
    pub(crate) fn is_line_ended(&self) -> bool {
        self.state == LineState::Ended
    }

    /// Takes the next bytes of the line, its newline included. Returns the number of bytes that belong to the
    /// line: all of them, unless it has ended.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> usize {
        let mut used = 0;
        while used < bytes.len() && self.state != LineState::Ended {
            let rest = &bytes[used..];
            used += match self.state {
                LineState::Inside if self.in_string => self.feed_string(rest),
                LineState::Inside if self.kind.is_none() && self.nesting.depth() <= 1 => {
                    self.feed_envelope(rest[0])
                }
                LineState::Inside => self.feed_content(rest),
                LineState::Closed => self.feed_blanks(rest),
                LineState::Unbalanced => memchr(b'\n', rest).map_or(rest.len(), |at| self.end_line(at)),
                LineState::Ended => 0,
            };
        }
        used
    }

    /// Scans inside a string, up to its end or the next escape. Returns the number of bytes used.
    fn feed_string(&mut self, bytes: &[u8]) -> usize {
        // An escape hides one byte from the search, but never a newline.
        let hidden = usize::from(self.escaped && bytes[0] != b'\n');
        self.escaped = false;
        let Some(end) = memchr3(b'"', b'\\', b'\n', &bytes[hidden..]).map(|at| at + hidden) else {
            self.keep_token(bytes);
            return bytes.len();
        };
        self.keep_token(&bytes[..=end]);
        match bytes[end] {
            b'\n' => return self.end_line(end),
            b'\\' => self.escaped = true,
            _ => {
                self.in_string = false;
                self.end_string();
            }
        }
        end + 1
    }

    /// Scans content outside strings, where only nesting counts, up to the next string or the end of a
    /// top-level member. Returns the number of bytes used.
    fn feed_content(&mut self, bytes: &[u8]) -> usize {
        let passed = self.nesting.skip_content(bytes);
        let Some(byte) = bytes.get(passed) else { return passed };
        match byte {
            b'\n' => return self.end_line(passed),
            b'"' => self.in_string = true,
            _ => self.close_container(*byte),
        }
        passed + 1
    }

    /// Scans one byte outside strings, among the top-level members. Returns the number of bytes used, which
    /// is always one.
    fn feed_envelope(&mut self, byte: u8) -> usize {
        match byte {
            b'\n' => return self.end_line(0),
            // Whitespace after an id's first byte is kept, so that `1 7` is not read as 17.
            b' ' | b'\t' | b'\r' => {
                if self.position == EnvelopePosition::Value && !self.token.is_empty() {
                    self.keep_token(&[byte]);
                }
            }
            b'{' if self.position == EnvelopePosition::Start => {
                self.nesting.open(byte);
                self.position = EnvelopePosition::Key;
            }
            _ if self.position == EnvelopePosition::Start => self.mark_unbalanced(),
            b'"' => {
                self.in_string = true;
                self.keep_token(b"\"");
            }
            b'{' | b'[' => {
                if self.position != EnvelopePosition::Value || self.member == EnvelopeMember::Id {
                    self.mark_ambiguous();
                }
                self.nesting.open(byte);
            }
            b'}' | b']' => {
                self.end_member();
                self.close_container(byte);
            }
            b':' if self.position == EnvelopePosition::Colon => self.end_key(),
            b',' if self.position == EnvelopePosition::Value => {
                self.end_member();
                self.position = EnvelopePosition::Key;
            }
            _ if self.position == EnvelopePosition::Value => self.keep_token(&[byte]),
            _ => self.mark_ambiguous(),
        }
        1
    }

    /// Scans blanks after the object. Returns the number of bytes used.
    fn feed_blanks(&mut self, bytes: &[u8]) -> usize {
        match bytes.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b'\r')) {
            Some(at) if bytes[at] == b'\n' => self.end_line(at),
            Some(at) => {
                self.state = LineState::Ended;
                at
            }
            None => bytes.len(),
        }
    }

    /// Ends the line at the newline at `at`, in any state. Returns the number of bytes used.
    fn end_line(&mut self, at: usize) -> usize {
        self.state = LineState::Ended;
        at + 1
    }

    /// Closes an object or array, at any depth.
    fn close_container(&mut self, byte: u8) {
        if !self.nesting.close(byte) {
            self.mark_unbalanced();
        } else if self.nesting.depth() == 0 {
            self.state = LineState::Closed;
            // The object is complete: members it lacks can't follow.
            self.kind.get_or_insert(EnvelopeKind::Ambiguous);
        }
    }

    /// Records that the text is no object or that its brackets don't match: the end of the object can't be
    /// found.
    fn mark_unbalanced(&mut self) {
        self.state = LineState::Unbalanced;
        self.kind.get_or_insert(EnvelopeKind::Ambiguous);
    }

    /// Keeps the text of top-level keys and of the id only.
    fn keep_token(&mut self, bytes: &[u8]) {
        let is_wanted = self.kind.is_none()
            && self.nesting.depth() == 1
            && (self.position == EnvelopePosition::Key
                || (self.position == EnvelopePosition::Value && self.member == EnvelopeMember::Id));
        if is_wanted {
            let room = MAX_TOKEN_BYTES.saturating_sub(self.token.len());
            self.token.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
    }

    fn end_string(&mut self) {
        if self.nesting.depth() == 1 && self.position == EnvelopePosition::Key {
            self.position = EnvelopePosition::Colon;
        }
    }

    fn end_key(&mut self) {
        self.position = EnvelopePosition::Value;
        self.member = EnvelopeMember::Other;
        match &self.token[..] {
            b"\"id\"" if self.id.is_some() => self.mark_ambiguous(),
            b"\"id\"" => self.member = EnvelopeMember::Id,
            b"\"result\"" | b"\"error\"" => self.has_outcome = true,
            b"\"method\"" => self.has_method = true,
            // An escape could spell any of the above.
            key if key.contains(&b'\\') => self.mark_ambiguous(),
            _ => {}
        }
        self.token.clear();
        self.decide_kind();
    }

    fn end_member(&mut self) {
        if self.position == EnvelopePosition::Value && self.member == EnvelopeMember::Id {
            // A token at the limit may be truncated, and a truncated number is another number.
            let is_cut = self.token.len() == MAX_TOKEN_BYTES;
            match RequestId::parse(Bytes::copy_from_slice(self.token.trim_ascii_end())) {
                Ok(id) if !is_cut => self.id = Some(id),
                _ => self.mark_ambiguous(),
            }
            self.token.clear();
            self.member = EnvelopeMember::Other;
        }
        self.decide_kind();
    }

    fn decide_kind(&mut self) {
        let kind = match (self.has_method, self.has_outcome) {
            (true, true) => EnvelopeKind::Ambiguous,
            (true, false) if self.id.is_some() => EnvelopeKind::Request,
            (false, true) if self.id.is_some() => EnvelopeKind::Response,
            _ => return,
        };
        self.kind.get_or_insert(kind);
    }

    fn mark_ambiguous(&mut self) {
        self.kind = Some(EnvelopeKind::Ambiguous);
    }
}

#[cfg(test)]
mod tests;

//! Following a line that is too long to keep: whose answer or which request it is, and where it ends.
//!
//! The scan is fed the line piece by piece, in constant memory, and follows strings and nesting from the
//! first byte on. So an `"id"` inside a result's content is never taken for the envelope's, and the id is
//! found whether it stands before the huge member or after it.
//!
//! ```text
//!   Key ──"…"──► Colon ──:──► Value ──,──► Key        at depth 1; everything deeper is only counted
//!                               └─}──► the object is over
//! ```
//!
//! The scan tolerates broken JSON and prefers silence: an id is an answer's only beside a top-level `result` or
//! `error` and without a `method`, for a server's own request may carry an id that equals one of ours. Beside a
//! `method`, and without those, it is a request's.
//!
//! A line is over at its newline, which can't stand inside a string, or where its object has closed and
//! something else begins: a server that leaves a newline out loses one answer and not the next one too.
//!
//! ```text
//!   Inside ──last }──► Closed ──newline, or anything but blanks──► Over
//!     ├──no object, or a bracket without its partner──► Lost ──newline──► Over
//!     └──newline──► Over
//! ```

use bytes::Bytes;
use memchr::{memchr, memchr3};

use self::nesting::Nesting;
use crate::object::{for_each_element, select_members};
use crate::request_id::RequestId;

mod nesting;

/// Whose answer a line is that can't be read as a message: the id beside a top-level `result` or `error`.
pub fn extract_response_id(line: &[u8]) -> Option<RequestId> {
    let mut scan = EnvelopeScan::new();
    scan.feed(line);
    scan.response_id().cloned()
}

/// Calls `take` with the id of each request that a line answers although it can't be read as a message: by a damaged
/// answer, by one behind a byte order mark, by one with neither `result` nor `error`, and by each answer of a batch.
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

/// The id of an object that calls itself a JSON-RPC message and says nothing. Log lines may have an id as well.
fn bare_envelope_id(answer: &[u8]) -> Option<RequestId> {
    match select_members(answer, &["jsonrpc", "id", "method", "result", "error"]) {
        Ok([Some(_), Some(id), None, None, None]) => {
            RequestId::parse(Bytes::copy_from_slice(id.as_bytes())).ok()
        }
        _ => None,
    }
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Longest key or id that is looked at. Our own ids have at most 22 bytes.
const MAX_TOKEN_BYTES: usize = 256;

/// How far the line has passed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum LineState {
    /// Before or inside the object.
    Inside,
    /// The object has closed. Only blanks belong to the line now, and its newline.
    Closed,
    /// Where an object closes is not known, so that only the newline ends the line.
    Unbalanced,
    /// Whatever is next belongs to another line.
    Ended,
}

/// Where the scan stands among the top-level members.
#[derive(Clone, Copy, Debug, PartialEq)]
enum EnvelopePosition {
    /// Before the opening brace.
    Start,
    /// A key is next.
    Key,
    /// A key has been read, its colon is next.
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
    /// The last byte was a backslash inside a string.
    escaped: bool,
    /// The text of the key or id being read, at most [`TOKEN_LIMIT`] bytes.
    token: Vec<u8>,
    /// A complete id at the top level.
    id: Option<RequestId>,
    has_outcome: bool,
    has_method: bool,
    /// Which kind of message this is. Once that is settled, members are not looked at any more.
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

    /// The id of the request that this line answers, as soon as that is certain.
    pub(crate) fn response_id(&self) -> Option<&RequestId> {
        self.id.as_ref().filter(|_| self.kind == Some(EnvelopeKind::Response))
    }

    /// Returns the id of the request that this line is, as soon as that is certain.
    pub(crate) fn request_id(&self) -> Option<&RequestId> {
        self.id.as_ref().filter(|_| self.kind == Some(EnvelopeKind::Request))
    }

    /// Whether the line can't say any more than it has said.
    pub(crate) fn is_complete(&self) -> bool {
        matches!(self.state, LineState::Closed | LineState::Ended)
    }

    /// Whether the next byte belongs to another line.
    pub(crate) fn is_line_ended(&self) -> bool {
        self.state == LineState::Ended
    }

    /// Takes the next bytes of the line, its newline included. Returns how many of them belong to the line:
    /// all, unless it is over.
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

    /// Inside a string: up to its end or the next escape. Returns how many bytes were used.
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

    /// Outside strings, where only nesting counts: up to the next string or a top-level member's end. Returns
    /// how many bytes were used.
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

    /// Outside strings, among the top-level members: one byte. Returns how many bytes were used, which is
    /// always one.
    fn feed_envelope(&mut self, byte: u8) -> usize {
        match byte {
            b'\n' => return self.end_line(0),
            // Whitespace is kept behind an id's first byte, so that `1 7` is not read as 17.
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

    /// Behind the object. Returns how many bytes were used.
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

    /// The newline at `at` ends the line, whatever it was in the middle of. Returns how many bytes were used.
    fn end_line(&mut self, at: usize) -> usize {
        self.state = LineState::Ended;
        at + 1
    }

    /// An object or array ends, at any depth.
    fn close_container(&mut self, byte: u8) {
        if !self.nesting.close(byte) {
            self.mark_unbalanced();
        } else if self.nesting.depth() == 0 {
            self.state = LineState::Closed;
            // Whatever the object did not say is not said any more.
            self.kind.get_or_insert(EnvelopeKind::Ambiguous);
        }
    }

    /// This is no object, or its nesting is broken: where it would close is anybody's guess.
    fn mark_unbalanced(&mut self) {
        self.state = LineState::Unbalanced;
        self.kind.get_or_insert(EnvelopeKind::Ambiguous);
    }

    /// Keeps the text of top-level keys and of the id, and of nothing else.
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
            // A token at the limit may be cut off, and a cut number is another number.
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
        let verdict = match (self.has_method, self.has_outcome) {
            (true, true) => EnvelopeKind::Ambiguous,
            (true, false) if self.id.is_some() => EnvelopeKind::Request,
            (false, true) if self.id.is_some() => EnvelopeKind::Response,
            _ => return,
        };
        self.kind.get_or_insert(verdict);
    }

    fn mark_ambiguous(&mut self) {
        self.kind = Some(EnvelopeKind::Ambiguous);
    }
}

#[cfg(test)]
mod tests;

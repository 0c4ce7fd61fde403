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
use crate::id::Id;
use crate::object::{each_element, open};

#[path = "scan_nesting.rs"]
mod nesting;

/// Whose answer a line is that can't be read as a message: the id beside a top-level `result` or `error`.
pub fn salvage_id(line: &[u8]) -> Option<Id> {
    let mut scan = AnswerScan::new();
    scan.feed(line);
    scan.answered().cloned()
}

/// Calls `take` with the id of each request that a line answers although it can't be read as a message: by a damaged
/// answer, by one behind a byte order mark, by one with neither `result` nor `error`, and by each answer of a batch.
pub fn salvage_ids(line: &[u8], mut take: impl FnMut(Id)) {
    let line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
    let mut take_one = |answer: &[u8]| {
        if let Some(id) = salvage_id(answer).or_else(|| bare_id(answer)) {
            take(id);
        }
    };
    match std::str::from_utf8(line) {
        Ok(batch) if batch.trim_ascii_start().starts_with('[') => {
            each_element(batch, |answer| take_one(answer.as_bytes()));
        }
        _ => take_one(line),
    }
}

/// The id of an object that calls itself a JSON-RPC message and says nothing. Log lines may have an id as well.
fn bare_id(answer: &[u8]) -> Option<Id> {
    match open(answer, &["jsonrpc", "id", "method", "result", "error"]) {
        Ok([Some(_), Some(id), None, None, None]) => Id::parse(Bytes::copy_from_slice(id.as_bytes())).ok(),
        _ => None,
    }
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Longest key or id that is looked at. Our own ids have at most 22 bytes.
const TOKEN_LIMIT: usize = 256;

/// How far the line has passed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Reach {
    /// Before or inside the object.
    Inside,
    /// The object has closed. Only blanks belong to the line now, and its newline.
    Closed,
    /// Where an object closes is not known, so that only the newline ends the line.
    Lost,
    /// Whatever is next belongs to another line.
    Over,
}

/// Where the scan stands among the top-level members.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
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
enum Member {
    Id,
    Other,
}

#[derive(Debug)]
pub(crate) struct AnswerScan {
    reach: Reach,
    nesting: Nesting,
    place: Place,
    member: Member,
    in_string: bool,
    /// The last byte was a backslash inside a string.
    escaped: bool,
    /// The text of the key or id being read, at most [`TOKEN_LIMIT`] bytes.
    token: Vec<u8>,
    /// A complete id at the top level.
    id: Option<Id>,
    has_outcome: bool,
    has_method: bool,
    /// Which kind of message this is. Once that is settled, members are not looked at any more.
    verdict: Option<Verdict>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Verdict {
    Answer,
    Request,
    Doubt,
}

impl AnswerScan {
    pub(crate) fn new() -> AnswerScan {
        AnswerScan {
            reach: Reach::Inside,
            nesting: Nesting::default(),
            place: Place::Start,
            member: Member::Other,
            in_string: false,
            escaped: false,
            token: Vec::new(),
            id: None,
            has_outcome: false,
            has_method: false,
            verdict: None,
        }
    }

    /// The id of the request that this line answers, as soon as that is certain.
    pub(crate) fn answered(&self) -> Option<&Id> {
        self.id.as_ref().filter(|_| self.verdict == Some(Verdict::Answer))
    }

    /// Returns the id of the request that this line is, as soon as that is certain.
    pub(crate) fn requested(&self) -> Option<&Id> {
        self.id.as_ref().filter(|_| self.verdict == Some(Verdict::Request))
    }

    /// Whether the line can't say any more than it has said.
    pub(crate) fn is_complete(&self) -> bool {
        matches!(self.reach, Reach::Closed | Reach::Over)
    }

    /// Whether the next byte belongs to another line.
    pub(crate) fn is_over(&self) -> bool {
        self.reach == Reach::Over
    }

    /// Takes the next bytes of the line, its newline included. Returns how many of them belong to the line:
    /// all, unless it is over.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> usize {
        let mut used = 0;
        while used < bytes.len() && self.reach != Reach::Over {
            let rest = &bytes[used..];
            used += match self.reach {
                Reach::Inside if self.in_string => self.feed_string(rest),
                Reach::Inside if self.verdict.is_none() && self.nesting.depth() <= 1 => {
                    self.feed_envelope(rest[0])
                }
                Reach::Inside => self.feed_content(rest),
                Reach::Closed => self.feed_blanks(rest),
                Reach::Lost => memchr(b'\n', rest).map_or(rest.len(), |at| self.end_line(at)),
                Reach::Over => 0,
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
            self.keep(bytes);
            return bytes.len();
        };
        self.keep(&bytes[..=end]);
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
        let passed = self.nesting.pass(bytes);
        let Some(byte) = bytes.get(passed) else { return passed };
        match byte {
            b'\n' => return self.end_line(passed),
            b'"' => self.in_string = true,
            _ => self.close(*byte),
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
                if self.place == Place::Value && !self.token.is_empty() {
                    self.keep(&[byte]);
                }
            }
            b'{' if self.place == Place::Start => {
                self.nesting.open(byte);
                self.place = Place::Key;
            }
            _ if self.place == Place::Start => self.lose(),
            b'"' => {
                self.in_string = true;
                self.keep(b"\"");
            }
            b'{' | b'[' => {
                if self.place != Place::Value || self.member == Member::Id {
                    self.doubt();
                }
                self.nesting.open(byte);
            }
            b'}' | b']' => {
                self.end_member();
                self.close(byte);
            }
            b':' if self.place == Place::Colon => self.end_key(),
            b',' if self.place == Place::Value => {
                self.end_member();
                self.place = Place::Key;
            }
            _ if self.place == Place::Value => self.keep(&[byte]),
            _ => self.doubt(),
        }
        1
    }

    /// Behind the object. Returns how many bytes were used.
    fn feed_blanks(&mut self, bytes: &[u8]) -> usize {
        match bytes.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b'\r')) {
            Some(at) if bytes[at] == b'\n' => self.end_line(at),
            Some(at) => {
                self.reach = Reach::Over;
                at
            }
            None => bytes.len(),
        }
    }

    /// The newline at `at` ends the line, whatever it was in the middle of. Returns how many bytes were used.
    fn end_line(&mut self, at: usize) -> usize {
        self.reach = Reach::Over;
        at + 1
    }

    /// An object or array ends, at any depth.
    fn close(&mut self, byte: u8) {
        if !self.nesting.close(byte) {
            self.lose();
        } else if self.nesting.depth() == 0 {
            self.reach = Reach::Closed;
            // Whatever the object did not say is not said any more.
            self.verdict.get_or_insert(Verdict::Doubt);
        }
    }

    /// This is no object, or its nesting is broken: where it would close is anybody's guess.
    fn lose(&mut self) {
        self.reach = Reach::Lost;
        self.verdict.get_or_insert(Verdict::Doubt);
    }

    /// Keeps the text of top-level keys and of the id, and of nothing else.
    fn keep(&mut self, bytes: &[u8]) {
        let is_wanted = self.verdict.is_none()
            && self.nesting.depth() == 1
            && (self.place == Place::Key || (self.place == Place::Value && self.member == Member::Id));
        if is_wanted {
            let room = TOKEN_LIMIT.saturating_sub(self.token.len());
            self.token.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
    }

    fn end_string(&mut self) {
        if self.nesting.depth() == 1 && self.place == Place::Key {
            self.place = Place::Colon;
        }
    }

    fn end_key(&mut self) {
        self.place = Place::Value;
        self.member = Member::Other;
        match &self.token[..] {
            b"\"id\"" if self.id.is_some() => self.doubt(),
            b"\"id\"" => self.member = Member::Id,
            b"\"result\"" | b"\"error\"" => self.has_outcome = true,
            b"\"method\"" => self.has_method = true,
            // An escape could spell any of the above.
            key if key.contains(&b'\\') => self.doubt(),
            _ => {}
        }
        self.token.clear();
        self.conclude();
    }

    fn end_member(&mut self) {
        if self.place == Place::Value && self.member == Member::Id {
            // A token at the limit may be cut off, and a cut number is another number.
            let is_cut = self.token.len() == TOKEN_LIMIT;
            match Id::parse(Bytes::copy_from_slice(self.token.trim_ascii_end())) {
                Ok(id) if !is_cut => self.id = Some(id),
                _ => self.doubt(),
            }
            self.token.clear();
            self.member = Member::Other;
        }
        self.conclude();
    }

    fn conclude(&mut self) {
        let verdict = match (self.has_method, self.has_outcome) {
            (true, true) => Verdict::Doubt,
            (true, false) if self.id.is_some() => Verdict::Request,
            (false, true) if self.id.is_some() => Verdict::Answer,
            _ => return,
        };
        self.verdict.get_or_insert(verdict);
    }

    fn doubt(&mut self) {
        self.verdict = Some(Verdict::Doubt);
    }
}

#[cfg(test)]
#[path = "scan_tests.rs"]
mod tests;

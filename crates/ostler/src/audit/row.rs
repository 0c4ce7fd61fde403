//! Audit row, as it waits in the queue.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;

/// Upper bound on the bytes of a field: names are shorter, and a caller that sends longer ones must not fill the disk.
const MAX_FIELD_BYTES: usize = 1 << 10;
/// Suffix of a truncated field.
const ELLIPSIS: &str = "…";

/// Kind of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum RowKind {
    /// A request of a caller.
    Call,
    /// A lifecycle event of a server.
    Server,
    /// An action of an operator.
    Admin,
    /// A request that failed authentication or authorization.
    Refusal,
    /// Rows that are missing.
    Gap,
}

impl RowKind {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Server => "server",
            Self::Admin => "admin",
            Self::Refusal => "refusal",
            Self::Gap => "gap",
        }
    }
}

/// Class of rows with a share of the file: no row is deleted to make room for another class while its class is within
/// its share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum RowClass {
    /// Calls that policy allowed.
    Calls,
    /// Calls and requests that were refused, which cost a caller nothing.
    Refusals,
    /// Lifecycle events of servers.
    Servers,
    /// Actions of operators, and gaps.
    Operators,
}

impl RowClass {
    pub(super) const ALL: [Self; 4] = [Self::Calls, Self::Refusals, Self::Servers, Self::Operators];

    fn classify(kind: RowKind, outcome: &str, delivery: Option<&str>) -> Self {
        match kind {
            RowKind::Admin | RowKind::Gap => Self::Operators,
            RowKind::Server => Self::Servers,
            RowKind::Refusal => Self::Refusals,
            RowKind::Call if is_refused(outcome, delivery) => Self::Refusals,
            RowKind::Call => Self::Calls,
        }
    }

    /// Returns the tables of the class: of entries and of shared columns.
    pub(super) fn tables(self) -> (&'static str, &'static str) {
        match self {
            Self::Calls => ("entries", "abouts"),
            Self::Refusals => ("refusal_entries", "refusal_abouts"),
            Self::Servers => ("server_entries", "server_abouts"),
            Self::Operators => ("operator_entries", "operator_abouts"),
        }
    }

    /// Returns the name of the class in a row about deleted ones.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Calls => "calls",
            Self::Refusals => "refusals",
            Self::Servers => "servers",
            Self::Operators => "operators",
        }
    }
}

/// Text fields of a row; an empty one is absent.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RowFields<'a> {
    /// Principal that acted.
    pub(super) principal: &'a str,
    /// Role of the principal.
    pub(super) role: &'a str,
    /// Client session of the request.
    pub(super) session: &'a str,
    /// Server that the row is about.
    pub(super) server: &'a str,
    /// Method, or a word for the event.
    pub(super) action: &'a str,
    /// Tool, prompt or resource that the row is about.
    pub(super) subject: &'a str,
    /// Rule that refused the request.
    pub(super) rule: &'a str,
    /// Further details for people.
    pub(super) detail: &'a str,
}

const FIELD_COUNT: usize = 8;

/// Fields of a row in one allocation, because a row is made on the path of a call.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct PackedFields {
    text: String,
    ends: [u32; FIELD_COUNT],
}

impl PackedFields {
    pub(super) fn pack(said: &RowFields<'_>) -> Self {
        let RowFields { principal, role, session, server, action, subject, rule, detail } = said;
        let words =
            [principal, role, session, server, action, subject, rule, detail].map(|word| truncate(word));
        let mut text = String::with_capacity(words.iter().map(|(word, rest)| word.len() + rest.len()).sum());
        let mut ends = [0; FIELD_COUNT];
        for ((word, rest), end) in words.into_iter().zip(&mut ends) {
            text.push_str(word);
            text.push_str(rest);
            // Eight short fields are far below the maximum of this type.
            *end = u32::try_from(text.len()).unwrap_or(u32::MAX);
        }
        Self { text, ends }
    }

    pub(super) fn unpack(&self) -> RowFields<'_> {
        let mut start = 0;
        let [principal, role, session, server, action, subject, rule, detail] = self.ends.map(|end| {
            let word = self.text.get(start..end as usize).unwrap_or_default();
            start = end as usize;
            word
        });
        RowFields { principal, role, session, server, action, subject, rule, detail }
    }
}

/// Returns the beginning of a field, and the suffix that marks a truncation.
fn truncate(word: &str) -> (&str, &'static str) {
    match word.len() > MAX_FIELD_BYTES {
        true => (&word[..word.floor_char_boundary(MAX_FIELD_BYTES)], ELLIPSIS),
        false => (word, ""),
    }
}

/// Arguments of a call.
#[derive(Debug, Default)]
pub(super) enum RowArguments {
    /// There are none.
    #[default]
    None,
    /// As the caller sent them.
    Kept(Bytes),
    /// Left out, because the queue had no room for them.
    Omitted,
}

impl RowArguments {
    fn len(&self) -> usize {
        match self {
            Self::Kept(bytes) => bytes.len(),
            Self::None | Self::Omitted => 0,
        }
    }
}

/// Columns that many rows share: all but time, duration and arguments.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct SharedColumns {
    pub(super) kind: RowKind,
    pub(super) fields: PackedFields,
    pub(super) outcome: &'static str,
    pub(super) delivery: Option<&'static str>,
    pub(super) generation: Option<u64>,
    pub(super) count: Option<u64>,
}

impl SharedColumns {
    pub(super) fn class(&self) -> RowClass {
        RowClass::classify(self.kind, self.outcome, self.delivery)
    }

    /// Returns the bytes of memory that it takes.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.fields.text.len()
    }
}

/// Row in the queue. Rows that are queued together share their [`SharedColumns`].
#[derive(Debug)]
pub(super) struct QueuedRow {
    /// Microseconds since 1970.
    pub(super) at: i64,
    pub(super) took: Option<Duration>,
    pub(super) shared: Arc<SharedColumns>,
    pub(super) arguments: RowArguments,
}

impl QueuedRow {
    /// Returns the bytes of memory that it takes without its [`SharedColumns`].
    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.arguments.len()
    }

    /// Drops the row, and returns the bytes of memory that this frees: those of its [`SharedColumns`] with the last
    /// row.
    pub(super) fn into_freed_bytes(self) -> usize {
        self.memory_bytes() + Arc::into_inner(self.shared).map_or(0, |about| about.memory_bytes())
    }
}

impl From<AuditRow> for QueuedRow {
    fn from(row: AuditRow) -> Self {
        row.into_queued(Arc::new)
    }
}

/// One row, as its source makes it.
#[derive(Debug)]
pub(super) struct AuditRow {
    /// Microseconds since 1970.
    pub(super) at: i64,
    pub(super) kind: RowKind,
    pub(super) fields: PackedFields,
    pub(super) outcome: &'static str,
    pub(super) delivery: Option<&'static str>,
    pub(super) generation: Option<u64>,
    pub(super) took: Option<Duration>,
    /// Number of events that the row stands for; `None` for one.
    pub(super) count: Option<u64>,
    pub(super) arguments: RowArguments,
}

impl AuditRow {
    /// Returns a row about an event of this moment.
    pub(super) fn now(kind: RowKind, outcome: &'static str, said: &RowFields<'_>) -> Self {
        Self {
            at: now_micros(),
            kind,
            fields: PackedFields::pack(said),
            outcome,
            delivery: None,
            generation: None,
            took: None,
            count: None,
            arguments: RowArguments::None,
        }
    }

    /// Converts it for the queue; `share` finds or makes the columns that it has in common with others.
    pub(super) fn into_queued(self, share: impl FnOnce(SharedColumns) -> Arc<SharedColumns>) -> QueuedRow {
        let Self { at, kind, fields: words, outcome, delivery, generation, took, count, arguments } = self;
        let about = share(SharedColumns { kind, fields: words, outcome, delivery, generation, count });
        QueuedRow { at, took, shared: about, arguments }
    }

    pub(super) fn class(&self) -> RowClass {
        RowClass::classify(self.kind, self.outcome, self.delivery)
    }
}

/// Returns whether a call was refused before anything was sent. A caller that left may have been served.
fn is_refused(outcome: &str, delivery: Option<&str>) -> bool {
    let is_failed = !matches!(outcome, "ok" | "tool-error" | "cached" | "cancelled");
    is_failed && matches!(delivery, None | Some("not-sent"))
}

/// Returns the time in microseconds since 1970.
pub(super) fn now_micros() -> i64 {
    micros(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// Returns a time in microseconds; one that overflows counts as unlimited.
pub(super) fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_out_as_they_went_in() {
        let said =
            RowFields { principal: "ada", server: "zeit-é", rule: "deny `*/x`", ..RowFields::default() };
        let words = PackedFields::pack(&said);
        let out = words.unpack();
        assert_eq!((out.principal, out.role, out.server, out.rule), ("ada", "", "zeit-é", "deny `*/x`"));
        assert_eq!((out.session, out.action, out.subject, out.detail), ("", "", "", ""));
    }

    #[test]
    fn a_long_word_is_cut_between_characters() {
        let long = "é".repeat(MAX_FIELD_BYTES);
        let words = PackedFields::pack(&RowFields { subject: &long, detail: "x", ..RowFields::default() });
        let said = words.unpack();
        assert!(said.subject.ends_with("é…") && said.subject.len() <= MAX_FIELD_BYTES + ELLIPSIS.len());
        assert_eq!(said.detail, "x");
    }
}

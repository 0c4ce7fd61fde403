//! One row, as it waits to be written.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;

/// The longest word that is kept: names are shorter, and whoever sends longer
/// ones does not fill the disk.
const MAX_FIELD_BYTES: usize = 1 << 10;
/// What follows a word that was cut.
const ELLIPSIS: &str = "…";

/// What a row is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum RowKind {
    /// A request of a caller.
    Call,
    /// Something that happened to a server.
    Server,
    /// Something that an operator did.
    Admin,
    /// Somebody was not let in.
    Refusal,
    /// Rows that are not there.
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

/// What rows are kept together with: no row is deleted to make room for rows of another class, as long as its
/// class keeps to its share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum RowClass {
    /// Calls that were let through.
    Calls,
    /// Calls and requests that were refused, which cost a caller nothing.
    Refusals,
    /// What happens to servers.
    Servers,
    /// What operators do, and what is missing.
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

    /// Its tables: of rows, and of what they have in common.
    pub(super) fn tables(self) -> (&'static str, &'static str) {
        match self {
            Self::Calls => ("entries", "abouts"),
            Self::Refusals => ("refusal_entries", "refusal_abouts"),
            Self::Servers => ("server_entries", "server_abouts"),
            Self::Operators => ("operator_entries", "operator_abouts"),
        }
    }

    /// Its name in a row about deleted ones.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Calls => "calls",
            Self::Refusals => "refusals",
            Self::Servers => "servers",
            Self::Operators => "operators",
        }
    }
}

/// The words of a row; an empty one is none.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RowFields<'a> {
    /// Who.
    pub(super) principal: &'a str,
    /// In which role.
    pub(super) role: &'a str,
    /// From which session of a client.
    pub(super) session: &'a str,
    /// With which server.
    pub(super) server: &'a str,
    /// Did what: a method, or a word for what happened.
    pub(super) action: &'a str,
    /// With which tool, prompt or resource.
    pub(super) subject: &'a str,
    /// The rule that refused it.
    pub(super) rule: &'a str,
    /// What else there is to say.
    pub(super) detail: &'a str,
}

const FIELD_COUNT: usize = 8;

/// The same, in one piece of memory: a row is made on the path of a call.
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
            // Eight short words are far below what this counts to.
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

/// The beginning of a word, and what says that it is only that.
fn truncate(word: &str) -> (&str, &'static str) {
    match word.len() > MAX_FIELD_BYTES {
        true => (&word[..word.floor_char_boundary(MAX_FIELD_BYTES)], ELLIPSIS),
        false => (word, ""),
    }
}

/// The arguments of a call.
#[derive(Debug, Default)]
pub(super) enum RowArguments {
    /// There are none.
    #[default]
    None,
    /// As they came.
    Kept(Bytes),
    /// There was no room for them in the queue.
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

/// The part that many rows share: everything but time, duration and arguments.
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

/// A row in the queue. Rows that are queued together share their [`About`].
#[derive(Debug)]
pub(super) struct QueuedRow {
    /// Microseconds since 1970.
    pub(super) at: i64,
    pub(super) took: Option<Duration>,
    pub(super) shared: Arc<SharedColumns>,
    pub(super) arguments: RowArguments,
}

impl QueuedRow {
    /// Returns the bytes of memory that it takes without its [`About`].
    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.arguments.len()
    }

    /// Drops the row, and returns the bytes of memory that this gives back: those of its [`About`] with the last row.
    pub(super) fn into_freed_bytes(self) -> usize {
        self.memory_bytes() + Arc::into_inner(self.shared).map_or(0, |about| about.memory_bytes())
    }
}

impl From<AuditRow> for QueuedRow {
    fn from(row: AuditRow) -> Self {
        row.into_queued(Arc::new)
    }
}

/// One row, as it is made.
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
    /// How many things this row stands for, if not for one.
    pub(super) count: Option<u64>,
    pub(super) arguments: RowArguments,
}

impl AuditRow {
    /// A row about something that has just happened.
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

    /// Makes it a row of the queue; `share` finds or makes the part that it has in common with others.
    pub(super) fn into_queued(self, share: impl FnOnce(SharedColumns) -> Arc<SharedColumns>) -> QueuedRow {
        let Self { at, kind, fields: words, outcome, delivery, generation, took, count, arguments } = self;
        let about = share(SharedColumns { kind, fields: words, outcome, delivery, generation, count });
        QueuedRow { at, took, shared: about, arguments }
    }

    pub(super) fn class(&self) -> RowClass {
        RowClass::classify(self.kind, self.outcome, self.delivery)
    }
}

/// Returns whether a call was refused before anything of it was sent. A caller that left may have been served.
fn is_refused(outcome: &str, delivery: Option<&str>) -> bool {
    let is_failed = !matches!(outcome, "ok" | "tool-error" | "cached" | "cancelled");
    is_failed && matches!(delivery, None | Some("not-sent"))
}

/// Microseconds since 1970.
pub(super) fn now_micros() -> i64 {
    micros(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// A time in microseconds; what can't be counted is for ever.
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

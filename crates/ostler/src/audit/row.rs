//! One row, as it waits to be written.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;

/// The longest word that is kept: names are shorter, and whoever sends longer
/// ones does not fill the disk.
const LONGEST_WORD: usize = 1 << 10;
/// What follows a word that was cut.
const CUT: &str = "…";

/// What a row is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
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

impl Kind {
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
pub(super) enum Class {
    /// Calls that were let through.
    Calls,
    /// Calls and requests that were refused, which cost a caller nothing.
    Refusals,
    /// What happens to servers.
    Servers,
    /// What operators do, and what is missing.
    Operators,
}

impl Class {
    pub(super) const ALL: [Self; 4] = [Self::Calls, Self::Refusals, Self::Servers, Self::Operators];

    fn of(kind: Kind, outcome: &str, delivery: Option<&str>) -> Self {
        match kind {
            Kind::Admin | Kind::Gap => Self::Operators,
            Kind::Server => Self::Servers,
            Kind::Refusal => Self::Refusals,
            Kind::Call if is_refused(outcome, delivery) => Self::Refusals,
            Kind::Call => Self::Calls,
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
pub(super) struct Said<'a> {
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

const WORDS: usize = 8;

/// The same, in one piece of memory: a row is made on the path of a call.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Words {
    text: String,
    ends: [u32; WORDS],
}

impl Words {
    pub(super) fn pack(said: &Said<'_>) -> Self {
        let Said { principal, role, session, server, action, subject, rule, detail } = said;
        let words = [principal, role, session, server, action, subject, rule, detail].map(|word| cut(word));
        let mut text = String::with_capacity(words.iter().map(|(word, rest)| word.len() + rest.len()).sum());
        let mut ends = [0; WORDS];
        for ((word, rest), end) in words.into_iter().zip(&mut ends) {
            text.push_str(word);
            text.push_str(rest);
            // Eight short words are far below what this counts to.
            *end = u32::try_from(text.len()).unwrap_or(u32::MAX);
        }
        Self { text, ends }
    }

    pub(super) fn said(&self) -> Said<'_> {
        let mut start = 0;
        let [principal, role, session, server, action, subject, rule, detail] = self.ends.map(|end| {
            let word = self.text.get(start..end as usize).unwrap_or_default();
            start = end as usize;
            word
        });
        Said { principal, role, session, server, action, subject, rule, detail }
    }
}

/// The beginning of a word, and what says that it is only that.
fn cut(word: &str) -> (&str, &'static str) {
    match word.len() > LONGEST_WORD {
        true => (&word[..word.floor_char_boundary(LONGEST_WORD)], CUT),
        false => (word, ""),
    }
}

/// The arguments of a call.
#[derive(Debug, Default)]
pub(super) enum Arguments {
    /// There are none.
    #[default]
    None,
    /// As they came.
    Kept(Bytes),
    /// There was no room for them in the queue.
    LeftOut,
}

impl Arguments {
    fn len(&self) -> usize {
        match self {
            Self::Kept(bytes) => bytes.len(),
            Self::None | Self::LeftOut => 0,
        }
    }
}

/// The part that many rows share: everything but time, duration and arguments.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct About {
    pub(super) kind: Kind,
    pub(super) words: Words,
    pub(super) outcome: &'static str,
    pub(super) delivery: Option<&'static str>,
    pub(super) generation: Option<u64>,
    pub(super) count: Option<u64>,
}

impl About {
    pub(super) fn class(&self) -> Class {
        Class::of(self.kind, self.outcome, self.delivery)
    }

    /// Returns the bytes of memory that it takes.
    pub(super) fn weight(&self) -> usize {
        size_of::<Self>() + self.words.text.len()
    }
}

/// A row in the queue. Rows that are queued together share their [`About`].
#[derive(Debug)]
pub(super) struct Queued {
    /// Microseconds since 1970.
    pub(super) at: i64,
    pub(super) took: Option<Duration>,
    pub(super) about: Arc<About>,
    pub(super) arguments: Arguments,
}

impl Queued {
    /// Returns the bytes of memory that it takes without its [`About`].
    pub(super) fn weight(&self) -> usize {
        size_of::<Self>() + self.arguments.len()
    }

    /// Drops the row, and returns the bytes of memory that this gives back: those of its [`About`] with the last row.
    pub(super) fn freed(self) -> usize {
        self.weight() + Arc::into_inner(self.about).map_or(0, |about| about.weight())
    }
}

impl From<Row> for Queued {
    fn from(row: Row) -> Self {
        row.queued(Arc::new)
    }
}

/// One row, as it is made.
#[derive(Debug)]
pub(super) struct Row {
    /// Microseconds since 1970.
    pub(super) at: i64,
    pub(super) kind: Kind,
    pub(super) words: Words,
    pub(super) outcome: &'static str,
    pub(super) delivery: Option<&'static str>,
    pub(super) generation: Option<u64>,
    pub(super) took: Option<Duration>,
    /// How many things this row stands for, if not for one.
    pub(super) count: Option<u64>,
    pub(super) arguments: Arguments,
}

impl Row {
    /// A row about something that has just happened.
    pub(super) fn now(kind: Kind, outcome: &'static str, said: &Said<'_>) -> Self {
        Self {
            at: now(),
            kind,
            words: Words::pack(said),
            outcome,
            delivery: None,
            generation: None,
            took: None,
            count: None,
            arguments: Arguments::None,
        }
    }

    /// Makes it a row of the queue; `share` finds or makes the part that it has in common with others.
    pub(super) fn queued(self, share: impl FnOnce(About) -> Arc<About>) -> Queued {
        let Self { at, kind, words, outcome, delivery, generation, took, count, arguments } = self;
        let about = share(About { kind, words, outcome, delivery, generation, count });
        Queued { at, took, about, arguments }
    }

    pub(super) fn class(&self) -> Class {
        Class::of(self.kind, self.outcome, self.delivery)
    }
}

/// Returns whether a call was refused before anything of it was sent. A caller that left may have been served.
fn is_refused(outcome: &str, delivery: Option<&str>) -> bool {
    let is_failed = !matches!(outcome, "ok" | "tool-error" | "cached" | "cancelled");
    is_failed && matches!(delivery, None | Some("not-sent"))
}

/// Microseconds since 1970.
pub(super) fn now() -> i64 {
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
        let said = Said { principal: "ada", server: "zeit-é", rule: "deny `*/x`", ..Said::default() };
        let words = Words::pack(&said);
        let out = words.said();
        assert_eq!((out.principal, out.role, out.server, out.rule), ("ada", "", "zeit-é", "deny `*/x`"));
        assert_eq!((out.session, out.action, out.subject, out.detail), ("", "", "", ""));
    }

    #[test]
    fn a_long_word_is_cut_between_characters() {
        let long = "é".repeat(LONGEST_WORD);
        let words = Words::pack(&Said { subject: &long, detail: "x", ..Said::default() });
        let said = words.said();
        assert!(said.subject.ends_with("é…") && said.subject.len() <= LONGEST_WORD + CUT.len());
        assert_eq!(said.detail, "x");
    }
}

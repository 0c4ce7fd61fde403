//! `[audit]`: what is written down about calls, and for how long.

use std::time::Duration;

use super::field::{Field, Kind, Preset, Section};
use super::reader::Reader;

/// The smallest file that is worth the name: some thousands of rows.
const LEAST_SIZE: u64 = 1 << 20;

/// What is written down about calls, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Audit {
    /// Whether anything is.
    pub enabled: bool,
    /// Rows older than this are deleted.
    pub keep: Duration,
    /// The oldest rows are deleted when the file is larger than this.
    pub max_size: usize,
    /// How much of a call's arguments is kept.
    pub arguments: AuditedArguments,
    /// Handling of a call while the queue of rows is full.
    pub when_full: WhenFull,
}

/// How much of a call's arguments is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AuditedArguments {
    /// A keyed hash, which tells equal arguments from others and nothing else.
    #[default]
    Hash,
    /// The hash and the text, in which what looks like a secret is replaced.
    Full,
}

/// Handling of a call while the queue of rows is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhenFull {
    /// The call goes on; its row is dropped, and a row of the kind `gap` counts it.
    #[default]
    Gap,
    /// The call waits until its row has room.
    Wait,
}

impl Default for Audit {
    fn default() -> Self {
        Self {
            enabled: true,
            keep: Duration::from_secs(30 * 24 * 3600),
            max_size: 256 << 20,
            arguments: AuditedArguments::Hash,
            when_full: WhenFull::Gap,
        }
    }
}

pub(crate) static SECTION: Section = Section {
    name: "audit",
    doc: "What is written down about calls, and for how long.",
    fields: &[
        Field {
            key: "enabled",
            kind: Kind::Flag,
            preset: Preset::Flag(true),
            doc: "Whether calls, refusals and what happens to servers are written down.",
        },
        Field {
            key: "keep",
            kind: Kind::Duration(1),
            preset: Preset::Text("30d"),
            doc: "How long a row is kept.",
        },
        Field {
            key: "max_size",
            kind: Kind::Size(LEAST_SIZE),
            preset: Preset::Text("256MiB"),
            doc: "How large the file may grow; the oldest rows go first.",
        },
        Field {
            key: "arguments",
            kind: Kind::Choice(&["hash", "full"]),
            preset: Preset::Text("hash"),
            doc: "hash keeps a keyed hash of a call's arguments; full keeps their text too, without what looks like a secret.",
        },
        Field {
            key: "when_full",
            kind: Kind::Choice(&["gap", "wait"]),
            preset: Preset::Text("gap"),
            doc: "While more rows wait than the queue holds: gap drops rows and counts them, wait delays calls for at most 5 s.",
        },
    ],
};

pub(crate) fn read(reader: Reader<'_>) -> Audit {
    let default = Audit::default();
    let audit = Audit {
        enabled: reader.flag("enabled").unwrap_or(default.enabled),
        keep: reader.duration("keep").unwrap_or(default.keep),
        max_size: reader.size("max_size").unwrap_or(default.max_size),
        arguments: match reader.choice("arguments") {
            Some("full") => AuditedArguments::Full,
            _ => AuditedArguments::Hash,
        },
        when_full: match reader.choice("when_full") {
            Some("wait") => WhenFull::Wait,
            _ => WhenFull::Gap,
        },
    };
    reader.finish();
    audit
}

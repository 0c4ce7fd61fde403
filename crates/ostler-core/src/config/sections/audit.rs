//! `[audit]`: the audit log of calls and its limits.

use std::time::Duration;

use crate::config::keys::section::{section, words};

section! {
    /// The audit log of calls and its limits.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct AuditConfig("audit", default) {
        /// True if calls, refusals and events of servers are recorded.
        enabled: bool = flag(true);
        /// Time a row is kept.
        keep: Duration = duration(1.., "30d");
        /// Largest size of the file; the oldest rows are deleted first.
        max_size: usize = size(1_048_576.., "256MiB");
        /// hash keeps a keyed hash of a call's arguments; full keeps their text too, with apparent secrets
        /// redacted.
        arguments: AuditedArguments = choice;
        /// Behaviour while the queue is full: gap drops rows and counts them, wait delays calls for at most 5
        /// s.
        when_full: WhenFull = choice;
    }
}

words! {
    /// Part of a call's arguments that is recorded.
    pub enum AuditedArguments {
        /// A keyed hash, which only tells whether arguments are equal.
        Hash = "hash",
        /// The hash and the text, with apparent secrets redacted.
        Full = "full",
    }
}

words! {
    /// Handling of a call while the queue of rows is full.
    pub enum WhenFull {
        /// The call proceeds; its row is dropped, and a row of the kind `gap` counts it.
        Gap = "gap",
        /// The call waits until its row has room.
        Wait = "wait",
    }
}

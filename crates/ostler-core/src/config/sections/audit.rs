//! `[audit]`: what is written down about calls, and for how long.

use std::time::Duration;

use crate::config::keys::section::{section, words};

section! {
    /// What is written down about calls, and for how long.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct AuditConfig("audit", default) {
        /// Whether calls, refusals and what happens to servers are written down.
        enabled: bool = flag(true);
        /// How long a row is kept.
        keep: Duration = duration(1.., "30d");
        /// How large the file may grow; the oldest rows go first.
        max_size: usize = size(1_048_576.., "256MiB");
        /// hash keeps a keyed hash of a call's arguments; full keeps their text too, without what looks like a secret.
        arguments: AuditedArguments = choice;
        /// While more rows wait than the queue holds: gap drops rows and counts them, wait delays calls for at most 5 s.
        when_full: WhenFull = choice;
    }
}

words! {
    /// How much of a call's arguments is kept.
    pub enum AuditedArguments {
        /// A keyed hash, which tells equal arguments from others and nothing else.
        Hash = "hash",
        /// The hash and the text, in which what looks like a secret is replaced.
        Full = "full",
    }
}

words! {
    /// Handling of a call while the queue of rows is full.
    pub enum WhenFull {
        /// The call goes on; its row is dropped, and a row of the kind `gap` counts it.
        Gap = "gap",
        /// The call waits until its row has room.
        Wait = "wait",
    }
}

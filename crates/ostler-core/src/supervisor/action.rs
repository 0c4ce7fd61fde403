//! Actions of the server's task.

/// One action, carried out by the server's task only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Start a session and report it under this generation.
    Start {
        /// The number of the new session.
        generation: u64,
    },
    /// End the session of this generation.
    Retire {
        /// The number of the session.
        generation: u64,
        /// Treatment of its calls.
        mode: RetireMode,
    },
}

/// Treatment of the calls of a session that is being ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetireMode {
    /// They may finish, for as long as the spec's `drain` allows.
    Drain,
    /// There are none, or the session can't answer them.
    Now,
}

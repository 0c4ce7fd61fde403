//! What the server's task is to do.

/// One thing to do, carried out by the server's task alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Make a session and report it under this generation.
    Start {
        /// The number of the session to be.
        generation: u64,
    },
    /// End the session of this generation.
    Retire {
        /// Which session.
        generation: u64,
        /// What becomes of its calls.
        mode: RetireMode,
    },
}

/// What becomes of the calls of a session that is being ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetireMode {
    /// They may finish, for as long as the spec's `drain` allows.
    Drain,
    /// There are none, or the session can't answer them.
    Now,
}

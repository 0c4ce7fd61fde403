//! The end of a session, with what is known of it.

use std::fmt;
use std::time::Instant;

use crate::fault::{Exit, FaultKind};

/// The end of a session, or a start that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What happened.
    pub kind: FaultKind,
    /// When.
    pub at: Instant,
    /// How the process ended, if that is known.
    pub exit: Option<Exit>,
    /// The server's last words on stderr, oldest first, control characters escaped.
    pub stderr: Vec<String>,
}

impl Failure {
    /// A failure of which nothing more is known.
    pub fn new(kind: FaultKind, at: Instant) -> Self {
        let exit = match &kind {
            FaultKind::Exited(exit) => Some(*exit),
            _ => None,
        };
        Self { kind, at, exit, stderr: Vec::new() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.kind, self.exit) {
            (FaultKind::Exited(exit), _) => write!(f, "{exit}")?,
            (kind, Some(exit)) => write!(f, "{kind}, {exit}")?,
            (kind, None) => write!(f, "{kind}")?,
        }
        match self.stderr.last() {
            Some(line) => write!(f, ", \"{line}\""),
            None => Ok(()),
        }
    }
}

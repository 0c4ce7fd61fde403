//! Failure of a session or of a start.

use std::fmt;
use std::time::Instant;

use crate::fault::{Exit, FaultKind, PermanentCause};
use crate::stderr_cause::find_cause_line;

/// Lines of stderr that are kept of a failure.
const MAX_STDERR_LINES: usize = 8;

/// The end of a session, or a start that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerFailure {
    /// The kind of failure.
    pub kind: FaultKind,
    /// Its time.
    pub at: Instant,
    /// Exit of the process, if known.
    pub exit: Option<Exit>,
    /// The line of stderr that tells the cause.
    pub cause: Option<String>,
    /// Lines of stderr around its end, oldest first, control characters escaped.
    pub stderr: Vec<String>,
    /// Advice that only the place of the failure can give.
    pub hint: Option<Box<FailureHint>>,
}

/// Advice that only the place of a failure can give.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FailureHint {
    /// A text without any word chosen by a server.
    Text(String),
    /// Variables that its output names and that are set here but were not passed.
    Withheld(Vec<String>),
}

impl ServerFailure {
    /// Creates a failure without further facts.
    pub fn new(kind: FaultKind, at: Instant) -> Self {
        let exit = match &kind {
            FaultKind::Exited(exit) | FaultKind::EndedAtProbe(exit) => Some(*exit),
            FaultKind::Permanent(cause) => match **cause {
                PermanentCause::Usage(exit) => Some(exit),
                _ => None,
            },
            _ => None,
        };
        Self { kind, at, exit, cause: None, stderr: Vec::new(), hint: None }
    }

    /// Extracts the cause from the server's stderr and keeps a few lines: the last ones, or those from the
    /// cause on if it is further up.
    pub fn attach_stderr(&mut self, mut stderr: Vec<String>) {
        let line = find_cause_line(&stderr);
        let first = stderr.len().saturating_sub(MAX_STDERR_LINES);
        stderr.drain(..line.as_ref().map_or(first, |line| line.at.min(first)));
        stderr.truncate(MAX_STDERR_LINES);
        (self.cause, self.stderr) = (line.map(|line| line.text), stderr);
    }

    /// Returns whether the server itself gave up, so that its output tells more than the fault.
    fn is_reported_by_server(&self) -> bool {
        matches!(
            self.kind,
            FaultKind::Exited(_)
                | FaultKind::EndedAtProbe(_)
                | FaultKind::Closed
                | FaultKind::Write(_)
                | FaultKind::Handshake(_)
        )
    }
}

impl fmt::Display for ServerFailure {
    /// Writes the cause first, then the failure.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (before, after) =
            if self.is_reported_by_server() { (&self.cause, &None) } else { (&None, &self.cause) };
        if let Some(cause) = before {
            write!(f, "\"{cause}\", ")?;
        }
        match (&self.kind, self.exit) {
            (FaultKind::Exited(exit) | FaultKind::EndedAtProbe(exit), _) if before.is_some() => {
                write!(f, "{exit}")?;
            }
            (FaultKind::Exited(exit) | FaultKind::EndedAtProbe(exit), _) => {
                write!(f, "it ended with {exit}")?
            }
            (kind @ FaultKind::Permanent(_), _) | (kind, None) => write!(f, "{kind}")?,
            (kind, Some(exit)) => write!(f, "{kind}, {exit}")?,
        }
        match after {
            Some(cause) => write!(f, ", \"{cause}\""),
            None => Ok(()),
        }
    }
}

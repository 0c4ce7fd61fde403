//! The end of a session, with what is known of it.

use std::fmt;
use std::time::Instant;

use crate::fault::{Exit, FaultKind, PermanentCause};
use crate::stderr_cause::find_cause_line;

/// Lines of stderr that are kept of a failure.
const MAX_STDERR_LINES: usize = 8;

/// The end of a session, or a start that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerFailure {
    /// What happened.
    pub kind: FaultKind,
    /// When.
    pub at: Instant,
    /// How the process ended, if that is known.
    pub exit: Option<Exit>,
    /// The line of stderr that tells the cause.
    pub cause: Option<String>,
    /// Lines of stderr from around its end, oldest first, control characters escaped.
    pub stderr: Vec<String>,
    /// Advice that only the place of the failure can give.
    pub hint: Option<Box<FailureHint>>,
}

/// Advice that only the place of a failure can give.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FailureHint {
    /// Words of which none is chosen by a server.
    Text(String),
    /// Variables that its output names, that are set here and that it was not given.
    Withheld(Vec<String>),
}

impl ServerFailure {
    /// A failure of which nothing more is known.
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

    /// Takes the cause from what the server wrote to stderr, and keeps a few lines: the last ones, or those that begin
    /// with the cause where it stands further up.
    pub fn attach_stderr(&mut self, mut stderr: Vec<String>) {
        let told = find_cause_line(&stderr);
        let first = stderr.len().saturating_sub(MAX_STDERR_LINES);
        stderr.drain(..told.as_ref().map_or(first, |told| told.at.min(first)));
        stderr.truncate(MAX_STDERR_LINES);
        (self.cause, self.stderr) = (told.map(|told| told.text), stderr);
    }

    /// Returns whether the server itself gave up, so that its words tell more than how that was noticed.
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
    /// The cause comes first, then how it was noticed.
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

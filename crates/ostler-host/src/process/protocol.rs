//! Lifeline protocol of host and guard.
//!
//! The host speaks first: one JSON line, the [`SpawnRequest`]. After that it may send [`STOP`] or [`KILL`]; closing
//! the lifeline means [`STOP`]. The guard sends [`GuardReport`] lines.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use ostler_core::fault::Exit;
use serde::{Deserialize, Serialize};

/// Runs the stop sequence: a wait for the server's exit, then SIGTERM, then SIGKILL.
pub(crate) const STOP: &[u8] = b"s";
/// Skips the waits: SIGKILL at once.
pub(crate) const KILL: &[u8] = b"k";

/// A longer request is refused; the kernel's own limit for arguments and environment is 2 MiB.
pub(crate) const MAX_REQUEST: usize = 4 << 20;

/// The command to run, and the timeouts of its stop. Never shown: it holds resolved secrets.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct SpawnRequest {
    /// The program and its arguments.
    pub(crate) argv: Vec<String>,
    /// The whole environment of the server.
    pub(crate) env: Vec<(String, String)>,
    /// The working directory.
    pub(crate) cwd: Option<PathBuf>,
    /// The timeouts of the stop sequence.
    pub(crate) pace: StopTimeouts,
}

impl SpawnRequest {
    /// Makes the command, without its descriptors.
    pub(crate) fn command(&self) -> io::Result<Command> {
        let (program, args) = self.argv.split_first().ok_or_else(no_command)?;
        let mut command = Command::new(program);
        command.args(args).env_clear().envs(self.env.iter().map(|(key, value)| (key, value)));
        if let Some(cwd) = &self.cwd {
            command.current_dir(cwd);
        }
        Ok(command)
    }
}

/// Makes the error for an empty command.
pub(super) fn no_command() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "no command")
}

/// Timeouts of the stop sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StopTimeouts {
    /// Between the end of stdin and SIGTERM.
    pub(crate) before_term: Duration,
    /// Between SIGTERM and SIGKILL.
    pub(crate) before_kill: Duration,
    /// Between SIGTERM and SIGKILL for the processes that a server leaves behind when it exits by itself.
    pub(crate) leftovers: Duration,
}

impl Default for StopTimeouts {
    fn default() -> Self {
        Self {
            before_term: Duration::from_secs(2),
            before_kill: Duration::from_secs(3),
            leftovers: Duration::from_millis(500),
        }
    }
}

/// Reports of a guard to the host, one line each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GuardReport {
    /// The server runs under this pid.
    Started(i32),
    /// The server could not be started: the system's error number, if there is one, and its text.
    Failed(Option<i32>, String),
    /// The server's own process ended; descendants may still run.
    Exited(Exit),
    /// No descendant is left.
    AllExited,
    /// The stop path is not locked into memory, with the reason. Precedes all other reports.
    Unlocked(String),
}

impl fmt::Display for GuardReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started(pid) => write!(f, "started {pid}"),
            Self::Failed(errno, why) => write!(f, "failed {} {}", errno.unwrap_or(0), why.replace('\n', " ")),
            Self::Exited(Exit::Code(code)) => write!(f, "code {code}"),
            Self::Exited(Exit::Signal(signal)) => write!(f, "signal {signal}"),
            Self::Exited(Exit::Untold) => f.write_str("untold"),
            Self::AllExited => f.write_str("clear"),
            Self::Unlocked(why) => write!(f, "unlocked {}", why.replace('\n', " ")),
        }
    }
}

impl GuardReport {
    /// Parses a line; `None` if it is no report.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        Some(match word {
            "started" => Self::Started(rest.parse().ok()?),
            "failed" => {
                let (errno, why) = rest.split_once(' ')?;
                Self::Failed(errno.parse().ok().filter(|errno| *errno != 0), why.to_owned())
            }
            "code" => Self::Exited(Exit::Code(rest.parse().ok()?)),
            "signal" => Self::Exited(Exit::Signal(rest.parse().ok()?)),
            "untold" => Self::Exited(Exit::Untold),
            "clear" => Self::AllExited,
            "unlocked" => Self::Unlocked(rest.to_owned()),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_survive_the_way_to_the_host() {
        let reports = [
            GuardReport::Started(42),
            GuardReport::Failed(Some(2), "no such file".into()),
            GuardReport::Failed(None, "no order".into()),
            GuardReport::Exited(Exit::Code(-1)),
            GuardReport::Exited(Exit::Signal(9)),
            GuardReport::Exited(Exit::Untold),
            GuardReport::AllExited,
            GuardReport::Unlocked("Cannot allocate memory".into()),
        ];
        for report in reports {
            assert_eq!(GuardReport::parse(&report.to_string()), Some(report));
        }
        assert_eq!(GuardReport::parse("started x"), None);
        assert_eq!(GuardReport::parse("hello"), None);
    }

    #[test]
    fn a_failure_text_stays_on_its_line() {
        assert_eq!(GuardReport::Failed(None, "a\nb".into()).to_string(), "failed 0 a b");
    }
}

//! Failures of commands, and the table of exit codes. The hints and causes beside the first line are in `messages.rs`.

mod messages;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ostler_core::config::Problem;
use ostler_core::error::CallError;
use ostler_core::server_name::ServerName;

use crate::api::ErrorResponse;
use crate::client::{Deadline, RequestFailure};
use crate::config_file;
use crate::guard::BY_SIGNAL;
use crate::instance::DaemonRecord;
use crate::output::{self, Style};

pub(crate) use messages::list_hint;

/// Failure of a command. Every variant has one exit code and one stable name.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandFailure {
    /// A call, a list or a start brought no result.
    #[error("{0}")]
    Call(#[from] CallError),
    /// The time of `--timeout` ran out.
    #[error("{0}")]
    TimedOut(CallError),
    /// A server did not list its tools, so that no tool was called.
    #[error("{}", unlisted(.0))]
    ListFailed(CallError),
    /// A call was lost with the server that had it.
    #[error("{error}")]
    ServerLost {
        /// Error of the call, with its delivery.
        error: CallError,
        /// Last stderr output of the server, one line each.
        last_lines: Vec<String>,
    },
    /// A name that nothing known has.
    #[error("{error}")]
    UnknownName {
        /// Error with the name that was typed and the nearest one.
        error: CallError,
        /// Known names, or those that could not be listed.
        cause: String,
    },
    /// The tool answered that it failed; its answer has been printed.
    #[error("the tool `{0}` reported an error")]
    ToolError(String),
    /// The tool wants something that a command line can't give.
    #[error("{what} answered with `{kind}` and not with a result")]
    Unfinished {
        /// Tool, prompt or resource that answered.
        what: String,
        /// The `resultType` it answered with.
        kind: String,
    },
    /// The server asks a question first, and there is no person to answer it.
    #[error("{what} was not finished: its server asks {asked}")]
    InputRequired {
        /// Tool, prompt or resource.
        what: String,
        /// Questions of the server, escaped for a terminal.
        asked: String,
    },
    /// This many servers did not answer; each has been reported.
    #[error("{}", none_of(*.0))]
    NoneAnswered(usize),
    /// Some servers did not answer; each has been reported, and the answers of the others are printed.
    #[error("{failed} of {asked} servers could not be used")]
    Incomplete {
        /// Servers that did not answer.
        failed: usize,
        /// Servers that were asked.
        asked: usize,
    },
    /// The command line is invalid.
    #[error("{what}")]
    Usage {
        /// Description of the mistake.
        what: String,
        /// Correct command line.
        hint: Option<String>,
    },
    /// The config can't be used; its problems have been printed.
    #[error("{} can't be used: {counted}", .file.display())]
    Config {
        /// Main file of the config.
        file: PathBuf,
        /// Numbers of errors and warnings, as text.
        counted: String,
        /// First error, for clients, which don't show the printed problems.
        first: Option<Box<Problem>>,
    },
    /// The config is in order, and servers of it can't start on this machine; each problem has been printed.
    #[error("{} of {} can't start here: {}", .broken.len(), output::count(*.servers, "server"), .broken.join(", "))]
    CannotStart {
        /// Names of the servers that can't start.
        broken: Vec<String>,
        /// Number of all servers.
        servers: usize,
    },
    /// The config can't be read at all.
    #[error("{} can't be read", .file.display())]
    Unreadable {
        file: PathBuf,
        /// Cause of the failure.
        why: String,
        /// Next step for the user.
        hint: &'static str,
    },
    /// The lock file can't be used.
    #[error("{} can't be used", .file.display())]
    Lock {
        file: PathBuf,
        /// Cause of the failure.
        why: String,
        /// Next step for the user.
        hint: String,
    },
    /// The config was found in the working directory and needs consent; the commands it would run have been printed.
    #[error("{} {}", .file.display(), untrusted(*.is_edited))]
    Untrusted {
        file: PathBuf,
        /// It was trusted with other commands.
        is_edited: bool,
    },
    /// Tools differ from what was approved; their names have been printed.
    #[error("{what}")]
    Unapproved {
        /// Numbers of the differences, as text.
        what: String,
        /// Next step for the user.
        hint: String,
    },
    /// There is no config, and the command needs one.
    #[error("there is no config")]
    NoConfig {
        /// Paths that were tried.
        looked_for: String,
    },
    /// A daemon that was named, or has just been seen, does not answer.
    #[error("the daemon at {url} can't be reached")]
    Unreachable {
        /// Address of the daemon.
        url: String,
        /// Cause of the failure.
        why: String,
    },
    /// A daemon refuses a request, for a reason other than the error of a call.
    #[error("the daemon refused: {what}")]
    Refused {
        /// Message of the daemon.
        what: String,
        /// Next step for the user.
        hint: Option<String>,
    },
    /// The command needs a daemon.
    #[error("no daemon runs for this config")]
    NoDaemon {
        /// Reason why the command needs one.
        why: &'static str,
    },
    /// There is a daemon for this config.
    #[error("a daemon for this config is already running{}", at(.0))]
    AlreadyRunning(Option<DaemonRecord>),
    /// A process holds the config and has published no record.
    #[error("{} holds the lock of its config and has no record of where it is", daemon_of(.config.as_deref(), *.pid))]
    Unrecorded {
        /// Path of the config, where it is known.
        config: Option<PathBuf>,
        /// Process id, where the kernel tells.
        pid: Option<u32>,
    },
    /// A daemon was asked to end and is still there.
    #[error("the daemon at {url} has not ended")]
    StillRunning {
        /// Address of the daemon.
        url: String,
        /// Process id of the daemon.
        pid: u32,
    },
    /// A daemon was started and did not come up.
    #[error("the daemon did not start")]
    DaemonNotStarted {
        /// Cause of the failure.
        why: String,
        /// End of its log.
        last_lines: Vec<String>,
    },
    /// The client is a server of the daemon that it attaches to, through another one.
    #[error("this `ostler stdio` leads back to the daemon that started it")]
    Loop,
    /// The address can't be listened on.
    #[error("can't listen on {address}")]
    Listen {
        address: SocketAddr,
        /// Cause of the failure.
        why: String,
        /// Next step for the user.
        hint: String,
    },
    /// Other machines or users could reach the address, and no credential is required.
    #[error("{0} can be reached from other machines, and no credentials are set up")]
    NoCredentials(SocketAddr),
    /// Workers can't be served, or the login to the broker failed.
    #[error("{what}")]
    Relay {
        /// Part of the relay that does not work.
        what: String,
        /// Cause of the failure.
        why: String,
        /// Next step for the user.
        hint: &'static str,
    },
    /// The tokens of callers can't be read or changed.
    #[error("the tokens in {} can't be used", .file.display())]
    Tokens {
        /// File of the tokens.
        file: PathBuf,
        /// Cause of the failure.
        why: io::Error,
    },
    /// There is no token of that name.
    #[error("there is no token `{0}`")]
    UnknownToken(String),
    /// A requested output file can't be written.
    #[error("{} can't be written: {why}", .file.display())]
    Unwritable {
        file: PathBuf,
        /// Cause of the failure.
        why: io::Error,
    },
    /// A signal asked the program to end.
    #[error("interrupted")]
    Interrupted {
        /// Number of the signal.
        signal: i32,
        /// A call was in flight.
        may_have_run: bool,
    },
    /// The reader of stdout has closed it.
    #[error("the output was closed")]
    OutputClosed,
    /// Output could not be written.
    #[error("the output could not be written: {0}")]
    Output(io::Error),
    /// A folder for secrets that other users own or can write to.
    #[error("the directory {} can't be trusted", folder.display())]
    UnsafeFolder {
        folder: PathBuf,
        /// Cause of the failure.
        why: String,
    },
    /// No folder lets a daemon lock its files.
    #[error("a daemon can't lock its files in {}", folder.display())]
    CannotLock {
        folder: PathBuf,
        /// Cause of the failure.
        why: String,
    },
    /// The machine refused a resource that every program needs.
    #[error("ostler could not start: {0}")]
    Machine(io::Error),
}

impl From<ostler_host::RandomSourceError> for CommandFailure {
    fn from(error: ostler_host::RandomSourceError) -> Self {
        Self::Machine(io::Error::other(error))
    }
}

impl CommandFailure {
    /// Returns the failure of a call without a result. The advice depends on which timeout expired, and the duration
    /// shown is the one that was typed.
    pub(crate) fn from_call(trouble: RequestFailure, deadline: Option<Deadline>) -> Self {
        let error = match trouble {
            RequestFailure::Call(error) => error,
            RequestFailure::Daemon(failure) => return failure,
        };
        match (error, deadline.filter(|deadline| deadline.has_passed())) {
            (CallError::TimedOut { server, delivery, .. }, Some(deadline)) => {
                Self::TimedOut(CallError::TimedOut { server, delivery, after: deadline.timeout() })
            }
            (other, _) => Self::Call(other),
        }
    }

    /// Fails if servers of a command did not answer; each of them has been reported.
    pub(crate) fn require_all(failed: usize, asked: usize) -> Result<(), Self> {
        match failed {
            0 => Ok(()),
            all if all == asked => Err(Self::NoneAnswered(all)),
            failed => Err(Self::Incomplete { failed, asked }),
        }
    }

    /// Returns the failure of a config whose problems have been printed.
    pub(crate) fn invalid_config(file: &Path, problems: &[Problem]) -> Self {
        let first = problems.iter().find(|problem| problem.is_error()).cloned().map(|mut problem| {
            problem.file = config_file::relative_to_cwd(&problem.file).to_owned();
            // A client hands errors to its model, and the line may hold a secret.
            problem.excerpt = None;
            Box::new(problem)
        });
        Self::Config {
            file: config_file::relative_to_cwd(file).to_owned(),
            counted: config_file::count_problems(problems),
            first,
        }
    }

    /// Returns the failure of a name that no server has.
    pub(crate) fn unknown_server(name: &str, known: &[ServerName]) -> Self {
        let error = CallError::unknown_server(name, known.iter().map(ServerName::as_str));
        let cause = match known {
            [] => "the config has no servers".to_owned(),
            [only] => format!("the only server is `{only}`"),
            known => format!("the servers are {}", output::quote_names(known.iter().map(ServerName::as_str))),
        };
        Self::UnknownName { error, cause }
    }

    /// Returns the failure of the tool list that precedes a call.
    pub(crate) fn from_list(trouble: RequestFailure, deadline: Option<Deadline>) -> Self {
        match Self::from_call(trouble, deadline) {
            Self::Call(error) => Self::ListFailed(error),
            late => late,
        }
    }

    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::OutputClosed => 0,
            Self::Output(_)
            | Self::Machine(_)
            | Self::UnsafeFolder { .. }
            | Self::CannotLock { .. }
            | Self::Unwritable { .. }
            | Self::Tokens { .. }
            | Self::AlreadyRunning(_)
            | Self::StillRunning { .. }
            | Self::Listen { .. } => 1,
            Self::Usage { .. } => 2,
            Self::Config { .. }
            | Self::CannotStart { .. }
            | Self::Unreadable { .. }
            | Self::Lock { .. }
            | Self::NoConfig { .. }
            | Self::Loop
            | Self::Relay { .. }
            | Self::NoCredentials(_) => 3,
            Self::Unreachable { .. }
            | Self::Unrecorded { .. }
            | Self::NoDaemon { .. }
            | Self::DaemonNotStarted { .. } => 4,
            Self::Refused { .. }
            | Self::Unapproved { .. }
            | Self::Untrusted { .. }
            | Self::UnknownToken(_) => 5,
            Self::Call(error)
            | Self::TimedOut(error)
            | Self::ServerLost { error, .. }
            | Self::UnknownName { error, .. } => error.exit_code(),
            Self::ListFailed(error) if may_have_run(error) => 6,
            Self::ListFailed(error) => error.exit_code(),
            Self::NoneAnswered(_) | Self::Incomplete { .. } => 6,
            Self::ToolError(_) | Self::Unfinished { .. } | Self::InputRequired { .. } => 7,
            Self::Interrupted { signal, .. } => u8::try_from(BY_SIGNAL + signal).unwrap_or(1),
        }
    }

    /// Returns the stable name of the failure.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Call(error)
            | Self::TimedOut(error)
            | Self::ListFailed(error)
            | Self::ServerLost { error, .. } => error.code(),
            Self::UnknownName { error, .. } => error.code(),
            Self::ToolError(_) => "tool-error",
            Self::Unfinished { .. } => "unfinished",
            Self::InputRequired { .. } => "input-required",
            Self::NoneAnswered(_) | Self::Incomplete { .. } => "server-unavailable",
            Self::Usage { .. } => "usage",
            Self::Config { .. } => "config-invalid",
            Self::CannotStart { .. } => "server-cannot-start",
            Self::Unreadable { .. } => "config-unreadable",
            Self::Lock { .. } => "lock-file-invalid",
            Self::Untrusted { .. } => "config-untrusted",
            Self::Unapproved { .. } => "not-approved",
            Self::NoConfig { .. } => "no-config",
            Self::Loop => "loop",
            Self::Unreachable { .. } | Self::Unrecorded { .. } => "daemon-unreachable",
            Self::Refused { .. } => "daemon-refused",
            Self::NoDaemon { .. } => "no-daemon",
            Self::AlreadyRunning(_) => "already-running",
            Self::StillRunning { .. } => "still-running",
            Self::DaemonNotStarted { .. } => "daemon-not-started",
            Self::Listen { .. } => "cannot-listen",
            Self::NoCredentials(_) => "no-credentials",
            Self::Relay { .. } => "relay-unusable",
            Self::Tokens { .. } => "tokens-unusable",
            Self::UnknownToken(_) => "unknown-token",
            Self::Unwritable { .. } => "file-unwritable",
            Self::Interrupted { .. } => "interrupted",
            Self::OutputClosed | Self::Output(_) => "output-failed",
            Self::UnsafeFolder { .. } => "unsafe-folder",
            Self::CannotLock { .. } => "cannot-lock",
            Self::Machine(_) => "machine-refused",
        }
    }

    /// Prints the message, unless the reader is gone, and returns the exit code. With `--json` also prints a document
    /// on stdout, unless there is one already.
    pub(crate) fn report(&self) -> ExitCode {
        if !matches!(self, Self::OutputClosed) {
            self.print();
        }
        ExitCode::from(self.exit_code())
    }

    fn print(&self) {
        let is_document = output::is_json_wanted() && !output::has_printed();
        // A person who reads the document on a terminal needs no second message.
        let is_read = is_document && output::print_json(&ErrorResponse { error: self.into() }).is_ok();
        if !(is_read && output::is_terminal()) {
            output::print_stderr(&self.render(Style::stderr()));
        }
    }
}

/// Returns whether the request of an error may have run. A list changes nothing.
fn may_have_run(error: &CallError) -> bool {
    error.exit_code() == 8
}

fn unlisted(error: &CallError) -> String {
    match error {
        CallError::OutcomeUnknown { server, .. } => format!("server `{server}` did not list its tools"),
        other => other.to_string(),
    }
}

fn untrusted(is_edited: bool) -> &'static str {
    match is_edited {
        true => "is not trusted: it has changed since it was trusted",
        false => "is not trusted: it was found in the working directory",
    }
}

fn at(note: &Option<DaemonRecord>) -> String {
    note.as_ref().map(|note| format!(" at {}", note.url)).unwrap_or_default()
}

/// Returns `the daemon of ~/ostler.toml (pid 4711)`.
fn daemon_of(config: Option<&Path>, pid: Option<u32>) -> String {
    let config = config.map_or("a daemon".into(), |file| {
        format!("the daemon of {}", output::escape_line(&crate::xdg::abbreviate_home(file)))
    });
    pid.map_or(config.clone(), |pid| format!("{config} (pid {pid})"))
}

fn none_of(servers: usize) -> String {
    match servers {
        1 => "the server could not be used".into(),
        several => format!("{several} servers could not be used"),
    }
}

#[cfg(test)]
mod tests;

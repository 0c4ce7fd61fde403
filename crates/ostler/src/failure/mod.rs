//! Why a command failed, and the table of exit codes. The words beside the
//! first line are in `words.rs`.

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

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandFailure {
    /// A call, a list or a start brought no result.
    #[error("{0}")]
    Call(#[from] CallError),
    /// The time of `--timeout` ran out.
    #[error("{0}")]
    TimedOut(CallError),
    /// A server did not tell its tools, so that no tool was called.
    #[error("{}", unlisted(.0))]
    ListFailed(CallError),
    /// A call was lost with the server that had it.
    #[error("{error}")]
    ServerLost {
        /// What became of the call.
        error: CallError,
        /// What the server said at its end, one line each.
        last_lines: Vec<String>,
    },
    /// A name that nothing known has.
    #[error("{error}")]
    UnknownName {
        /// What was asked for, and what was probably meant.
        error: CallError,
        /// What there is instead, or could not be asked.
        cause: String,
    },
    /// The tool answered that it failed; its answer has been printed.
    #[error("the tool `{0}` reported an error")]
    ToolError(String),
    /// The tool wants something that a command line can't give.
    #[error("{what} answered with `{kind}` and not with a result")]
    Unfinished {
        /// The tool, prompt or resource that answered.
        what: String,
        /// The `resultType` it answered with.
        kind: String,
    },
    /// The server asks something first, and nobody could answer.
    #[error("{what} was not finished: its server asks {asked}")]
    InputRequired {
        /// The tool, prompt or resource.
        what: String,
        /// What is asked, made fit for a terminal.
        asked: String,
    },
    /// So many servers did not answer; each has been reported.
    #[error("{}", none_of(*.0))]
    NoneAnswered(usize),
    /// Some servers did not answer; each has been reported, and what the others said is printed.
    #[error("{failed} of {asked} servers could not be used")]
    Incomplete {
        /// How many did not.
        failed: usize,
        /// How many were asked.
        asked: usize,
    },
    /// What was typed makes no sense.
    #[error("{what}")]
    Usage {
        /// What is wrong.
        what: String,
        /// What to type instead.
        hint: Option<String>,
    },
    /// The config can't be used; its problems have been printed.
    #[error("{} can't be used: {counted}", .file.display())]
    Config {
        /// The main file.
        file: PathBuf,
        /// How many errors and warnings.
        counted: String,
        /// The first error, for those who don't see what has been printed.
        first: Option<Box<Problem>>,
    },
    /// The config is in order, and servers of it can't start on this machine; each problem has been printed.
    #[error("{} of {} can't start here: {}", .broken.len(), output::count(*.servers, "server"), .broken.join(", "))]
    CannotStart {
        /// Their names.
        broken: Vec<String>,
        /// How many servers there are.
        servers: usize,
    },
    /// The config can't be read at all.
    #[error("{} can't be read", .file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why not.
        why: String,
        /// What to do about it.
        hint: &'static str,
    },
    /// The lock file can't be used.
    #[error("{} can't be used", .file.display())]
    Lock {
        /// The file.
        file: PathBuf,
        /// Why not.
        why: String,
        /// What to do about it.
        hint: String,
    },
    /// The config was found in the working directory and needs consent; what it would run has been printed.
    #[error("{} {}", .file.display(), untrusted(*.is_edited))]
    Untrusted {
        /// The file.
        file: PathBuf,
        /// It was trusted with other commands.
        is_edited: bool,
    },
    /// Tools are not as they were approved; which ones has been printed.
    #[error("{what}")]
    Unapproved {
        /// How many of what.
        what: String,
        /// What to do about it.
        hint: String,
    },
    /// There is no config, and the command is of no use without one.
    #[error("there is no config")]
    NoConfig {
        /// Where one was looked for.
        looked_for: String,
    },
    /// A daemon that was named, or has just been seen, does not answer.
    #[error("the daemon at {url} can't be reached")]
    Unreachable {
        /// Where it should be.
        url: String,
        /// What happened.
        why: String,
    },
    /// A daemon refuses what it is asked, for a reason that is no call's.
    #[error("the daemon refused: {what}")]
    Refused {
        /// What it said.
        what: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// The command is of no use without a daemon.
    #[error("no daemon runs for this config")]
    NoDaemon {
        /// What the command would do with one.
        why: &'static str,
    },
    /// There is a daemon for this config.
    #[error("a daemon for this config is already running{}", at(.0))]
    AlreadyRunning(Option<DaemonRecord>),
    /// A process holds the config and has not said where it is.
    #[error("{} holds the lock of its config and has no record of where it is", daemon_of(.config.as_deref(), *.pid))]
    Unrecorded {
        /// Its config, where it is known.
        config: Option<PathBuf>,
        /// Its process, where the kernel tells.
        pid: Option<u32>,
    },
    /// A daemon was asked to end and is still there.
    #[error("the daemon at {url} has not ended")]
    StillRunning {
        /// Where it is.
        url: String,
        /// Its process.
        pid: u32,
    },
    /// A daemon was started and did not come up.
    #[error("the daemon did not start")]
    DaemonNotStarted {
        /// What happened.
        why: String,
        /// The end of its log.
        last_lines: Vec<String>,
    },
    /// The client is a server of the daemon that it attaches to, through another one.
    #[error("this `ostler stdio` leads back to the daemon that started it")]
    Loop,
    /// The address can't be listened on.
    #[error("can't listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        why: String,
        /// What to do about it.
        hint: String,
    },
    /// Others than this machine's users could reach the address, and nothing asks who they are.
    #[error("{0} can be reached from other machines, and no credentials are set up")]
    NoCredentials(SocketAddr),
    /// Workers can't be served, or no broker logged in to.
    #[error("{what}")]
    Relay {
        /// What does not work.
        what: String,
        /// Why not.
        why: String,
        /// What to do about it.
        hint: &'static str,
    },
    /// The tokens of callers can't be read or changed.
    #[error("the tokens in {} can't be used", .file.display())]
    Tokens {
        /// Where they are.
        file: PathBuf,
        /// Why not.
        why: io::Error,
    },
    /// There is no token of that name.
    #[error("there is no token `{0}`")]
    UnknownToken(String),
    /// A file that was asked for can't be written.
    #[error("{} can't be written: {why}", .file.display())]
    Unwritable {
        /// The file.
        file: PathBuf,
        /// Why not.
        why: io::Error,
    },
    /// A signal asked the program to end.
    #[error("interrupted")]
    Interrupted {
        /// Which one.
        signal: i32,
        /// A call was on its way.
        may_have_run: bool,
    },
    /// Whoever reads our output has had enough.
    #[error("the output was closed")]
    OutputClosed,
    /// Output could not be written.
    #[error("the output could not be written: {0}")]
    Output(io::Error),
    /// A folder for secrets that other users have made or can write to.
    #[error("the directory {} can't be trusted", folder.display())]
    UnsafeFolder {
        /// The folder.
        folder: PathBuf,
        /// Why not.
        why: String,
    },
    /// No folder lets a daemon lock its files.
    #[error("a daemon can't lock its files in {}", folder.display())]
    CannotLock {
        /// The folder.
        folder: PathBuf,
        /// Why not.
        why: String,
    },
    /// The machine refused something that every program needs.
    #[error("ostler could not start: {0}")]
    Machine(io::Error),
}

impl From<ostler_host::RandomSourceError> for CommandFailure {
    fn from(error: ostler_host::RandomSourceError) -> Self {
        Self::Machine(io::Error::other(error))
    }
}

impl CommandFailure {
    /// A call that brought no result; whose limit it was makes a difference to
    /// the advice, and the time is the one that was typed.
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

    /// Judges a command that asked servers, each of which was reported if it failed.
    pub(crate) fn require_all(failed: usize, asked: usize) -> Result<(), Self> {
        match failed {
            0 => Ok(()),
            all if all == asked => Err(Self::NoneAnswered(all)),
            failed => Err(Self::Incomplete { failed, asked }),
        }
    }

    /// The failure of a config whose problems have been printed.
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

    /// The failure of a name that no server has.
    pub(crate) fn unknown_server(name: &str, known: &[ServerName]) -> Self {
        let error = CallError::unknown_server(name, known.iter().map(ServerName::as_str));
        let cause = match known {
            [] => "the config has no servers".to_owned(),
            [only] => format!("the only server is `{only}`"),
            known => format!("the servers are {}", output::quote_names(known.iter().map(ServerName::as_str))),
        };
        Self::UnknownName { error, cause }
    }

    /// The same for the list of tools that comes before a call.
    pub(crate) fn from_list(trouble: RequestFailure, deadline: Option<Deadline>) -> Self {
        match Self::from_call(trouble, deadline) {
            Self::Call(error) => Self::ListFailed(error),
            late => late,
        }
    }

    /// The exit code.
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

    /// The stable name of the failure.
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

    /// Says what happened, unless there is nobody to tell, and gives the exit code. With `--json` it is also a
    /// document on stdout, unless there is one already.
    pub(crate) fn report(&self) -> ExitCode {
        if !matches!(self, Self::OutputClosed) {
            self.print();
        }
        ExitCode::from(self.exit_code())
    }

    fn print(&self) {
        let is_document = output::is_json_wanted() && !output::has_printed();
        // A person who reads the document on a terminal needs no second telling.
        let is_read = is_document && output::print_json(&ErrorResponse { error: self.into() }).is_ok();
        if !(is_read && output::is_terminal()) {
            output::print_stderr(&self.render(Style::stderr()));
        }
    }
}

/// Whether an error says so of a request. A list changes nothing.
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

/// `the daemon of ~/ostler.toml (pid 4711)`
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

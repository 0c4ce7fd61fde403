//! Why a command failed: one table to words, one to exit codes.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use ostler_core::error::{CallError, UnavailableState};

use crate::guard::BY_SIGNAL;
use crate::output::{self, Style, Tint, clean};
use crate::reach::{Deadline, Trouble};
use crate::spot::Note;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// A call, a list or a start brought no result.
    #[error("{0}")]
    Call(#[from] CallError),
    /// The time of `--timeout` ran out.
    #[error("{0}")]
    Late(CallError),
    /// A server did not tell its tools, so that no tool was called.
    #[error("{}", unlisted(.0))]
    Unlisted(CallError),
    /// A call was lost with the server that had it.
    #[error("{error}")]
    Lost {
        /// What became of the call.
        error: CallError,
        /// What the server said at its end, one line each.
        last_words: Vec<String>,
    },
    /// The tool answered that it failed; its answer has been printed.
    #[error("the tool `{0}` reported an error")]
    ToolError(String),
    /// The tool wants something that a command line can't give.
    #[error("the tool `{tool}` answered with `{kind}` and not with a result")]
    Unfinished {
        /// The tool that answered.
        tool: String,
        /// The `resultType` it answered with.
        kind: String,
    },
    /// None of several servers answered; each has been reported.
    #[error("{}", none_of(*.0))]
    NoneAnswered(usize),
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
    AlreadyRunning(Option<Note>),
    /// A daemon was started and did not come up.
    #[error("the daemon did not start")]
    Stillborn {
        /// What happened.
        why: String,
        /// The end of its log.
        last_words: Vec<String>,
    },
    /// The daemon went away under a client that was attached.
    #[error("the connection to the daemon was lost")]
    Detached {
        /// Where it was.
        url: String,
    },
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
    Exposed(SocketAddr),
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
    /// The machine refused something that every program needs.
    #[error("ostler could not start: {0}")]
    Machine(io::Error),
}

impl Failure {
    /// A call that brought no result; whose limit it was makes a difference to
    /// the advice, and the time is the one that was typed.
    pub(crate) fn of_call(trouble: Trouble, deadline: Option<Deadline>) -> Self {
        let error = match trouble {
            Trouble::Call(error) => error,
            Trouble::Daemon(failure) => return failure,
        };
        match (error, deadline.filter(|deadline| deadline.is_over())) {
            (CallError::TimedOut { server, delivery, .. }, Some(deadline)) => {
                Self::Late(CallError::TimedOut { server, delivery, after: deadline.patience() })
            }
            (other, _) => Self::Call(other),
        }
    }

    /// The same for the list of tools that comes before a call.
    pub(crate) fn of_list(trouble: Trouble, deadline: Option<Deadline>) -> Self {
        match Self::of_call(trouble, deadline) {
            Self::Call(error) => Self::Unlisted(error),
            late => late,
        }
    }

    /// The exit code.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::OutputClosed => 0,
            Self::Output(_)
            | Self::Machine(_)
            | Self::Unwritable { .. }
            | Self::AlreadyRunning(_)
            | Self::Listen { .. } => 1,
            Self::Usage { .. } => 2,
            Self::Config { .. } | Self::Unreadable { .. } | Self::NoConfig { .. } | Self::Exposed(_) => 3,
            Self::Unreachable { .. } | Self::NoDaemon { .. } | Self::Stillborn { .. } => 4,
            Self::Refused { .. } => 5,
            Self::Call(error) | Self::Late(error) | Self::Lost { error, .. } => error.exit_code(),
            Self::Unlisted(error) if may_have_run(error) => 6,
            Self::Unlisted(error) => error.exit_code(),
            Self::NoneAnswered(_) | Self::Detached { .. } => 6,
            Self::ToolError(_) | Self::Unfinished { .. } => 7,
            Self::Interrupted { signal, .. } => u8::try_from(BY_SIGNAL + signal).unwrap_or(1),
        }
    }

    /// Says what happened, unless there is nobody to tell, and gives the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        if !matches!(self, Self::OutputClosed) {
            output::tell(&self.render(Style::stderr()));
        }
        ExitCode::from(self.exit_code())
    }

    /// What happened, why, and what to do next, one line each, and what the server said.
    pub(crate) fn render(&self, style: Style) -> String {
        let mut text = format!("{} {self}", style.paint(Tint::Bad, "error:"));
        for (label, line) in [("cause:", self.cause()), ("hint:", self.hint())] {
            if let Some(line) = line {
                text.push_str(&format!("\n  {} {line}", style.paint(Tint::Label, label)));
            }
        }
        let (label, last_words): (_, &[String]) = match self {
            Self::Lost { last_words, .. } => ("stderr:", last_words),
            Self::Stillborn { last_words, .. } => ("log:", last_words),
            _ => ("", &[]),
        };
        for line in last_words {
            text.push_str(&format!("\n  {} {}", style.paint(Tint::Faint, label), clean(line)));
        }
        text
    }

    fn cause(&self) -> Option<String> {
        match self {
            Self::Unlisted(CallError::TimedOut { .. }) => Some("it was asked for its tools".into()),
            Self::Call(error) | Self::Late(error) | Self::Unlisted(error) | Self::Lost { error, .. } => {
                error.cause()
            }
            Self::Unreadable { why, .. } => Some(why.clone()),
            Self::NoConfig { looked_for } => Some(format!("looked for {looked_for}")),
            Self::Unreachable { why, .. } | Self::Stillborn { why, .. } | Self::Listen { why, .. } => {
                Some(clean(why))
            }
            Self::NoDaemon { why } => Some((*why).into()),
            Self::Detached { url } => Some(format!("the daemon at {url} has ended or was restarted")),
            Self::Interrupted { may_have_run: true, .. } => {
                Some("the call was on its way and may have been executed".into())
            }
            _ => None,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Call(error) | Self::Lost { error, .. } => hint_of(error),
            Self::Unlisted(error) => hint_of_list(error),
            Self::Late(error) if error.exit_code() == 8 => {
                Some("check whether it took effect before trying again with a longer --timeout".into())
            }
            Self::Late(_) => Some("try again with a longer --timeout".into()),
            Self::Usage { hint, .. } => hint.clone(),
            Self::Unreadable { hint, .. } => Some((*hint).into()),
            Self::Unfinished { .. } => Some("`--raw` prints what it answered".into()),
            Self::Listen { hint, .. } => Some(hint.clone()),
            Self::Refused { hint, .. } => hint.clone(),
            Self::Exposed(_) => {
                Some("listen on 127.0.0.1, and put a tunnel or an authenticating proxy in front".into())
            }
            Self::Unreachable { .. } => {
                Some("see whether it runs; without --daemon, Ostler finds it or does without".into())
            }
            Self::NoDaemon { .. } => Some("`ostler serve` starts one".into()),
            Self::AlreadyRunning(note) => Some(match note {
                Some(note) => {
                    format!("`ostler status` shows its servers; `kill {}` ends it in order", note.pid)
                }
                None => "wait until it has come up or ended".into(),
            }),
            Self::Stillborn { .. } => Some("`ostler serve` starts it in sight".into()),
            Self::Detached { .. } => {
                Some("start the client again; it starts a daemon if there is none".into())
            }
            Self::NoConfig { .. } => Some("write an ostler.toml, or name a file with --config".into()),
            _ => None,
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

fn at(note: &Option<Note>) -> String {
    note.as_ref().map(|note| format!(" at {}", note.url)).unwrap_or_default()
}

fn none_of(servers: usize) -> String {
    match servers {
        1 => "the server could not be used".into(),
        several => format!("none of the {several} servers could be used"),
    }
}

/// What to do next, in words of the command line.
pub(crate) fn hint_of(error: &CallError) -> Option<String> {
    match error {
        CallError::Unavailable(it) => match it.state {
            UnavailableState::StartFailed => {
                Some(format!("fix the cause; `ostler status {} --probe` shows all that it says", it.server))
            }
            UnavailableState::Ejected => {
                let server = &it.server;
                Some(format!(
                    "fix the cause, which `ostler status {server} --probe` shows; a daemon then needs \
                     `ostler reload {server}`"
                ))
            }
            UnavailableState::Stopped => Some(format!("run `ostler start {}`", it.server)),
            _ => error.hint(),
        },
        other => other.hint(),
    }
}

/// The same for the list of a server's tools, which can be asked for again.
pub(crate) fn hint_of_list(error: &CallError) -> Option<String> {
    match error {
        CallError::UpstreamProtocol { .. } => Some("the fault is the server's; no tool was called".into()),
        CallError::TimedOut { server, .. } => {
            Some(format!("no tool was called; try again, or raise `call_timeout` of `{server}`"))
        }
        error if may_have_run(error) => Some("no tool was called; try again".into()),
        other => hint_of(other),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn malformed() -> CallError {
        let server = ostler_core::name::ServerName::new("x").unwrap();
        CallError::UpstreamProtocol { server, detail: "rubbish".into() }
    }

    #[test]
    fn a_list_that_fails_does_not_make_people_look_for_effects() {
        assert_eq!(
            Failure::Unlisted(malformed()).render(Style::plain()),
            "error: server `x` answered outside the protocol\n  cause: rubbish\n  \
             hint: the fault is the server's; no tool was called"
        );
    }

    #[test]
    fn every_failure_has_its_row_in_the_table_of_exit_codes() {
        let usage = Failure::Usage { what: "x".into(), hint: None };
        let unreadable = Failure::Unreadable { file: "f".into(), why: "w".into(), hint: "h" };
        let table = [
            (Failure::OutputClosed, 0),
            (Failure::Output(io::Error::other("full")), 1),
            (Failure::Machine(io::Error::other("none")), 1),
            (usage, 2),
            (Failure::Config { file: "f".into(), counted: "1 error".into() }, 3),
            (unreadable, 3),
            (Failure::NoConfig { looked_for: "x".into() }, 3),
            (Failure::Exposed("0.0.0.0:1".parse().unwrap()), 3),
            (Failure::AlreadyRunning(None), 1),
            (Failure::Unreachable { url: "u".into(), why: "w".into() }, 4),
            (Failure::NoDaemon { why: "w" }, 4),
            (Failure::Stillborn { why: "w".into(), last_words: Vec::new() }, 4),
            (Failure::Refused { what: "w".into(), hint: None }, 5),
            (Failure::Detached { url: "u".into() }, 6),
            (CallError::unknown_tool("x", std::iter::empty()).into(), 5),
            (Failure::Unlisted(CallError::unknown_tool("x", std::iter::empty())), 5),
            (Failure::Unlisted(malformed()), 6),
            (Failure::Call(malformed()), 8),
            (Failure::Lost { error: malformed(), last_words: Vec::new() }, 8),
            (Failure::NoneAnswered(2), 6),
            (Failure::ToolError("t".into()), 7),
            (Failure::Unfinished { tool: "t".into(), kind: "task".into() }, 7),
            (CallError::OverBudget { reset_after: Some(Duration::from_secs(60)) }.into(), 9),
            (Failure::Interrupted { signal: 2, may_have_run: false }, 130),
            (Failure::Interrupted { signal: 15, may_have_run: true }, 143),
        ];
        for (failure, code) in table {
            assert_eq!(failure.exit_code(), code, "{failure}");
        }
    }

    #[test]
    fn over_budget_says_when_the_next_call_fits() {
        let failure = Failure::from(CallError::OverBudget { reset_after: Some(Duration::from_secs(60)) });
        assert_eq!(
            failure.render(Style::plain()),
            "error: the call budget is used up\n  hint: the next call fits in 1m"
        );
    }
}

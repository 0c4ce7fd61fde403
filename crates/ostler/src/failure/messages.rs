//! Messages of a failure: the cause, the hint, and the last output of others.

use std::io;
use std::path::Path;

use ostler_core::catalog::exposed_name;
use ostler_core::config::Problem;
use ostler_core::error::{CallError, Unavailable, UnavailableState};
use ostler_core::shell::quote;

use super::{CommandFailure, may_have_run};
use crate::api::ErrorBody;
use crate::elicitation;
use crate::invocation::command;
use crate::output::{Style, Tint, escape_line, split_stream_label};
use crate::xdg;

impl From<&CommandFailure> for ErrorBody {
    fn from(failure: &CommandFailure) -> Self {
        let mut told = match failure {
            CommandFailure::Call(error)
            | CommandFailure::TimedOut(error)
            | CommandFailure::ListFailed(error)
            | CommandFailure::ServerLost { error, .. }
            | CommandFailure::UnknownName { error, .. } => Self::from(error),
            _ => Self::default(),
        };
        (told.code, told.message) = (failure.code().to_owned(), failure.to_string());
        told.cause = match failure {
            CommandFailure::Config { first: Some(problem), .. } => {
                Some(Problem { hint: None, ..(**problem).clone() }.to_string())
            }
            other => other.cause(),
        };
        told.hint = match failure {
            CommandFailure::Config { first, .. } => {
                let remedy = first.as_ref().and_then(|problem| problem.hint.as_ref());
                let remedy = remedy.map(|remedy| format!("{remedy}; ")).unwrap_or_default();
                Some(format!("{remedy}{} lists the problems", command("check --json")))
            }
            other => other.hint(),
        };
        told.exit = Some(failure.exit_code());
        told
    }
}

impl CommandFailure {
    /// Returns the whole message: what happened, why, and what to do next, one line each, and what the server said.
    pub(crate) fn render(&self, style: Style) -> String {
        let mut text = format!("{} {self}", style.paint(Tint::Error, "error:"));
        for (label, line) in [("cause:", self.cause()), ("hint:", self.hint())] {
            if let Some(line) = line {
                text.push_str(&format!("\n  {} {line}", style.paint(Tint::Label, label)));
            }
        }
        let (label, last_words): (_, &[String]) = match self {
            Self::ServerLost { last_lines: last_words, .. } => ("stderr:", last_words),
            Self::DaemonNotStarted { last_lines: last_words, .. } => ("log:", last_words),
            _ => ("", &[]),
        };
        for line in last_words {
            let (label, line) =
                if label == "stderr:" { split_stream_label(line) } else { (label, line.as_str()) };
            text.push_str(&format!("\n  {} {}", style.paint(Tint::Faint, label), escape_line(line)));
        }
        text
    }

    fn cause(&self) -> Option<String> {
        match self {
            Self::ListFailed(CallError::TimedOut { .. }) => Some("it was asked for its tools".into()),
            Self::Call(error)
            | Self::TimedOut(error)
            | Self::ListFailed(error)
            | Self::ServerLost { error, .. } => error.cause(),
            Self::Unreadable { why, .. } | Self::Lock { why, .. } | Self::Relay { why, .. } => {
                Some(escape_line(why))
            }
            Self::NoConfig { looked_for } => Some(format!("looked for {looked_for}")),
            Self::Unreachable { why, .. } | Self::DaemonNotStarted { why, .. } | Self::Listen { why, .. } => {
                Some(escape_line(why))
            }
            Self::UnsafeFolder { why, .. } | Self::CannotLock { why, .. } => Some(why.clone()),
            Self::UnknownName { cause, .. } => Some(cause.clone()),
            Self::Tokens { why, .. } => Some(why.to_string()),
            Self::NoDaemon { why } => Some((*why).into()),
            Self::Loop => Some("two configs have each other's Ostler among their servers".into()),
            Self::Interrupted { may_have_run: true, .. } => {
                Some("the call was on its way and may have been executed".into())
            }
            _ => None,
        }
    }

    pub(super) fn hint(&self) -> Option<String> {
        match self {
            Self::Call(error) | Self::ServerLost { error, .. } | Self::UnknownName { error, .. } => call_hint(error),
            Self::ListFailed(error) => list_hint(error),
            Self::TimedOut(error) if error.exit_code() == 8 => {
                Some("check whether it took effect before trying again with a longer --timeout".into())
            }
            // A longer timeout does not help a start that has a remedy.
            Self::TimedOut(error @ CallError::Unavailable(Unavailable { remedy: Some(_), .. })) => error.hint(),
            Self::TimedOut(_) => Some("try again with a longer --timeout".into()),
            Self::Usage { hint, .. } => hint.clone(),
            Self::Unreadable { hint, .. } | Self::Relay { hint, .. } => Some((*hint).into()),
            Self::Lock { hint, .. } | Self::Unapproved { hint, .. } => Some(escape_line(hint)),
            Self::Untrusted { file, .. } => {
                let file = quote(&file.display().to_string());
                Some(format!(
                    "read it; then consent with `ostler trust`, or name it with `--config {file}`"
                ))
            }
            Self::Unfinished { .. } => Some("`--json` prints what it answered".into()),
            Self::InputRequired { .. } => Some(
                "run it in a terminal, where questions can be answered; or give it as an argument, if the tool takes it"
                    .into(),
            ),
            Self::Listen { hint, .. } => Some(hint.clone()),
            Self::Refused { hint, .. } => hint.clone(),
            Self::NoCredentials(_) => Some(format!(
                "make a token with {}, or set up [auth.jwt]; and name the host that clients use under \
                 gateway.allowed_hosts",
                command("token create --name NAME --role ROLE")
            )),
            Self::Tokens { why, .. } if why.kind() == io::ErrorKind::InvalidData => {
                let create = command("token create");
                Some(format!("mend the file, or move it away and make new tokens with {create}"))
            }
            Self::Tokens { file, why } if is_disk_full(why) => Some(full_disk_hint(file.parent())),
            Self::Machine(why) if is_disk_full(why) => Some(full_disk_hint(xdg::state_dir().as_deref())),
            Self::Tokens { .. } => {
                Some("the tokens are as they were; see that you may read and write the file, then try again".into())
            }
            Self::UnknownToken(_) => Some(format!("{} shows those that there are", command("token list"))),
            Self::Unreachable { .. } => {
                Some("see whether it runs; without --daemon, Ostler finds it or does without".into())
            }
            Self::Loop => Some("take `ostler stdio` out of one of the two".into()),
            Self::NoDaemon { .. } => Some(format!(
                "{} starts one; without it, {} starts a server for a moment and shows what it says",
                command("serve"),
                command("status NAME --probe")
            )),
            Self::AlreadyRunning(note) => Some(match note {
                Some(note) => {
                    format!(
                        "{} shows its servers; {} ends it (pid {})",
                        command("status"),
                        command("down"),
                        note.pid
                    )
                }
                None => "wait until it has come up or ended".into(),
            }),
            Self::Unrecorded { pid, .. } => Some(match pid {
                Some(pid) => format!(
                    "a daemon that works writes its record again within a second; `kill {pid}` ends one that does not, and its \
                     servers with it"
                ),
                None => "a daemon that works writes its record again within a second; end one that does not".into(),
            }),
            Self::StillRunning { pid, .. } => {
                Some(format!("`kill -9 {pid}` ends it at once; its servers end with it"))
            }
            Self::DaemonNotStarted { .. } => Some(format!(
                "{} finds mistakes in the config; {} starts the daemon in sight",
                command("check"),
                command("serve")
            )),
            Self::UnsafeFolder { .. } => Some(
                "make it yours alone (`chown`, `chmod 700`), or name another with XDG_STATE_HOME or HOME".into(),
            ),
            Self::CannotLock { .. } => Some(
                "make the home writable; where its file system has no locks (some network ones), name a directory on a \
                 local disk with XDG_STATE_HOME"
                    .into(),
            ),
            Self::NoConfig { .. } => Some(
                "write an ostler.toml, such as `[servers.time]` and below it `command = \"uvx\"` and `args = \
                 [\"mcp-server-time\"]`, or name a file with --config"
                    .into(),
            ),
            _ => None,
        }
    }
}

/// Returns the hint for a failed call, in words of the command line.
fn call_hint(error: &CallError) -> Option<String> {
    match error {
        CallError::Unavailable(it) => server_hint(error, it),
        CallError::DefinitionChanged { server, tool } => {
            let is_tool = !["prompt:", "resource:", "template:"].iter().any(|noun| tool.starts_with(noun));
            let exposed = if is_tool { exposed_name(server, tool) } else { format!("{server}/{tool}") };
            Some(format!(
                "{} shows what is different; {} takes it",
                command(&format!("diff {server}")),
                command(&format!("approve {}", quote(&exposed)))
            ))
        }
        CallError::InvalidArguments { server, tool, .. } => {
            let shows = command(&format!("tools {}", quote(&exposed_name(server, tool))));
            Some(format!("{shows} shows the arguments; the tool was not called"))
        }
        CallError::Rpc(answer) if answer.code == elicitation::URL_REQUIRED => {
            let pages = elicitation::name_pages(&elicitation::required_pages(&answer.raw))?;
            Some(format!("if you trust that address, open {pages} and call again; Ostler does not open it"))
        }
        CallError::UnknownTool { nearest: None, .. } => {
            Some(format!("{} lists what can be called", command("tools")))
        }
        CallError::UnknownServer { nearest: None, .. } => {
            Some(format!("{} shows the servers of the config", command("list")))
        }
        CallError::UnknownPrompt { .. } => Some(format!("{} lists what there is", command("prompts"))),
        CallError::UnknownResource { .. } => Some(format!("{} lists what there is", command("resources"))),
        other => other.hint(),
    }
}

/// Returns the hint for an unavailable server: the remedy for its cause, or how to find the cause.
fn server_hint(error: &CallError, it: &Unavailable) -> Option<String> {
    let server = &it.server;
    match it.state {
        UnavailableState::CannotStart
        | UnavailableState::StartFailed
        | UnavailableState::Ejected
        | UnavailableState::NeedsAuth => {
            // Rules remove cause and remedy for callers that may not use all of a server.
            if it.cause.is_empty() && it.remedy.is_none() {
                return Some(format!(
                    "a rule such as `deny` of `[roles.local]` hides the cause from callers that may not use all of it; {} shows it, \
                     or without a daemon {}",
                    command(&format!("status {server}")),
                    command(&format!("status {server} --probe"))
                ));
            }
            let Some(remedy) = &it.remedy else {
                let probe = command(&format!("status {server} --probe"));
                let then = match it.state {
                    UnavailableState::Ejected => {
                        format!("; a daemon then needs {}", command(&format!("reload {server}")))
                    }
                    _ => String::new(),
                };
                return Some(format!("{probe} shows all that it says{then}"));
            };
            Some(match remedy.needs_reload {
                true => {
                    format!("{}; then {}", escape_line(&remedy.text), command(&format!("reload {server}")))
                }
                false => escape_line(&remedy.text),
            })
        }
        UnavailableState::Stopped => Some(format!("run {}", command(&format!("start {server}")))),
        UnavailableState::Starting
        | UnavailableState::Fetching
        | UnavailableState::Backoff
        | UnavailableState::BreakerOpen
        | UnavailableState::Lost
        | UnavailableState::OutOfReach
        | UnavailableState::Disabled => error.hint(),
    }
}

/// Returns the hint for a failed list of a server's tools, which can be requested again.
pub(crate) fn list_hint(error: &CallError) -> Option<String> {
    match error {
        CallError::UpstreamProtocol { .. } => Some("the fault is the server's; no tool was called".into()),
        CallError::TimedOut { server, .. } => {
            Some(format!("no tool was called; try again, or raise `call_timeout` of `{server}`"))
        }
        error if may_have_run(error) => Some("no tool was called; try again".into()),
        other => call_hint(other),
    }
}

/// Returns the hint for a full disk.
fn full_disk_hint(state_dir: Option<&Path>) -> String {
    let place =
        state_dir.map(|dir| format!(" ({})", escape_line(&xdg::abbreviate_home(dir)))).unwrap_or_default();
    format!(
        "make room on the disk that holds Ostler's state directory{place}, then try again; what is there is intact"
    )
}

fn is_disk_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

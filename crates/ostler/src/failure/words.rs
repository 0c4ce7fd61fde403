//! What a failure says: the cause, what to do next, and what others said last.

use ostler_core::catalog::exposed_name;
use ostler_core::error::{CallError, UnavailableState};

use super::{Failure, may_have_run};
use crate::output::{Style, Tint, clean};
use crate::told::Told;

impl From<&Failure> for Told {
    fn from(failure: &Failure) -> Self {
        let mut told = match failure {
            Failure::Call(error)
            | Failure::Late(error)
            | Failure::Unlisted(error)
            | Failure::Lost { error, .. }
            | Failure::UnknownName { error, .. } => Self::from(error),
            _ => Self::default(),
        };
        (told.code, told.message) = (failure.code().to_owned(), failure.to_string());
        told.cause = failure.cause();
        told.hint = match failure {
            Failure::Config { .. } => Some("`ostler check --json` lists the problems".into()),
            other => other.hint(),
        };
        told.exit = Some(failure.exit_code());
        told
    }
}

impl Failure {
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
            Self::Unreadable { why, .. } | Self::Lock { why, .. } | Self::Relay { why, .. } => {
                Some(clean(why))
            }
            Self::NoConfig { looked_for } => Some(format!("looked for {looked_for}")),
            Self::Unreachable { why, .. } | Self::Stillborn { why, .. } | Self::Listen { why, .. } => {
                Some(clean(why))
            }
            Self::UnsafeFolder { why, .. } | Self::Unlockable { why, .. } => Some(why.clone()),
            Self::UnknownName { cause, .. } => Some(cause.clone()),
            Self::Tokens { why, .. } => Some(why.to_string()),
            Self::NoDaemon { why } => Some((*why).into()),
            Self::Circle => Some("two configs have each other's Ostler among their servers".into()),
            Self::Detached { url } => Some(format!("the daemon at {url} has ended or was restarted")),
            Self::Interrupted { may_have_run: true, .. } => {
                Some("the call was on its way and may have been executed".into())
            }
            _ => None,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Call(error) | Self::Lost { error, .. } | Self::UnknownName { error, .. } => hint_of(error),
            Self::Unlisted(error) => hint_of_list(error),
            Self::Late(error) if error.exit_code() == 8 => {
                Some("check whether it took effect before trying again with a longer --timeout".into())
            }
            Self::Late(_) => Some("try again with a longer --timeout".into()),
            Self::Usage { hint, .. } => hint.clone(),
            Self::Unreadable { hint, .. } | Self::Relay { hint, .. } => Some((*hint).into()),
            Self::Lock { hint, .. } | Self::Unapproved { hint, .. } => Some(clean(hint)),
            Self::Untrusted { file, .. } => {
                let file = clean(&file.display().to_string());
                Some(format!(
                    "read it; then consent with `ostler trust`, or name it with `--config {file}`"
                ))
            }
            Self::Unfinished { .. } => Some("`--json` prints what it answered".into()),
            Self::Listen { hint, .. } => Some(hint.clone()),
            Self::Refused { hint, .. } => hint.clone(),
            Self::Exposed(_) => Some(
                "make a token with `ostler token create --name NAME --role ROLE`, or set up [auth.jwt]; and name \
                 the host that clients use under gateway.allowed_hosts"
                    .into(),
            ),
            Self::Tokens { .. } => {
                Some("mend the file, or move it away and make new tokens with `ostler token create`".into())
            }
            Self::UnknownToken(_) => Some("`ostler token list` shows those that there are".into()),
            Self::Unreachable { .. } => {
                Some("see whether it runs; without --daemon, Ostler finds it or does without".into())
            }
            Self::Circle => Some("take `ostler stdio` out of one of the two".into()),
            Self::NoDaemon { .. } => Some("`ostler serve` starts one".into()),
            Self::AlreadyRunning(note) => Some(match note {
                Some(note) => {
                    format!("`ostler status` shows its servers; `kill {}` ends it in order", note.pid)
                }
                None => "wait until it has come up or ended".into(),
            }),
            Self::Stillborn { .. } => Some("`ostler serve` starts it in sight".into()),
            Self::UnsafeFolder { .. } => Some(
                "make it yours alone (`chown`, `chmod 700`), or name another with XDG_STATE_HOME or HOME".into(),
            ),
            Self::Unlockable { .. } => Some(
                "make the home writable; where its file system has no locks (some network ones), name a directory on a \
                 local disk with XDG_STATE_HOME"
                    .into(),
            ),
            Self::Detached { .. } => {
                Some("start the client again; it starts a daemon if there is none".into())
            }
            Self::NoConfig { .. } => Some("write an ostler.toml, or name a file with --config".into()),
            _ => None,
        }
    }
}

/// What to do next, in words of the command line.
fn hint_of(error: &CallError) -> Option<String> {
    match error {
        CallError::Unavailable(it) => match it.state {
            UnavailableState::CannotStart => {
                Some("correct what the config says of it; `ostler check` looks at all of it".into())
            }
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
        CallError::DefinitionChanged { server, tool } => {
            let is_tool = !["prompt:", "resource:", "template:"].iter().any(|noun| tool.starts_with(noun));
            let exposed = if is_tool { exposed_name(server, tool) } else { format!("{server}/{tool}") };
            let exposed = clean(&exposed);
            Some(format!(
                "`ostler diff {server}` shows what is different; `ostler approve {exposed}` takes it"
            ))
        }
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

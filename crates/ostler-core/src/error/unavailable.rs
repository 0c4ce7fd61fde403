//! Servers that can't be called now, and the reason.

use std::fmt;
use std::time::Duration;

use super::quote::Quoted;
use crate::fault::HumanDuration;
use crate::server_name::ServerName;

/// A server that can't be called now, and the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("server `{server}` {}", self.headline())]
pub struct Unavailable {
    /// The server.
    pub server: ServerName,
    /// Its state.
    pub state: UnavailableState,
    /// The cause, for people; may be empty.
    pub cause: String,
    /// The action taken, for people, if the cause is in the headline; may be empty.
    pub action: Box<str>,
    /// A person's remedy for the cause, if one is known.
    pub remedy: Option<Box<Remedy>>,
    /// Time after which a retry makes sense; `None` if a person has to act first, or if it is unknown.
    pub retry_after: Option<Duration>,
}

/// A person's remedy for a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remedy {
    /// Text for the operator; see [`crate::remedy`].
    pub text: String,
    /// Text for MCP clients, without any word chosen by a server. `None` if nothing is left then.
    pub for_clients: Option<String>,
    /// True if an operator has to reload the server afterwards.
    pub needs_reload: bool,
}

impl Remedy {
    /// Creates a remedy without any word chosen by a server.
    pub fn new(text: String, needs_reload: bool) -> Self {
        Self { for_clients: Some(text.clone()), text, needs_reload }
    }
}

/// State of a server that can't be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnavailableState {
    /// It is being started, for longer than the caller could wait.
    Starting,
    /// Its package manager downloads it, for longer than the caller could wait.
    Fetching,
    /// It failed and waits to be started again.
    Backoff,
    /// It failed too often in a row; calls are held back for a while.
    BreakerOpen,
    /// It failed too often; it stays out for a while, or until an operator acts.
    Ejected,
    /// It can't start until something is changed, or has never been reachable.
    CannotStart,
    /// An operator stopped it.
    Stopped,
    /// A person must authorize it.
    NeedsAuth,
    /// It could not be started.
    StartFailed,
    /// It ended during a request that is read-only.
    Lost,
    /// It is remote and currently unreachable, or unreachable for this request.
    OutOfReach,
    /// The config disables it.
    Disabled,
}

impl UnavailableState {
    /// Returns the word in `error.data.state`, equal to that of the status where both exist.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Fetching => "fetching",
            Self::Backoff => "backoff",
            Self::BreakerOpen => "breaker_open",
            Self::Ejected => "ejected",
            Self::CannotStart => "cannot_start",
            Self::Stopped => "stopped",
            Self::NeedsAuth => "needs_auth",
            Self::StartFailed => "start_failed",
            Self::Lost => "lost",
            Self::OutOfReach => "out_of_reach",
            Self::Disabled => "disabled",
        }
    }
}

impl fmt::Display for UnavailableState {
    /// Writes the end of the sentence that begins with the server.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Starting => "is still starting",
            Self::Fetching => "is still being downloaded",
            Self::Backoff => "failed and waits to be started again",
            Self::BreakerOpen => "keeps failing and gets no calls for a while",
            Self::Ejected => "keeps failing",
            Self::CannotStart => "can't be used",
            Self::Stopped => "is stopped",
            Self::NeedsAuth => "needs authorization",
            Self::StartFailed => "could not be started",
            Self::Lost => "ended before it answered",
            Self::OutOfReach => "is out of reach",
            Self::Disabled => "is disabled",
        })
    }
}

impl Unavailable {
    /// Creates an error with only a state, a cause and a retry time.
    pub fn new(
        server: ServerName,
        state: UnavailableState,
        cause: String,
        retry_after: Option<Duration>,
    ) -> Self {
        Self { server, state, cause, action: Box::default(), remedy: None, retry_after }
    }

    /// Returns the end of the sentence that begins with the server. It includes a cause that a person must
    /// act on.
    fn headline(&self) -> String {
        match self.has_cause_in_headline() {
            true => format!("{}: {}", self.state, Quoted(&self.cause)),
            false => self.state.to_string(),
        }
    }

    /// Returns the line below the headline.
    pub(super) fn second_line(&self) -> &str {
        match self.state {
            // The hint holds the action.
            UnavailableState::Disabled => "",
            _ if self.has_cause_in_headline() => &self.action,
            _ => &self.cause,
        }
    }

    pub(super) fn has_cause_in_headline(&self) -> bool {
        let is_persons = matches!(
            self.state,
            UnavailableState::Ejected
                | UnavailableState::CannotStart
                | UnavailableState::StartFailed
                | UnavailableState::Disabled
        );
        is_persons && !self.cause.is_empty()
    }

    pub(super) fn hint(&self) -> String {
        let server = &self.server;
        // In the other states a remedy is not the next step. A start has one only if it will probably not
        // finish.
        let is_failed = matches!(
            self.state,
            UnavailableState::Ejected
                | UnavailableState::CannotStart
                | UnavailableState::StartFailed
                | UnavailableState::NeedsAuth
                | UnavailableState::Starting
        );
        let remedy = self.remedy.as_ref().filter(|_| is_failed);
        if let Some((remedy, text)) = remedy.and_then(|it| Some((it, it.for_clients.as_ref()?))) {
            let then = if remedy.needs_reload { format!("; then reload `{server}`") } else { String::new() };
            return format!("{}{then}", Quoted(text));
        }
        match self.state {
            UnavailableState::Ejected | UnavailableState::CannotStart => {
                format!("fix the cause, then reload `{server}`")
            }
            UnavailableState::Stopped => format!("start `{server}`"),
            UnavailableState::NeedsAuth => format!("renew its credentials, then reload `{server}`"),
            UnavailableState::StartFailed => format!("fix the cause, then start `{server}` again"),
            UnavailableState::OutOfReach => "try again when the cause is gone".into(),
            UnavailableState::Disabled => self.action.to_string(),
            UnavailableState::Starting
            | UnavailableState::Fetching
            | UnavailableState::Backoff
            | UnavailableState::BreakerOpen
            | UnavailableState::Lost => match self.retry_after {
                Some(wait) => format!("try again in {}", HumanDuration(wait)),
                None => "try again in a moment".into(),
            },
        }
    }
}

//! What went wrong below, told where it happened.
//!
//! A [`Fault`] is built by the transport at the place the error is born, by an
//! exhaustive match over what can happen there. It says what became of the
//! request, which alone decides whether a call may be repeated, and what kind
//! of failure it was, which alone decides what supervision makes of it. Text
//! inside a fault is for people.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::secrets::Secrets;

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Delivery {
    /// No byte of it left us: it did not run.
    NotSent,
    /// The server answered that it did not run it.
    Rejected,
    /// Bytes left us and no final answer came: it may have run.
    Unknown,
    /// A final answer came.
    Answered,
}

impl Delivery {
    /// The word used in errors and records.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotSent => "not-sent",
            Self::Rejected => "rejected",
            Self::Unknown => "unknown",
            Self::Answered => "answered",
        }
    }
}

/// A failed attempt: what became of the request, and what happened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind}")]
pub struct Fault {
    /// Decides whether the call may be repeated.
    pub delivery: Delivery,
    /// Decides what supervision makes of it.
    pub kind: FaultKind,
}

impl Fault {
    /// A fault before any byte of the request left.
    pub fn not_sent(kind: FaultKind) -> Self {
        Self { delivery: Delivery::NotSent, kind }
    }

    /// The server says that it did not run the request.
    pub fn rejected(kind: FaultKind) -> Self {
        Self { delivery: Delivery::Rejected, kind }
    }

    /// A fault after bytes of the request left and before its answer came.
    pub fn unknown(kind: FaultKind) -> Self {
        Self { delivery: Delivery::Unknown, kind }
    }
}

/// The kinds of failure of an upstream server or of the way to it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FaultKind {
    /// The process could not be started, or the connection not made.
    #[error("{0}")]
    Start(String),
    /// The server can't be used until something is changed.
    #[error("{0}")]
    Permanent(Box<PermanentCause>),
    /// The server did not finish its handshake in time.
    #[error("it has not answered the MCP handshake within {}", Span(*.0))]
    StartTimeout(Duration),
    /// The server answered the handshake with something we can't work with.
    #[error("handshake failed: {0}")]
    Handshake(String),
    /// The process ended.
    #[error("the process ended ({0})")]
    Exited(Exit),
    /// The process ended when it was asked for what only modern servers know.
    #[error("the process ended at the probe for its protocol ({0})")]
    EndedAtProbe(Exit),
    /// The server closed its output.
    #[error("the server closed the connection")]
    Closed,
    /// Writing to the server failed.
    #[error("could not write to the server: {0}")]
    Write(String),
    /// An answer that is not a JSON-RPC message, or not of the shape its method demands.
    #[error("malformed answer: {0}")]
    Malformed(String),
    /// An answer longer than the limit.
    #[error("answer longer than {0} bytes")]
    Oversize(usize),
    /// Our own time for the call ran out.
    #[error("no answer within {}", Span(*.0))]
    TimedOut(Duration),
    /// The server stopped answering liveness probes and was ended.
    #[error("the server hangs: {0} liveness probes went unanswered")]
    Hung(u32),
    /// We closed the session ourselves: stop, reload, replacement or eviction.
    #[error("the session was closed by the host")]
    Retired,
    /// The server has forgotten the session or replaced the tool, so that it has
    /// to be asked first what it lists.
    #[error("the server does not know the session or the tool as it was any more")]
    Renewed,
    /// The session has no room for the request.
    #[error("the server does not take more requests")]
    Congested,
    /// A remote endpoint can't be reached: its name is not known, or its port refuses.
    #[error("could not connect: {0}")]
    Connect(String),
    /// The connection to a remote endpoint broke during a request.
    #[error("the connection broke: {0}")]
    Transfer(String),
    /// A remote endpoint answered with an HTTP status in place of a message.
    #[error("the server answered HTTP {code}{}", Remark(.text))]
    Status {
        /// The status.
        code: u16,
        /// What it said about it, shortened.
        text: String,
    },
    /// A remote endpoint asks to be left alone for a while.
    #[error("the server answered HTTP {code} and wants no requests for {}", Span(*.wait))]
    Paused {
        /// The status.
        code: u16,
        /// For how long.
        wait: Duration,
    },
    /// A remote endpoint does not accept the credentials, or wants some.
    #[error("the server answered HTTP {code}{}", Remark(.challenge))]
    NeedsAuth {
        /// The status: 401 or 403.
        code: u16,
        /// What it asks for, shortened.
        challenge: String,
    },
    /// Nobody can be reached through whom the server is, and it is waited for.
    #[error("out of reach: {0}")]
    Unreachable(String),
    /// Who carries requests to the server does not take this one from us.
    #[error("refused on the way: {0}")]
    Denied(String),
}

impl FaultKind {
    /// The same without any secret in its words.
    #[must_use]
    pub fn without(mut self, secrets: &Secrets) -> Self {
        match &mut self {
            Self::Start(text)
            | Self::Handshake(text)
            | Self::Write(text)
            | Self::Malformed(text)
            | Self::Connect(text)
            | Self::Transfer(text)
            | Self::Unreachable(text)
            | Self::Denied(text)
            | Self::Status { text, .. }
            | Self::NeedsAuth { challenge: text, .. } => {
                if let Cow::Owned(hidden) = secrets.hide(text) {
                    *text = hidden;
                }
            }
            Self::Permanent(cause) => {
                if let Some(text) = cause.text_mut()
                    && let Cow::Owned(hidden) = secrets.hide(text)
                {
                    *text = hidden;
                }
            }
            Self::StartTimeout(_)
            | Self::Exited(_)
            | Self::EndedAtProbe(_)
            | Self::Closed
            | Self::Oversize(_)
            | Self::TimedOut(_)
            | Self::Hung(_)
            | Self::Retired
            | Self::Renewed
            | Self::Congested
            | Self::Paused { .. } => {}
        }
        self
    }
}

/// A cause that trying again does not remove.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PermanentCause {
    /// There is no such program.
    #[error("program `{program}` was not found{}", Searched(.path))]
    ProgramMissing {
        /// As the config names it.
        program: String,
        /// The `PATH` that was searched; `None` for a program that is named by its path.
        path: Option<String>,
    },
    /// The program can't be executed by this user or on this machine.
    #[error("program `{program}` can't be executed: {why}")]
    NotExecutable {
        /// As the config names it.
        program: String,
        /// The kernel's word for it.
        why: String,
    },
    /// The config holds a value that can't be used, such as a reference to an unset variable.
    #[error("{0}")]
    Config(String),
    /// The process ended with a usage text before it spoke MCP.
    #[error("it does not take the arguments it is given ({0})")]
    Usage(Exit),
    /// No TLS connection can be made: the certificate is not accepted, or the endpoint speaks no TLS.
    #[error(
        "its `url` can't be reached over TLS: {0}; if its certificate is a private one, name the file with it in \
         `SSL_CERT_FILE` in Ostler's environment"
    )]
    Certificate(String),
    /// A remote endpoint answered the handshake with a status that says that there is nothing.
    #[error("its `url` is no MCP endpoint: it answered HTTP {code}{}", Remark(.text))]
    NoEndpoint {
        /// The status.
        code: u16,
        /// What it said about it, shortened.
        text: String,
    },
    /// A remote endpoint answered the handshake with something else than MCP, such as a web page.
    #[error("its `url` does not speak MCP: {0}")]
    NotMcp(String),
}

impl PermanentCause {
    /// Returns whether the cause lies at a remote endpoint, where it may pass by itself.
    pub fn is_elsewhere(&self) -> bool {
        match self {
            Self::NoEndpoint { .. } | Self::NotMcp(_) => true,
            Self::ProgramMissing { .. }
            | Self::NotExecutable { .. }
            | Self::Config(_)
            | Self::Usage(_)
            | Self::Certificate(_) => false,
        }
    }

    fn text_mut(&mut self) -> Option<&mut String> {
        match self {
            Self::ProgramMissing { program: text, .. }
            | Self::NotExecutable { program: text, .. }
            | Self::Config(text)
            | Self::Certificate(text)
            | Self::NoEndpoint { text, .. }
            | Self::NotMcp(text) => Some(text),
            Self::Usage(_) => None,
        }
    }
}

impl From<PermanentCause> for FaultKind {
    fn from(cause: PermanentCause) -> Self {
        Self::Permanent(Box::new(cause))
    }
}

/// Where a program was looked for.
struct Searched<'a>(&'a Option<String>);

impl fmt::Display for Searched<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |path| write!(f, " in PATH ({path})"))
    }
}

/// A text behind a colon, if there is one.
struct Remark<'a>(&'a str);

impl fmt::Display for Remark<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, ": {}", self.0) }
    }
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Exit {
    /// It returned this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
    /// Nobody could tell.
    Untold,
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "code {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::Untold => f.write_str("status unknown"),
        }
    }
}

/// A duration as people write it: `250ms`, `1.5s`, `5m`, `1h30m`. Of a minute
/// and more only whole seconds are told, rounded up: who waits that long has
/// waited long enough.
#[derive(Debug, Clone, Copy)]
pub struct Span(pub Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0.as_millis();
        match ms {
            0..1_000 => return write!(f, "{ms}ms"),
            1_000..60_000 if ms.is_multiple_of(1_000) => return write!(f, "{}s", ms / 1_000),
            // What would be rounded to a minute is one.
            1_000..59_950 => return write!(f, "{:.1}s", self.0.as_secs_f64()),
            _ => {}
        }
        let seconds = ms.div_ceil(1_000);
        let parts = [(seconds / 3_600, 'h'), (seconds / 60 % 60, 'm'), (seconds % 60, 's')];
        parts
            .iter()
            .filter(|(number, _)| *number > 0)
            .try_for_each(|(number, unit)| write!(f, "{number}{unit}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delivery_has_one_word_in_errors_and_records() {
        for delivery in [Delivery::NotSent, Delivery::Rejected, Delivery::Unknown, Delivery::Answered] {
            assert_eq!(serde_json::json!(delivery), delivery.as_str());
        }
        assert_eq!(Delivery::NotSent.as_str(), "not-sent");
    }

    #[test]
    fn a_fault_says_how_the_process_ended_and_what_the_server_remarked() {
        let table = [
            (FaultKind::Exited(Exit::Code(3)), "the process ended (code 3)"),
            (FaultKind::Exited(Exit::Signal(9)), "the process ended (signal 9)"),
            (FaultKind::Exited(Exit::Untold), "the process ended (status unknown)"),
            (FaultKind::Status { code: 502, text: String::new() }, "the server answered HTTP 502"),
            (FaultKind::Status { code: 502, text: "no".into() }, "the server answered HTTP 502: no"),
        ];
        for (kind, text) in table {
            assert_eq!(Fault::unknown(kind).to_string(), text);
        }
    }

    #[test]
    fn spans_are_written_as_people_write_them() {
        let table = [
            (0, "0ms"),
            (250, "250ms"),
            (3_000, "3s"),
            (1_500, "1.5s"),
            (59_940, "59.9s"),
            (59_960, "1m"),
            (60_001, "1m1s"),
            (90_000, "1m30s"),
            (300_000, "5m"),
            (3_599_970, "1h"),
            (3_600_000, "1h"),
            (5_400_000, "1h30m"),
            (7_200_000, "2h"),
        ];
        for (ms, text) in table {
            assert_eq!(Span(Duration::from_millis(ms)).to_string(), text);
        }
    }
}

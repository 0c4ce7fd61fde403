//! Faults: failed attempts, described where the error occurs.
//!
//! The transport builds a [`Fault`] at the source of an error, by an exhaustive match over the possible
//! failures. Its delivery alone decides whether a call may be retried, and its kind alone decides the
//! reaction of supervision. Text in a fault is for people.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::config::ResolveError;
use crate::secrets::Secrets;

/// Delivery of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Delivery {
    /// No byte of it was sent: it did not run.
    NotSent,
    /// The server answered that it did not run it.
    Rejected,
    /// Bytes were sent and no final answer came: it may have run.
    Unknown,
    /// A final answer came.
    Answered,
}

impl Delivery {
    /// Returns the word used in errors and audit rows.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotSent => "not-sent",
            Self::Rejected => "rejected",
            Self::Unknown => "unknown",
            Self::Answered => "answered",
        }
    }
}

/// A failed attempt: the delivery of its request, and the kind of failure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind}")]
pub struct Fault {
    /// Decides whether the call may be retried.
    pub delivery: Delivery,
    /// Decides the reaction of supervision.
    pub kind: FaultKind,
}

impl Fault {
    /// Creates a fault before any byte of the request was sent.
    pub fn not_sent(kind: FaultKind) -> Self {
        Self { delivery: Delivery::NotSent, kind }
    }

    /// Creates the fault of a request that the server says it did not run.
    pub fn rejected(kind: FaultKind) -> Self {
        Self { delivery: Delivery::Rejected, kind }
    }

    /// Creates a fault after bytes of the request were sent and before its answer came.
    pub fn unknown(kind: FaultKind) -> Self {
        Self { delivery: Delivery::Unknown, kind }
    }
}

/// Kinds of failure of an upstream server or of the connection to it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FaultKind {
    /// The process could not be started, or the connection could not be made.
    #[error("{0}")]
    Start(String),
    /// The server can't be used until something is changed.
    #[error("{0}")]
    Permanent(Box<PermanentCause>),
    /// The server did not finish its handshake in time.
    #[error("it has not answered the MCP handshake within {}", HumanDuration(*.0))]
    StartTimeout(Duration),
    /// The server's handshake is unusable.
    #[error("handshake failed: {0}")]
    Handshake(String),
    /// The process ended.
    #[error("the process ended ({0})")]
    Exited(Exit),
    /// The process ended on a request that only modern servers know.
    #[error("the process ended at the probe for its protocol ({0})")]
    EndedAtProbe(Exit),
    /// The server closed its output.
    #[error("the server closed the connection")]
    Closed,
    /// Writing to the server failed.
    #[error("could not write to the server: {0}")]
    Write(String),
    /// An answer that is not a JSON-RPC message, or not of the shape its method requires.
    #[error("malformed answer: {0}")]
    Malformed(String),
    /// An answer longer than the limit.
    #[error("answer longer than {0} bytes")]
    Oversize(usize),
    /// The call's deadline passed.
    #[error("no answer within {}", HumanDuration(*.0))]
    TimedOut(Duration),
    /// The server stopped answering liveness probes and was ended.
    #[error("the server hangs: {0} liveness probes went unanswered")]
    Hung(u32),
    /// The host closed the session: stop, reload, replacement or eviction.
    #[error("the session was closed by the host")]
    Retired,
    /// The server has forgotten the session or replaced the tool, so that its lists must be fetched first.
    #[error("the server does not know the session or the tool as it was any more")]
    StaleSession,
    /// The session has no room for the request.
    #[error("the server does not take more requests")]
    Congested,
    /// A remote endpoint is unreachable: its name does not resolve, or its port refuses.
    #[error("{0}")]
    Connect(Box<ConnectFailure>),
    /// A remote endpoint answered with a body of another content type, such as a web page.
    #[error("malformed answer: `{0}` in place of JSON or an event stream")]
    ContentType(String),
    /// The connection to a remote endpoint broke during a request.
    #[error("the connection broke: {0}")]
    Transfer(String),
    /// A remote endpoint answered with an HTTP status in place of a message.
    #[error("the server answered HTTP {code}{}", DetailSuffix(.text))]
    Status {
        /// The status.
        code: u16,
        /// Its body, shortened.
        text: String,
    },
    /// A remote endpoint asks for a pause.
    #[error("the server answered HTTP {code} and wants no requests for {}", HumanDuration(*.wait))]
    RetryAfter {
        /// The status.
        code: u16,
        /// The length of the pause.
        wait: Duration,
    },
    /// A remote endpoint rejects the credentials, or requires some.
    #[error("the server answered HTTP {code}{}", DetailSuffix(.challenge))]
    NeedsAuth {
        /// The status: 401 or 403.
        code: u16,
        /// Its challenge, shortened.
        challenge: String,
    },
    /// No relay host for this server is reachable; the call waits until its deadline.
    #[error("out of reach: {0}")]
    Unreachable(String),
    /// The relay host refuses this request.
    #[error("refused on the way: {0}")]
    Denied(String),
}

impl FaultKind {
    /// Returns the places where the cause was searched, which are too long for a headline.
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::Permanent(cause) => cause.detail(),
            _ => None,
        }
    }

    /// Redacts all secrets in its text.
    #[must_use]
    pub fn redacted(mut self, secrets: &Secrets) -> Self {
        match &mut self {
            Self::Start(text)
            | Self::Handshake(text)
            | Self::Write(text)
            | Self::Malformed(text)
            | Self::ContentType(text)
            | Self::Transfer(text)
            | Self::Unreachable(text)
            | Self::Denied(text)
            | Self::Status { text, .. }
            | Self::NeedsAuth { challenge: text, .. } => {
                if let Cow::Owned(hidden) = secrets.redact(text) {
                    *text = hidden;
                }
            }
            Self::Connect(unreached) => {
                if let Cow::Owned(hidden) = secrets.redact(&unreached.authority) {
                    unreached.authority = hidden;
                }
            }
            Self::Permanent(cause) => {
                if let Some(text) = cause.text_mut()
                    && let Cow::Owned(hidden) = secrets.redact(text)
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
            | Self::StaleSession
            | Self::Congested
            | Self::RetryAfter { .. } => {}
        }
        self
    }
}

/// A cause that a retry does not remove.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PermanentCause {
    /// There is no such program.
    #[error("program `{program}` was not found")]
    ProgramMissing {
        /// The program as the config names it.
        program: String,
        /// The `PATH` that was searched; `None` for a program given by its path.
        path: Option<String>,
    },
    /// The program can't be executed by this user or on this machine.
    #[error("program `{program}` can't be executed: {why}")]
    NotExecutable {
        /// The program as the config names it.
        program: String,
        /// The reason.
        why: ExecFault,
    },
    /// A value of the config refers to a variable that is not set, or to a file that can't be read.
    #[error("{0}")]
    Unresolved(ResolveError),
    /// The working directory does not exist.
    #[error("its working directory {0} does not exist")]
    NoFolder(String),
    /// The config holds a value that can't be used.
    #[error("{0}")]
    Config(String),
    /// The endpoint is a daemon that has this daemon among its servers.
    #[error("its `url` leads back here through another daemon: each has the other among its servers")]
    Loop,
    /// The process ended with a usage text before it spoke MCP.
    #[error("it printed its usage and ended ({0})")]
    Usage(Exit),
    /// The program listens for HTTP and is silent on stdout; the port, if it is known.
    #[error("it serves HTTP in place of MCP on stdout")]
    ServesHttp(Option<u16>),
    /// The TLS certificate is not accepted.
    #[error("its TLS certificate is not accepted: {0}")]
    Certificate(CertificateFault),
    /// The address begins with `https://`, and the endpoint speaks no TLS.
    #[error("its `url` begins with https://, and the server speaks no TLS")]
    NoTls,
    /// A remote endpoint answered the handshake with a status that says that nothing is there.
    #[error("its `url` is no MCP endpoint: it answered HTTP {code}{}", DetailSuffix(.text))]
    NoEndpoint {
        /// The status.
        code: u16,
        /// Its body, shortened.
        text: String,
    },
    /// A remote endpoint answered the handshake with another content type, such as that of a web page.
    #[error("its `url` does not speak MCP: it answered `{0}` in place of JSON or an event stream")]
    ContentType(String),
    /// A remote endpoint answered the handshake with something else than MCP.
    #[error("its `url` does not speak MCP: {0}")]
    NotMcp(String),
}

/// A connection that could not be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectFailure {
    /// Host and port; never the rest of the address, which may hold a secret.
    pub authority: String,
    /// The failure.
    pub why: ConnectFault,
}

/// Reason why a connection could not be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectFault {
    /// The name of the host can't be resolved.
    UnknownHost,
    /// Nothing listens there.
    Refused,
    /// The host is unreachable, or it does not answer.
    NoResponse,
    /// Another failure, in the words of the system.
    Other(String),
}

impl fmt::Display for ConnectFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = &self.authority;
        match &self.why {
            ConnectFault::UnknownHost => {
                let host = place.rsplit_once(':').map_or(place.as_str(), |(host, _)| host);
                write!(f, "the host name `{host}` can't be resolved")
            }
            ConnectFault::Refused => write!(f, "nothing listens at {place} (connection refused)"),
            ConnectFault::NoResponse => write!(f, "{place} does not answer"),
            ConnectFault::Other(why) => write!(f, "could not connect to {place}: {why}"),
        }
    }
}

/// Reason why a file can't be executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ExecFault {
    /// Its mode does not allow it.
    #[error("it is not marked as executable")]
    Permission,
    /// It is a directory, or a part of its path is a file.
    #[error("it is not a file")]
    NotAFile,
    /// The first line names a program that does not exist.
    #[error("the interpreter in its first line does not exist")]
    NoInterpreter,
    /// It is neither a program for this machine nor a script with a first line.
    #[error("it is no program that this machine can run")]
    Format,
}

/// Reason why a certificate is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CertificateFault {
    /// It is self-signed or signed by an unknown authority.
    #[error("it is self-signed, or signed by an authority that this machine does not know")]
    UnknownIssuer,
    /// It is not valid now.
    #[error("it has expired, or is not valid yet")]
    Expired,
    /// It is for another host.
    #[error("it is for another host name")]
    WrongHost,
    /// Another failure.
    #[error("{0}")]
    Other(String),
}

impl PermanentCause {
    /// Returns whether the cause lies at a remote endpoint, where it may pass by itself.
    pub fn is_remote(&self) -> bool {
        match self {
            Self::NoEndpoint { .. } | Self::ContentType(_) | Self::NotMcp(_) => true,
            Self::ProgramMissing { .. }
            | Self::NotExecutable { .. }
            | Self::Unresolved(_)
            | Self::NoFolder(_)
            | Self::Config(_)
            | Self::Loop
            | Self::Usage(_)
            | Self::ServesHttp(_)
            | Self::Certificate(_)
            | Self::NoTls => false,
        }
    }

    /// Returns the places where the cause was searched, which are too long for a headline.
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::ProgramMissing { path: Some(path), .. } => Some(format!("PATH is {path}")),
            _ => None,
        }
    }

    fn text_mut(&mut self) -> Option<&mut String> {
        match self {
            Self::ProgramMissing { program: text, .. }
            | Self::NotExecutable { program: text, .. }
            | Self::Unresolved(ResolveError { why: text, .. })
            | Self::NoFolder(text)
            | Self::Config(text)
            | Self::Certificate(CertificateFault::Other(text))
            | Self::NoEndpoint { text, .. }
            | Self::ContentType(text)
            | Self::NotMcp(text) => Some(text),
            Self::Loop | Self::Usage(_) | Self::ServesHttp(_) | Self::Certificate(_) | Self::NoTls => None,
        }
    }
}

impl From<PermanentCause> for FaultKind {
    fn from(cause: PermanentCause) -> Self {
        Self::Permanent(Box::new(cause))
    }
}

/// A text after a colon, if there is one.
struct DetailSuffix<'a>(&'a str);

impl fmt::Display for DetailSuffix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, ": {}", self.0) }
    }
}

/// End of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Exit {
    /// It returned this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
    /// The system could not tell.
    Untold,
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::Untold => f.write_str("status unknown"),
        }
    }
}

/// A duration as people write it: `250ms`, `1.5s`, `5m`, `1h30m`. From a minute on only whole seconds are
/// shown, rounded up, so that a caller that waits that long has waited long enough.
#[derive(Debug, Clone, Copy)]
pub struct HumanDuration(pub Duration);

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0.as_millis();
        match ms {
            0..1_000 => return write!(f, "{ms}ms"),
            1_000..60_000 if ms.is_multiple_of(1_000) => return write!(f, "{}s", ms / 1_000),
            // A value that would round to a minute is shown as one.
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
            (FaultKind::Exited(Exit::Code(3)), "the process ended (exit code 3)"),
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
            assert_eq!(HumanDuration(Duration::from_millis(ms)).to_string(), text);
        }
    }
}

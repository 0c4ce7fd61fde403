//! Message envelope: the headers of every relay message.
//!
//! The body of a message is an MCP message, byte for byte, or a chunk of one. Everything that the relay adds
//! stands in headers:
//!
//! ```text
//! worker → host
//!   manifest…       call, instance                                     answered like a call
//!   call…           call, instance, server, begin-by, deadline, manifest   body: the request
//!   control.…CALL   cancel | answer N | ack N | resume                 answer: body is a response
//!   control.…alive  alive
//! host → worker
//!   progress.…CALL  accepted | note | ask N | chunk N                  note, ask: body is a message
//!   progress.…manifest  changed
//!   inbox           answer | chunked                                   answer: body is the response
//!   heartbeat.HOST  beat
//! ```

use std::borrow::Cow;
use std::fmt;

use ostler_core::server_name::ServerName;

use crate::call_id::{CallId, Instance};
use crate::name::RelayName;

/// Version of the envelope. Messages of another version are rejected.
pub const VERSION: &str = "1";

/// Names of all relay headers; a reader ignores every other header.
pub const HEADER_NAMES: [&str; 17] = [
    header::VERSION,
    header::KIND,
    header::CALL,
    header::INSTANCE,
    header::SERVER,
    header::BEGIN_BY,
    header::DEADLINE,
    header::MANIFEST,
    header::NUMBER,
    header::HOST,
    header::GENERATION,
    header::TIME,
    header::IN_FLIGHT,
    header::DRAINING,
    header::LENGTH,
    header::SHA256,
    header::TRACE,
];

/// Header names.
pub mod header {
    /// Version of the envelope.
    pub const VERSION: &str = "Ostler-Relay";
    /// Kind of the message.
    pub const KIND: &str = "Ostler-Kind";
    /// Id of the call.
    pub const CALL: &str = "Ostler-Call";
    /// Instance of the worker.
    pub const INSTANCE: &str = "Ostler-Instance";
    /// Server that the call is for.
    pub const SERVER: &str = "Ostler-Server";
    /// Latest start of the call, in the host's time.
    pub const BEGIN_BY: &str = "Ostler-Begin-By";
    /// Deadline of the call, in the host's time.
    pub const DEADLINE: &str = "Ostler-Deadline";
    /// Version of the manifest that the worker holds.
    pub const MANIFEST: &str = "Ostler-Manifest";
    /// Number of the server request or chunk.
    pub const NUMBER: &str = "Ostler-Number";
    /// Name of the host.
    pub const HOST: &str = "Ostler-Host";
    /// Instance of the host.
    pub const GENERATION: &str = "Ostler-Generation";
    /// The host's clock, in milliseconds since 1970.
    pub const TIME: &str = "Ostler-Time";
    /// Calls in flight at the host.
    pub const IN_FLIGHT: &str = "Ostler-In-Flight";
    /// `true` if the host accepts no new calls.
    pub const DRAINING: &str = "Ostler-Draining";
    /// Length in bytes of a chunked answer.
    pub const LENGTH: &str = "Ostler-Length";
    /// SHA-256 of a chunked answer.
    pub const SHA256: &str = "Ostler-Sha256";
    /// W3C trace context of the call.
    pub const TRACE: &str = "traceparent";
}

/// Headers of one message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RelayHeaders(Vec<(&'static str, Cow<'static, str>)>);

/// Initial capacity: most messages carry at most eight headers.
const USUAL: usize = 8;

impl RelayHeaders {
    /// Returns an empty set of headers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the headers `Ostler-Relay` and `Ostler-Kind` of a message.
    pub fn for_kind(kind: &'static str) -> Self {
        let mut headers = Self::versioned();
        headers.0.push((header::KIND, Cow::Borrowed(kind)));
        headers
    }

    fn versioned() -> Self {
        let mut headers = Vec::with_capacity(USUAL);
        headers.push((header::VERSION, Cow::Borrowed(VERSION)));
        Self(headers)
    }

    /// Appends a header.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl fmt::Display) -> Self {
        self.0.push((name, Cow::Owned(value.to_string())));
        self
    }

    /// Appends a header if `value` is some.
    #[must_use]
    pub fn with_some(self, name: &'static str, value: Option<impl fmt::Display>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// Returns the value of a header.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| &**value)
    }

    /// Iterates over all headers.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0.iter().map(|(name, value)| (*name, &**value))
    }

    /// Consumes the headers and returns owned values.
    pub fn into_values(self) -> impl Iterator<Item = (&'static str, String)> {
        self.0.into_iter().map(|(name, value)| (name, value.into_owned()))
    }

    /// Returns whether there are no headers.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn need(&self, name: &'static str) -> Result<&str, BadEnvelope> {
        self.get(name).ok_or(BadEnvelope::Missing(name))
    }

    fn read<T>(&self, name: &'static str, read: impl Fn(&str) -> Option<T>) -> Result<T, BadEnvelope> {
        read(self.need(name)?).ok_or(BadEnvelope::Unreadable(name))
    }

    fn number<T: std::str::FromStr>(&self, name: &'static str) -> Result<T, BadEnvelope> {
        // Rejects a plus sign and leading zeros, so that each number has one spelling.
        let is_plain = |text: &str| !text.starts_with('+') && (text.len() == 1 || !text.starts_with('0'));
        self.read(name, |text| if is_plain(text) { text.parse().ok() } else { None })
    }

    fn check_version(&self) -> Result<(), BadEnvelope> {
        match self.need(header::VERSION)? {
            VERSION => Ok(()),
            other => Err(BadEnvelope::Version(other.chars().take(20).collect())),
        }
    }
}

/// Error: headers that can't be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadEnvelope {
    /// The sender speaks another version of the envelope.
    #[error("the relay speaks version {VERSION}, the message is of version {0:?}")]
    Version(String),
    /// A required header is missing.
    #[error("the header {0} is missing")]
    Missing(&'static str),
    /// The value of a header can't be parsed.
    #[error("the header {0} can't be read")]
    Unreadable(&'static str),
    /// The kind of the message is unknown.
    #[error("there is no message of kind {0:?}")]
    Kind(String),
}

/// Headers of a worker's request; the request itself is the body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallHead {
    /// Id of the call, equal for every attempt.
    pub call: CallId,
    /// Instance of the worker.
    pub instance: Instance,
    /// Target server; the body names method and tool.
    pub server: ServerName,
    /// Latest start, in milliseconds since 1970 by the host's clock. After it the worker reports
    /// the call as not begun, so the host must reject it.
    pub begin_by: u64,
    /// Deadline of the call by the host's clock, progress extensions included.
    pub deadline: u64,
    /// Version of the manifest that the worker holds.
    pub manifest: Option<String>,
    /// W3C trace context of the call.
    pub trace: Option<String>,
}

impl CallHead {
    /// Returns the headers of the message.
    pub fn headers(&self) -> RelayHeaders {
        RelayHeaders::versioned()
            .with(header::CALL, self.call)
            .with(header::INSTANCE, self.instance)
            .with(header::SERVER, &self.server)
            .with(header::BEGIN_BY, self.begin_by)
            .with(header::DEADLINE, self.deadline)
            .with_some(header::MANIFEST, self.manifest.as_deref())
            .with_some(header::TRACE, self.trace.as_deref())
    }

    /// Parses the headers of a message.
    pub fn read(headers: &RelayHeaders) -> Result<Self, BadEnvelope> {
        headers.check_version()?;
        Ok(Self {
            call: headers.read(header::CALL, CallId::parse)?,
            instance: headers.read(header::INSTANCE, Instance::parse)?,
            server: headers.read(header::SERVER, |text| ServerName::new(text).ok())?,
            begin_by: headers.number(header::BEGIN_BY)?,
            deadline: headers.number(header::DEADLINE)?,
            manifest: headers.get(header::MANIFEST).map(str::to_owned),
            trace: headers.get(header::TRACE).map(str::to_owned),
        })
    }
}

/// Headers of a worker's manifest request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestHead {
    /// Id of the answer, used like that of a call.
    pub call: CallId,
    /// Instance of the worker.
    pub instance: Instance,
}

impl ManifestHead {
    /// Returns the headers of the message.
    pub fn headers(&self) -> RelayHeaders {
        RelayHeaders::versioned().with(header::CALL, self.call).with(header::INSTANCE, self.instance)
    }

    /// Parses the headers of a message.
    pub fn read(headers: &RelayHeaders) -> Result<Self, BadEnvelope> {
        headers.check_version()?;
        Ok(Self {
            call: headers.read(header::CALL, CallId::parse)?,
            instance: headers.read(header::INSTANCE, Instance::parse)?,
        })
    }
}

/// Message of a worker about one of its calls, or a sign of life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// The caller no longer waits for the call.
    Cancel,
    /// Response to server request N; the body is a JSON-RPC response.
    Answer(u32),
    /// Acknowledges all chunks before this number.
    Ack(u32),
    /// Asks for the state of the call after a lost connection; starts nothing.
    Resume,
    /// The worker is alive.
    Alive,
}

impl Control {
    /// Returns the headers of the message.
    pub fn headers(self, instance: Instance) -> RelayHeaders {
        let (kind, number) = match self {
            Self::Cancel => ("cancel", None),
            Self::Answer(number) => ("answer", Some(number)),
            Self::Ack(number) => ("ack", Some(number)),
            Self::Resume => ("resume", None),
            Self::Alive => ("alive", None),
        };
        RelayHeaders::for_kind(kind).with(header::INSTANCE, instance).with_some(header::NUMBER, number)
    }

    /// Parses the headers of a message.
    pub fn read(headers: &RelayHeaders) -> Result<(Self, Instance), BadEnvelope> {
        headers.check_version()?;
        let control = match headers.need(header::KIND)? {
            "cancel" => Self::Cancel,
            "answer" => Self::Answer(headers.number(header::NUMBER)?),
            "ack" => Self::Ack(headers.number(header::NUMBER)?),
            "resume" => Self::Resume,
            "alive" => Self::Alive,
            other => return Err(BadEnvelope::Kind(other.chars().take(20).collect())),
        };
        Ok((control, headers.read(header::INSTANCE, Instance::parse)?))
    }
}

/// Message of a host about a call in flight, or about the worker's manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RelayProgress {
    /// This instance of the host has claimed the call and executes it once.
    Accepted {
        /// Name of the host.
        host: RelayName,
        /// Instance of the host.
        generation: Instance,
    },
    /// The body is a notification.
    Notification,
    /// The body is a request that the worker's client answers.
    ServerRequest(u32),
    /// The body is one chunk of the answer.
    Chunk(u32),
    /// The worker's manifest has changed.
    ManifestChanged,
}

impl RelayProgress {
    /// Returns the headers of the message.
    pub fn headers(&self) -> RelayHeaders {
        match self {
            Self::Accepted { host, generation } => RelayHeaders::for_kind("accepted")
                .with(header::HOST, host)
                .with(header::GENERATION, generation),
            Self::Notification => RelayHeaders::for_kind("note"),
            Self::ServerRequest(number) => RelayHeaders::for_kind("ask").with(header::NUMBER, number),
            Self::Chunk(number) => RelayHeaders::for_kind("chunk").with(header::NUMBER, number),
            Self::ManifestChanged => RelayHeaders::for_kind("changed"),
        }
    }

    /// Parses the headers of a message.
    pub fn read(headers: &RelayHeaders) -> Result<Self, BadEnvelope> {
        headers.check_version()?;
        Ok(match headers.need(header::KIND)? {
            "accepted" => Self::Accepted {
                host: headers.read(header::HOST, |text| RelayName::new(text).ok())?,
                generation: headers.read(header::GENERATION, Instance::parse)?,
            },
            "note" => Self::Notification,
            "ask" => Self::ServerRequest(headers.number(header::NUMBER)?),
            "chunk" => Self::Chunk(headers.number(header::NUMBER)?),
            "changed" => Self::ManifestChanged,
            other => return Err(BadEnvelope::Kind(other.chars().take(20).collect())),
        })
    }
}

/// Message to the inbox of a worker: the answer of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RelayReply {
    /// The body is the JSON-RPC response.
    Answer,
    /// The response arrives in chunks, before or after this message.
    Chunked {
        /// Length of the response in bytes.
        length: u64,
        /// SHA-256 of the response as 64 hexadecimal digits.
        sha256: String,
    },
}

impl RelayReply {
    /// Returns the headers of the message.
    pub fn headers(&self) -> RelayHeaders {
        match self {
            Self::Answer => RelayHeaders::for_kind("answer"),
            Self::Chunked { length, sha256 } => {
                RelayHeaders::for_kind("chunked").with(header::LENGTH, length).with(header::SHA256, sha256)
            }
        }
    }

    /// Parses the headers of a message.
    pub fn read(headers: &RelayHeaders) -> Result<Self, BadEnvelope> {
        headers.check_version()?;
        let is_hash = |text: &str| text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        Ok(match headers.need(header::KIND)? {
            "answer" => Self::Answer,
            "chunked" => Self::Chunked {
                length: headers.number(header::LENGTH)?,
                sha256: headers.read(header::SHA256, |text| is_hash(text).then(|| text.to_owned()))?,
            },
            other => return Err(BadEnvelope::Kind(other.chars().take(20).collect())),
        })
    }
}

/// Heartbeat of a host, sent each second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heartbeat {
    /// Instance of the host.
    pub generation: Instance,
    /// The host's clock, in milliseconds since 1970.
    pub time: u64,
    /// Calls in flight.
    pub in_flight: u64,
    /// `true` if the host accepts no new calls.
    pub is_draining: bool,
}

impl Heartbeat {
    /// Returns the headers of the message.
    pub fn headers(&self) -> RelayHeaders {
        RelayHeaders::for_kind("beat")
            .with(header::GENERATION, self.generation)
            .with(header::TIME, self.time)
            .with(header::IN_FLIGHT, self.in_flight)
            .with(header::DRAINING, self.is_draining)
    }

    /// Parses the headers of a message.
    pub fn read(headers: &RelayHeaders) -> Result<Self, BadEnvelope> {
        headers.check_version()?;
        Ok(Self {
            generation: headers.read(header::GENERATION, Instance::parse)?,
            time: headers.number(header::TIME)?,
            in_flight: headers.number(header::IN_FLIGHT)?,
            is_draining: headers.number(header::DRAINING)?,
        })
    }
}

#[cfg(test)]
#[path = "envelope_tests.rs"]
mod tests;

//! What messages say beside their body.
//!
//! The body of every message is an MCP message as it is, or a piece of one.
//! What the relay itself has to say stands in headers:
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

/// The version of all this. Another one is refused.
pub const VERSION: &str = "1";

/// The names of all headers; others are not read.
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

/// The names of headers.
pub mod header {
    /// The version of the envelope.
    pub const VERSION: &str = "Ostler-Relay";
    /// What kind of message it is.
    pub const KIND: &str = "Ostler-Kind";
    /// The id of the call.
    pub const CALL: &str = "Ostler-Call";
    /// The life of the worker.
    pub const INSTANCE: &str = "Ostler-Instance";
    /// The server that a call is for.
    pub const SERVER: &str = "Ostler-Server";
    /// When a call that has not begun must not begin any more.
    pub const BEGIN_BY: &str = "Ostler-Begin-By";
    /// When a call is over.
    pub const DEADLINE: &str = "Ostler-Deadline";
    /// The version of the manifest that the worker goes by.
    pub const MANIFEST: &str = "Ostler-Manifest";
    /// Which question or chunk.
    pub const NUMBER: &str = "Ostler-Number";
    /// Which host.
    pub const HOST: &str = "Ostler-Host";
    /// Which life of the host.
    pub const GENERATION: &str = "Ostler-Generation";
    /// What the host's clock shows.
    pub const TIME: &str = "Ostler-Time";
    /// Calls that the host has under way.
    pub const IN_FLIGHT: &str = "Ostler-In-Flight";
    /// Whether the host takes no more calls.
    pub const DRAINING: &str = "Ostler-Draining";
    /// The length of an answer in chunks.
    pub const LENGTH: &str = "Ostler-Length";
    /// The hash of an answer in chunks.
    pub const SHA256: &str = "Ostler-Sha256";
    /// The trace that a call belongs to.
    pub const TRACE: &str = "traceparent";
}

/// The headers of one message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RelayHeaders(Vec<(&'static str, Cow<'static, str>)>);

/// As many as most messages have at most.
const USUAL: usize = 8;

impl RelayHeaders {
    /// No headers.
    pub fn new() -> Self {
        Self::default()
    }

    /// The headers of a kind of message, with our version.
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

    /// One more.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl fmt::Display) -> Self {
        self.0.push((name, Cow::Owned(value.to_string())));
        self
    }

    /// One more, if there is one.
    #[must_use]
    pub fn with_some(self, name: &'static str, value: Option<impl fmt::Display>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// One of them.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| &**value)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0.iter().map(|(name, value)| (*name, &**value))
    }

    /// All of them, to keep.
    pub fn into_values(self) -> impl Iterator<Item = (&'static str, String)> {
        self.0.into_iter().map(|(name, value)| (name, value.into_owned()))
    }

    /// Whether there is none.
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
        // A plus sign is a second spelling, and so are zeros in front.
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

/// Headers that can't be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadEnvelope {
    /// The other side speaks another version.
    #[error("the relay speaks version {VERSION}, the message is of version {0:?}")]
    Version(String),
    /// A header is missing.
    #[error("the header {0} is missing")]
    Missing(&'static str),
    /// A header says nothing that can be read.
    #[error("the header {0} can't be read")]
    Unreadable(&'static str),
    /// No such message is known.
    #[error("there is no message of kind {0:?}")]
    Kind(String),
}

/// What a request of a worker says beside its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallHead {
    /// The call, the same for every attempt.
    pub call: CallId,
    /// The life of the worker.
    pub instance: Instance,
    /// The server that is meant. The body says what is wanted of it.
    pub server: ServerName,
    /// By the host's clock, in milliseconds since 1970: later the call must
    /// not begin, for the worker will have stopped believing that it does.
    pub begin_by: u64,
    /// By the host's clock: when the call is over at the latest.
    pub deadline: u64,
    /// The version of the manifest that the worker goes by.
    pub manifest: Option<String>,
    /// The trace that the call belongs to.
    pub trace: Option<String>,
}

impl CallHead {
    /// The headers of the message.
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

    /// Reads them.
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

/// What a worker's question for its manifest says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestHead {
    /// Under which the answer comes, like that of a call.
    pub call: CallId,
    /// The life of the worker.
    pub instance: Instance,
}

impl ManifestHead {
    /// The headers of the message.
    pub fn headers(&self) -> RelayHeaders {
        RelayHeaders::versioned().with(header::CALL, self.call).with(header::INSTANCE, self.instance)
    }

    /// Reads them.
    pub fn read(headers: &RelayHeaders) -> Result<Self, BadEnvelope> {
        headers.check_version()?;
        Ok(Self {
            call: headers.read(header::CALL, CallId::parse)?,
            instance: headers.read(header::INSTANCE, Instance::parse)?,
        })
    }
}

/// What a worker says about a call, or about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// Nobody waits for the call any more.
    Cancel,
    /// The answer to a question; the body is a JSON-RPC response.
    Answer(u32),
    /// All chunks before this one have come.
    Ack(u32),
    /// The connection was lost meanwhile: say again what has become of the
    /// call. Nothing is begun by that.
    Resume,
    /// The worker lives.
    Alive,
}

impl Control {
    /// The headers of the message.
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

    /// Reads them.
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

/// What a host says about a call before its answer, or about what a worker may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RelayProgress {
    /// The call was claimed by this life of this host and will be carried out once.
    Accepted {
        /// Which host.
        host: RelayName,
        /// Which life of it.
        generation: Instance,
    },
    /// The body is a notification.
    Notification,
    /// The body is a request that the worker's client answers.
    ServerRequest(u32),
    /// The body is a piece of the answer.
    Chunk(u32),
    /// What the worker may use is not what it was.
    ManifestChanged,
}

impl RelayProgress {
    /// The headers of the message.
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

    /// Reads them.
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

/// What comes to the inbox of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RelayReply {
    /// The body is the JSON-RPC response.
    Answer,
    /// The response comes, or has come, in chunks.
    Chunked {
        /// Its length in bytes.
        length: u64,
        /// Its hash, as 64 hexadecimal digits.
        sha256: String,
    },
}

impl RelayReply {
    /// The headers of the message.
    pub fn headers(&self) -> RelayHeaders {
        match self {
            Self::Answer => RelayHeaders::for_kind("answer"),
            Self::Chunked { length, sha256 } => {
                RelayHeaders::for_kind("chunked").with(header::LENGTH, length).with(header::SHA256, sha256)
            }
        }
    }

    /// Reads them.
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

/// What a host says of itself every second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heartbeat {
    /// Which life of the host.
    pub generation: Instance,
    /// What its clock shows, in milliseconds since 1970.
    pub time: u64,
    /// Calls that it has under way.
    pub in_flight: u64,
    /// Whether it takes no more.
    pub is_draining: bool,
}

impl Heartbeat {
    /// The headers of the message.
    pub fn headers(&self) -> RelayHeaders {
        RelayHeaders::for_kind("beat")
            .with(header::GENERATION, self.generation)
            .with(header::TIME, self.time)
            .with(header::IN_FLIGHT, self.in_flight)
            .with(header::DRAINING, self.is_draining)
    }

    /// Reads them.
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

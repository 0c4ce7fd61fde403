//! The opening conversation with a server over stdio.

use std::time::Duration;

use crate::code::{HEADER_MISMATCH, METHOD_NOT_FOUND, MISSING_CAPABILITY, UNSUPPORTED_VERSION};
use crate::era::{ClientIdentity, Era, LEGACY_VERSIONS, MODERN_VERSION};
use crate::hello::{Discovered, Hello, Initialized, read_discovery, read_initialized, supported_versions};
use crate::id::Id;
use crate::message::{Message, Outcome, RpcError};
use crate::meta::{Meta, SessionMeta, object_line, push_identity};
use crate::params::Params;
use crate::text::push_string;
use crate::write::{write_error, write_notification, write_request, write_result};

/// How long a server may be idle with an unanswered probe before `initialize` is sent as well. Published servers answer
/// the probe within moments once they are up, so silence of a busy process only means that it is not up yet.
pub const PROBE_SILENCE: Duration = Duration::from_secs(20);

/// Where a session's own request ids begin. The handshake uses ids from 1 on, at most four of them, so a late
/// answer to the handshake is never taken for an answer to a call.
pub const FIRST_SESSION_ID: u64 = 1_000;

const DISCOVER: &str = "server/discover";
const INITIALIZE: &str = "initialize";

/// The client's half of the handshake, without IO and without a clock. It asks one process and never wants another.
///
/// ```text
///            begin                          DiscoverResult
///   Fresh ───────────────► Probing ───────────────────────────────► Over: Done
///     │                     │   │ ▲                                     ▲
///     │ remembered Legacy   │   │ └──────────── -32601 or -32022, no probe answered yet
///     │                     │   │ silence                             │   │
///     │      any other      │   ▼            DiscoverResult           │   │
///     │      answer         │  Both ──────────────────────────────────┘   │
///     │                     │   │ any other answer to the probe           │
///     │                     ▼   ▼          known version                  │
///     └─────────────────► Initializing ─────────────────► Over: DoneAfter │
///                               └─────────────────────────────────────────┘
///                               └── other refusal, unknown version ──► Over: Fail
/// ```
///
/// In `Both` the probe and `initialize` are unanswered on the same process, and the first useful answer decides.
/// A server that refuses our version and names it as its own is probed once more.
/// A probe that follows a refused `initialize` is the last word: if it fails too, that refusal is the error.
/// Requests of the server are answered in every state but the last (`ping` with `{}`, others with -32601), its
/// notifications are passed over.
#[derive(Debug)]
pub struct Handshake {
    client: ClientIdentity,
    /// What a modern server is told that we can: a JSON object on one line.
    capabilities: String,
    /// The same for a legacy server, which is told once and for all.
    legacy_capabilities: String,
    remembered: Option<Era>,
    state: State,
    /// The id of the last request that was sent.
    last_id: u64,
    /// Whether a probe was answered. A silent one does not count: the server may only have been slow to start.
    has_discovered: bool,
    /// Whether a server that refused our version and named it was asked once more.
    has_asked_again: bool,
}

#[derive(Debug)]
enum State {
    Fresh,
    Probing {
        /// Why `initialize` failed before, if it was tried first.
        refusal: Option<HandshakeError>,
    },
    Both {
        /// The id of the probe; `initialize` has the last id.
        probe: u64,
    },
    Initializing,
    Over,
}

/// What the driver does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Write these bytes, newline included, and read on.
    Send(Vec<u8>),
    /// Read on.
    Wait,
    /// The session is open.
    Done(Hello),
    /// The session is open once these bytes are written.
    DoneAfter(Hello, Vec<u8>),
    /// There will be no session.
    Fail(HandshakeError),
}

/// Why there is no session.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// The server speaks revisions that we do not.
    #[error("the server speaks protocol version {}; spoken here: {MODERN_VERSION} and {}",
        said.join(", "), LEGACY_VERSIONS.join(", "))]
    UnsupportedVersion {
        /// What the server said it speaks.
        said: Vec<String>,
    },
    /// The server answered with an error.
    #[error("the server refuses {method}: {message} ({code})")]
    Refused {
        /// Our request.
        method: &'static str,
        /// The error's code.
        code: i64,
        /// The error's text, for people.
        message: String,
    },
    /// The server answered with a result that is none.
    #[error("the server's answer to {method} has the wrong shape")]
    BadReply {
        /// Our request.
        method: &'static str,
    },
    /// The server closed its output before the session was open.
    #[error("the server closed its output during the handshake")]
    Closed,
}

impl Handshake {
    /// A handshake for one start of a server. `remembered` is the era found the last time; it only saves a
    /// probe, and a server that has changed since is still understood. `capabilities_json` is what we declare;
    /// anything but a JSON object declares nothing.
    pub fn new(client: ClientIdentity, remembered: Option<Era>, capabilities_json: &str) -> Handshake {
        Handshake {
            client,
            capabilities: object_line(capabilities_json).into_owned(),
            legacy_capabilities: object_line(capabilities_json).into_owned(),
            remembered,
            state: State::Fresh,
            last_id: 0,
            has_discovered: false,
            has_asked_again: false,
        }
    }

    /// Declares something else to a legacy server. It hears of capabilities in the handshake only, where a
    /// modern one hears of them in every request.
    #[must_use]
    pub fn declaring_to_legacy(mut self, capabilities_json: &str) -> Handshake {
        self.legacy_capabilities = object_line(capabilities_json).into_owned();
        self
    }

    /// Opens the conversation.
    pub fn begin(&mut self) -> Step {
        match self.state {
            State::Fresh if self.remembered != Some(Era::Legacy) => self.probe(None),
            State::Fresh => self.initialize(),
            State::Probing { .. } | State::Both { .. } | State::Initializing | State::Over => Step::Wait,
        }
    }

    /// Returns whether the probe is the only unanswered request, so that [`Handshake::on_silence`] is due once the
    /// server has been idle for [`PROBE_SILENCE`].
    pub fn awaits_probe(&self) -> bool {
        matches!(self.state, State::Probing { .. })
    }

    /// Takes a message of the server.
    pub fn on_message(&mut self, message: &Message) -> Step {
        if matches!(self.state, State::Fresh | State::Over) {
            return Step::Wait;
        }
        match message {
            Message::Notification { .. } => Step::Wait,
            Message::Request { id, method, .. } => Step::Send(reply(id, method)),
            Message::Response { id, outcome } => match &self.state {
                // An error without an id is the answer to what was asked first.
                State::Both { probe } if answers(id.as_ref(), *probe) => self.on_late_discovery(outcome),
                _ if answers(id.as_ref(), self.last_id) => self.on_answer(outcome),
                _ => Step::Wait,
            },
        }
    }

    /// Takes note that the server is idle and has not answered the probe. Some legacy servers ignore a request before
    /// `initialize`, so that is sent on the same connection.
    pub fn on_silence(&mut self) -> Step {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Probing { refusal: None } => {
                let probe = self.last_id;
                let step = self.initialize();
                self.state = State::Both { probe };
                step
            }
            State::Probing { refusal: Some(refusal) } => Step::Fail(refusal),
            other => {
                self.state = other;
                Step::Wait
            }
        }
    }

    /// Takes note that the server's output has ended.
    pub fn on_closed(&mut self) -> Step {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Probing { refusal: Some(refusal) } => Step::Fail(refusal),
            _ => Step::Fail(HandshakeError::Closed),
        }
    }

    fn on_answer(&mut self, outcome: &Outcome) -> Step {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Probing { refusal } => {
                self.has_discovered = true;
                self.on_discovery(outcome, refusal)
            }
            State::Initializing => self.on_initialized(outcome, None),
            State::Both { probe } => self.on_initialized(outcome, Some(probe)),
            other => {
                self.state = other;
                Step::Wait
            }
        }
    }

    /// Takes the answer to a probe that `initialize` has followed already.
    fn on_late_discovery(&mut self, outcome: &Outcome) -> Step {
        self.has_discovered = true;
        self.state = State::Initializing;
        match outcome {
            Outcome::Result(raw) => match read_discovery(raw, &self.capabilities, &self.client) {
                Discovered::Modern(hello) => {
                    self.state = State::Over;
                    Step::Done(hello)
                }
                Discovered::Others(_) | Discovered::Strange => Step::Wait,
            },
            Outcome::Error(_) => Step::Wait,
        }
    }

    fn on_discovery(&mut self, outcome: &Outcome, refusal: Option<HandshakeError>) -> Step {
        let versions = match outcome {
            Outcome::Result(raw) => match read_discovery(raw, &self.capabilities, &self.client) {
                Discovered::Modern(hello) => return Step::Done(hello),
                Discovered::Others(versions) => Some(versions),
                Discovered::Strange => None,
            },
            Outcome::Error(error) => match error.code {
                // A modern server that will not even be discovered: `initialize` would mean nothing to it.
                HEADER_MISMATCH | MISSING_CAPABILITY => return Step::Fail(refused(DISCOVER, error)),
                UNSUPPORTED_VERSION => supported_versions(&error.raw),
                _ => None,
            },
        };
        // It speaks our version after all: whatever it did not like about the first probe, it is asked once more.
        if let Some(said) = &versions
            && said.iter().any(|version| version == MODERN_VERSION)
            && !std::mem::replace(&mut self.has_asked_again, true)
        {
            return self.probe(refusal);
        }
        if let Some(said) = versions
            && !said.iter().any(|version| LEGACY_VERSIONS.contains(&version.as_str()))
        {
            return Step::Fail(HandshakeError::UnsupportedVersion { said });
        }
        match refusal {
            Some(refusal) => Step::Fail(refusal),
            None => self.initialize(),
        }
    }

    /// Takes the answer to `initialize`; `probe` is the id of a probe that is still unanswered.
    fn on_initialized(&mut self, outcome: &Outcome, probe: Option<u64>) -> Step {
        match outcome {
            Outcome::Result(raw) => match read_initialized(raw) {
                Initialized::Legacy(hello) => {
                    let mut bytes = Vec::new();
                    write_notification(&mut bytes, "notifications/initialized", None);
                    Step::DoneAfter(hello, bytes)
                }
                Initialized::Other(version) => {
                    Step::Fail(HandshakeError::UnsupportedVersion { said: vec![version] })
                }
                Initialized::Strange => Step::Fail(HandshakeError::BadReply { method: INITIALIZE }),
            },
            Outcome::Error(error) => {
                let may_be_modern = matches!(error.code, METHOD_NOT_FOUND | UNSUPPORTED_VERSION);
                let refusal = refused(INITIALIZE, error);
                match probe {
                    // Its answer is on the way.
                    Some(probe) if may_be_modern => {
                        self.last_id = probe;
                        self.state = State::Probing { refusal: Some(refusal) };
                        Step::Wait
                    }
                    _ if may_be_modern && !self.has_discovered => self.probe(Some(refusal)),
                    _ => Step::Fail(refusal),
                }
            }
        }
    }

    fn probe(&mut self, refusal: Option<HandshakeError>) -> Step {
        self.state = State::Probing { refusal };
        let session = SessionMeta::modern(MODERN_VERSION, &self.capabilities, &self.client);
        let meta = Meta { session: Some(&session), ..Meta::default() };
        let mut bytes = Vec::new();
        write_request(&mut bytes, self.next_id(), DISCOVER, &Params::empty(), &meta);
        Step::Send(bytes)
    }

    fn initialize(&mut self) -> Step {
        self.state = State::Initializing;
        let id = self.next_id();
        let mut bytes =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{INITIALIZE}","params":"#).into_bytes();
        bytes.extend_from_slice(b"{\"protocolVersion\":");
        push_string(&mut bytes, LEGACY_VERSIONS[0]);
        bytes.extend_from_slice(b",\"capabilities\":");
        bytes.extend_from_slice(self.legacy_capabilities.as_bytes());
        bytes.extend_from_slice(b",\"clientInfo\":");
        push_identity(&mut bytes, &self.client);
        bytes.extend_from_slice(b"}}\n");
        Step::Send(bytes)
    }

    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }
}

/// Returns whether a response is the answer to the request of this number. An error without an id is one to whatever
/// was asked.
fn answers(id: Option<&Id>, request: u64) -> bool {
    id.is_none_or(|id| id.number() == Some(request))
}

/// Answers a request of the server.
fn reply(id: &Id, method: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    match method {
        "ping" => write_result(&mut bytes, id, b"{}"),
        _ => write_error(&mut bytes, id, METHOD_NOT_FOUND, "not available during the handshake", None),
    }
    bytes
}

fn refused(method: &'static str, error: &RpcError) -> HandshakeError {
    HandshakeError::Refused { method, code: error.code, message: error.message.clone() }
}

#[cfg(test)]
#[path = "handshake_tests.rs"]
mod tests;

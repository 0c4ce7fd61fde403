//! Handshake with a server over stdio.

use std::time::Duration;

use crate::era::{ClientInfo, Era, LEGACY_VERSIONS, MODERN_VERSION};
use crate::error_code::{HEADER_MISMATCH, METHOD_NOT_FOUND, MISSING_CAPABILITY, UNSUPPORTED_VERSION};
use crate::json_string::push_string;
use crate::message::{Message, RpcError, RpcOutcome};
use crate::meta::{RequestMeta, SessionMeta, object_on_one_line, push_client_info};
use crate::params::Params;
use crate::request_id::RequestId;
use crate::server_info::{
    DiscoverOutcome, InitializeOutcome, ServerInfo, parse_discover_result, parse_initialize_result,
    supported_versions,
};
use crate::write::{write_error, write_notification, write_request, write_result};

/// Time a server may be idle with an unanswered probe before `initialize` is sent as well. Published servers
/// answer the probe within moments once they have started, so silence of a busy process only means that it is
/// still starting.
pub const PROBE_TIMEOUT: Duration = Duration::from_secs(20);

/// First request id of a session. The handshake uses ids from 1 on, at most four of them, so a late answer to
/// the handshake is never taken for an answer to a call.
pub const FIRST_REQUEST_ID: u64 = 1_000;

const DISCOVER: &str = "server/discover";
const INITIALIZE: &str = "initialize";

/// The client's half of the handshake, without IO and without a clock. It talks to one process and never asks
/// for another.
///
/// ```text
///               begin                          DiscoverResult
///   NotStarted ────────────► Probing ───────────────────────────────► Finished: Done
///        │                     │   │ ▲                                     ▲
///        │ remembered Legacy   │   │ └──────────── -32601 or -32022, no probe answered yet
///        │                     │   │ timeout                             │   │
///        │      any other      │   ▼            DiscoverResult           │   │
///        │      answer         │  ProbingAndInitializing ────────────────┘   │
///        │                     │   │ any other answer to the probe           │
///        │                     ▼   ▼          known version                  │
///        └─────────────────► Initializing ────────────► Finished: SendThenDone
///                                  └─────────────────────────────────────────┘
///                                  └── other refusal, unknown version ──► Finished: Fail
/// ```
///
/// In `ProbingAndInitializing` both requests are unanswered on the same process, and the first useful answer
/// decides. A server that refuses our version but lists it as supported is probed once more. After a refused
/// `initialize` the probe decides: if it fails too, the refusal is the error. Requests of the server are
/// answered in every state but `Finished` (`ping` with `{}`, others with -32601); its notifications are
/// ignored.
#[derive(Debug)]
pub struct Handshake {
    client: ClientInfo,
    /// Capabilities declared to a modern server: a JSON object on one line.
    capabilities: String,
    /// Capabilities declared to a legacy server, once per session.
    legacy_capabilities: String,
    remembered_era: Option<Era>,
    state: HandshakeState,
    /// The id of the last request sent.
    last_id: u64,
    /// True after an answered probe. A silent one does not count: the server may only have been slow to
    /// start.
    is_probe_answered: bool,
    /// True after a server that refused our version but listed it was probed again.
    has_reprobed: bool,
}

#[derive(Debug)]
enum HandshakeState {
    NotStarted,
    Probing {
        /// The error of an earlier `initialize`.
        refusal: Option<HandshakeError>,
    },
    ProbingAndInitializing {
        /// The id of the probe; `initialize` has the last id.
        probe: u64,
    },
    Initializing,
    Finished,
}

/// Next action of the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandshakeStep {
    /// Write these bytes, newline included, and read on.
    Send(Vec<u8>),
    /// Read on.
    Wait,
    /// The session is open.
    Done(ServerInfo),
    /// The session is open once these bytes are written.
    SendThenDone(ServerInfo, Vec<u8>),
    /// The session can't be opened.
    Fail(HandshakeError),
}

/// Reason why the handshake failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// The server supports only revisions that we do not.
    #[error("the server speaks protocol version {}; spoken here: {MODERN_VERSION} and {}",
        supported.join(", "), LEGACY_VERSIONS.join(", "))]
    UnsupportedVersion {
        /// The versions the server listed.
        supported: Vec<String>,
    },
    /// The server answered with an error.
    #[error("the server refuses {method}: {message} ({code})")]
    Refused {
        /// The method of our request.
        method: &'static str,
        /// The error's code.
        code: i64,
        /// The error's message, for people.
        message: String,
    },
    /// The server's result has the wrong shape.
    #[error("the server's answer to {method} has the wrong shape")]
    InvalidResult {
        /// The method of our request.
        method: &'static str,
    },
    /// The server closed its output before the session was open.
    #[error("the server closed its output during the handshake")]
    Closed,
}

impl Handshake {
    /// Creates a handshake for one start of a server. `remembered_era` is the era found the last time: it
    /// only saves a probe, and a server that has changed its era since still connects. `capabilities_json` is
    /// the object we declare; anything but a JSON object declares nothing.
    pub fn new(client: ClientInfo, remembered_era: Option<Era>, capabilities_json: &str) -> Handshake {
        Handshake {
            client,
            capabilities: object_on_one_line(capabilities_json).into_owned(),
            legacy_capabilities: object_on_one_line(capabilities_json).into_owned(),
            remembered_era,
            state: HandshakeState::NotStarted,
            last_id: 0,
            is_probe_answered: false,
            has_reprobed: false,
        }
    }

    /// Declares other capabilities to a legacy server. A legacy server reads capabilities in the handshake
    /// only, a modern one in every request.
    #[must_use]
    pub fn with_legacy_capabilities(mut self, capabilities_json: &str) -> Handshake {
        self.legacy_capabilities = object_on_one_line(capabilities_json).into_owned();
        self
    }

    /// Starts the handshake.
    pub fn begin(&mut self) -> HandshakeStep {
        match self.state {
            HandshakeState::NotStarted if self.remembered_era != Some(Era::Legacy) => self.probe(None),
            HandshakeState::NotStarted => self.initialize(),
            HandshakeState::Probing { .. }
            | HandshakeState::ProbingAndInitializing { .. }
            | HandshakeState::Initializing
            | HandshakeState::Finished => HandshakeStep::Wait,
        }
    }

    /// Returns whether the probe is the only unanswered request, so that [`Handshake::on_probe_timeout`] is
    /// due once the server has been idle for [`PROBE_TIMEOUT`].
    pub fn is_awaiting_probe(&self) -> bool {
        matches!(self.state, HandshakeState::Probing { .. })
    }

    /// Handles a message of the server.
    pub fn on_message(&mut self, message: &Message) -> HandshakeStep {
        if matches!(self.state, HandshakeState::NotStarted | HandshakeState::Finished) {
            return HandshakeStep::Wait;
        }
        match message {
            Message::Notification { .. } => HandshakeStep::Wait,
            Message::Request { id, method, .. } => HandshakeStep::Send(respond_to_server(id, method)),
            Message::Response { id, outcome } => match &self.state {
                // An error without an id answers the first request.
                HandshakeState::ProbingAndInitializing { probe } if is_response_to(id.as_ref(), *probe) => {
                    self.on_late_discovery(outcome)
                }
                _ if is_response_to(id.as_ref(), self.last_id) => self.on_answer(outcome),
                _ => HandshakeStep::Wait,
            },
        }
    }

    /// Handles an idle server that has not answered the probe. Some legacy servers ignore requests before
    /// `initialize`, so that is sent on the same connection.
    pub fn on_probe_timeout(&mut self) -> HandshakeStep {
        match std::mem::replace(&mut self.state, HandshakeState::Finished) {
            HandshakeState::Probing { refusal: None } => {
                let probe = self.last_id;
                let step = self.initialize();
                self.state = HandshakeState::ProbingAndInitializing { probe };
                step
            }
            HandshakeState::Probing { refusal: Some(refusal) } => HandshakeStep::Fail(refusal),
            other => {
                self.state = other;
                HandshakeStep::Wait
            }
        }
    }

    /// Handles the end of the server's output.
    pub fn on_closed(&mut self) -> HandshakeStep {
        match std::mem::replace(&mut self.state, HandshakeState::Finished) {
            HandshakeState::Probing { refusal: Some(refusal) } => HandshakeStep::Fail(refusal),
            _ => HandshakeStep::Fail(HandshakeError::Closed),
        }
    }

    fn on_answer(&mut self, outcome: &RpcOutcome) -> HandshakeStep {
        match std::mem::replace(&mut self.state, HandshakeState::Finished) {
            HandshakeState::Probing { refusal } => {
                self.is_probe_answered = true;
                self.on_discovery(outcome, refusal)
            }
            HandshakeState::Initializing => self.on_initialized(outcome, None),
            HandshakeState::ProbingAndInitializing { probe } => self.on_initialized(outcome, Some(probe)),
            other => {
                self.state = other;
                HandshakeStep::Wait
            }
        }
    }

    /// Handles the answer to a probe after `initialize` was sent too.
    fn on_late_discovery(&mut self, outcome: &RpcOutcome) -> HandshakeStep {
        self.is_probe_answered = true;
        self.state = HandshakeState::Initializing;
        match outcome {
            RpcOutcome::Result(raw) => match parse_discover_result(raw, &self.capabilities, &self.client) {
                DiscoverOutcome::Modern(info) => {
                    self.state = HandshakeState::Finished;
                    HandshakeStep::Done(info)
                }
                DiscoverOutcome::OtherVersions(_) | DiscoverOutcome::NotDiscoverResult => HandshakeStep::Wait,
            },
            RpcOutcome::Error(_) => HandshakeStep::Wait,
        }
    }

    fn on_discovery(&mut self, outcome: &RpcOutcome, refusal: Option<HandshakeError>) -> HandshakeStep {
        let versions = match outcome {
            RpcOutcome::Result(raw) => match parse_discover_result(raw, &self.capabilities, &self.client) {
                DiscoverOutcome::Modern(info) => return HandshakeStep::Done(info),
                DiscoverOutcome::OtherVersions(versions) => Some(versions),
                DiscoverOutcome::NotDiscoverResult => None,
            },
            RpcOutcome::Error(error) => match error.code {
                // A modern server that refuses even `server/discover` does not know `initialize`.
                HEADER_MISMATCH | MISSING_CAPABILITY => {
                    return HandshakeStep::Fail(refused_error(DISCOVER, error));
                }
                UNSUPPORTED_VERSION => supported_versions(&error.raw),
                _ => None,
            },
        };
        // The server supports our version after all. It refused the first probe for another reason, so it is
        // probed once more.
        if let Some(listed) = &versions
            && listed.iter().any(|version| version == MODERN_VERSION)
            && !std::mem::replace(&mut self.has_reprobed, true)
        {
            return self.probe(refusal);
        }
        if let Some(listed) = versions
            && !listed.iter().any(|version| LEGACY_VERSIONS.contains(&version.as_str()))
        {
            return HandshakeStep::Fail(HandshakeError::UnsupportedVersion { supported: listed });
        }
        match refusal {
            Some(refusal) => HandshakeStep::Fail(refusal),
            None => self.initialize(),
        }
    }

    /// Handles the answer to `initialize`; `probe` is the id of a probe that is still unanswered.
    fn on_initialized(&mut self, outcome: &RpcOutcome, probe: Option<u64>) -> HandshakeStep {
        match outcome {
            RpcOutcome::Result(raw) => match parse_initialize_result(raw) {
                InitializeOutcome::Legacy(info) => {
                    let mut bytes = Vec::new();
                    write_notification(&mut bytes, "notifications/initialized", None);
                    HandshakeStep::SendThenDone(info, bytes)
                }
                InitializeOutcome::OtherVersion(version) => {
                    HandshakeStep::Fail(HandshakeError::UnsupportedVersion { supported: vec![version] })
                }
                InitializeOutcome::NotInitializeResult => {
                    HandshakeStep::Fail(HandshakeError::InvalidResult { method: INITIALIZE })
                }
            },
            RpcOutcome::Error(error) => {
                let may_be_modern = matches!(error.code, METHOD_NOT_FOUND | UNSUPPORTED_VERSION);
                let refusal = refused_error(INITIALIZE, error);
                match probe {
                    // The answer to the probe is still to come.
                    Some(probe) if may_be_modern => {
                        self.last_id = probe;
                        self.state = HandshakeState::Probing { refusal: Some(refusal) };
                        HandshakeStep::Wait
                    }
                    _ if may_be_modern && !self.is_probe_answered => self.probe(Some(refusal)),
                    _ => HandshakeStep::Fail(refusal),
                }
            }
        }
    }

    fn probe(&mut self, refusal: Option<HandshakeError>) -> HandshakeStep {
        self.state = HandshakeState::Probing { refusal };
        let session = SessionMeta::modern(MODERN_VERSION, &self.capabilities, &self.client);
        let meta = RequestMeta { session: Some(&session), ..RequestMeta::default() };
        let mut bytes = Vec::new();
        write_request(&mut bytes, self.next_id(), DISCOVER, &Params::empty(), &meta);
        HandshakeStep::Send(bytes)
    }

    fn initialize(&mut self) -> HandshakeStep {
        self.state = HandshakeState::Initializing;
        let id = self.next_id();
        let mut bytes =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{INITIALIZE}","params":"#).into_bytes();
        bytes.extend_from_slice(b"{\"protocolVersion\":");
        push_string(&mut bytes, LEGACY_VERSIONS[0]);
        bytes.extend_from_slice(b",\"capabilities\":");
        bytes.extend_from_slice(self.legacy_capabilities.as_bytes());
        bytes.extend_from_slice(b",\"clientInfo\":");
        push_client_info(&mut bytes, &self.client);
        bytes.extend_from_slice(b"}}\n");
        HandshakeStep::Send(bytes)
    }

    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }
}

/// Returns whether a response answers our request of this number. An error without an id answers any request.
fn is_response_to(id: Option<&RequestId>, request: u64) -> bool {
    id.is_none_or(|id| id.number() == Some(request))
}

/// Returns the answer to a request of the server.
fn respond_to_server(id: &RequestId, method: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    match method {
        "ping" => write_result(&mut bytes, id, b"{}"),
        _ => write_error(&mut bytes, id, METHOD_NOT_FOUND, "not available during the handshake", None),
    }
    bytes
}

fn refused_error(method: &'static str, error: &RpcError) -> HandshakeError {
    HandshakeError::Refused { method, code: error.code, message: error.message.clone() }
}

#[cfg(test)]
#[path = "handshake_tests.rs"]
mod tests;

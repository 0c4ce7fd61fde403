//! Era of each request: decides by the revision and the handshake whether it is served.

use crate::message::FakeParams;
use crate::options::{FakeOptions, HandshakeBehaviour, SupportedEras};
use crate::response::ErrorReply;

/// The stateless revision.
pub(crate) const MODERN: &str = "2026-07-28";
/// The revisions with a handshake, newest first: the first is offered to a client that asks for
/// none of them.
pub(crate) const LEGACY: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
/// The version that `--bad-version` offers.
const UNSUPPORTED_VERSION: &str = "1999-01-01";

const LEGACY_METHODS: [&str; 16] = [
    "initialize",
    "ping",
    "tools/list",
    "tools/call",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "resources/subscribe",
    "resources/unsubscribe",
    "logging/setLevel",
    "prompts/list",
    "prompts/get",
    "tasks/list",
    "tasks/get",
    "tasks/result",
    "tasks/cancel",
];

/// The kind of revision that a request speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestEra {
    Legacy,
    Modern,
}

/// The decision about a request before its method is looked at.
#[derive(Debug)]
pub(crate) enum RequestDecision {
    Serve(RequestEra),
    Refuse(ErrorReply),
    /// No answer at all.
    Ignore,
}

/// The progress of the legacy handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LegacyHandshake {
    NotStarted,
    Initializing,
    Initialized,
}

/// Decides which requests are served: knows the supported revisions and the state of the legacy
/// session.
#[derive(Debug)]
pub(crate) struct EraNegotiator {
    speaks: SupportedEras,
    handshake: HandshakeBehaviour,
    session: LegacyHandshake,
}

impl EraNegotiator {
    pub(crate) fn new(options: &FakeOptions) -> Self {
        Self { speaks: options.speaks, handshake: options.handshake, session: LegacyHandshake::NotStarted }
    }

    /// Handles `notifications/initialized`. Before `initialize` it has no effect.
    pub(crate) fn on_initialized(&mut self) {
        if self.session == LegacyHandshake::Initializing {
            self.session = LegacyHandshake::Initialized;
        }
    }

    /// Returns the version that `initialize` answers with.
    pub(crate) fn negotiate(&mut self, params: &FakeParams<'_>) -> &'static str {
        self.session = LegacyHandshake::Initializing;
        if self.handshake == HandshakeBehaviour::BadVersion {
            return UNSUPPORTED_VERSION;
        }
        let wanted = params.protocol_version.as_ref().map_or("", |version| &version.0);
        LEGACY.into_iter().find(|known| *known == wanted).unwrap_or(LEGACY[0])
    }

    /// Returns the version that `server/discover` offers.
    pub(crate) fn offered_version(&self) -> &'static str {
        if self.handshake == HandshakeBehaviour::BadVersion { UNSUPPORTED_VERSION } else { MODERN }
    }

    /// Decides whether a request is served, and in which era.
    pub(crate) fn admit(&self, method: &str, params: &FakeParams<'_>) -> RequestDecision {
        if matches!(method, "initialize" | "server/discover") {
            match self.handshake {
                HandshakeBehaviour::Hang => return RequestDecision::Ignore,
                HandshakeBehaviour::Error => {
                    return RequestDecision::Refuse(ErrorReply::internal("the handshake fails on purpose"));
                }
                HandshakeBehaviour::Normal | HandshakeBehaviour::BadVersion => {}
            }
        }
        let is_marked =
            params.meta.as_ref().is_some_and(|meta| meta.version.is_some() || meta.capabilities.is_some());
        match self.speaks {
            SupportedEras::Legacy | SupportedEras::SilentProbe => self.admit_legacy(method),
            SupportedEras::Modern => self.admit_modern(method, params),
            SupportedEras::Both if is_marked || method == "server/discover" => {
                self.admit_modern(method, params)
            }
            SupportedEras::Both
                if self.session == LegacyHandshake::NotStarted
                    && !matches!(method, "initialize" | "ping") =>
            {
                self.admit_modern(method, params)
            }
            SupportedEras::Both => self.admit_legacy(method),
        }
    }

    fn admit_modern(&self, method: &str, params: &FakeParams<'_>) -> RequestDecision {
        // Methods that the revision does not have are unknown, whatever `_meta` says.
        if matches!(method, "initialize" | "ping") {
            return RequestDecision::Refuse(ErrorReply::unknown_method(method));
        }
        let meta = params.meta.as_ref();
        let version = meta.and_then(|meta| meta.version.as_ref());
        let capabilities = meta.and_then(|meta| meta.capabilities);
        let (Some(version), Some(_)) = (version, capabilities) else {
            return RequestDecision::Refuse(ErrorReply::bad_params(
                "_meta lacks protocolVersion or clientCapabilities",
            ));
        };
        let is_known = version.0 == self.offered_version();
        if is_known || (method == "server/discover" && version.0 == MODERN) {
            return RequestDecision::Serve(RequestEra::Modern);
        }
        RequestDecision::Refuse(ErrorReply::unsupported_version(&version.0, self.offered_version()))
    }

    fn admit_legacy(&self, method: &str) -> RequestDecision {
        let is_known = LEGACY_METHODS.contains(&method);
        match (self.session, is_known) {
            (LegacyHandshake::NotStarted, false) if self.speaks == SupportedEras::SilentProbe => {
                RequestDecision::Ignore
            }
            (_, false) => RequestDecision::Refuse(ErrorReply::unknown_method(method)),
            (LegacyHandshake::Initialized, true) => RequestDecision::Serve(RequestEra::Legacy),
            (_, true) if matches!(method, "initialize" | "ping") => {
                RequestDecision::Serve(RequestEra::Legacy)
            }
            (_, true) => RequestDecision::Refuse(ErrorReply::new(-32600, "the session is not initialized")),
        }
    }
}

//! Which revision a request speaks, and whether it may be served yet.

use crate::message::Params;
use crate::reply::Refusal;
use crate::script::{Handshake, Script, Speaks};

/// The stateless revision.
pub(crate) const MODERN: &str = "2026-07-28";
/// The revisions with a handshake, newest first: the first is offered to a client that asks for none of them.
pub(crate) const LEGACY: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
/// What `--bad-version` offers.
const BAD: &str = "1999-01-01";

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

/// The kind of revision one request speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Era {
    Legacy,
    Modern,
}

/// What becomes of a request before its method is looked at.
#[derive(Debug)]
pub(crate) enum Verdict {
    Serve(Era),
    Refuse(Refusal),
    /// No answer at all.
    Ignore,
}

/// How far the legacy handshake has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Session {
    Fresh,
    Greeted,
    Open,
}

/// The doorkeeper: knows the revisions served and the state of the legacy session.
#[derive(Debug)]
pub(crate) struct Gate {
    speaks: Speaks,
    handshake: Handshake,
    session: Session,
}

impl Gate {
    pub(crate) fn new(script: &Script) -> Self {
        Self { speaks: script.speaks, handshake: script.handshake, session: Session::Fresh }
    }

    /// `notifications/initialized` arrived. Before `initialize` it means nothing.
    pub(crate) fn on_initialized(&mut self) {
        if self.session == Session::Greeted {
            self.session = Session::Open;
        }
    }

    /// The version `initialize` answers with.
    pub(crate) fn negotiate(&mut self, params: &Params<'_>) -> &'static str {
        self.session = Session::Greeted;
        if self.handshake == Handshake::BadVersion {
            return BAD;
        }
        let wanted = params.protocol_version.as_ref().map_or("", |version| &version.0);
        LEGACY.into_iter().find(|known| *known == wanted).unwrap_or(LEGACY[0])
    }

    /// The version `server/discover` offers.
    pub(crate) fn offers(&self) -> &'static str {
        if self.handshake == Handshake::BadVersion { BAD } else { MODERN }
    }

    /// Decides whether a request is served, and in which era.
    pub(crate) fn admit(&self, method: &str, params: &Params<'_>) -> Verdict {
        if matches!(method, "initialize" | "server/discover") {
            match self.handshake {
                Handshake::Hang => return Verdict::Ignore,
                Handshake::Error => {
                    return Verdict::Refuse(Refusal::internal("the handshake fails on purpose"));
                }
                Handshake::Proper | Handshake::BadVersion => {}
            }
        }
        let is_marked =
            params.meta.as_ref().is_some_and(|meta| meta.version.is_some() || meta.capabilities.is_some());
        match self.speaks {
            Speaks::Legacy | Speaks::SilentProbe => self.admit_legacy(method),
            Speaks::Modern => self.admit_modern(method, params),
            Speaks::Both if is_marked || method == "server/discover" => self.admit_modern(method, params),
            Speaks::Both if self.session == Session::Fresh && !matches!(method, "initialize" | "ping") => {
                self.admit_modern(method, params)
            }
            Speaks::Both => self.admit_legacy(method),
        }
    }

    fn admit_modern(&self, method: &str, params: &Params<'_>) -> Verdict {
        // Methods the revision does not have are unknown whatever `_meta` says.
        if matches!(method, "initialize" | "ping") {
            return Verdict::Refuse(Refusal::unknown_method(method));
        }
        let meta = params.meta.as_ref();
        let version = meta.and_then(|meta| meta.version.as_ref());
        let capabilities = meta.and_then(|meta| meta.capabilities);
        let (Some(version), Some(_)) = (version, capabilities) else {
            return Verdict::Refuse(Refusal::bad_params("_meta lacks protocolVersion or clientCapabilities"));
        };
        let is_known = version.0 == self.offers();
        if is_known || (method == "server/discover" && version.0 == MODERN) {
            return Verdict::Serve(Era::Modern);
        }
        Verdict::Refuse(Refusal::unsupported_version(&version.0, self.offers()))
    }

    fn admit_legacy(&self, method: &str) -> Verdict {
        let is_known = LEGACY_METHODS.contains(&method);
        match (self.session, is_known) {
            (Session::Fresh, false) if self.speaks == Speaks::SilentProbe => Verdict::Ignore,
            (_, false) => Verdict::Refuse(Refusal::unknown_method(method)),
            (Session::Open, true) => Verdict::Serve(Era::Legacy),
            (_, true) if matches!(method, "initialize" | "ping") => Verdict::Serve(Era::Legacy),
            (_, true) => Verdict::Refuse(Refusal::new(-32600, "the session is not initialized")),
        }
    }
}

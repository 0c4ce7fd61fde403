//! Enforcement of pins on calls: a call is sent only on a session whose list has been evaluated.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ostler_core::catalog::uri_template;
use ostler_core::error::CallError;
use ostler_core::fault::Delivery;
use ostler_core::pins::{LockSection, PinPolicy, PinStatus};
use ostler_core::server_name::ServerName;
use tokio::time::{Instant, timeout_at};

use crate::call::unknown_item;
use crate::host::Host;
use crate::lists::Kind;
use crate::policy::Access;
use crate::registry::RegistrySnapshot;
use crate::request::{Request, RequestSubject};
use crate::server::lease::{Lease, LeaseDeadlines};
use crate::server::pin_verdicts::is_unapproved;
use crate::server::server_list::ServerList;
use crate::server::slot::Slot;
use crate::upstream::BoxFuture;

/// Bounds the fetches by one call of a server whose lists keep changing; a resource needs two lists.
const MAX_LIST_FETCHES: usize = 4;

/// Decision about sending a call on a session.
enum PinDecision {
    Allow,
    Refuse(CallError),
    /// The session's list of this kind is not known.
    NeedsList(Kind),
}

/// State of an item in the lists of a session.
enum ListedState {
    Listed(PinStatus),
    /// The session does not list it.
    Absent(Option<Arc<ServerList>>),
    /// The list is not known.
    ListUnknown,
}

impl Host {
    /// Leases a session on which a call may be sent, by the lists of that session. Where nothing is pinned this is a
    /// lease and one load.
    pub(crate) async fn pin_checked_lease(
        &self,
        slot: &Arc<Slot>,
        request: &Request<'_>,
        now: Instant,
        patience: LeaseDeadlines,
    ) -> Result<Lease, CallError> {
        let mut lease = slot.lease(request, now, patience).await?;
        for _ in 0..MAX_LIST_FETCHES {
            let kind = match self.decide_by_pins(slot, request, lease.generation()) {
                PinDecision::Allow => return Ok(lease),
                PinDecision::Refuse(error) => return Err(error),
                PinDecision::NeedsList(kind) => kind,
            };
            // The server may accept one request only, and the list is one.
            drop(lease);
            self.fetch_session_list(slot, (request, kind), patience.during_start).await?;
            lease = slot.lease(request, Instant::now(), patience).await?;
        }
        match self.decide_by_pins(slot, request, lease.generation()) {
            PinDecision::Allow => Ok(lease),
            PinDecision::Refuse(error) => Err(error),
            PinDecision::NeedsList(kind) => Err(CallError::UpstreamProtocol {
                server: slot.key.server.clone(),
                detail: format!(
                    "its {} list changes faster than it can be compared with what was approved",
                    kind.noun()
                ),
            }),
        }
    }

    /// Returns whether a call may still be sent on a session.
    pub(crate) fn may_send_on(&self, slot: &Slot, request: &Request<'_>, generation: u64) -> bool {
        matches!(self.decide_by_pins(slot, request, generation), PinDecision::Allow)
    }

    fn decide_by_pins(&self, slot: &Slot, request: &Request<'_>, generation: u64) -> PinDecision {
        let current = match self.snapshot_at_send(slot, request) {
            Ok(current) => current,
            Err(error) => return PinDecision::Refuse(error),
        };
        let Some(pins) = current.enforced_pins() else { return PinDecision::Allow };
        let look = PinCheck { pins, slot, request, generation };
        if let Some(tool) = request.tool_name() {
            return self.decide_listed_item(&look, Kind::Tools, &tool);
        }
        if !matches!(
            request.method(),
            "prompts/get" | "resources/read" | "resources/subscribe" | "completion/complete"
        ) {
            return PinDecision::Allow;
        }
        match request.subject() {
            Ok(RequestSubject::Item(Kind::Prompts, name)) => {
                self.decide_listed_item(&look, Kind::Prompts, &name)
            }
            Ok(RequestSubject::Item(Kind::Resources | Kind::Templates, uri)) => {
                match decide_resource(&look, &uri) {
                    // A changed definition would reveal that a hidden item exists. The request is not sent anyway.
                    PinDecision::Refuse(_) if request.is_hidden => PinDecision::Allow,
                    gate => gate,
                }
            }
            // Unreadable parameters were refused before.
            Ok(_) | Err(_) => PinDecision::Allow,
        }
    }

    /// Returns the snapshot that decides about sending a request now. After a new snapshot, its rules and pins decide
    /// together. A call of a server that was replaced meanwhile must be allowed by both snapshots, and meets the pins
    /// that it was called under.
    fn snapshot_at_send(
        &self,
        slot: &Slot,
        request: &Request<'_>,
    ) -> Result<Arc<RegistrySnapshot>, CallError> {
        let now = Arc::clone(&self.current());
        let Some(judged_by) = request.snapshot.as_ref().filter(|judged_by| !Arc::ptr_eq(judged_by, &now))
        else {
            return Ok(now);
        };
        let Some(server) = now.server(request.server()) else { return Ok(Arc::clone(judged_by)) };
        let is_same_server = judged_by.server(request.server()).is_some_and(|it| Arc::ptr_eq(it, server));
        let decides = match server.registration == slot.key.registration {
            true => Arc::clone(&now),
            false => Arc::clone(judged_by),
        };
        if request.is_hidden || (is_same_server && judged_by.has_same_policy(&now)) {
            return Ok(decides);
        }
        match request.subject().map(|wanted| now.access(request.caller(), server, wanted.as_policy_subject()))
        {
            Ok(Access::Allowed) => Ok(decides),
            Ok(Access::ServerHidden(_)) => Err(now.unknown_server(Some(request.caller()), request.server())),
            Ok(Access::ItemHidden(_)) => Err(self.not_found_error(request, server, &request.subject()?)),
            Err(error) => Err(error),
        }
    }

    /// Decides about an item that exists only where it is listed.
    fn decide_listed_item(&self, look: &PinCheck<'_, '_>, kind: Kind, name: &str) -> PinDecision {
        if !look.pins.is_section_pinned(look.slot.key.server.as_str(), kind.section()) {
            return PinDecision::Allow;
        }
        match look.lookup(kind, name) {
            ListedState::Listed(standing) if is_unapproved(standing) => {
                PinDecision::Refuse(definition_changed_error(look.slot, kind, name))
            }
            ListedState::Listed(_) => PinDecision::Allow,
            ListedState::Absent(known) if kind == Kind::Tools => PinDecision::Refuse(
                self.unlisted_tool_error(look.request, &look.slot.key.server, known.as_deref()),
            ),
            ListedState::Absent(_) => PinDecision::Refuse(unknown_item(kind, name)),
            ListedState::ListUnknown => PinDecision::NeedsList(kind),
        }
    }

    /// Returns the error for a tool that the session does not list: without a definition it can't be approved, so it is
    /// as unknown as one that never existed.
    fn unlisted_tool_error(
        &self,
        request: &Request<'_>,
        server: &ServerName,
        known: Option<&ServerList>,
    ) -> CallError {
        match self.server(server.as_str()) {
            Ok(server) => self.unknown_tool_error(request, &server, known),
            Err(error) => error,
        }
    }

    /// Fetches the list of the live session, coalesced with other fetches. Boxed as a trait object: the fetch is itself
    /// a request, and skips this check.
    fn fetch_session_list<'a>(
        &'a self,
        slot: &'a Arc<Slot>,
        (request, kind): (&'a Request<'_>, Kind),
        until: Instant,
    ) -> BoxFuture<'a, Result<(), CallError>> {
        Box::pin(async move {
            match timeout_at(until, self.fetch_list(slot, request.caller(), kind)).await {
                Ok(fetched) => fetched.map(drop),
                Err(_) => Err(slot.timed_out_error(request, Delivery::NotSent)),
            }
        })
    }

    /// Returns whether a call may be repeated although it may have run: the operator trusts the server, and the
    /// approved definition declares the tool idempotent.
    pub(crate) fn is_trusted_idempotent(&self, slot: &Slot, request: &Request<'_>) -> bool {
        let current = self.snapshot_of(slot, request);
        let (true, Some(tool)) = (current.spec_of(slot).trust, request.tool_name()) else { return false };
        let (Some(pins), Some(known)) = (&current.pins, slot.cached_list_for(request.caller(), Kind::Tools))
        else {
            return false;
        };
        let (server, section) = (&slot.key.server, LockSection::Tools);
        let standing = known.pin_status(pins, (server, section), &tool);
        standing == Some(PinStatus::Approved)
            && pins
                .pin(server.as_str(), section, &tool)
                .is_some_and(|pin| is_declared_idempotent(&pin.definition))
    }
}

/// One request on one session, checked against pins.
struct PinCheck<'a, 'r> {
    pins: &'a Arc<PinPolicy>,
    slot: &'a Slot,
    request: &'a Request<'r>,
    generation: u64,
}

impl PinCheck<'_, '_> {
    /// Finds an item in the list that this very session gives the caller.
    fn lookup(&self, kind: Kind, name: &str) -> ListedState {
        let of = (&self.slot.key.server, kind.section());
        if let Some(known) = self.slot.list_of_session(self.request.caller(), (kind, self.generation)) {
            return match known.pin_status(self.pins, of, name) {
                Some(standing) => ListedState::Listed(standing),
                None => ListedState::Absent(Some(known)),
            };
        }
        // If lists are private, another caller's list of this session serves a caller that has none.
        let shelf = self.slot.list_cache(kind);
        let changes = shelf.changes.load(Ordering::Acquire);
        let is_approved = |known: &ServerList| {
            let standing = || known.pin_status(self.pins, of, name);
            known.is_current_for(self.generation, changes) && standing().is_some_and(|it| !is_unapproved(it))
        };
        match !self.request.is_hidden && shelf.any(is_approved) {
            true => ListedState::Listed(PinStatus::Approved),
            false => ListedState::ListUnknown,
        }
    }
}

/// Decides about a URI. A listed resource must be approved as it is listed, or be new and fit an approved template. An
/// unlisted one, and a template itself, must fit an approved template if it fits any. A URI that the server neither
/// lists nor describes has no definition that could be pinned.
fn decide_resource(look: &PinCheck<'_, '_>, uri: &str) -> PinDecision {
    let server = look.slot.key.server.as_str();
    let refused = || PinDecision::Refuse(definition_changed_error(look.slot, Kind::Resources, uri));
    let mut is_new = false;
    if look.pins.is_section_pinned(server, LockSection::Resources) {
        match look.lookup(Kind::Resources, uri) {
            ListedState::Listed(PinStatus::Changed) => return refused(),
            ListedState::Listed(PinStatus::New) => is_new = true,
            ListedState::Listed(PinStatus::Approved | PinStatus::Unpinned) => return PinDecision::Allow,
            ListedState::Absent(_) => {}
            ListedState::ListUnknown => return PinDecision::NeedsList(Kind::Resources),
        }
    }
    if !look.pins.is_section_pinned(server, LockSection::Templates) {
        return if is_new { refused() } else { PinDecision::Allow };
    }
    let Some(known) = look.slot.list_of_session(look.request.caller(), (Kind::Templates, look.generation))
    else {
        return PinDecision::NeedsList(Kind::Templates);
    };
    let judgement = known.pin_verdicts(look.pins, (&look.slot.key.server, LockSection::Templates));
    let fitting = known
        .items
        .iter()
        .enumerate()
        .filter(|(_, item)| &*item.name == uri || uri_template::matches(&item.name, uri));
    let standings: Vec<PinStatus> = fitting.filter_map(|(at, _)| judgement.status(at)).collect();
    match standings.iter().any(|standing| !is_unapproved(*standing)) {
        true => PinDecision::Allow,
        false if standings.is_empty() && !is_new => PinDecision::Allow,
        false => refused(),
    }
}

fn definition_changed_error(slot: &Slot, kind: Kind, name: &str) -> CallError {
    let tool =
        if kind == Kind::Tools { name.to_owned() } else { format!("{}:{name}", kind.section().noun()) };
    CallError::DefinitionChanged { server: slot.key.server.clone(), tool }
}

/// Returns whether an approved definition declares the tool idempotent.
fn is_declared_idempotent(definition: &[u8]) -> bool {
    let Some(annotations) = ostler_wire::member(definition, "annotations") else { return false };
    ["readOnlyHint", "idempotentHint"]
        .iter()
        .any(|hint| ostler_wire::member(annotations, hint) == Some(b"true"))
}

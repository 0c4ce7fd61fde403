//! Calls: sent only on a session whose list has been judged.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ostler_core::catalog::template;
use ostler_core::error::CallError;
use ostler_core::fault::Delivery;
use ostler_core::name::ServerName;
use ostler_core::pins::{Pins, Section, Standing};
use tokio::time::{Instant, timeout_at};

use crate::call::unknown_item;
use crate::host::Host;
use crate::lists::Kind;
use crate::policy::Access;
use crate::registry::Current;
use crate::request::{Request, Wanted};
use crate::server::judgement::is_unapproved;
use crate::server::known::Known;
use crate::server::lease::{Lease, Patience};
use crate::server::slot::Slot;
use crate::upstream::BoxFuture;

/// How often one call looks at the lists of a server that goes on changing them; a resource needs two lists.
const LOOKS: usize = 4;

/// Whether a call may be sent on a session.
enum Gate {
    Open,
    Shut(CallError),
    /// The list of this kind that the session gives is not known.
    Unseen(Kind),
}

/// How an item stands in the lists of a session.
enum Seen {
    Standing(Standing),
    /// The session does not list it.
    Absent(Option<Arc<Known>>),
    /// The list is not known.
    Unseen,
}

impl Host {
    /// A session on which a call may be sent, by what that session lists. Where
    /// nothing is pinned this is a lease and one load.
    pub(crate) async fn checked_lease(
        &self,
        slot: &Arc<Slot>,
        request: &Request<'_>,
        now: Instant,
        patience: Patience,
    ) -> Result<Lease, CallError> {
        let mut lease = slot.lease(request, now, patience).await?;
        for _ in 0..LOOKS {
            let kind = match self.gate(slot, request, lease.generation()) {
                Gate::Open => return Ok(lease),
                Gate::Shut(error) => return Err(error),
                Gate::Unseen(kind) => kind,
            };
            // The server may have room for one request only, and the list is one.
            drop(lease);
            self.look(slot, (request, kind), patience.end).await?;
            lease = slot.lease(request, Instant::now(), patience).await?;
        }
        match self.gate(slot, request, lease.generation()) {
            Gate::Open => Ok(lease),
            Gate::Shut(error) => Err(error),
            Gate::Unseen(kind) => Err(CallError::UpstreamProtocol {
                server: slot.key.server.clone(),
                detail: format!(
                    "its {} list changes faster than it can be compared with what was approved",
                    kind.noun()
                ),
            }),
        }
    }

    /// Whether nothing speaks against sending a call on a session any more.
    pub(crate) fn is_open(&self, slot: &Slot, request: &Request<'_>, generation: u64) -> bool {
        matches!(self.gate(slot, request, generation), Gate::Open)
    }

    fn gate(&self, slot: &Slot, request: &Request<'_>, generation: u64) -> Gate {
        let current = match self.in_force_at(slot, request) {
            Ok(current) => current,
            Err(error) => return Gate::Shut(error),
        };
        let Some(pins) = current.enforced() else { return Gate::Open };
        let look = Look { pins, slot, request, generation };
        if let Some(tool) = request.tool_name() {
            return self.gate_listed(&look, Kind::Tools, &tool);
        }
        if !matches!(
            request.method(),
            "prompts/get" | "resources/read" | "resources/subscribe" | "completion/complete"
        ) {
            return Gate::Open;
        }
        match request.wanted() {
            Ok(Wanted::Item(Kind::Prompts, name)) => self.gate_listed(&look, Kind::Prompts, &name),
            Ok(Wanted::Item(Kind::Resources | Kind::Templates, uri)) => match gate_resource(&look, &uri) {
                // That its definition has changed would tell that a hidden one exists. It is not sent anyway.
                Gate::Shut(_) if request.is_hidden => Gate::Open,
                gate => gate,
            },
            // What can't be read was refused before.
            Ok(_) | Err(_) => Gate::Open,
        }
    }

    /// Returns what decides about sending a request now. Where something else was applied since the request was judged,
    /// rules and pins of that decide together; a server that is being replaced is judged by what it was called under.
    fn in_force_at(&self, slot: &Slot, request: &Request<'_>) -> Result<Arc<Current>, CallError> {
        let now = Arc::clone(&self.current());
        let Some(judged_by) = request.judged_by.as_ref().filter(|judged_by| !Arc::ptr_eq(judged_by, &now))
        else {
            return Ok(now);
        };
        let server = now.server(request.server());
        let Some(server) = server.filter(|server| server.registration == slot.key.registration) else {
            return Ok(Arc::clone(judged_by));
        };
        if request.is_hidden || judged_by.has_policy_of(&now) {
            return Ok(now);
        }
        match request.wanted().map(|wanted| now.access(request.caller(), server, wanted.as_subject())) {
            Ok(Access::Allowed) => Ok(now),
            Ok(Access::ServerHidden(_)) => Err(now.unknown_server(Some(request.caller()), request.server())),
            Ok(Access::ItemHidden(_)) => Err(self.no_such(request, server, &request.wanted()?)),
            Err(error) => Err(error),
        }
    }

    /// Judges an item that exists only where it is listed.
    fn gate_listed(&self, look: &Look<'_, '_>, kind: Kind, name: &str) -> Gate {
        if !look.pins.covers(look.slot.key.server.as_str(), kind.section()) {
            return Gate::Open;
        }
        match look.see(kind, name) {
            Seen::Standing(standing) if is_unapproved(standing) => Gate::Shut(refusal(look.slot, kind, name)),
            Seen::Standing(_) => Gate::Open,
            Seen::Absent(known) if kind == Kind::Tools => {
                Gate::Shut(self.gone(look.request, &look.slot.key.server, known.as_deref()))
            }
            Seen::Absent(_) => Gate::Shut(unknown_item(kind, name)),
            Seen::Unseen => Gate::Unseen(kind),
        }
    }

    /// The session does not list the tool, so there is nothing that was approved
    /// or not; it is as unknown as one that never was.
    fn gone(&self, request: &Request<'_>, server: &ServerName, known: Option<&Known>) -> CallError {
        match self.server(server.as_str()) {
            Ok(server) => self.unknown(request, &server, known),
            Err(error) => error,
        }
    }

    /// Asks for the list of the session there is, together with others who do.
    /// Boxed as a trait object: asking is itself a request, without this gate.
    fn look<'a>(
        &'a self,
        slot: &'a Arc<Slot>,
        (request, kind): (&'a Request<'_>, Kind),
        until: Instant,
    ) -> BoxFuture<'a, Result<(), CallError>> {
        Box::pin(async move {
            match timeout_at(until, self.fetch_list(slot, request.caller(), kind)).await {
                Ok(fetched) => fetched.map(drop),
                Err(_) => Err(slot.out_of_time(request, Delivery::NotSent)),
            }
        })
    }

    /// Whether a call may be repeated although it may have run: the operator
    /// trusts the server, and what was approved says that repeating is harmless.
    pub(crate) fn is_trusted_idempotent(&self, slot: &Slot, request: &Request<'_>) -> bool {
        let (true, Some(tool)) = (slot.spec.trust, request.tool_name()) else { return false };
        let current = self.current_of(request);
        let (Some(pins), Some(known)) = (&current.pins, slot.known_to(request.caller(), Kind::Tools)) else {
            return false;
        };
        let (server, section) = (&slot.key.server, Section::Tools);
        let standing = known.standing(pins, (server, section), &tool);
        standing == Some(Standing::Approved)
            && pins.pin(server.as_str(), section, &tool).is_some_and(|pin| is_harmless(&pin.definition))
    }
}

/// One request on one session, judged by pins.
struct Look<'a, 'r> {
    pins: &'a Arc<Pins>,
    slot: &'a Slot,
    request: &'a Request<'r>,
    generation: u64,
}

impl Look<'_, '_> {
    /// Finds an item in what this very session lists to the caller.
    fn see(&self, kind: Kind, name: &str) -> Seen {
        let of = (&self.slot.key.server, kind.section());
        if let Some(known) = self.slot.list_of_session(self.request.caller(), (kind, self.generation)) {
            return match known.standing(self.pins, of, name) {
                Some(standing) => Seen::Standing(standing),
                None => Seen::Absent(Some(known)),
            };
        }
        // Where lists are private, what others of this session were shown is
        // good enough for whoever was shown nothing else.
        let shelf = self.slot.shelf(kind);
        let changes = shelf.changes.load(Ordering::Acquire);
        let is_approved = |known: &Known| {
            let standing = || known.standing(self.pins, of, name);
            known.is_of(self.generation, changes) && standing().is_some_and(|it| !is_unapproved(it))
        };
        match !self.request.is_hidden && shelf.any(is_approved) {
            true => Seen::Standing(Standing::Approved),
            false => Seen::Unseen,
        }
    }
}

/// Judges a URI. A listed resource must be approved as it is listed, or be new and fit an approved template; an
/// unlisted one, and a template itself, must fit an approved template if it fits any. A URI that the server neither
/// lists nor describes has no definition that could be pinned.
fn gate_resource(look: &Look<'_, '_>, uri: &str) -> Gate {
    let server = look.slot.key.server.as_str();
    let refused = || Gate::Shut(refusal(look.slot, Kind::Resources, uri));
    let mut is_new = false;
    if look.pins.covers(server, Section::Resources) {
        match look.see(Kind::Resources, uri) {
            Seen::Standing(Standing::Changed) => return refused(),
            Seen::Standing(Standing::New) => is_new = true,
            Seen::Standing(Standing::Approved | Standing::Unpinned) => return Gate::Open,
            Seen::Absent(_) => {}
            Seen::Unseen => return Gate::Unseen(Kind::Resources),
        }
    }
    if !look.pins.covers(server, Section::Templates) {
        return if is_new { refused() } else { Gate::Open };
    }
    let Some(known) = look.slot.list_of_session(look.request.caller(), (Kind::Templates, look.generation))
    else {
        return Gate::Unseen(Kind::Templates);
    };
    let judgement = known.judged(look.pins, (&look.slot.key.server, Section::Templates));
    let fitting = known
        .items
        .iter()
        .enumerate()
        .filter(|(_, item)| &*item.name == uri || template::fits(&item.name, uri));
    let standings: Vec<Standing> = fitting.filter_map(|(at, _)| judgement.standing(at)).collect();
    match standings.iter().any(|standing| !is_unapproved(*standing)) {
        true => Gate::Open,
        false if standings.is_empty() && !is_new => Gate::Open,
        false => refused(),
    }
}

fn refusal(slot: &Slot, kind: Kind, name: &str) -> CallError {
    let tool =
        if kind == Kind::Tools { name.to_owned() } else { format!("{}:{name}", kind.section().noun()) };
    CallError::DefinitionChanged { server: slot.key.server.clone(), tool }
}

/// Whether an approved definition says that running the tool twice does what
/// running it once does.
fn is_harmless(definition: &[u8]) -> bool {
    let Some(annotations) = ostler_wire::member(definition, "annotations") else { return false };
    ["readOnlyHint", "idempotentHint"]
        .iter()
        .any(|hint| ostler_wire::member(annotations, hint) == Some(b"true"))
}

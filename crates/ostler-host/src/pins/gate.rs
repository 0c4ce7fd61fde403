//! Calls: sent only on a session whose list has been judged.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ostler_core::config::PinMode;
use ostler_core::error::CallError;
use ostler_core::fault::Delivery;
use ostler_core::name::ServerName;
use ostler_core::pins::Standing;
use tokio::time::{Instant, timeout_at};

use crate::host::Host;
use crate::lists::Kind;
use crate::request::Request;
use crate::server::judgement::is_unapproved;
use crate::server::known::Known;
use crate::server::lease::Lease;
use crate::server::slot::Slot;
use crate::upstream::BoxFuture;

/// How often one call looks at the list of a server that goes on changing it.
const LOOKS: usize = 3;

/// Whether a call may be sent on a session.
enum Gate {
    Open,
    Shut(CallError),
    /// What the session lists is not known.
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
        until: Instant,
    ) -> Result<Lease, CallError> {
        let mut lease = slot.lease(request.caller, now, until).await?;
        for _ in 0..LOOKS {
            match self.gate(slot, request, lease.generation()) {
                Gate::Open => return Ok(lease),
                Gate::Shut(error) => return Err(error),
                Gate::Unseen => {}
            }
            // The server may have room for one request only, and the list is one.
            drop(lease);
            self.look(slot, request, until).await?;
            lease = slot.lease(request.caller, Instant::now(), until).await?;
        }
        match self.gate(slot, request, lease.generation()) {
            Gate::Open => Ok(lease),
            Gate::Shut(error) => Err(error),
            Gate::Unseen => Err(CallError::UpstreamProtocol {
                server: slot.key.server.clone(),
                detail: "its tool list changes faster than it can be compared with what was approved".into(),
            }),
        }
    }

    /// Whether nothing speaks against sending a call on a session any more.
    pub(crate) fn is_open(&self, slot: &Slot, request: &Request<'_>, generation: u64) -> bool {
        matches!(self.gate(slot, request, generation), Gate::Open)
    }

    fn gate(&self, slot: &Slot, request: &Request<'_>, generation: u64) -> Gate {
        let pins = self.shared().pins.load();
        let Some(pins) = pins.as_ref().filter(|pins| pins.mode == PinMode::Enforce) else {
            return Gate::Open;
        };
        let Some(tool) = request.tool_name() else { return Gate::Open };
        let Some(known) = slot.tools_of_session(request.caller, generation) else {
            // Where lists are private, what others of this session were shown is
            // good enough for whoever was shown nothing else.
            let changes = slot.shelf(Kind::Tools).changes.load(Ordering::Acquire);
            let is_approved = |known: &Known| {
                let standing = || known.standing(pins, &slot.key.server, &tool);
                known.is_of(generation, changes) && standing().is_some_and(|it| !is_unapproved(it))
            };
            return if slot.shelf(Kind::Tools).any(is_approved) { Gate::Open } else { Gate::Unseen };
        };
        match known.standing(pins, &slot.key.server, &tool) {
            Some(standing) if is_unapproved(standing) => Gate::Shut(refusal(slot, &tool)),
            Some(_) => Gate::Open,
            None => Gate::Shut(self.gone(request, &slot.key.server, &known)),
        }
    }

    /// The session does not list the tool, so there is nothing that was approved
    /// or not; it is as unknown as one that never was.
    fn gone(&self, request: &Request<'_>, server: &ServerName, known: &Known) -> CallError {
        match self.server(server.as_str()) {
            Ok(server) => self.unknown(request, &server, Some(known)),
            Err(error) => error,
        }
    }

    /// Asks for the list of the session there is, together with others who do.
    /// Boxed as a trait object: asking is itself a request, without this gate.
    fn look<'a>(
        &'a self,
        slot: &'a Arc<Slot>,
        request: &'a Request<'_>,
        until: Instant,
    ) -> BoxFuture<'a, Result<(), CallError>> {
        Box::pin(async move {
            match timeout_at(until, self.fetch_list(slot, request.caller, Kind::Tools)).await {
                Ok(fetched) => fetched.map(drop),
                Err(_) => Err(slot.out_of_time(request, Delivery::NotSent)),
            }
        })
    }

    /// Whether a call may be repeated although it may have run: the operator
    /// trusts the server, and what was approved says that repeating is harmless.
    pub(crate) fn is_trusted_idempotent(&self, slot: &Slot, request: &Request<'_>) -> bool {
        let (true, Some(tool)) = (slot.spec.trust, request.tool_name()) else { return false };
        let (Some(pins), Some(known)) = (self.pins(), slot.known_to(request.caller, Kind::Tools)) else {
            return false;
        };
        let standing = known.standing(&pins, &slot.key.server, &tool);
        standing == Some(Standing::Approved)
            && pins.pin(slot.key.server.as_str(), &tool).is_some_and(|pin| is_harmless(&pin.definition))
    }
}

fn refusal(slot: &Slot, tool: &str) -> CallError {
    CallError::DefinitionChanged { server: slot.key.server.clone(), tool: tool.to_owned() }
}

/// Whether an approved definition says that running the tool twice does what
/// running it once does.
fn is_harmless(definition: &[u8]) -> bool {
    let Some(annotations) = ostler_wire::member(definition, "annotations") else { return false };
    ["readOnlyHint", "idempotentHint"]
        .iter()
        .any(|hint| ostler_wire::member(annotations, hint) == Some(b"true"))
}

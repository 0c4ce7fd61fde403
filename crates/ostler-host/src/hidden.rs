//! What is hidden from a caller looks to it like what does not exist.
//!
//! A hidden item is refused here and never reaches its server; for a missing
//! one some servers have errors of their own. Whoever might have something
//! hidden from it gets our error for both, so that neither can be told from
//! the other. Callers without restrictions get the server's own words.

use std::sync::Arc;

use ostler_core::catalog::template;
use ostler_core::error::CallError;
use ostler_core::policy::{Subject, Verdict};
use ostler_wire::{INVALID_PARAMS, METHOD_NOT_FOUND, RESOURCE_NOT_FOUND};

use crate::call::unknown_item;
use crate::host::Host;
use crate::lists::Kind;
use crate::request::{Request, Wanted};
use crate::server::Server;
use crate::server::slot::Slot;

/// The reason of a denial, for the record, and what the caller is told.
pub(crate) type Denial = (String, CallError);

impl Host {
    /// Asks every rule about what a request wants of a server that its caller
    /// may see. A request that can't be understood is an error of its own.
    pub(crate) fn admit_request(
        &self,
        request: &Request<'_>,
        server: &Server,
    ) -> Result<Result<(), Denial>, CallError> {
        let ask = |subject| match self.decide(request.caller, server, Some(subject)) {
            Verdict::Allow => Ok(()),
            Verdict::Deny { reason } => Err(reason),
        };
        Ok(match request.wanted()? {
            Wanted::Server => Ok(()),
            Wanted::Item(kind, name) => ask(kind.subject(&name)).map_err(|reason| {
                let error = match kind {
                    Kind::Tools => self.hidden_tool(request, server),
                    _ => unknown_item(kind, &name),
                };
                (reason, error)
            }),
            Wanted::Either { prompt, template } => ask(Subject::Prompt(&prompt))
                .and_then(|()| ask(Subject::Resource(&template)))
                .map_err(|reason| (reason, unknown_item(Kind::Prompts, &prompt))),
            Wanted::Method(method) => ask(Subject::Method(method))
                .map_err(|reason| (reason, CallError::UnknownMethod { method: method.to_owned() })),
        })
    }

    fn hidden_tool(&self, request: &Request<'_>, server: &Server) -> CallError {
        let known =
            server.existing_slot(request.caller).and_then(|slot| slot.known_to(request.caller, Kind::Tools));
        self.unknown(request, server, known.as_deref())
    }

    /// Refuses what a restricted caller wants and the server does not list.
    /// Resources can be read without being listed, so reading is not refused.
    pub(crate) async fn check_listed(
        &self,
        slot: &Arc<Slot>,
        request: &Request<'_>,
    ) -> Result<(), CallError> {
        match request.wanted()? {
            Wanted::Item(Kind::Prompts, name) => self.check_prompt(slot, request, &name).await,
            Wanted::Either { prompt, .. } => self.check_prompt(slot, request, &prompt).await,
            Wanted::Item(kind @ Kind::Templates, name) => {
                let is_listed = self.has_item(slot, request, (kind, &name)).await?
                    || self.has_item(slot, request, (Kind::Resources, &name)).await?;
                if is_listed { Ok(()) } else { Err(unknown_item(kind, &name)) }
            }
            _ => Ok(()),
        }
    }

    async fn check_prompt(
        &self,
        slot: &Arc<Slot>,
        request: &Request<'_>,
        name: &str,
    ) -> Result<(), CallError> {
        match self.has_item(slot, request, (Kind::Prompts, name)).await? {
            true => Ok(()),
            false => Err(unknown_item(Kind::Prompts, name)),
        }
    }

    /// Whether the server lists a resource, or a template that it may come from.
    pub(crate) async fn lists_resource(
        &self,
        slot: &Arc<Slot>,
        request: &Request<'_>,
        uri: &str,
    ) -> Result<bool, CallError> {
        let fits = |slot: &Slot| {
            let known = slot.known_to(request.caller, Kind::Templates);
            known.is_some_and(|known| known.items.iter().any(|item| template::fits(&item.name, uri)))
        };
        Ok(self.has_item(slot, request, (Kind::Resources, uri)).await?
            || self.has_item(slot, request, (Kind::Templates, uri)).await?
            || fits(slot))
    }

    /// The error that a restricted caller gets for a resource that its server
    /// does not have.
    pub(crate) fn hide_missing(&self, request: &Request<'_>, error: CallError) -> CallError {
        let CallError::Rpc(answer) = &error else { return error };
        let is_missing = matches!(answer.code, RESOURCE_NOT_FOUND | INVALID_PARAMS | METHOD_NOT_FOUND);
        let is_resource = matches!(request.method, "resources/read" | "resources/subscribe");
        if !is_missing || !is_resource || !self.is_restricted(request.caller) {
            return error;
        }
        unknown_item(Kind::Resources, &request.params.uri().unwrap_or_default())
    }
}

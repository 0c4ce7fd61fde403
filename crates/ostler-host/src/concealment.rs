//! Concealment: a hidden item looks like a missing one to the caller.
//!
//! A request for a hidden item passes the same budget, limits, server and lists as one for a missing item, in the same
//! order, and is never sent. Some servers have errors of their own for a missing item: a restricted caller gets the
//! host's error for both. Callers without restrictions get the server's own words.

use std::sync::Arc;

use ostler_core::catalog::uri_template;
use ostler_core::error::CallError;
use ostler_wire::{INVALID_PARAMS, INVALID_REQUEST, ItemParam, METHOD_NOT_FOUND, RESOURCE_NOT_FOUND};

use crate::call::unknown_item;
use crate::host::Host;
use crate::lists::Kind;
use crate::request::{Request, RequestSubject};
use crate::server::Server;
use crate::server::slot::Slot;

impl Host {
    pub(crate) fn not_found_error(
        &self,
        request: &Request<'_>,
        server: &Server,
        wanted: &RequestSubject<'_>,
    ) -> CallError {
        match wanted {
            RequestSubject::Item(Kind::Tools, _) => self.unknown_tool_error(request, server, None),
            RequestSubject::Item(kind, name) => unknown_item(*kind, name),
            RequestSubject::Server | RequestSubject::Method(_) => {
                CallError::UnknownMethod { method: request.method().to_owned() }
            }
        }
    }

    /// Refuses a restricted caller's request for an item that the server does not list. Resources can be read without
    /// being listed, so reading is not refused.
    pub(crate) async fn check_listed(
        &self,
        slot: &Arc<Slot>,
        request: &Request<'_>,
    ) -> Result<(), CallError> {
        match request.subject()? {
            RequestSubject::Item(kind @ Kind::Prompts, name) => {
                match self.has_item(slot, request, (kind, &name)).await? {
                    true => Ok(()),
                    false => Err(unknown_item(kind, &name)),
                }
            }
            RequestSubject::Item(kind @ Kind::Templates, name) => {
                let is_listed = self.has_item(slot, request, (kind, &name)).await?
                    || self.has_item(slot, request, (Kind::Resources, &name)).await?;
                if is_listed { Ok(()) } else { Err(unknown_item(kind, &name)) }
            }
            _ => Ok(()),
        }
    }

    /// Returns whether the server lists a resource, or a template that it may come from.
    pub(crate) async fn is_resource_listed(
        &self,
        slot: &Arc<Slot>,
        request: &Request<'_>,
        uri: &str,
    ) -> Result<bool, CallError> {
        let fits = |slot: &Slot| {
            let known = slot.cached_list_for(request.caller(), Kind::Templates);
            known.is_some_and(|known| known.items.iter().any(|item| uri_template::matches(&item.name, uri)))
        };
        Ok(self.has_item(slot, request, (Kind::Resources, uri)).await?
            || self.has_item(slot, request, (Kind::Templates, uri)).await?
            || (!request.is_hidden && fits(slot)))
    }

    /// Replaces the error that a restricted caller gets for an unlisted resource and for an unsupported method,
    /// whatever the server's error is: a hidden item has no error of the server.
    pub(crate) fn conceal_missing(&self, request: &Request<'_>, error: CallError) -> CallError {
        if request.is_unscoped
            && let Some(uri) = self.concealed_uri(request, &error)
        {
            return unknown_item(Kind::Resources, &uri);
        }
        let CallError::Rpc(answer) = &error else { return error };
        let code = answer.code;
        let Ok(wanted) = request.subject() else { return error };
        let is_missing = match &wanted {
            RequestSubject::Item(Kind::Resources, uri) => {
                matches!(code, RESOURCE_NOT_FOUND | INVALID_PARAMS | METHOD_NOT_FOUND)
                    || !self.is_known_resource(request, uri)
            }
            RequestSubject::Method(method) if ItemParam::for_method(method) == ItemParam::UnknownMethod => {
                matches!(code, METHOD_NOT_FOUND | INVALID_PARAMS | INVALID_REQUEST)
            }
            RequestSubject::Method(_) => code == METHOD_NOT_FOUND,
            RequestSubject::Item(..) | RequestSubject::Server => false,
        };
        if !is_missing
            || !(request.is_hidden
                || self.snapshot_for(request).is_restricted_at(request.caller(), request.server()))
        {
            return error;
        }
        match wanted {
            RequestSubject::Item(kind, name) => unknown_item(kind, &name),
            RequestSubject::Server | RequestSubject::Method(_) => {
                CallError::UnknownMethod { method: request.method().to_owned() }
            }
        }
    }

    /// Returns the URI of a request that named no server, if its error would tell a restricted caller which server was
    /// asked.
    fn concealed_uri(&self, request: &Request<'_>, error: &CallError) -> Option<String> {
        let code = error.rpc_code();
        let (uri, is_telling) = match request.subject().ok()? {
            RequestSubject::Item(Kind::Resources, uri) => {
                (uri, matches!(code, RESOURCE_NOT_FOUND | INVALID_PARAMS | METHOD_NOT_FOUND))
            }
            RequestSubject::Item(Kind::Templates, uri) => (uri, code == INVALID_PARAMS),
            _ => return None,
        };
        (is_telling && self.snapshot_for(request).is_restricted(request.caller())).then(|| uri.into_owned())
    }

    /// Returns whether the server is known to list a resource.
    fn is_known_resource(&self, request: &Request<'_>, uri: &str) -> bool {
        let current = self.current();
        let slot =
            current.servers.get(request.server()).and_then(|server| server.existing_slot(request.caller()));
        let known = slot.and_then(|slot| slot.cached_list_for(request.caller(), Kind::Resources));
        known.is_some_and(|known| known.has(uri))
    }
}

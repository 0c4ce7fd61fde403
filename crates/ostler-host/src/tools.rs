//! Tool lists and lookups of callable items, filtered by the rules of calls.

use std::sync::Arc;

use bytes::Bytes;
use ostler_core::caller::Caller;
use ostler_core::catalog::exposed_name;
use ostler_core::error::CallError;
use ostler_core::fault::Delivery;
use ostler_core::pins::LockSection;
use ostler_core::server_name::ServerName;

use crate::catalog::Scope;
use crate::host::Host;
use crate::lists::{Kind, ListWait, ListedItem, ServerListing};
use crate::request::Request;
use crate::server::Server;
use crate::server::server_list::ServerList;
use crate::server::slot::Slot;

/// One tool as its server defines it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemDefinition {
    /// The server's own name for it.
    pub name: String,
    /// The whole definition, byte for byte.
    pub definition: Bytes,
}

/// A tool with the host's own data about it. They stand beside the definition, so that a server can't forge the origin
/// of its tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedTool {
    /// Server of the tool.
    pub server: ServerName,
    /// Name under which it can be called among the tools of all servers.
    pub exposed_name: String,
    /// The server's own name and definition.
    pub tool: ItemDefinition,
}

/// Tools of one server, or the error of listing them.
#[derive(Debug, Clone)]
pub struct ServerTools {
    /// The server.
    pub server: ServerName,
    /// Tools that the caller may use.
    pub tools: Result<Vec<ListedTool>, CallError>,
}

impl Host {
    /// Sets the exposed names of listed items among those of all servers. An unlisted item is named as if no other item
    /// had its name.
    pub async fn assign_exposed_names(&self, kind: Kind, listings: &mut [ServerListing]) {
        let tables = self.catalog().tables(self).await;
        for ServerListing { server, items, .. } in listings {
            for listed in items {
                listed.exposed_name = tables.exposed_name(server, kind, &listed.item.name);
            }
        }
    }
}

impl From<ServerListing> for ServerTools {
    fn from(listing: ServerListing) -> Self {
        let ServerListing { server, items, error, .. } = listing;
        let tool = |ListedItem { exposed_name: exposed, item }| ListedTool {
            exposed_name: String::from(&*exposed),
            server: server.clone(),
            tool: ItemDefinition { name: item.name.to_string(), definition: item.definition },
        };
        let tools = error.map_or_else(|| Ok(items.into_iter().map(tool).collect()), Err);
        Self { server, tools }
    }
}

impl Host {
    /// Returns the tools of one server that the caller may use, in the server's order.
    pub async fn tools(&self, caller: &Caller, server: &str) -> Result<Vec<ListedTool>, CallError> {
        let Ok(name) = ServerName::new(server) else { return Err(self.unknown_server(Some(caller), server)) };
        let mut listings = self.list(caller, &Scope::Server(name), Kind::Tools, ListWait::UntilListed).await;
        match listings.pop() {
            Some(mut listing) => {
                self.assign_exposed_names(Kind::Tools, std::slice::from_mut(&mut listing)).await;
                ServerTools::from(listing).tools
            }
            None => Err(self.unknown_server(Some(caller), server)),
        }
    }

    /// Returns the tools of all servers that the caller may see, sorted by server. A sleeping server is not woken if
    /// its tools are known. A server that has to be started is waited for. A failing server is reported in its place
    /// and does not affect the others.
    pub async fn discover(&self, caller: &Caller) -> Vec<ServerTools> {
        let listings = self.list(caller, &Scope::All, Kind::Tools, ListWait::UntilListed).await;
        listings.into_iter().map(ServerTools::from).collect()
    }

    /// Returns whether a caller may learn the name of a tool from a suggestion: the tool is in a list that the caller
    /// may see, or is pinned. A list shown to other callers only does not count.
    pub(crate) fn may_suggest(&self, caller: &Caller, server: &str, tool: &str) -> bool {
        let current = self.current();
        let slot = current.servers.get(server).and_then(|server| server.existing_slot(caller));
        let known = slot.and_then(|slot| slot.cached_list_for(caller, Kind::Tools));
        known.is_some_and(|known| known.has(tool))
            || current.pins.as_ref().is_some_and(|pins| pins.pin(server, LockSection::Tools, tool).is_some())
    }

    /// Filters a list by the rules of calls.
    fn visible_tools(&self, request: &Request<'_>, server: &Server, known: &ServerList) -> Vec<ListedTool> {
        let (name, current) = (&server.spec.name, self.snapshot_for(request));
        // Names for a hint: does not wait for tables that are being built.
        let tables = self.catalog().latest();
        let visible = current
            .approved_items(server, Kind::Tools, known)
            .filter(|tool| current.may_use_item(request.caller(), server, Kind::Tools, &tool.name));
        visible
            .map(|tool| ListedTool {
                server: name.clone(),
                exposed_name: tables.exposed_name(name, Kind::Tools, &tool.name).to_string(),
                tool: ItemDefinition { name: tool.name.to_string(), definition: tool.definition.clone() },
            })
            .collect()
    }

    /// Returns whether the server has the tool of a call. Only an unknown name causes another fetch, and only if there
    /// may be a newer list.
    pub(crate) async fn tool_exists(
        &self,
        slot: &Arc<Slot>,
        request: &Request<'_>,
    ) -> Result<bool, CallError> {
        match request.tool_name() {
            Some(tool) => self.has_item(slot, request, (Kind::Tools, &tool)).await,
            None => Ok(true),
        }
    }

    /// Returns whether a list of the server has an item of that name. For a caller from which the item is hidden, no
    /// list has it.
    pub(crate) async fn has_item(
        &self,
        slot: &Arc<Slot>,
        request: &Request<'_>,
        (kind, name): (Kind, &str),
    ) -> Result<bool, CallError> {
        match slot.cached_list_for(request.caller(), kind) {
            Some(known) if known.has(name) && !request.is_hidden => return Ok(true),
            Some(known) if known.is_definite(slot.state().supervisor.generation()) => return Ok(false),
            // An item that another caller was shown exists; its server decides whether this caller gets it.
            _ if request.is_hidden => {}
            _ if kind == Kind::Tools && slot.list_cache(kind).any(|known| known.has(name)) => {
                return Ok(true);
            }
            _ => {}
        }
        // A list bypasses the breaker; a call that would be refused need not wait for one.
        slot.check_accepts_calls()?;
        let fetch = self.fetch_list(slot, request.caller(), kind);
        let known = Box::pin(with_deadline(request, slot, fetch)).await?;
        Ok(known.has(name) && !request.is_hidden)
    }

    /// Returns the same error for a missing and a hidden tool. `known` is the list from before the call: the fetch for
    /// an unknown tool must not make its error better than that of a hidden one.
    pub(crate) fn unknown_tool_error(
        &self,
        request: &Request<'_>,
        server: &Server,
        known: Option<&ServerList>,
    ) -> CallError {
        let known = known.filter(|known| known.is_for(request.caller()));
        let visible = known.map(|known| self.visible_tools(request, server, known)).unwrap_or_default();
        let name = request.tool_name().unwrap_or_default();
        if request.has_own_names {
            return CallError::unknown_tool(&name, visible.iter().map(|listed| listed.tool.name.as_str()));
        }
        let exposed = exposed_name(&server.spec.name, &name);
        CallError::unknown_tool(&exposed, visible.iter().map(|listed| listed.exposed_name.as_str()))
    }
}

/// Applies the request's deadline to the steps before it is sent.
pub(crate) async fn with_deadline<T>(
    request: &Request<'_>,
    slot: &Slot,
    work: impl Future<Output = Result<T, CallError>>,
) -> Result<T, CallError> {
    match request.deadline {
        Some(deadline) => match tokio::time::timeout_at(deadline, work).await {
            Ok(result) => result,
            Err(_) => Err(slot.timed_out_error(request, Delivery::NotSent)),
        },
        None => work.await,
    }
}

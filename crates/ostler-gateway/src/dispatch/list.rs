//! Lists in the gateway's own pages, of all servers and of one: a server's own pages would reveal the number of items
//! hidden from the caller.

use std::time::Duration;

use bytes::Bytes;
use ostler_core::caller::Caller;
use ostler_core::error::CallError;
use ostler_host::{
    Cursor, Kind, ListTurn, ListWait, ListedItem, Scope, ServerItem, ServerListing, ShadowedItem,
};
use ostler_wire::{Era, MemberEdit};
use serde_json::{Map, Value, json};

use crate::client_request::{ClientRequest, GatewayReply};
use crate::gateway::Gateway;

/// Key of `_meta` under which a list names the servers whose items are missing or stale.
const UNAVAILABLE: &str = "dev.ostler/unavailable";

/// Key of `_meta` under which a list names resources left out because another server owns their URI.
const SHADOWED: &str = "dev.ostler/shadowed";

/// Shadowed resources that one list names; a server may list thousands.
const MAX_SHADOWED: usize = 100;

/// Key of `_meta` under which a list names definitions that clients get changed or not at all.
const INVALID: &str = "dev.ostler/invalid";

/// Invalid definitions that one list names; a server may list thousands.
const MAX_INVALID: usize = 100;

/// Answers a list request.
pub(crate) async fn answer_list(gateway: &Gateway, exchange: &mut ClientRequest, kind: Kind) -> GatewayReply {
    let (host, options) = (&gateway.0.host, &gateway.0.options);
    let cursor = match exchange.params.cursor() {
        None => None,
        Some(text) => match host.open_cursor(&exchange.caller, kind, &text) {
            Some(cursor) => Some(cursor),
            None => return GatewayReply::invalid_params("unknown cursor"),
        },
    };
    let patience = match exchange.scope {
        Scope::All => ListWait::AtMost(options.list_patience),
        // A client of one server waits for its start, as it would without the gateway.
        Scope::Server(_) => ListWait::UntilListed,
    };
    let (scope, caller, era) = (exchange.scope.clone(), exchange.caller.clone(), exchange.client.era());
    let gateway = gateway.clone();
    let write = move |listings: Vec<ServerListing>, turn: ListTurn| {
        if let Some(error) = failure_of_all(&listings) {
            return GatewayReply::from_call_error(error, era);
        }
        let task = PageTask { gateway, scope, kind, caller, era, listings, cursor };
        GatewayReply::Result(turn.hold_with(ListingPage::build(&task).write(&task)))
    };
    host.list_with(&exchange.caller, &exchange.scope, (kind, patience), write).await
}

/// Returns the error if no server has a list. An empty list would be wrong if every server fails and none has ever been
/// listed. A server that is still starting announces its list later.
fn failure_of_all(listings: &[ServerListing]) -> Option<&CallError> {
    let failed = |listing: &'_ ServerListing| {
        let is_starting = listing.error.as_ref().is_some_and(CallError::is_starting);
        listing.items.is_empty() && listing.error.is_some() && !is_starting
    };
    if !listings.iter().all(failed) {
        return None;
    }
    listings.first().and_then(|listing| listing.error.as_ref())
}

/// Input of one page.
struct PageTask {
    gateway: Gateway,
    scope: Scope,
    kind: Kind,
    caller: Caller,
    era: Era,
    listings: Vec<ServerListing>,
    cursor: Option<Cursor>,
}

/// One page of a list.
#[derive(Default)]
struct ListingPage {
    /// JSON texts of the items.
    items: Vec<Bytes>,
    /// Cursor behind the last item, if more follow.
    next: Option<Cursor>,
    /// Bytes of the items.
    size: usize,
    /// Items that violate the schema of MCP.
    invalid: Vec<Value>,
}

impl ListingPage {
    /// Builds the page behind the cursor. A cursor names an item; if that item is gone, the page starts at its server's
    /// first item, so that none is left out.
    fn build(task: &PageTask) -> Self {
        let PageTask { listings, cursor, era, .. } = task;
        let options = &task.gateway.0.options;
        // The endpoint of one server keeps the server's own definitions.
        let is_all = task.scope == Scope::All;
        let mut page = Self::default();
        let mut last: Option<Cursor> = None;
        for listing in listings {
            let start = match cursor {
                Some(position) if listing.server < position.server => listing.items.len(),
                Some(position) if listing.server == position.server => {
                    let is_last = |listed: &ListedItem| *listed.item.name == *position.item;
                    listing.items.iter().position(is_last).map_or(0, |at| at + 1)
                }
                _ => 0,
            };
            for ListedItem { exposed_name: exposed, item } in listing.items.iter().skip(start) {
                let given = if is_all { item.conforming(*era) } else { Some(&item.definition) };
                let Some(given) = given else {
                    page.record_invalid(listing, item, true);
                    continue;
                };
                let text = if *exposed == item.name { given.clone() } else { with_name(given, exposed) };
                let is_full =
                    page.items.len() == options.page_size || page.size + text.len() > options.page_bytes;
                if is_full && let Some(last) = last {
                    page.next = Some(last);
                    return page;
                }
                if *given != item.definition {
                    page.record_invalid(listing, item, false);
                }
                page.size += text.len() + 1;
                page.items.push(text);
                last = Some(Cursor { server: listing.server.clone(), item: item.name.to_string() });
            }
        }
        page
    }

    /// Records an item whose definition is changed or left out for clients.
    fn record_invalid(&mut self, listing: &ServerListing, item: &ServerItem, is_left_out: bool) {
        if self.invalid.len() < MAX_INVALID {
            let (server, name, problem) = (listing.server.as_str(), &*item.name, item.problem());
            let row = json!({"server": server, "name": name, "problem": problem, "leftOut": is_left_out});
            self.invalid.push(row);
        }
    }

    fn write(self, task: &PageTask) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.size + 128);
        out.push(b'{');
        ostler_wire::push_array_member(&mut out, task.kind.member(), self.items.iter().map(|item| &item[..]));
        if let Some(next) = &self.next {
            out.extend_from_slice(b",\"nextCursor\":");
            let next = task.gateway.0.host.seal_cursor(&task.caller, task.kind, next);
            ostler_wire::push_json_string(&mut out, &next);
        }
        if task.era == Era::Modern {
            push_cache_hints(&mut out, task);
        }
        self.push_meta(&mut out, &task.listings);
        out.push(b'}');
        out
    }

    /// Appends `_meta`: servers whose items are missing or stale, shadowed resources, and items that violate the schema
    /// of MCP.
    fn push_meta(self, out: &mut Vec<u8>, listings: &[ServerListing]) {
        let sick = listings.iter().filter_map(|listing| Some((listing, listing.error.as_ref()?)));
        let sick: Vec<Value> = sick
            .map(|(listing, error)| {
                let mut row = json!({"server": listing.server.as_str(), "code": error.code(), "message": error.to_string()});
                if let CallError::Unavailable(why) = error {
                    row["state"] = why.state.as_str().into();
                }
                row
            })
            .collect();
        let shadowed = listings.iter().flat_map(|listing| {
            let server = listing.server.as_str();
            let row = move |it: &ShadowedItem| json!({"uri": &*it.uri, "server": server, "owner": it.owner.as_str()});
            listing.shadowed.iter().map(row)
        });
        let shadowed: Vec<Value> = shadowed.take(MAX_SHADOWED).collect();
        let mut meta = Map::new();
        for (key, rows) in [(UNAVAILABLE, sick), (SHADOWED, shadowed), (INVALID, self.invalid)] {
            if !rows.is_empty() {
                meta.insert(key.to_owned(), rows.into());
            }
        }
        if !meta.is_empty() {
            out.extend_from_slice(b",\"_meta\":");
            out.extend_from_slice(Value::from(meta).to_string().as_bytes());
        }
    }
}

/// Appends cache hints. A list is fresh as long as every part of it is. It is private, as its items depend on the
/// caller's rights; the list of one server is public if the server says so and every caller sees the same list.
fn push_cache_hints(out: &mut Vec<u8>, PageTask { scope, listings, .. }: &PageTask) {
    let ttl = listings.iter().map(|listing| listing.ttl).min().unwrap_or(Duration::ZERO);
    out.extend_from_slice(b",\"resultType\":\"complete\",\"ttlMs\":");
    out.extend_from_slice(ttl.as_millis().to_string().as_bytes());
    let is_public = *scope != Scope::All && listings.iter().all(|listing| listing.is_public);
    let cache_scope = if is_public { "public" } else { "private" };
    out.extend_from_slice(format!(",\"cacheScope\":\"{cache_scope}\"").as_bytes());
}

fn with_name(definition: &Bytes, name: &str) -> Bytes {
    let mut value = Vec::with_capacity(name.len() + 2);
    ostler_wire::push_json_string(&mut value, name);
    ostler_wire::edit(definition, &[("name", MemberEdit::Set(&value))])
        .map_or_else(|| definition.clone(), Bytes::from)
}

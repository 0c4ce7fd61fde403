//! Lists: of one server as it gives them, and in our own pages: those of all servers, and those of one server for
//! a caller that may not use all of it, whom the server's own pages would tell how much is left out.

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use ostler_core::caller::Caller;
use ostler_core::error::CallError;
use ostler_core::name::ServerName;
use ostler_host::{
    Item as ListedDefinition, Kind, ListedItem, Scope, ServerListing, ShadowedItem, off_thread,
};
use ostler_wire::{Change, Era, Item, ListPage, Scope as CacheScope};
use serde_json::{Map, Value, json};

use super::forward;
use crate::cursor::Cursor;
use crate::exchange::{Exchange, Reply};
use crate::gateway::Gateway;

/// Under which key of `_meta` a list says whose items are missing or old.
const UNAVAILABLE: &str = "dev.ostler/unavailable";

/// Under which key of `_meta` a list says whose resources are left out because another server owns them.
const SHADOWED: &str = "dev.ostler/shadowed";

/// Shadowed resources that one list names; a server may list thousands.
const MAX_SHADOWED: usize = 100;

/// Under which key of `_meta` a list says which definitions clients get otherwise than their servers give them.
const INVALID: &str = "dev.ostler/invalid";

/// Such definitions that one list names.
const MAX_INVALID: usize = 100;

/// Answers a list.
pub(crate) async fn answer(gateway: &Gateway, exchange: &mut Exchange, kind: Kind) -> Reply {
    let shared = &gateway.0;
    if let Scope::Server(server) = &exchange.scope
        && !shared.host.is_restricted_at(&exchange.caller, server.as_str())
    {
        let reply = forward::forward(gateway, exchange).await;
        return filtered(gateway, exchange, kind, reply).await;
    }
    let cursor = match exchange.params.cursor() {
        None => None,
        Some(text) => {
            match Cursor::open(gateway.0.host.sealer(), exchange.caller.principal(), kind.member(), &text) {
                Some(cursor) => Some(cursor),
                None => return Reply::invalid("unknown cursor"),
            }
        }
    };
    let patience = shared.options.list_patience;
    let listings = shared.host.list(&exchange.caller, &exchange.scope, kind, patience).await;
    if let Some(error) = silence(&listings) {
        return Reply::failed(error, exchange.client.era());
    }
    let task = PageTask {
        gateway: gateway.clone(),
        scope: exchange.scope.clone(),
        kind,
        principal: exchange.caller.principal().to_owned(),
        era: exchange.client.era(),
        listings,
        cursor,
    };
    task.run().await
}

/// Why there is nothing to show at all. An empty list would be a lie where
/// every server fails and none was ever known. Where one is still starting, its
/// list is announced when it is there.
fn silence(listings: &[ServerListing]) -> Option<&CallError> {
    let failed = |listing: &'_ ServerListing| {
        let is_starting = listing.error.as_ref().is_some_and(CallError::is_start_under_way);
        listing.items.is_empty() && listing.error.is_some() && !is_starting
    };
    if !listings.iter().all(failed) {
        return None;
    }
    listings.first().and_then(|listing| listing.error.as_ref())
}

/// The making of one page of our own.
struct PageTask {
    gateway: Gateway,
    scope: Scope,
    kind: Kind,
    principal: String,
    era: Era,
    listings: Vec<ServerListing>,
    cursor: Option<Cursor>,
}

impl PageTask {
    async fn run(self) -> Reply {
        let items = self.listings.iter().flat_map(|listing| &listing.items);
        let size = items.map(|listed| listed.item.definition.len()).sum();
        off_thread(size, move || self.reply()).await
    }

    fn reply(self) -> Reply {
        Reply::result(Page::cut(&self).write(&self))
    }
}

/// One page of our own.
#[derive(Default)]
struct Page {
    /// The texts of the items.
    items: Vec<Bytes>,
    /// The last of them, if more follow.
    next: Option<Cursor>,
    /// Bytes of the items.
    size: usize,
    /// Items that the schema of MCP does not allow as they are.
    invalid: Vec<Value>,
}

impl Page {
    /// The items behind the cursor. A cursor names the item it stands behind;
    /// should that be gone, its server's items begin anew, and none is left out.
    fn cut(task: &PageTask) -> Self {
        let PageTask { listings, cursor, era, .. } = task;
        let options = &task.gateway.0.options;
        // One server's endpoint has the server's own definitions.
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
            for ListedItem { exposed, item } in listing.items.iter().skip(start) {
                let given = if is_all { item.conforming(*era) } else { Some(&item.definition) };
                let Some(given) = given else {
                    page.note_invalid(listing, item, true);
                    continue;
                };
                let text = if *exposed == item.name { given.clone() } else { renamed(given, exposed) };
                let is_full =
                    page.items.len() == options.page_size || page.size + text.len() > options.page_bytes;
                if is_full && let Some(last) = last {
                    page.next = Some(last);
                    return page;
                }
                if *given != item.definition {
                    page.note_invalid(listing, item, false);
                }
                page.size += text.len() + 1;
                page.items.push(text);
                last = Some(Cursor { server: listing.server.clone(), item: item.name.to_string() });
            }
        }
        page
    }

    /// Notes an item whose definition clients get otherwise than the server gives it, or not at all.
    fn note_invalid(&mut self, listing: &ServerListing, item: &ListedDefinition, is_left_out: bool) {
        if self.invalid.len() < MAX_INVALID {
            let (server, name, problem) = (listing.server.as_str(), &*item.name, item.problem());
            let row = json!({"server": server, "name": name, "problem": problem, "leftOut": is_left_out});
            self.invalid.push(row);
        }
    }

    fn write(self, task: &PageTask) -> Vec<u8> {
        let member = task.kind.member();
        let mut out = Vec::with_capacity(self.size + 128);
        out.push(b'{');
        ostler_wire::push_text(&mut out, member);
        out.extend_from_slice(b":[");
        for (at, item) in self.items.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            out.extend_from_slice(item);
        }
        out.push(b']');
        if let Some(next) = &self.next {
            out.extend_from_slice(b",\"nextCursor\":");
            let next = next.seal(task.gateway.0.host.sealer(), &task.principal, member);
            ostler_wire::push_text(&mut out, &next);
        }
        if task.era == Era::Modern {
            push_hints(&mut out, &task.listings);
        }
        self.push_meta(&mut out, &task.listings);
        out.push(b'}');
        out
    }

    /// Says whose items are missing or old, which ones another server owns, and which ones the schema of MCP does
    /// not allow.
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

/// A list is good for as long as every part of it is. It is the caller's own:
/// what it shows depends on what the caller may see.
fn push_hints(out: &mut Vec<u8>, listings: &[ServerListing]) {
    let ttl = listings.iter().map(|listing| listing.ttl).min().unwrap_or(Duration::ZERO);
    out.extend_from_slice(b",\"resultType\":\"complete\",\"ttlMs\":");
    out.extend_from_slice(ttl.as_millis().to_string().as_bytes());
    out.extend_from_slice(b",\"cacheScope\":\"private\"");
}

fn renamed(definition: &Bytes, name: &str) -> Bytes {
    let mut value = Vec::with_capacity(name.len() + 2);
    ostler_wire::push_text(&mut value, name);
    ostler_wire::edit(definition, &[("name", Change::Set(&value))])
        .map_or_else(|| definition.clone(), Bytes::from)
}

/// Filters the page that one server has given.
async fn filtered(gateway: &Gateway, exchange: &Exchange, kind: Kind, reply: Reply) -> Reply {
    let (Reply::Result(body), Scope::Server(server)) = (&reply, &exchange.scope) else { return reply };
    let page = ServerPage {
        gateway: gateway.clone(),
        kind,
        server: server.clone(),
        caller: exchange.caller.clone(),
        era: exchange.client.era(),
        body: body.clone(),
    };
    off_thread(body.len(), move || page.filtered()).await
}

/// One server's page, and the caller that it is for.
struct ServerPage {
    gateway: Gateway,
    kind: Kind,
    server: ServerName,
    caller: Caller,
    era: Era,
    body: Bytes,
}

impl ServerPage {
    /// Leaves out what the caller may not use, what nobody has approved, what is no item and what is beyond the
    /// server's limits. A page with nothing to leave out stays byte for byte, unless it says that it is everybody's
    /// where others may see another one: a cache behind us would show it to them.
    fn filtered(self) -> Reply {
        let Self { kind, server, caller, body, .. } = &self;
        let filter = self.gateway.0.host.page_filter(caller, server.as_str(), *kind);
        let page = match ListPage::open(body, kind.member(), kind.name_member(), filter.cap()) {
            Ok(page) => page,
            Err(error) => {
                let detail = format!("its list can't be read: {error}");
                let error = CallError::UpstreamProtocol { server: server.clone(), detail };
                return Reply::failed(&error, self.era);
            }
        };
        let repeated: HashSet<&str> = page.repeated.iter().map(String::as_str).collect();
        let may = |item: &Item| {
            let definition = (!repeated.contains(&*item.name)).then_some(&*item.raw);
            filter.shows(&item.name, definition)
        };
        let is_modern = self.era == Era::Modern;
        let private = ("cacheScope", Change::Set(b"\"private\""));
        if page.dropped_count + page.beyond == 0 && page.items.iter().all(may) {
            let is_too_open =
                is_modern && page.head.scope == CacheScope::Public && filter.differs_by_caller();
            let changed = is_too_open.then(|| ostler_wire::edit(body, &[private])).flatten();
            return changed.map_or_else(|| Reply::Result(body.clone()), Reply::result);
        }
        let mut list = b"[".to_vec();
        for item in page.items.iter().filter(|item| may(item)) {
            if list.len() > 1 {
                list.push(b',');
            }
            list.extend_from_slice(&item.raw);
        }
        list.push(b']');
        let mut changes = vec![(kind.member(), Change::Set(&list[..]))];
        if is_modern {
            changes.push(private);
        }
        ostler_wire::edit(body, &changes).map_or_else(|| Reply::Result(body.clone()), Reply::result)
    }
}

//! `subscriptions/listen`: one long stream per modern client, fed by the hub.

use bytes::Bytes;
use ostler_core::name::ServerName;
use ostler_host::Kind;
use ostler_host::upstream::Event;
use ostler_wire::Change;
use tokio::sync::broadcast::error::RecvError;

use super::forward;
use super::hub::{self, Told};
use super::subscribed::{self, Subscribed};
use crate::exchange::{Exchange, Reply};
use crate::gateway::Gateway;
use ostler_host::Scope;

/// The key of `_meta` that names the listen a message belongs to.
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// Resources that one listen may name. Should events be lost, all of them are
/// told of at once, and that must fit what may wait for a client.
const RESOURCES: usize = 200;

/// What a client wants to hear of.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Wanted {
    tools_list_changed: bool,
    prompts_list_changed: bool,
    resources_list_changed: bool,
    resource_subscriptions: Vec<String>,
}

/// What a listen holds as long as it lasts.
struct Listening {
    wanted: Wanted,
    /// Whether it named resources.
    names_resources: bool,
    /// The resources, and the server that tells of each.
    held: Vec<(ServerName, Subscribed)>,
}

/// Listens until the client goes away or the gateway winds up.
pub(crate) async fn listen(gateway: &Gateway, exchange: &mut Exchange) -> Reply {
    // Events count from here on, not from the acknowledgement.
    let mut events = gateway.0.hub.listen();
    let mut draining = gateway.0.is_draining.subscribe();
    // The request may be megabytes, and a listen lasts: only what was understood of it is kept.
    let params = std::mem::take(&mut exchange.params);
    let wanted = match ostler_wire::member(params.raw(), "notifications") {
        Some(raw) => serde_json::from_slice::<Wanted>(raw),
        None => return Reply::invalid("`notifications` is missing"),
    };
    let listening = match wanted {
        Ok(wanted) if wanted.resource_subscriptions.len() <= RESOURCES => {
            subscribe(gateway, exchange, wanted).await
        }
        Ok(_) => return Reply::invalid(&format!("a listen can name {RESOURCES} resources")),
        Err(error) => return Reply::invalid(&format!("`notifications` can't be read: {error}")),
    };
    drop(params);
    let id = exchange.id.raw();
    if !exchange.outlet.send(acknowledgement(&listening, id)) {
        return closed(id);
    }
    loop {
        let told = tokio::select! {
            told = events.recv() => told,
            _ = draining.wait_for(|is_draining| *is_draining) => return closed(id),
        };
        let frames = match told {
            Ok(Told::Said(event)) => {
                let is_wanted = listening.wants(&event.server, &event.event, &exchange.scope)
                    && gateway.0.host.may_hear(&exchange.caller, &event);
                if is_wanted { vec![hub::notification(&event.event, Some(id))] } else { Vec::new() }
            }
            Ok(Told::Lost) | Err(RecvError::Lagged(_)) => listening.everything(gateway, exchange),
            Err(RecvError::Closed) => return closed(id),
        };
        // A client that does not read its stream loses it, at once where memory is scarce.
        let kept = &gateway.0.sessions.kept;
        let is_behind = !frames.is_empty() && kept.is_too_much() && !exchange.outlet.is_empty();
        if is_behind || !frames.into_iter().all(|frame| exchange.outlet.send(kept.frame(frame))) {
            return closed(id);
        }
    }
}

async fn subscribe(gateway: &Gateway, exchange: &Exchange, mut wanted: Wanted) -> Listening {
    let mut held = Vec::new();
    // They are not kept but by their subscriptions.
    let uris = std::mem::take(&mut wanted.resource_subscriptions);
    for uri in &uris {
        let server = forward::owner_of(gateway, exchange, uri).await;
        let Some(server) = server else { continue };
        // What can't be subscribed to is not acknowledged.
        if let Ok(subscribed) = subscribed::subscribe(gateway, &exchange.caller, server.as_str(), uri).await {
            held.push((server, subscribed));
        }
    }
    Listening { wanted, names_resources: !uris.is_empty(), held }
}

impl Listening {
    fn wants(&self, server: &ServerName, event: &Event, scope: &Scope) -> bool {
        if matches!(scope, Scope::Server(only) if only != server) {
            return false;
        }
        match event {
            Event::ToolsChanged => self.wanted.tools_list_changed,
            Event::PromptsChanged => self.wanted.prompts_list_changed,
            Event::ResourcesChanged => self.wanted.resources_list_changed,
            Event::ResourceUpdated(params) => {
                let uri = ostler_wire::text_member(params, "uri").unwrap_or_default();
                self.held.iter().any(|(from, held)| from == server && **held.uri() == *uri)
            }
            Event::Log(_) | Event::Other { .. } => false,
        }
    }

    /// Some events are lost, so all that may have happened is said to have happened.
    fn everything(&self, gateway: &Gateway, exchange: &Exchange) -> Vec<Vec<u8>> {
        let (host, id) = (&gateway.0.host, exchange.id.raw());
        let lists = [
            (self.wanted.tools_list_changed, Event::ToolsChanged),
            (self.wanted.prompts_list_changed, Event::PromptsChanged),
            (self.wanted.resources_list_changed, Event::ResourcesChanged),
        ];
        let lists = lists.into_iter().filter(|(is_wanted, _)| *is_wanted).map(|(_, event)| event);
        // The rules may be others than when it began.
        let may = |server: &ServerName, uri: &str| {
            host.may_use(&exchange.caller, server.as_str(), Kind::Resources, uri)
        };
        let held = self.held.iter().filter(|(server, held)| may(server, held.uri()));
        let updates = held.map(|(_, held)| hub::updated(held.uri()));
        lists.chain(updates).map(|event| hub::notification(&event, Some(id))).collect()
    }
}

fn acknowledgement(listening: &Listening, id: &[u8]) -> Vec<u8> {
    let mut params = b"{\"notifications\":{".to_vec();
    let wanted = &listening.wanted;
    let flags = [
        ("toolsListChanged", wanted.tools_list_changed),
        ("promptsListChanged", wanted.prompts_list_changed),
        ("resourcesListChanged", wanted.resources_list_changed),
    ];
    for (name, _) in flags.into_iter().filter(|(_, is_wanted)| *is_wanted) {
        separate(&mut params);
        ostler_wire::push_text(&mut params, name);
        params.extend_from_slice(b":true");
    }
    if listening.names_resources {
        separate(&mut params);
        params.extend_from_slice(b"\"resourceSubscriptions\":[");
        for (at, (_, held)) in listening.held.iter().enumerate() {
            if at > 0 {
                params.push(b',');
            }
            ostler_wire::push_text(&mut params, held.uri());
        }
        params.push(b']');
    }
    params.extend_from_slice(b"}}");
    let mut frame = Vec::new();
    let method = "notifications/subscriptions/acknowledged";
    ostler_wire::write_notification(&mut frame, method, Some(&stamped(&params, id)));
    frame.pop();
    frame
}

fn separate(out: &mut Vec<u8>) {
    if out.last() != Some(&b'{') {
        out.push(b',');
    }
}

/// Parameters that say which listen they belong to, instead of the one upstream.
pub(crate) fn stamped(params: &[u8], id: &[u8]) -> Bytes {
    let meta = ostler_wire::member(params, "_meta").unwrap_or(b"{}");
    let meta = ostler_wire::edit(meta, &[(SUBSCRIPTION, Change::Set(id))]).unwrap_or_default();
    let stamped = ostler_wire::edit(params, &[("_meta", Change::Set(&meta))]);
    stamped.map_or_else(|| Bytes::copy_from_slice(params), Bytes::from)
}

/// The answer to a listen that has ended in an orderly way.
pub(crate) fn closed(id: &[u8]) -> Reply {
    Reply::Result(stamped(b"{\"resultType\":\"complete\"}", id))
}

//! `subscriptions/listen`: one long stream per modern client, fed by `notifications.rs`.

use bytes::Bytes;
use ostler_core::server_name::ServerName;
use ostler_host::Kind;
use ostler_host::upstream::ServerNotification;
use ostler_wire::MemberEdit;
use tokio::sync::broadcast::error::RecvError;

use super::forward;
use super::notifications::{self, ListenEvent};
use super::subscriptions::{self, ClientSubscription};
use crate::client_request::{ClientRequest, GatewayReply};
use crate::gateway::Gateway;
use ostler_host::Scope;

/// Key of `_meta` that names the listen a message belongs to.
const SUBSCRIPTION_ID_KEY: &str = "io.modelcontextprotocol/subscriptionId";

/// Resources that one listen may name. If events are lost, all of them are announced at once, and that must fit the
/// queue of one request.
const MAX_LISTEN_RESOURCES: usize = 200;

/// Notifications that a client subscribes to.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ListenFilter {
    tools_list_changed: bool,
    prompts_list_changed: bool,
    resources_list_changed: bool,
    resource_subscriptions: Vec<String>,
}

/// Subscriptions of a listen, held as long as it lasts.
struct ActiveListen {
    filter: ListenFilter,
    /// True if the listen named resources.
    names_resources: bool,
    /// Resources of the listen, each with the server that announces its changes.
    resources: Vec<(ServerName, ClientSubscription)>,
}

/// Serves a listen until the client goes away or the gateway drains.
pub(crate) async fn listen(gateway: &Gateway, exchange: &mut ClientRequest) -> GatewayReply {
    // Events count from here on, not from the acknowledgement.
    let mut events = gateway.0.notifications.subscribe();
    let mut draining = gateway.0.is_draining.subscribe();
    // The request may be megabytes and a listen lasts, so only its parsed filter is kept.
    let params = std::mem::take(&mut exchange.params);
    let wanted = match ostler_wire::member(params.raw(), "notifications") {
        Some(raw) => serde_json::from_slice::<ListenFilter>(raw),
        None => return GatewayReply::invalid_params("`notifications` is missing"),
    };
    let listening = match wanted {
        Ok(wanted) if wanted.resource_subscriptions.len() <= MAX_LISTEN_RESOURCES => {
            subscribe(gateway, exchange, wanted).await
        }
        Ok(_) => {
            return GatewayReply::invalid_params(&format!(
                "a listen can name {MAX_LISTEN_RESOURCES} resources"
            ));
        }
        Err(error) => {
            return GatewayReply::invalid_params(&format!("`notifications` can't be read: {error}"));
        }
    };
    drop(params);
    let id = exchange.id.raw();
    if !exchange.sink.send(acknowledgement(&listening, id)) {
        return closed_reply(id);
    }
    loop {
        let told = tokio::select! {
            told = events.recv() => told,
            _ = draining.wait_for(|is_draining| *is_draining) => return closed_reply(id),
        };
        let frames = match told {
            Ok(ListenEvent::FromServer(event)) => {
                let is_wanted = listening.matches(&event.server, &event.notification, &exchange.scope)
                    && gateway.0.host.may_receive(&exchange.caller, &event);
                if is_wanted {
                    vec![notifications::notification_frame(&event.notification, Some(id))]
                } else {
                    Vec::new()
                }
            }
            Ok(ListenEvent::Lost) | Err(RecvError::Lagged(_)) => listening.all_changes(gateway, exchange),
            Err(RecvError::Closed) => return closed_reply(id),
        };
        // A client that does not read its stream loses it, at once if memory is scarce.
        let kept = &gateway.0.sessions.retained;
        let is_behind = !frames.is_empty() && kept.is_over_limit() && !exchange.sink.is_empty();
        if is_behind || !frames.into_iter().all(|frame| exchange.sink.send(kept.counted_frame(frame))) {
            return closed_reply(id);
        }
    }
}

async fn subscribe(gateway: &Gateway, exchange: &ClientRequest, mut wanted: ListenFilter) -> ActiveListen {
    let mut held = Vec::new();
    // Each URI is kept by its subscription alone.
    let uris = std::mem::take(&mut wanted.resource_subscriptions);
    for uri in &uris {
        let server = forward::resource_owner(gateway, exchange, uri).await;
        let Some(server) = server else { continue };
        // A resource that can't be subscribed to is not acknowledged.
        if let Ok(subscribed) =
            subscriptions::subscribe(gateway, &exchange.caller, server.as_str(), uri).await
        {
            held.push((server, subscribed));
        }
    }
    ActiveListen { filter: wanted, names_resources: !uris.is_empty(), resources: held }
}

impl ActiveListen {
    fn matches(&self, server: &ServerName, event: &ServerNotification, scope: &Scope) -> bool {
        if matches!(scope, Scope::Server(only) if only != server) {
            return false;
        }
        match event {
            ServerNotification::ToolsChanged => self.filter.tools_list_changed,
            ServerNotification::PromptsChanged => self.filter.prompts_list_changed,
            ServerNotification::ResourcesChanged => self.filter.resources_list_changed,
            ServerNotification::ResourceUpdated(params) => {
                let uri = ostler_wire::text_member(params, "uri").unwrap_or_default();
                self.resources.iter().any(|(from, held)| from == server && **held.uri() == *uri)
            }
            ServerNotification::Log(_) | ServerNotification::Other { .. } => false,
        }
    }

    /// Returns a notification of every change the listen covers, after events were lost.
    fn all_changes(&self, gateway: &Gateway, exchange: &ClientRequest) -> Vec<Vec<u8>> {
        let (host, id) = (&gateway.0.host, exchange.id.raw());
        let lists = [
            (self.filter.tools_list_changed, ServerNotification::ToolsChanged),
            (self.filter.prompts_list_changed, ServerNotification::PromptsChanged),
            (self.filter.resources_list_changed, ServerNotification::ResourcesChanged),
        ];
        let lists = lists.into_iter().filter(|(is_wanted, _)| *is_wanted).map(|(_, event)| event);
        // The rules may have changed since the listen began.
        let may = |server: &ServerName, uri: &str| {
            host.may_use(&exchange.caller, server.as_str(), Kind::Resources, uri)
        };
        let held = self.resources.iter().filter(|(server, held)| may(server, held.uri()));
        let updates = held.map(|(_, held)| notifications::resource_updated(held.uri()));
        lists.chain(updates).map(|event| notifications::notification_frame(&event, Some(id))).collect()
    }
}

fn acknowledgement(listening: &ActiveListen, id: &[u8]) -> Vec<u8> {
    let mut params = b"{\"notifications\":{".to_vec();
    let wanted = &listening.filter;
    let flags = [
        ("toolsListChanged", wanted.tools_list_changed),
        ("promptsListChanged", wanted.prompts_list_changed),
        ("resourcesListChanged", wanted.resources_list_changed),
    ];
    for (name, _) in flags.into_iter().filter(|(_, is_wanted)| *is_wanted) {
        push_separator(&mut params);
        ostler_wire::push_json_string(&mut params, name);
        params.extend_from_slice(b":true");
    }
    if listening.names_resources {
        push_separator(&mut params);
        params.extend_from_slice(b"\"resourceSubscriptions\":[");
        for (at, (_, held)) in listening.resources.iter().enumerate() {
            if at > 0 {
                params.push(b',');
            }
            ostler_wire::push_json_string(&mut params, held.uri());
        }
        params.push(b']');
    }
    params.extend_from_slice(b"}}");
    let mut frame = Vec::new();
    let method = "notifications/subscriptions/acknowledged";
    ostler_wire::write_notification(&mut frame, method, Some(&with_subscription_id(&params, id)));
    frame.pop();
    frame
}

fn push_separator(out: &mut Vec<u8>) {
    if out.last() != Some(&b'{') {
        out.push(b',');
    }
}

/// Returns parameters that carry the id of this listen instead of the upstream one.
pub(crate) fn with_subscription_id(params: &[u8], id: &[u8]) -> Bytes {
    let meta = ostler_wire::member(params, "_meta").unwrap_or(b"{}");
    let meta = ostler_wire::edit(meta, &[(SUBSCRIPTION_ID_KEY, MemberEdit::Set(id))]).unwrap_or_default();
    let stamped = ostler_wire::edit(params, &[("_meta", MemberEdit::Set(&meta))]);
    stamped.map_or_else(|| Bytes::copy_from_slice(params), Bytes::from)
}

/// Returns the reply to a listen that has ended in an orderly way.
pub(crate) fn closed_reply(id: &[u8]) -> GatewayReply {
    GatewayReply::Result(with_subscription_id(b"{\"resultType\":\"complete\"}", id))
}

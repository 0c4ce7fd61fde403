//! The gateway: a value over a host.

use std::fmt;
use std::sync::Arc;

use ostler_core::caller::Caller;
use ostler_core::keyed_limit::KeyedLimit;
use ostler_core::name::ServerName;
use ostler_host::Host;
use tokio::sync::watch;

use crate::answer::{Hub, Lot, SubscriptionRoom, Subscriptions};
use crate::http::SseClients;
use crate::options::GatewayOptions;
use crate::sessions::Sessions;

/// Serves the servers of a host to MCP clients of both eras. Clones are
/// handles to the same gateway.
#[derive(Debug, Clone)]
pub struct Gateway(pub(crate) Arc<Shared>);

pub(crate) struct Shared {
    pub(crate) host: Host,
    pub(crate) options: GatewayOptions,
    /// Calls that wait for an answer of a modern client.
    pub(crate) lot: Lot,
    /// What servers say without being asked.
    pub(crate) hub: Hub,
    /// What legacy sessions have subscribed to.
    pub(crate) subscriptions: Subscriptions,
    /// Room for these and for those of listens.
    pub(crate) subscription_room: SubscriptionRoom,
    /// Legacy sessions over HTTP.
    pub(crate) sessions: Sessions,
    /// Clients of the HTTP+SSE transport.
    pub(crate) sse_clients: SseClients,
    /// Room for long streams, half of them for one caller.
    pub(crate) long_streams: Arc<KeyedLimit>,
    /// What one caller may hold open over HTTP.
    pub(crate) per_caller: Arc<KeyedLimit>,
    /// True once the gateway winds up: long streams end by themselves.
    pub(crate) is_draining: watch::Sender<bool>,
}

impl Gateway {
    /// A gateway over a host. To be called inside a tokio runtime: a task
    /// carries the servers' events to clients as long as the gateway lives.
    pub fn new(host: Host, options: GatewayOptions) -> Self {
        let shared = Arc::new(Shared {
            lot: Lot::new(options.max_parked),
            hub: Hub::new(),
            subscriptions: Subscriptions::default(),
            subscription_room: SubscriptionRoom::default(),
            sessions: Sessions::new(options.max_sessions, options.session_idle),
            sse_clients: SseClients::default(),
            long_streams: KeyedLimit::new(options.max_streams, options.max_streams.div_ceil(2)),
            // A caller that may hold nothing at all could not even be told so.
            per_caller: KeyedLimit::per_key(options.max_per_caller.max(1)),
            is_draining: watch::Sender::new(false),
            host,
            options,
        });
        crate::answer::follow_events(&shared);
        Self(shared)
    }

    /// Whether the caller may see a server. One that it may not see looks like none.
    pub(crate) fn may_see(&self, caller: &Caller, server: &ServerName) -> bool {
        self.0.host.sees(caller, server.as_str())
    }

    /// Legacy sessions that are open over HTTP.
    pub fn sessions(&self) -> usize {
        self.0.sessions.len() + self.0.sse_clients.len()
    }

    /// Ends the sessions of callers whose credential was taken back, with all
    /// that they have under way; how many sessions that were. Streams that
    /// belong to no session end with the [`Pass`](crate::Pass) of their caller.
    pub fn end_callers(&self, is_over: impl Fn(&Caller) -> bool) -> usize {
        self.0.lot.end_callers(&is_over);
        self.0.sessions.end_callers(self, is_over)
    }

    /// Calls that wait for an answer of a modern client.
    pub fn parked(&self) -> usize {
        self.0.lot.len()
    }

    /// Returns the longest message of a client, in bytes.
    pub fn max_body(&self) -> usize {
        self.0.options.max_body
    }

    /// The host whose servers it serves.
    pub fn host(&self) -> &Host {
        &self.0.host
    }

    /// Ends long streams in an orderly way. Requests are still answered; who
    /// listens decides when nobody may come any more.
    pub fn drain(&self) {
        self.0.is_draining.send_replace(true);
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway").field("host", &self.host).finish_non_exhaustive()
    }
}

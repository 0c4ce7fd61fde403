//! The gateway: a value over a host.

use std::fmt;
use std::sync::Arc;

use ostler_core::caller::Caller;
use ostler_core::keyed_limit::KeyedLimit;
use ostler_core::server_name::ServerName;
use ostler_host::Host;
use tokio::sync::watch;

use crate::dispatch::{ClientNotifications, SessionSubscriptions, SubscriptionLimits, SuspendedCalls};
use crate::http::SseClients;
use crate::options::GatewayOptions;
use crate::session_table::SessionTable;

/// Bytes of answers that wait for the rest of their batch, over all batches. Half of them at most are one caller's.
const MAX_BATCH_BYTES: usize = 128 << 20;

/// Serves the servers of a host to MCP clients of both eras. Clones are
/// handles to the same gateway.
#[derive(Debug, Clone)]
pub struct Gateway(pub(crate) Arc<GatewayShared>);

pub(crate) struct GatewayShared {
    pub(crate) host: Host,
    pub(crate) options: GatewayOptions,
    /// Calls that wait for an answer of a modern client.
    pub(crate) suspended: SuspendedCalls,
    /// What servers say without being asked.
    pub(crate) notifications: ClientNotifications,
    /// What legacy sessions have subscribed to.
    pub(crate) subscriptions: SessionSubscriptions,
    /// Room for these and for those of listens.
    pub(crate) subscription_limits: SubscriptionLimits,
    /// Legacy sessions over HTTP.
    pub(crate) sessions: SessionTable,
    /// Clients of the HTTP+SSE transport.
    pub(crate) sse_clients: SseClients,
    /// Room for long streams, half of them for one caller.
    pub(crate) long_streams: Arc<KeyedLimit>,
    /// What one caller may hold open over HTTP.
    pub(crate) per_caller: Arc<KeyedLimit>,
    /// Bytes of answers that wait for the rest of their batch.
    pub(crate) batch_bytes: Arc<KeyedLimit>,
    /// True once the gateway winds up: long streams end by themselves.
    pub(crate) is_draining: watch::Sender<bool>,
}

impl Gateway {
    /// A gateway over a host. To be called inside a tokio runtime: a task
    /// carries the servers' events to clients as long as the gateway lives.
    pub fn new(host: Host, options: GatewayOptions) -> Self {
        let shared = Arc::new(GatewayShared {
            suspended: SuspendedCalls::new(options.max_suspended),
            notifications: ClientNotifications::new(),
            subscriptions: SessionSubscriptions::default(),
            subscription_limits: SubscriptionLimits::default(),
            sessions: SessionTable::new(options.max_sessions, options.session_idle),
            sse_clients: SseClients::default(),
            long_streams: KeyedLimit::new(options.max_streams, options.max_streams.div_ceil(2)),
            // A caller that may hold nothing at all could not even be told so.
            per_caller: KeyedLimit::per_key(options.max_per_caller.max(1)),
            batch_bytes: KeyedLimit::new(MAX_BATCH_BYTES, MAX_BATCH_BYTES / 2),
            is_draining: watch::Sender::new(false),
            host,
            options,
        });
        crate::dispatch::spawn_event_task(&shared);
        Self(shared)
    }

    /// Whether the caller may see a server. One that it may not see looks like none.
    pub(crate) fn may_see(&self, caller: &Caller, server: &ServerName) -> bool {
        self.0.host.may_see(caller, server.as_str())
    }

    /// Legacy sessions that are open over HTTP.
    pub fn session_count(&self) -> usize {
        self.0.sessions.len() + self.0.sse_clients.len()
    }

    /// Ends the sessions of callers whose credential was taken back, with all
    /// that they have under way; how many sessions that were. Streams that
    /// belong to no session end with the [`Pass`](crate::Pass) of their caller.
    pub fn end_sessions_of(&self, is_over: impl Fn(&Caller) -> bool) -> usize {
        self.0.suspended.cancel_calls_of(&is_over);
        self.0.sessions.end_sessions_of(self, is_over)
    }

    /// Calls that wait for an answer of a modern client.
    pub fn suspended_calls(&self) -> usize {
        self.0.suspended.len()
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

impl fmt::Debug for GatewayShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway").field("host", &self.host).finish_non_exhaustive()
    }
}

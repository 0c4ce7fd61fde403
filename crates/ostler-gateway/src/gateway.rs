//! Gateway: serves a host to MCP clients; a value that owns no listener.

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

/// Bytes of answers that wait for the rest of their batch, over all batches. One caller holds half of them at most.
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
    /// Server notifications for listens and sessions.
    pub(crate) notifications: ClientNotifications,
    /// Resource subscriptions of legacy sessions.
    pub(crate) subscriptions: SessionSubscriptions,
    /// Limits for these subscriptions and for those of listens.
    pub(crate) subscription_limits: SubscriptionLimits,
    /// Legacy sessions over HTTP.
    pub(crate) sessions: SessionTable,
    /// Clients of the HTTP+SSE transport.
    pub(crate) sse_clients: SseClients,
    /// Limit of long streams, half of them for one caller.
    pub(crate) long_streams: Arc<KeyedLimit>,
    /// Limit of what one caller may hold open over HTTP.
    pub(crate) per_caller: Arc<KeyedLimit>,
    /// Bytes of answers that wait for the rest of their batch.
    pub(crate) batch_bytes: Arc<KeyedLimit>,
    /// True once the gateway drains: long streams end by themselves.
    pub(crate) is_draining: watch::Sender<bool>,
}

impl Gateway {
    /// Makes a gateway over a host. Must run inside a tokio runtime: a task distributes the servers' events to clients
    /// as long as the gateway lives.
    pub fn new(host: Host, options: GatewayOptions) -> Self {
        let shared = Arc::new(GatewayShared {
            suspended: SuspendedCalls::new(options.max_suspended),
            notifications: ClientNotifications::new(),
            subscriptions: SessionSubscriptions::default(),
            subscription_limits: SubscriptionLimits::default(),
            sessions: SessionTable::new(options.max_sessions, options.session_idle),
            sse_clients: SseClients::default(),
            long_streams: KeyedLimit::new(options.max_streams, options.max_streams.div_ceil(2)),
            // A caller with a limit of 0 could not even get a refusal.
            per_caller: KeyedLimit::per_key(options.max_per_caller.max(1)),
            batch_bytes: KeyedLimit::new(MAX_BATCH_BYTES, MAX_BATCH_BYTES / 2),
            is_draining: watch::Sender::new(false),
            host,
            options,
        });
        crate::dispatch::spawn_event_task(&shared);
        Self(shared)
    }

    /// Returns whether the caller may see a server. A hidden server looks like a missing one.
    pub(crate) fn may_see(&self, caller: &Caller, server: &ServerName) -> bool {
        self.0.host.may_see(caller, server.as_str())
    }

    /// Returns the number of open legacy sessions over HTTP.
    pub fn session_count(&self) -> usize {
        self.0.sessions.len() + self.0.sse_clients.len()
    }

    /// Ends the sessions of callers whose credential was revoked, with all their requests and streams; returns their
    /// number. Streams without a session end with the [`CredentialLifetime`](crate::CredentialLifetime) of their
    /// caller.
    pub fn end_sessions_of(&self, is_over: impl Fn(&Caller) -> bool) -> usize {
        self.0.suspended.cancel_calls_of(&is_over);
        self.0.sessions.end_sessions_of(self, is_over)
    }

    /// Returns the number of calls that wait for an answer of a modern client.
    pub fn suspended_calls(&self) -> usize {
        self.0.suspended.len()
    }

    /// Returns the longest message of a client, in bytes.
    pub fn max_body(&self) -> usize {
        self.0.options.max_body
    }

    /// Returns the host whose servers it serves.
    pub fn host(&self) -> &Host {
        &self.0.host
    }

    /// Ends long streams in an orderly way. Requests are still answered; the owner of the listener decides when to stop
    /// accepting connections.
    pub fn drain(&self) {
        self.0.is_draining.send_replace(true);
    }
}

impl fmt::Debug for GatewayShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway").field("host", &self.host).finish_non_exhaustive()
    }
}

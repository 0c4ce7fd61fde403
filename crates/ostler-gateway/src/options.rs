//! Gateway options: callers, limits and texts of a gateway.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ostler_core::error::CallError;
use ostler_core::server_name::ServerName;
use ostler_host::upstream::BoxFuture;

use crate::auth::{Authenticate, LocalOnly};
use crate::http::OriginCheck;

/// Readiness check: returns a future that waits until the set of servers is known, with a timeout of its own, or fails
/// with the reason. `None` means that the set is known.
pub type ReadinessCheck = Arc<dyn Fn() -> Option<BoxFuture<'static, Result<(), CallError>>> + Send + Sync>;

/// Gateway options. Every default is the documented one.
#[derive(Clone)]
pub struct GatewayOptions {
    /// Maps credentials to callers.
    pub authenticate: Arc<dyn Authenticate>,
    /// RFC 9728 metadata about tokens for this endpoint; `None` serves none.
    pub resource_metadata: Option<ResourceMetadata>,
    /// `Host` values that are served beside loopback names: `name` or `name:port`.
    pub allowed_hosts: Vec<String>,
    /// `Origin` values that are served beside those of loopback: `scheme://name[:port]`.
    pub allowed_origins: Vec<String>,
    /// Maximum bytes of a request body.
    pub max_body: usize,
    /// Timeout for the arrival of a request body.
    pub body_timeout: Duration,
    /// Maximum number of legacy sessions.
    pub max_sessions: usize,
    /// Idle time after which a legacy session expires.
    pub session_idle: Duration,
    /// Maximum number of long streams (GET streams and listens).
    pub max_streams: usize,
    /// Requests and streams that one caller may hold open over HTTP. By default half of the connections, so that no
    /// caller can keep all others out; one caller also gets at most half of the long streams.
    pub max_per_caller: usize,
    /// Silence after which a stream gets a comment.
    pub keep_alive: Duration,
    /// Items on one page of a list.
    pub page_size: usize,
    /// Bytes of the definitions on one page of a list; one definition always fits. Many clients read only the first
    /// page.
    pub page_bytes: usize,
    /// Timeout of one server in a list over all servers.
    pub list_patience: Duration,
    /// Maximum number of calls that wait for an answer of a modern client.
    pub max_suspended: usize,
    /// Version of the server info for clients.
    pub version: String,
    /// Awaited before each list or call, if the servers are not known from the start: an empty list would be wrong
    /// until they are.
    pub readiness: Option<ReadinessCheck>,
    /// Time for which `initialize` on one server's endpoint waits for a server that can't be started. With no other
    /// server to offer, waiting is better than a refusal.
    pub initialize_patience: Duration,
    /// First paragraph of `instructions` for clients of all servers, addressed to their users.
    pub notice: Option<String>,
    /// Server that `/mcp` shows alone, under its own names.
    pub only_server: Option<ServerName>,
}

/// Metadata of a protected resource, as in RFC 9728.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceMetadata {
    /// Issuers of tokens for the resource.
    pub authorization_servers: Vec<String>,
    /// Base URL from outside, without a path, such as `https://tools.example`; `None` means `http://` and the requested
    /// `Host`.
    pub base_url: Option<String>,
}

impl GatewayOptions {
    /// Returns the check of the hosts and origins that are served.
    pub(crate) fn origin_check(&self) -> OriginCheck<'_> {
        OriginCheck { hosts: &self.allowed_hosts, origins: &self.allowed_origins }
    }
}

impl Default for GatewayOptions {
    fn default() -> Self {
        Self {
            authenticate: Arc::new(LocalOnly),
            resource_metadata: None,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            max_body: 4 << 20,
            body_timeout: Duration::from_secs(30),
            max_sessions: 10_000,
            session_idle: Duration::from_secs(30 * 60),
            max_streams: 1_024,
            max_per_caller: 512,
            keep_alive: Duration::from_secs(15),
            page_size: 100_000,
            page_bytes: 4 << 20,
            list_patience: Duration::from_secs(10),
            max_suspended: 1_024,
            version: env!("CARGO_PKG_VERSION").into(),
            readiness: None,
            initialize_patience: Duration::ZERO,
            notice: None,
            only_server: None,
        }
    }
}

impl fmt::Debug for GatewayOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatewayOptions").field("max_body", &self.max_body).finish_non_exhaustive()
    }
}

//! How a gateway is set up.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ostler_core::error::CallError;
use ostler_core::server_name::ServerName;
use ostler_host::upstream::BoxFuture;

use crate::auth::{Authenticate, LocalOnly};
use crate::http::OriginCheck;

/// Waits until it is known what there is to serve, in a time of its own choice,
/// or says why that is not known. `None` means that it is.
pub type ReadinessCheck = Arc<dyn Fn() -> Option<BoxFuture<'static, Result<(), CallError>>> + Send + Sync>;

/// How a gateway is set up. Every default is the documented one.
#[derive(Clone)]
pub struct GatewayOptions {
    /// Tells callers by their credentials.
    pub authenticate: Arc<dyn Authenticate>,
    /// What clients are told about where tokens for this endpoint come from; nothing without it.
    pub resource_metadata: Option<ResourceMetadata>,
    /// `Host` values that are served beside loopback names: `name` or `name:port`.
    pub allowed_hosts: Vec<String>,
    /// `Origin` values that are served beside those of loopback: `scheme://name[:port]`.
    pub allowed_origins: Vec<String>,
    /// The longest body of a request.
    pub max_body: usize,
    /// How long a body may take to arrive.
    pub body_timeout: Duration,
    /// Legacy sessions at once.
    pub max_sessions: usize,
    /// A legacy session that was not used for this long is forgotten.
    pub session_idle: Duration,
    /// Long streams (GET streams and listens) at once.
    pub max_streams: usize,
    /// What one caller may hold open over HTTP at once: requests that are read
    /// or answered, and streams. Half of the connections that are served, so
    /// that nobody can keep all others out; of the long streams it may hold half
    /// as well.
    pub max_per_caller: usize,
    /// A stream on which nothing was said for this long gets a comment.
    pub keep_alive: Duration,
    /// Items on one page of a list of our own.
    pub page_size: usize,
    /// Bytes of the definitions on one page of a list of our own; one definition always fits. Many clients read
    /// only the first page.
    pub page_bytes: usize,
    /// How long a list over all servers waits for one of them.
    pub list_patience: Duration,
    /// Calls that wait for an answer of a modern client, at once.
    pub max_suspended: usize,
    /// What clients are told about the server they talk to.
    pub version: String,
    /// Asked before anything is listed or called, where the servers are not
    /// known from the start: an empty list would be a lie until they are.
    pub readiness: Option<ReadinessCheck>,
    /// How long a client of one server's endpoint is kept waiting for a hello
    /// while the server can't be started. Who has nothing else to offer than
    /// that server waits rather than sends the client away.
    pub initialize_patience: Duration,
    /// What clients of all servers are told first in `instructions`, for their users.
    pub notice: Option<String>,
    /// `/mcp` shows this server alone, under its own names.
    pub only_server: Option<ServerName>,
}

/// What RFC 9728 has a protected resource say of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceMetadata {
    /// Who issues tokens for it.
    pub authorization_servers: Vec<String>,
    /// How clients reach it from outside, without a path, such as
    /// `https://tools.example`; without it, `http://` and the `Host` they name.
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

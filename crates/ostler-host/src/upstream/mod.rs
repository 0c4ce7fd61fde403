//! Upstream seam: one trait for child processes, remote endpoints and in-memory scripts. The host above cannot tell
//! them apart.

pub(crate) mod attribution;
pub mod http;
pub(crate) mod observer;
pub mod stdio;
mod subscription_ack;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use ostler_core::fault::Fault;
use ostler_core::status::Containment;
use ostler_core::supervisor::ServerFailure;
use ostler_wire::{Era, MethodName, Params, RpcOutcome, ServerInfo};
use tokio::time::Instant;

use crate::lists::Kind;

pub use self::observer::{CallObserver, ClientMeta, ProgressSink, ServerRequest, SharedCallObserver};
pub use self::stdio::StderrLine;
pub use crate::server::{CleanupGuard, Startup};

pub(crate) use self::observer::{ProgressObserver, is_interactive};

/// A boxed future, so that sessions of different kinds fit one type.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Factory of sessions with one server.
pub trait Connector: Send + Sync + 'static {
    /// Starts one session, handshake included. Dropping the future must end everything it has begun; cleanup that
    /// takes time holds the context's [`CleanupGuard`]. The caller sets the timeout.
    fn connect(&self, plan: ConnectContext) -> BoxFuture<'_, Result<Arc<dyn ServerSession>, ServerFailure>>;

    /// Returns the containment of the processes that the server starts.
    fn containment(&self) -> Containment;

    /// Returns whether calls of interactive callers must run one at a time, because the server does not say which of
    /// them a request is for.
    fn needs_exclusive_calls(&self) -> bool {
        false
    }

    /// Returns whether a session is a process on this machine and needs a permit of the process pool.
    fn has_process(&self) -> bool {
        self.containment() != Containment::None
    }
}

/// Context of the session that a connector starts.
#[derive(Clone)]
pub struct ConnectContext {
    /// The session's generation.
    pub generation: u64,
    /// Receives the server's notifications. Called from the session's reader, so it must not block.
    pub notification_sink: ServerNotificationSink,
    /// The working directory of the session's callers, if they have one.
    pub workspace: Option<Arc<str>>,
    /// Held by every task that may outlive the future, beside the host's own clone.
    pub cleanup: CleanupGuard,
    /// The start that the session belongs to; the connector registers its process there.
    pub startup: Arc<Startup>,
    /// The era of the last good start, which saves a probe.
    pub era: Option<Era>,
    /// Looks up the known definitions of the server's tools.
    pub tool_definitions: DefinitionLookup,
    /// Called when the server has forgotten the session's settings and the session continues.
    pub on_session_reset: SessionCallback,
    /// Called before anything is sent on a session that continues so: the known lists of the server are stale.
    pub on_lists_stale: SessionCallback,
}

impl fmt::Debug for ConnectContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan").field("generation", &self.generation).finish_non_exhaustive()
    }
}

/// Returns the definition of a tool in the server's last list, by its name.
pub type DefinitionLookup = Arc<dyn Fn(&str) -> Option<Bytes> + Send + Sync>;

/// Sends a server the settings again that it has forgotten. Runs in the background.
pub type SessionCallback = Arc<dyn Fn() + Send + Sync>;

/// Receives a server's notifications.
pub type ServerNotificationSink = Arc<dyn Fn(ServerNotification) + Send + Sync>;

/// A server notification that belongs to no request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerNotification {
    /// The list of tools changed.
    ToolsChanged,
    /// The list of resources changed.
    ResourcesChanged,
    /// One resource changed: the raw parameters, which name it.
    ResourceUpdated(Bytes),
    /// The list of prompts changed.
    PromptsChanged,
    /// A log message of the server: the raw parameters.
    Log(Bytes),
    /// Any other notification.
    Other {
        /// The notification's method.
        method: MethodName,
        /// Its raw parameters.
        params: Option<Bytes>,
    },
}

/// One live connection to a server.
pub trait ServerSession: Send + Sync + 'static {
    /// Returns the server info of the handshake.
    fn server_info(&self) -> &ServerInfo;

    /// Sends a request and waits for its response. Dropping the future cancels: a request that has not left is
    /// withdrawn, one that has left is cancelled at the server.
    fn request<'a>(&'a self, ask: UpstreamRequest<'a>) -> BoxFuture<'a, Result<RpcOutcome, Fault>>;

    /// Sends a notification. Lost if the server does not read.
    fn notify(&self, _method: &str, _params: Option<&[u8]>) {}

    /// Asks a modern server to announce changed lists and these resources, in place of everything requested before.
    /// Legacy servers announce lists anyway, and resources by requests.
    fn listen(&self, _resources: &[String]) {}

    /// Returns whether the server announces changes of a list, provided that it declares this at all. A modern server
    /// does so only on a listen request.
    fn notifies_changes(&self, _kind: Kind) -> bool {
        self.server_info().era == Era::Legacy
    }

    /// Waits until the session has ended by itself.
    fn ended(&self) -> BoxFuture<'_, ServerFailure>;

    /// Ends the session and waits until nothing of it is left.
    fn close(&self, force: CloseMode) -> BoxFuture<'_, ()>;

    /// Returns the session's statistics.
    fn stats(&self) -> SessionStats;

    /// Returns the time of the server's last message, and the start of the oldest request that waits for a response.
    fn activity(&self) -> (Option<Instant>, Option<Instant>);
}

/// One request to a server.
#[derive(Clone, Copy)]
pub struct UpstreamRequest<'a> {
    /// The MCP method.
    pub method: &'a str,
    /// The parameters as they came.
    pub params: &'a Params,
    /// Equal for every attempt of a call.
    pub idempotency_key: Option<&'a str>,
    /// Deadline of the response.
    pub deadline: Instant,
    /// The caller that the request is made for.
    pub client: ClientMeta<'a>,
    /// Receives notifications of the request and answers server requests for its caller. Progress moves `until`, up
    /// to `at_most`.
    pub observer: Option<&'a SharedCallObserver>,
    /// The hard deadline of the call.
    pub hard_deadline: Instant,
    /// Set once another caller has used the server, for a caller that may not receive what others cause: from then on
    /// the observer gets no notification that names no call, even if this is the only call in flight.
    pub has_other_callers: Option<&'a Arc<AtomicBool>>,
    /// The client's `Mcp-Param-…` headers and no others.
    pub headers: &'a [(String, String)],
    /// Returns whether the request may still be sent, if that depends on the server's lists. Checked when the server
    /// may have been replaced since the request was made.
    pub may_send: Option<&'a (dyn Fn() -> bool + Sync)>,
}

impl<'a> UpstreamRequest<'a> {
    /// Makes a request of the host itself, without a caller.
    pub(crate) fn from_host(method: &'a str, params: &'a Params, deadline: Instant) -> Self {
        Self {
            method,
            params,
            idempotency_key: None,
            deadline,
            client: ClientMeta::Host,
            observer: None,
            hard_deadline: deadline,
            has_other_callers: None,
            headers: &[],
            may_send: None,
        }
    }

    /// Returns whether the request may still be sent.
    pub(crate) fn may_send(&self) -> bool {
        self.may_send.is_none_or(|is_fit| is_fit())
    }
}

impl fmt::Debug for UpstreamRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ask")
            .field("method", &self.method)
            .field("until", &self.deadline)
            .finish_non_exhaustive()
    }
}

/// The way in which a session is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseMode {
    /// Closes stdin, then sends SIGTERM, then SIGKILL.
    Graceful,
    /// Sends SIGKILL: the server hangs or never came up.
    Kill,
}

/// Statistics of a session.
#[derive(Debug, Clone, Default)]
pub struct SessionStats {
    /// The server's process.
    pub pid: Option<u32>,
    /// The last lines of stderr, oldest first.
    pub stderr: Vec<String>,
    /// Lines on stdout that were no messages.
    pub skipped_lines: u64,
    /// Notifications dropped by the rate limit.
    pub dropped_notifications: u64,
}

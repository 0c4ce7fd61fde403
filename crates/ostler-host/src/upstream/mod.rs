//! The way to servers: one seam, so that a child process, a remote endpoint
//! and a script in memory are the same to everything above.

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

/// Makes sessions with one server.
pub trait Connector: Send + Sync + 'static {
    /// Makes one session, handshake included. Dropping the future must end
    /// whatever it has begun, and what takes time about that holds the plan's
    /// [`Stay`]; the caller bounds it in time.
    fn connect(&self, plan: ConnectContext) -> BoxFuture<'_, Result<Arc<dyn ServerSession>, ServerFailure>>;

    /// How what the server starts is kept from outliving the host.
    fn containment(&self) -> Containment;

    /// Whether calls whose callers can answer questions must come one at a
    /// time, because the server does not say which of them it asks.
    fn needs_exclusive_calls(&self) -> bool {
        false
    }

    /// Whether a session is a process that takes room on this machine.
    fn has_process(&self) -> bool {
        self.containment() != Containment::None
    }
}

/// What a connector is told about the session it makes.
#[derive(Clone)]
pub struct ConnectContext {
    /// The number of the session.
    pub generation: u64,
    /// Where the server's notifications go. Called from the session's reader,
    /// so it must not block.
    pub notification_sink: ServerNotificationSink,
    /// The directory that the callers of the session work in, where it has one.
    pub workspace: Option<Arc<str>>,
    /// To be held, beside the host's own, by whatever may outlive the future.
    pub cleanup: CleanupGuard,
    /// The start that the session is made in; hears of its process.
    pub startup: Arc<Startup>,
    /// The era of the last good start, which saves a probe.
    pub era: Option<Era>,
    /// What is known of the server's tools.
    pub tool_definitions: DefinitionLookup,
    /// To be called when the server has forgotten what the session told it, and
    /// the session goes on all the same.
    pub on_session_reset: SessionCallback,
    /// To be called before anything is sent on a session that goes on so: what
    /// is known of the server's lists is nothing any more.
    pub on_lists_stale: SessionCallback,
}

impl fmt::Debug for ConnectContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan").field("generation", &self.generation).finish_non_exhaustive()
    }
}

/// Looks up the definition of a tool in the server's last list, by its name.
pub type DefinitionLookup = Arc<dyn Fn(&str) -> Option<Bytes> + Send + Sync>;

/// Has a server told again what it has forgotten. Nobody waits for it.
pub type SessionCallback = Arc<dyn Fn() + Send + Sync>;

/// Takes what a server says without being asked.
pub type ServerNotificationSink = Arc<dyn Fn(ServerNotification) + Send + Sync>;

/// What a server says without being asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerNotification {
    /// The tools are not what they were.
    ToolsChanged,
    /// The resources are not what they were.
    ResourcesChanged,
    /// One resource is not what it was: the raw parameters, which name it.
    ResourceUpdated(Bytes),
    /// The prompts are not what they were.
    PromptsChanged,
    /// A line of the server's log: the raw parameters.
    Log(Bytes),
    /// Anything else that belongs to no request.
    Other {
        /// The notification's method.
        method: MethodName,
        /// Its raw parameters.
        params: Option<Bytes>,
    },
}

/// One live connection to a server.
pub trait ServerSession: Send + Sync + 'static {
    /// What the server said of itself in the handshake.
    fn server_info(&self) -> &ServerInfo;

    /// Sends a request and waits for its answer. Dropping the future cancels:
    /// a request that has not left is taken back, one that has is cancelled at
    /// the server.
    fn request<'a>(&'a self, ask: UpstreamRequest<'a>) -> BoxFuture<'a, Result<RpcOutcome, Fault>>;

    /// Says something that needs no answer. Lost if the server does not read.
    fn notify(&self, _method: &str, _params: Option<&[u8]>) {}

    /// Asks a modern server to tell of changed lists and of these resources,
    /// instead of whatever it was asked to tell of before. Legacy servers tell
    /// of lists anyway, and of resources by requests.
    fn listen(&self, _resources: &[String]) {}

    /// Whether the server says when a list changes, provided that it announces
    /// that at all. A modern one does so only where it is listened to.
    fn notifies_changes(&self, _kind: Kind) -> bool {
        self.server_info().era == Era::Legacy
    }

    /// Waits until the session has ended by itself.
    fn ended(&self) -> BoxFuture<'_, ServerFailure>;

    /// Ends the session and waits until nothing of it is left.
    fn close(&self, force: CloseMode) -> BoxFuture<'_, ()>;

    /// How it is doing.
    fn stats(&self) -> SessionStats;

    /// When the server was last heard, and when the oldest request that waits
    /// for an answer was made.
    fn activity(&self) -> (Option<Instant>, Option<Instant>);
}

/// One request.
#[derive(Clone, Copy)]
pub struct UpstreamRequest<'a> {
    /// The MCP method.
    pub method: &'a str,
    /// The parameters as they came.
    pub params: &'a Params,
    /// The same for every attempt of a call.
    pub idempotency_key: Option<&'a str>,
    /// When to stop waiting.
    pub deadline: Instant,
    /// Who the request speaks for.
    pub client: ClientMeta<'a>,
    /// Hears of the request and answers for its caller. Progress moves
    /// `until`, up to `at_most`.
    pub observer: Option<&'a SharedCallObserver>,
    /// The hard end of the call.
    pub hard_deadline: Instant,
    /// Set once another caller has used the server, for a caller that may not
    /// hear what others cause: from then on the voice gets no notice that names
    /// no call, even where this is the only call in flight.
    pub has_other_callers: Option<&'a Arc<AtomicBool>>,
    /// What the client's headers say of arguments: `Mcp-Param-…` and nothing else.
    pub headers: &'a [(String, String)],
    /// Whether it may still be sent, where that depends on what the server
    /// lists. Asked when the server that is about to get it may be another one
    /// than it was meant for.
    pub may_send: Option<&'a (dyn Fn() -> bool + Sync)>,
}

impl<'a> UpstreamRequest<'a> {
    /// Makes a request of the host itself, which no caller waits for.
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

    /// Whether nothing has come up that speaks against sending it.
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

/// How much patience an ending session deserves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseMode {
    /// End of input, then SIGTERM, then SIGKILL.
    Graceful,
    /// SIGKILL: the server hangs or never came up.
    Kill,
}

/// How a session is doing.
#[derive(Debug, Clone, Default)]
pub struct SessionStats {
    /// The server's process.
    pub pid: Option<u32>,
    /// The last lines of stderr, oldest first.
    pub stderr: Vec<String>,
    /// Lines on stdout that were no messages.
    pub skipped_lines: u64,
    /// Notifications beyond the limit.
    pub dropped_notifications: u64,
}

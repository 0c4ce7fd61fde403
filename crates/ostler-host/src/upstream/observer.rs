//! The caller's end of a request that is under way.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use ostler_wire::{MethodName, ProgressParams, RpcOutcome, SessionMeta};
use tokio::sync::oneshot;

use crate::server::call_queue::SuspendedPermit;

/// Hears what a server says about one request, and answers what it asks
/// meanwhile. Everything here is called from a session's reader, so nothing
/// may block.
pub trait CallObserver: Send + Sync + 'static {
    /// Whether progress is wanted; only then does the server get a token.
    fn wants_progress(&self) -> bool {
        false
    }

    /// Progress, under the token that the host gave.
    fn on_progress(&self, _progress: &ProgressParams) {}

    /// Any other notification that belongs to the request: the log, and what
    /// nobody here knows.
    fn on_notification(&self, _method: &str, _params: Option<&Bytes>) {}

    /// Whether notices are taken. If not, those that name no call go to
    /// listeners of the server.
    fn wants_notifications(&self) -> bool {
        true
    }

    /// Whether a request of the server can be answered. A server that can't
    /// tell which call it asks for asks one that says yes.
    fn can_answer(&self, _method: &str) -> bool {
        false
    }

    /// Takes a request of the server. While it is open the call's time stands
    /// still, up to the hard end of the call.
    fn on_request(&self, question: ServerRequest) {
        drop(question);
    }
}

/// A caller's voice, shared between the caller and the session.
pub type SharedCallObserver = Arc<dyn CallObserver>;

/// What servers ask the callers of their tools.
const SERVER_REQUESTS: [&str; 3] = ["elicitation/create", "sampling/createMessage", "roots/list"];

/// Whether a caller can answer any question at all.
pub(crate) fn is_interactive(voice: &dyn CallObserver) -> bool {
    SERVER_REQUESTS.iter().any(|method| voice.can_answer(method))
}

/// Says that no caller answers a request of a server.
pub(crate) fn not_offered_message(method: &str) -> String {
    format!("the client of this call does not offer `{}`", method.escape_debug())
}

/// A request of a server that waits for an answer. Dropping it refuses.
pub struct ServerRequest {
    /// The method: `elicitation/create`, `sampling/createMessage`, `roots/list`.
    pub method: MethodName,
    /// The parameters as the server wrote them.
    pub params: Option<Bytes>,
    reply: oneshot::Sender<RpcOutcome>,
    /// The place at the server that the call has given up until it is answered.
    suspended: Option<SuspendedPermit>,
}

impl ServerRequest {
    /// A question, and where its answer appears; the sender gone means refused.
    pub fn new(method: MethodName, params: Option<Bytes>) -> (Self, oneshot::Receiver<RpcOutcome>) {
        let (reply, answer) = oneshot::channel();
        (Self { method, params, reply, suspended: None }, answer)
    }

    /// Keeps the call parked for as long as the question is open.
    pub(crate) fn hold_suspended(&mut self, parked: SuspendedPermit) {
        self.suspended = Some(parked);
    }

    /// Answers. False if the server does not wait any more.
    pub fn answer(self, outcome: RpcOutcome) -> bool {
        self.reply.send(outcome).is_ok()
    }

    /// Waits until the server does not wait any more: the call is over.
    pub async fn cancelled(&mut self) {
        self.reply.closed().await;
    }
}

impl fmt::Debug for ServerRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Question").field("method", &self.method).finish_non_exhaustive()
    }
}

/// Whose version, capabilities and identity a modern server reads in `_meta`.
/// A legacy server gets none of these entries.
#[derive(Debug, Clone, Copy, Default)]
pub enum ClientMeta<'a> {
    /// The host's: it asks by itself, or for a caller that is no MCP client.
    #[default]
    Host,
    /// The client's own, as they stand in the parameters.
    Own,
    /// Those of a client that said them once for its whole session.
    Session(&'a SessionMeta),
}

/// A closure that takes the raw parameters of progress notifications.
pub type ProgressSink = Arc<dyn Fn(Bytes) + Send + Sync>;

/// Hears progress and nothing else.
pub(crate) struct ProgressObserver(pub(crate) ProgressSink);

impl CallObserver for ProgressObserver {
    fn wants_progress(&self) -> bool {
        true
    }

    fn wants_notifications(&self) -> bool {
        false
    }

    fn on_progress(&self, progress: &ProgressParams) {
        (self.0)(progress.raw.clone());
    }
}

//! Call observer: the caller's end of a request in flight.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use ostler_wire::{MethodName, ProgressParams, RpcOutcome, SessionMeta};
use tokio::sync::oneshot;

use crate::server::call_queue::SuspendedPermit;

/// Receives the notifications of one request and answers server requests during it. All methods are called from a
/// session's reader, so none may block.
pub trait CallObserver: Send + Sync + 'static {
    /// Returns whether progress is wanted; only then does the server get a token.
    fn wants_progress(&self) -> bool {
        false
    }

    /// Receives progress under the host's token.
    fn on_progress(&self, _progress: &ProgressParams) {}

    /// Receives any other notification of the request: log messages, and methods unknown to the host.
    fn on_notification(&self, _method: &str, _params: Option<&Bytes>) {}

    /// Returns whether unattributed notifications are accepted. If not, they go to the server's listeners.
    fn wants_notifications(&self) -> bool {
        true
    }

    /// Returns whether the caller can answer a server request. A server request that names no call goes to a caller
    /// that can.
    fn can_answer(&self, _method: &str) -> bool {
        false
    }

    /// Receives a server request. While it is open the call's deadline stands still, up to the hard deadline.
    fn on_request(&self, question: ServerRequest) {
        drop(question);
    }
}

/// An observer shared between the caller and the session.
pub type SharedCallObserver = Arc<dyn CallObserver>;

/// Methods of server requests that callers may answer.
const SERVER_REQUESTS: [&str; 3] = ["elicitation/create", "sampling/createMessage", "roots/list"];

/// Returns whether a caller can answer any server request.
pub(crate) fn is_interactive(voice: &dyn CallObserver) -> bool {
    SERVER_REQUESTS.iter().any(|method| voice.can_answer(method))
}

/// Makes the error for a server request that no caller answers.
pub(crate) fn not_offered_message(method: &str) -> String {
    format!("the client of this call does not offer `{}`", method.escape_debug())
}

/// A server request that waits for an answer. Dropping it refuses.
pub struct ServerRequest {
    /// The method: `elicitation/create`, `sampling/createMessage`, `roots/list`.
    pub method: MethodName,
    /// The parameters as the server wrote them.
    pub params: Option<Bytes>,
    reply: oneshot::Sender<RpcOutcome>,
    /// The call permit that the call has released until the answer.
    suspended: Option<SuspendedPermit>,
}

impl ServerRequest {
    /// Makes a request and the receiver of its answer; a dropped sender means refused.
    pub fn new(method: MethodName, params: Option<Bytes>) -> (Self, oneshot::Receiver<RpcOutcome>) {
        let (reply, answer) = oneshot::channel();
        (Self { method, params, reply, suspended: None }, answer)
    }

    /// Keeps the call suspended for as long as the request is open.
    pub(crate) fn hold_suspended(&mut self, parked: SuspendedPermit) {
        self.suspended = Some(parked);
    }

    /// Sends the answer. Returns false if the server no longer waits.
    pub fn answer(self, outcome: RpcOutcome) -> bool {
        self.reply.send(outcome).is_ok()
    }

    /// Waits until the server no longer waits because the call has ended.
    pub async fn cancelled(&mut self) {
        self.reply.closed().await;
    }
}

impl fmt::Debug for ServerRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Question").field("method", &self.method).finish_non_exhaustive()
    }
}

/// Source of the version, capabilities and identity that a modern server reads in `_meta`. A legacy server gets none
/// of these entries.
#[derive(Debug, Clone, Copy, Default)]
pub enum ClientMeta<'a> {
    /// The host's: for its own requests, or for a caller that is no MCP client.
    #[default]
    Host,
    /// The client's own, as they stand in the parameters.
    Own,
    /// Those of a client that declared them once for its whole session.
    Session(&'a SessionMeta),
}

/// A closure that takes the raw parameters of progress notifications.
pub type ProgressSink = Arc<dyn Fn(Bytes) + Send + Sync>;

/// Observer of progress alone.
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

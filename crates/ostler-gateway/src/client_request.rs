//! Client request and its reply: the types between the edges (HTTP, stdio) and `dispatch/`.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use ostler_core::caller::Caller;
use ostler_wire::{MethodName, Params, RequestId};

use crate::client_session::ClientSession;
use crate::command_extensions::SharedCommandExtensions;
use crate::notification_sink::NotificationSink;
use ostler_host::Scope;

/// One request of a client.
#[derive(Debug)]
pub(crate) struct ClientRequest {
    pub(crate) caller: Caller,
    pub(crate) scope: Scope,
    pub(crate) client: ClientEra,
    /// As the client wrote it; only listens repeat it in their messages.
    pub(crate) id: RequestId,
    pub(crate) method: MethodName,
    pub(crate) params: Params,
    /// Headers of a modern HTTP request, to be checked against the schema of the called tool; `None` on stdio.
    pub(crate) headers: Option<HeaderMap>,
    /// Destination of notifications and server requests that belong to the request.
    pub(crate) sink: NotificationSink,
    /// Set for requests of the program's own commands.
    pub(crate) command_extensions: Option<SharedCommandExtensions>,
}

/// Era of a client, which decides the protocol spoken with it.
#[derive(Debug, Clone)]
pub(crate) enum ClientEra {
    /// Declares itself in every request.
    Modern,
    /// Has declared itself in its session.
    Legacy(Arc<ClientSession>),
}

/// Reply to a client request.
#[derive(Debug)]
pub(crate) enum GatewayReply {
    /// The JSON text of the result.
    Result(Bytes),
    /// The JSON text of an error object, and its code.
    Error {
        /// Decides the HTTP status of a modern answer.
        code: i64,
        /// The whole error object.
        object: Bytes,
    },
    /// The JSON text of the error object for a server that the caller may not see, or that does not exist.
    UnknownServer(Bytes),
}

//! What an edge hands to the core, and what it gets back.

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
    /// As the client wrote it; only listens put it into what they say.
    pub(crate) id: RequestId,
    pub(crate) method: MethodName,
    pub(crate) params: Params,
    /// The headers of a modern HTTP request, to be checked against the
    /// schema of the tool that is called; streams have none.
    pub(crate) headers: Option<HeaderMap>,
    /// Where notifications and questions go that belong to the request.
    pub(crate) sink: NotificationSink,
    /// Set for the program's own commands.
    pub(crate) command_extensions: Option<SharedCommandExtensions>,
}

/// The era of a client, which decides how it is spoken to.
#[derive(Debug, Clone)]
pub(crate) enum ClientEra {
    /// Says everything in every request.
    Modern,
    /// Has said in its session what it is.
    Legacy(Arc<ClientSession>),
}

/// What a request comes to.
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

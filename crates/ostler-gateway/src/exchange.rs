//! What an edge hands to the core, and what it gets back.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use ostler_core::caller::Caller;
use ostler_wire::{Id, Params, Text};

use crate::commands::SharedCommands;
use crate::outlet::Outlet;
use crate::session::Session;
use ostler_host::Scope;

/// One request of a client.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) caller: Caller,
    pub(crate) scope: Scope,
    pub(crate) client: Client,
    /// As the client wrote it; only listens put it into what they say.
    pub(crate) id: Id,
    pub(crate) method: Text,
    pub(crate) params: Params,
    /// The headers of a modern HTTP request, to be checked against the
    /// schema of the tool that is called; streams have none.
    pub(crate) headers: Option<HeaderMap>,
    /// Where notifications and questions go that belong to the request.
    pub(crate) outlet: Outlet,
    /// Set for the program's own commands.
    pub(crate) commands: Option<SharedCommands>,
}

/// The era of a client, which decides how it is spoken to.
#[derive(Debug, Clone)]
pub(crate) enum Client {
    /// Says everything in every request.
    Modern,
    /// Has said in its session what it is.
    Legacy(Arc<Session>),
}

/// What a request comes to.
#[derive(Debug)]
pub(crate) enum Reply {
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
    NoServer(Bytes),
}

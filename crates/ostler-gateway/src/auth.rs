//! Who a client is: its credential says, never its messages.

use std::net::SocketAddr;

use http::HeaderMap;
use ostler_core::caller::Caller;

/// Turns what a connection shows into a caller.
pub trait Authenticate: Send + Sync + 'static {
    /// The caller, or why there is none. Asked for every HTTP request, so it must be quick.
    fn caller(&self, headers: &HeaderMap, peer: Option<SocketAddr>) -> Result<Caller, Unauthorized>;
}

/// Why a request has no caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unauthorized {
    /// What is said to the client: what is missing, never what would be right.
    pub why: String,
}

/// Everybody who reaches the endpoint is `local`. Right for loopback only.
#[derive(Debug, Clone, Copy, Default)]
pub struct LocalOnly;

impl Authenticate for LocalOnly {
    fn caller(&self, _headers: &HeaderMap, _peer: Option<SocketAddr>) -> Result<Caller, Unauthorized> {
        Ok(Caller::local())
    }
}

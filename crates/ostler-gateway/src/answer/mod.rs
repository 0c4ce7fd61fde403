//! The core: whose name is that, and which era speaks to which.

use bytes::Bytes;
use ostler_core::caller::Caller;
use ostler_wire::{RpcError, code};

use crate::exchange::{Client, Exchange, Reply};
use crate::face::Face;
use crate::gateway::Gateway;
use crate::session::Session;

/// Answers one request; dropping the future cancels it upstream.
pub(crate) async fn answer(_gateway: &Gateway, exchange: Exchange) -> Reply {
    let list = |kind: &str| match exchange.client {
        Client::Modern => {
            format!(r#"{{"{kind}":[],"resultType":"complete","ttlMs":0,"cacheScope":"private"}}"#)
        }
        Client::Legacy(_) => format!(r#"{{"{kind}":[]}}"#),
    };
    match exchange.method.as_str() {
        "tools/list" => Reply::Result(list("tools").into()),
        "prompts/list" => Reply::Result(list("prompts").into()),
        "resources/list" => Reply::Result(list("resources").into()),
        "server/discover" => {
            Reply::Result(Bytes::from_static(br#"{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"resultType":"complete","ttlMs":0,"cacheScope":"private"}"#))
        }
        method => {
            let error = RpcError::own(code::METHOD_NOT_FOUND, &format!("the method `{method}` is not known"));
            Reply::Error { code: error.code, object: error.raw }
        }
    }
}

/// What `initialize` says back for this face.
pub(crate) async fn initialize(
    gateway: &Gateway,
    _caller: &Caller,
    _face: &Face,
    version: &'static str,
) -> Reply {
    let said = format!(
        r#"{{"protocolVersion":"{version}","capabilities":{{"tools":{{}}}},"serverInfo":{{"name":"ostler","version":"{}"}}}}"#,
        gateway.0.options.version
    );
    Reply::Result(said.into())
}

/// A notification of a client that is not about this edge.
pub(crate) fn notified(
    _gateway: &Gateway,
    _caller: &Caller,
    _face: &Face,
    _client: &Client,
    _method: &str,
    _params: Option<&Bytes>,
) {
}

/// A legacy session is over: give back what it held.
pub(crate) fn ended(_gateway: &Gateway, _session: &Session) {}

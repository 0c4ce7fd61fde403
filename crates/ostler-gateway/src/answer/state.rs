//! Opaque values that go to clients and come back: request states and task
//! ids. They are sealed with the server, the method and the caller they belong
//! to, so that none of them reaches anybody else.

use ostler_core::name::ServerName;
use ostler_wire::Params;

use crate::exchange::Exchange;
use crate::face::Face;
use crate::gateway::Gateway;

const STATE: &str = "state";
const PARKED: &str = "parked";
const TASK: &str = "task";

/// What a sealed value looks like from outside.
const PREFIX: &str = "o1.";

/// Whether a value may be one of ours.
pub(crate) fn is_sealed(text: &str) -> bool {
    text.starts_with(PREFIX)
}

/// What a request state that came back means.
pub(crate) enum Returned {
    /// A server's own: its raw JSON text, and whose it is.
    Servers(ServerName, Vec<u8>),
    /// A call that waits here.
    Parked(ServerName, [u8; 16]),
}

/// Seals the raw JSON text of a server's request state.
pub(crate) fn seal_state(gateway: &Gateway, exchange: &Exchange, server: &ServerName, raw: &[u8]) -> String {
    let parts = [server.as_str().as_bytes(), exchange.method.as_str().as_bytes(), who(exchange), raw];
    gateway.0.seal.seal(STATE, &parts)
}

/// Seals the number of a parked call.
pub(crate) fn seal_parked(
    gateway: &Gateway,
    exchange: &Exchange,
    server: &ServerName,
    number: [u8; 16],
) -> String {
    let parts = [server.as_str().as_bytes(), exchange.method.as_str().as_bytes(), who(exchange), &number];
    gateway.0.seal.seal(PARKED, &parts)
}

/// Opens the request state of a continued request; `None` if it is none of
/// ours, or belongs to another method or caller.
pub(crate) fn open_state(gateway: &Gateway, exchange: &Exchange, params: &Params) -> Option<Returned> {
    let text = serde_json::from_slice::<String>(params.request_state()?).ok()?;
    let open = |purpose| {
        let [server, method, caller, value]: [Vec<u8>; 4] =
            gateway.0.seal.open(purpose, &text)?.try_into().ok()?;
        let fits = method == exchange.method.as_str().as_bytes() && caller == who(exchange);
        let server = ServerName::new(std::str::from_utf8(&server).ok()?).ok()?;
        let is_here = matches!(&exchange.face, Face::All) || exchange.face == Face::One(server.clone());
        (fits && is_here).then_some((server, value))
    };
    if let Some((server, raw)) = open(STATE) {
        return Some(Returned::Servers(server, raw));
    }
    let (server, number) = open(PARKED)?;
    Some(Returned::Parked(server, number.try_into().ok()?))
}

/// The server that a continued request goes to.
pub(crate) fn server_of(gateway: &Gateway, exchange: &Exchange, params: &Params) -> Option<ServerName> {
    match open_state(gateway, exchange, params)? {
        Returned::Servers(server, _) | Returned::Parked(server, _) => Some(server),
    }
}

/// Seals a server's task id for the caller that made the task.
pub(crate) fn seal_task(gateway: &Gateway, exchange: &Exchange, server: &ServerName, id: &str) -> String {
    gateway.0.seal.seal(TASK, &[server.as_str().as_bytes(), who(exchange), id.as_bytes()])
}

/// Whose task it is, and the server's own id for it.
pub(crate) fn open_task(gateway: &Gateway, principal: &str, text: &str) -> Option<(ServerName, String)> {
    let [server, caller, id]: [Vec<u8>; 3] = gateway.0.seal.open(TASK, text)?.try_into().ok()?;
    let server = ServerName::new(std::str::from_utf8(&server).ok()?).ok()?;
    (caller == principal.as_bytes()).then_some((server, String::from_utf8(id).ok()?))
}

fn who(exchange: &Exchange) -> &[u8] {
    exchange.caller.principal().as_bytes()
}

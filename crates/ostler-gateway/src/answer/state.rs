//! Sealed numbers of parked calls. The number is sealed with the server, the
//! method and the caller of its call; the call itself knows its parameters and
//! is there once.

use ostler_core::name::ServerName;
use ostler_wire::Params;

use crate::exchange::Exchange;
use crate::gateway::Gateway;

const PARKED: &str = "parked";

/// Seals the number of a parked call.
pub(crate) fn seal(gateway: &Gateway, exchange: &Exchange, server: &ServerName, number: [u8; 16]) -> String {
    let [method, caller] = [exchange.method.as_str(), exchange.caller.principal()].map(str::as_bytes);
    gateway.0.host.sealer().seal(PARKED, &[server.as_str().as_bytes(), method, caller, &number])
}

/// Opens the number of the parked call that a request goes on with, and its
/// server; `None` if its `requestState` is another one.
pub(crate) fn open(
    gateway: &Gateway,
    exchange: &Exchange,
    params: &Params,
) -> Option<(ServerName, [u8; 16])> {
    let text = serde_json::from_slice::<String>(params.request_state()?).ok()?;
    let parts: [Vec<u8>; 4] = gateway.0.host.sealer().open(PARKED, &text)?.try_into().ok()?;
    let [server, method, caller, number] = parts;
    let server = ServerName::new(std::str::from_utf8(&server).ok()?).ok()?;
    let fits = method == exchange.method.as_str().as_bytes()
        && caller == exchange.caller.principal().as_bytes()
        && exchange.scope.has(&server);
    fits.then_some((server, number.try_into().ok()?))
}

//! Sealed numbers of suspended calls. The number is sealed with the server, the method and the caller of its call. The
//! call itself holds its parameters, and exists once.

use ostler_core::caller::Caller;
use ostler_core::server_name::ServerName;
use ostler_wire::Params;

use super::server_name;
use crate::host::Host;

const SUSPENDED: &str = "parked";

impl Host {
    /// Seals the number of a call that a front end has suspended.
    pub fn seal_suspended(
        &self,
        caller: &Caller,
        method: &str,
        server: &ServerName,
        number: [u8; 16],
    ) -> String {
        let [server, method, owner] = [server.as_str(), method, caller.principal()].map(str::as_bytes);
        self.sealed_tokens().sealer.seal(SUSPENDED, &[server, method, owner, &number])
    }

    /// Opens the number of the suspended call that a request continues, and its server; `None` for any other
    /// `requestState`.
    pub fn open_suspended(
        &self,
        caller: &Caller,
        method: &str,
        params: &Params,
    ) -> Option<(ServerName, [u8; 16])> {
        let text = serde_json::from_slice::<String>(params.request_state()?).ok()?;
        let parts: [Vec<u8>; 4] = self.sealed_tokens().sealer.open(SUSPENDED, &text)?.try_into().ok()?;
        let [server, sealed_method, owner, number] = parts;
        let fits = sealed_method == method.as_bytes() && owner == caller.principal().as_bytes();
        Some((server_name(&server)?, number.try_into().ok()?)).filter(|_| fits)
    }
}

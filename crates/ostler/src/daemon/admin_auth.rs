//! Authentication of the admin API: by the admin token, which programs of this machine's user can read.

use axum::http::{HeaderMap, Uri, header};
use ostler_gateway::Privilege;

use crate::daemon_proof::{self, DaemonProof};

/// Checks the admin token.
#[derive(Debug)]
pub(super) struct AdminAuth {
    token: AdminToken,
}

/// Secret that is kept out of logs.
struct AdminToken(String);

impl std::fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

impl AdminAuth {
    pub(super) fn new(token: String) -> Self {
        Self { token: AdminToken(token) }
    }

    /// Proves that this daemon knows the token, without sending it.
    pub(super) fn prove(&self, nonce: &str) -> Option<DaemonProof> {
        DaemonProof::answer(&self.token.0, nonce)
    }

    /// Returns whether a request may use a connection that is reserved for the admin API. Requests with the lifetime of
    /// a client or a call may not: they would keep operators out.
    pub(super) fn privilege(&self, uri: &Uri, headers: &HeaderMap) -> Privilege {
        match uri.path() {
            daemon_proof::PATH if daemon_proof::is_signed(&self.token.0, uri.query().unwrap_or_default()) => {
                Privilege::Full
            }
            daemon_proof::PATH => Privilege::Prelude,
            "/api/v1/attach" => Privilege::None,
            path if path.starts_with("/api/v1/") && self.is_authorized(headers) => Privilege::Full,
            _ => Privilege::None,
        }
    }

    /// Returns whether the request has the admin token.
    pub(super) fn is_authorized(&self, headers: &HeaderMap) -> bool {
        let shown = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = shown.and_then(|value| {
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
        });
        token.is_some_and(|token| crate::token::constant_time_eq(token.as_bytes(), self.token.0.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(header::HeaderName, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect()
    }

    #[test]
    fn only_the_whole_token_opens() {
        let auth = AdminAuth::new("secret".into());
        let table = [
            ("Bearer secret", true),
            ("bearer secret", true),
            ("Bearer secre", false),
            ("Bearer secrets", false),
            ("Bearer ", false),
            ("Basic secret", false),
            ("secret", false),
        ];
        for (value, opens) in table {
            assert_eq!(auth.is_authorized(&headers(&[(header::AUTHORIZATION, value)])), opens, "{value}");
        }
        assert!(!auth.is_authorized(&HeaderMap::new()));
    }

    #[test]
    fn reserved_connections_are_for_operators_and_neither_for_calls_nor_for_clients() {
        let auth = AdminAuth::new("secret".into());
        let (shown, wrong) = (
            headers(&[(header::AUTHORIZATION, "Bearer secret")]),
            headers(&[(header::AUTHORIZATION, "Bearer wrong")]),
        );
        let table = [
            ("/api/v1/servers", Privilege::Full, Privilege::None),
            ("/api/v1/shutdown", Privilege::Full, Privilege::None),
            ("/api/v1/proof?nonce=00", Privilege::Prelude, Privilege::Prelude),
            ("/api/v1/attach", Privilege::None, Privilege::None),
            ("/mcp", Privilege::None, Privilege::None),
        ];
        let asked = crate::daemon_proof::ProofChallenge::new().unwrap().signed_target("secret");
        assert_eq!(auth.privilege(&asked.parse().unwrap(), &HeaderMap::new()), Privilege::Full);
        for (uri, with_token, without) in table {
            let parsed = uri.parse().unwrap();
            assert_eq!(auth.privilege(&parsed, &shown), with_token, "{uri}");
            assert_eq!(auth.privilege(&parsed, &wrong), without, "{uri}");
        }
    }
}

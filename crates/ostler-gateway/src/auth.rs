//! Authentication of clients: a caller comes from its credential, never from its messages.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;

use http::{HeaderMap, header};
use ostler_core::caller::Caller;
use ostler_core::loopback::{is_loopback, is_loopback_authority};

use crate::credential_lifetime::CredentialLifetime;

/// Headers that a proxy adds. The caller of a request that has one is a client of the proxy, even if the proxy runs on
/// this machine.
const PROXY_HEADERS: [&str; 6] =
    ["forwarded", "via", "x-real-ip", "x-client-ip", "true-client-ip", "x-original-forwarded-for"];
const PROXY_HEADER_PREFIXES: [&str; 4] = ["x-forwarded-", "cf-", "x-envoy-", "tailscale-"];

/// Authenticator: turns the credential of a request into a caller.
pub trait Authenticate: Send + Sync + 'static {
    /// Returns the caller or the reason for the refusal. Runs for every HTTP request before its body is read, so it
    /// must be quick; a check that has to wait returns [`AuthOutcome::Pending`].
    fn check(&self, knock: &AuthRequest<'_>) -> AuthOutcome;
}

/// Head of a request: the facts known before its body is read.
#[derive(Debug, Clone, Copy)]
pub struct AuthRequest<'a> {
    pub headers: &'a HeaderMap,
    /// Remote address of the connection.
    pub peer: Option<SocketAddr>,
    /// Host that the request names; always one that is served.
    pub host: &'a str,
}

/// Result of a credential check.
pub enum AuthOutcome {
    /// The credential belongs to a caller.
    Accepted(Authenticated),
    /// The credential belongs to no caller, or is missing.
    Refused(Unauthorized),
    /// The check has to wait. The gateway bounds the wait and drops the future when the client leaves.
    Pending(Pin<Box<dyn Future<Output = Result<Authenticated, Unauthorized>> + Send>>),
}

/// Caller and the lifetime of its credential.
#[derive(Debug, Clone)]
pub struct Authenticated {
    pub caller: Caller,
    /// Ends with the credential; `None` means that requests and streams outlive it.
    pub lifetime: Option<CredentialLifetime>,
}

impl From<Caller> for Authenticated {
    fn from(caller: Caller) -> Self {
        Self { caller, lifetime: None }
    }
}

/// Refusal of a request without a caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unauthorized {
    /// Text for the client: names what is wrong, never what would be right.
    pub message: String,
    /// Machine-readable reason.
    pub reason: UnauthorizedReason,
}

/// Reason for a missing caller, in the terms of RFC 6750.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnauthorizedReason {
    /// The request has no credential.
    Missing,
    /// The header can't be parsed.
    InvalidRequest,
    /// The credential is unknown, expired, or for another audience.
    InvalidToken,
    /// The credential is valid, and its caller has no rights here.
    InsufficientScope,
}

impl UnauthorizedReason {
    /// Returns the OAuth error code; `None` if the request has no credential.
    pub fn code(self) -> Option<&'static str> {
        match self {
            Self::Missing => None,
            Self::InvalidRequest => Some("invalid_request"),
            Self::InvalidToken => Some("invalid_token"),
            Self::InsufficientScope => Some("insufficient_scope"),
        }
    }
}

impl Unauthorized {
    /// Makes the refusal of a request without a credential.
    pub fn missing(why: impl Into<String>) -> Self {
        Self { message: why.into(), reason: UnauthorizedReason::Missing }
    }

    /// Makes the refusal of an invalid credential.
    pub fn invalid(why: impl Into<String>) -> Self {
        Self { message: why.into(), reason: UnauthorizedReason::InvalidToken }
    }
}

impl<'a> AuthRequest<'a> {
    /// Returns the bearer token, if there is one. A header that can't be parsed is an error and never counts as absent.
    pub fn bearer(&self) -> Result<Option<&'a str>, Unauthorized> {
        let unreadable =
            |why: &str| Unauthorized { message: why.into(), reason: UnauthorizedReason::InvalidRequest };
        let mut shown = self.headers.get_all(header::AUTHORIZATION).iter();
        let value = match (shown.next(), shown.next()) {
            (None, _) => return Ok(None),
            (Some(value), None) => value,
            (Some(_), Some(_)) => return Err(unreadable("there is more than one Authorization header")),
        };
        let token = value.to_str().ok().and_then(|value| {
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
        });
        match token {
            Some(token) if !token.is_empty() => Ok(Some(token)),
            _ => Err(unreadable("the Authorization header is not `Bearer TOKEN`")),
        }
    }

    /// Returns whether the request was made on this machine, for this machine, and without a proxy. A proxy on this
    /// machine must not make remote clients local.
    pub fn is_local(&self) -> bool {
        let is_near = self.peer.is_some_and(|peer| is_loopback(peer.ip()));
        is_near && is_loopback_authority(self.host) && !self.is_proxied()
    }

    /// Returns whether a proxy header says that the request was forwarded.
    pub fn is_proxied(&self) -> bool {
        let is_mark = |name: &str| {
            PROXY_HEADERS.contains(&name)
                || PROXY_HEADER_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        };
        self.headers.keys().any(|name| is_mark(name.as_str()))
    }
}

/// Authenticator that makes every client the caller `local`. Safe on loopback only.
#[derive(Debug, Clone, Copy, Default)]
pub struct LocalOnly;

impl Authenticate for LocalOnly {
    fn check(&self, _: &AuthRequest<'_>) -> AuthOutcome {
        AuthOutcome::Accepted(Caller::local().into())
    }
}

impl std::fmt::Debug for AuthOutcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Accepted(admitted) => f.debug_tuple("Admitted").field(admitted).finish(),
            Self::Refused(why) => f.debug_tuple("Refused").field(why).finish(),
            Self::Pending(_) => f.write_str("Wait"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    fn bearer(pairs: &[(&'static str, &str)]) -> Result<Option<String>, UnauthorizedReason> {
        let headers = headers(pairs);
        let knock = AuthRequest { headers: &headers, peer: None, host: "localhost" };
        knock.bearer().map(|token| token.map(str::to_owned)).map_err(|why| why.reason)
    }

    #[test]
    fn a_header_that_can_not_be_read_is_never_taken_for_none() {
        assert_eq!(bearer(&[]), Ok(None));
        assert_eq!(bearer(&[("authorization", "Bearer x")]), Ok(Some("x".into())));
        assert_eq!(bearer(&[("authorization", "bearer  x ")]), Ok(Some("x".into())));
        for bad in ["", "Bearer", "Bearer ", "Basic x", "x", "Bearer\u{a0}x"] {
            assert_eq!(bearer(&[("authorization", bad)]), Err(UnauthorizedReason::InvalidRequest), "{bad:?}");
        }
        let twice = [("authorization", "Bearer x"), ("authorization", "Bearer x")];
        assert_eq!(bearer(&twice), Err(UnauthorizedReason::InvalidRequest));
    }

    #[test]
    fn local_is_only_who_came_straight_from_this_machine_to_this_machine() {
        let is_local = |peer: Option<&str>, host, pairs: &[(&'static str, &str)]| {
            let headers = headers(pairs);
            let peer = peer.map(|peer| peer.parse().unwrap());
            AuthRequest { headers: &headers, peer, host }.is_local()
        };
        for peer in ["127.0.0.1:9", "127.8.0.1:9", "[::1]:9", "[::ffff:127.0.0.1]:9"] {
            assert!(is_local(Some(peer), "localhost:7777", &[]), "{peer}");
        }
        for peer in [None, Some("10.0.0.1:9"), Some("[::ffff:10.0.0.1]:9"), Some("[fe80::1]:9")] {
            assert!(!is_local(peer, "localhost:7777", &[]), "{peer:?}");
        }
        for host in ["box.example", "10.0.0.1:7777", "0.0.0.0", "localhost.evil", ""] {
            assert!(!is_local(Some("127.0.0.1:9"), host, &[]), "{host}");
        }
        for mark in
            ["Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Proto", "X-Real-IP", "CF-Connecting-IP"]
        {
            let mark: &'static str = mark.to_ascii_lowercase().leak();
            assert!(!is_local(Some("127.0.0.1:9"), "localhost", &[(mark, "")]), "{mark}");
        }
    }
}

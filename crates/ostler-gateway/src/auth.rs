//! Who a client is: its credential says, never its messages.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;

use http::{HeaderMap, header};
use ostler_core::caller::Caller;
use ostler_core::loopback::{is_loopback, is_loopback_authority};

use crate::credential_lifetime::CredentialLifetime;

/// Headers that a proxy adds. A request that has one comes from whoever the
/// proxy serves, however near the proxy itself is.
const PROXY_HEADERS: [&str; 6] =
    ["forwarded", "via", "x-real-ip", "x-client-ip", "true-client-ip", "x-original-forwarded-for"];
const PROXY_HEADER_PREFIXES: [&str; 4] = ["x-forwarded-", "cf-", "x-envoy-", "tailscale-"];

/// Turns what a connection shows into a caller.
pub trait Authenticate: Send + Sync + 'static {
    /// The caller, or why there is none. Asked for every HTTP request before
    /// its body is read, so it must be quick; what has to wait says so.
    fn check(&self, knock: &AuthRequest<'_>) -> AuthOutcome;
}

/// What is known of a request before its body is read.
#[derive(Debug, Clone, Copy)]
pub struct AuthRequest<'a> {
    /// Its headers.
    pub headers: &'a HeaderMap,
    /// The address it comes from.
    pub peer: Option<SocketAddr>,
    /// The host that it names, which is one of those that are served.
    pub host: &'a str,
}

/// What a credential comes to.
pub enum AuthOutcome {
    /// It is somebody's.
    Accepted(Authenticated),
    /// It is nobody's, or there is none.
    Refused(Unauthorized),
    /// It can't be told at once. The wait is bounded by the gateway, and
    /// dropped when its client leaves.
    Pending(Pin<Box<dyn Future<Output = Result<Authenticated, Unauthorized>> + Send>>),
}

/// A caller, and for how long it is one.
#[derive(Debug, Clone)]
pub struct Authenticated {
    /// Who asks.
    pub caller: Caller,
    /// Ends with the credential; without one, what is begun is never ended.
    pub lifetime: Option<CredentialLifetime>,
}

impl From<Caller> for Authenticated {
    fn from(caller: Caller) -> Self {
        Self { caller, lifetime: None }
    }
}

/// Why a request has no caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unauthorized {
    /// What is said to the client: what is wrong, never what would be right.
    pub message: String,
    /// The same for programs.
    pub reason: UnauthorizedReason,
}

/// Why a request has no caller, in the words of RFC 6750.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnauthorizedReason {
    /// It shows no credential.
    Missing,
    /// The header can't be read.
    InvalidRequest,
    /// The credential is unknown, over, or not for us.
    InvalidToken,
    /// The credential is somebody's who may do nothing here.
    InsufficientScope,
}

impl UnauthorizedReason {
    /// The OAuth error code; none when nothing was shown.
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
    /// The request shows no credential.
    pub fn missing(why: impl Into<String>) -> Self {
        Self { message: why.into(), reason: UnauthorizedReason::Missing }
    }

    /// The credential is not good.
    pub fn invalid(why: impl Into<String>) -> Self {
        Self { message: why.into(), reason: UnauthorizedReason::InvalidToken }
    }
}

impl<'a> AuthRequest<'a> {
    /// The bearer token that is shown, if any is. A header that can't be read
    /// is an error and never the same as none.
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

    /// Whether the request was made on this machine, for this machine, and
    /// passed on by nobody. A proxy beside us must not make the world local.
    pub fn is_local(&self) -> bool {
        let is_near = self.peer.is_some_and(|peer| is_loopback(peer.ip()));
        is_near && is_loopback_authority(self.host) && !self.is_proxied()
    }

    /// Whether a proxy says that it has passed the request on.
    pub fn is_proxied(&self) -> bool {
        let is_mark = |name: &str| {
            PROXY_HEADERS.contains(&name)
                || PROXY_HEADER_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        };
        self.headers.keys().any(|name| is_mark(name.as_str()))
    }
}

/// Everybody who reaches the endpoint is `local`. Right for loopback only.
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

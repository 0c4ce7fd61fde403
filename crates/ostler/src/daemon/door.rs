//! Who may come in: programs of this machine's user, never a web page.

use axum::http::{HeaderMap, Uri, header};
use ostler_gateway::Privilege;

use crate::proof::{self, Proof};

/// Knows the admin token.
#[derive(Debug)]
pub(super) struct Door {
    token: Token,
}

/// A secret, kept out of what is logged.
struct Token(String);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

impl Door {
    pub(super) fn new(token: String) -> Self {
        Self { token: Token(token) }
    }

    /// Shows that this daemon knows the token, without showing it.
    pub(super) fn prove(&self, nonce: &str) -> Option<Proof> {
        Proof::of(&self.token.0, nonce)
    }

    /// Returns whether a request may use a connection that is reserved for the admin API. What lasts as long as a
    /// client or a call does not: it would keep operators out.
    pub(super) fn privilege_of(&self, uri: &Uri, headers: &HeaderMap) -> Privilege {
        match uri.path() {
            proof::PATH if proof::is_asked_with(&self.token.0, uri.query().unwrap_or_default()) => {
                Privilege::Full
            }
            proof::PATH => Privilege::Prelude,
            "/api/v1/attach" | "/api/v1/call" => Privilege::None,
            path if path.starts_with("/api/v1/") && self.knows(headers) => Privilege::Full,
            _ => Privilege::None,
        }
    }

    /// Whether the admin token was shown.
    pub(super) fn knows(&self, headers: &HeaderMap) -> bool {
        let shown = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = shown.and_then(|value| {
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
        });
        token.is_some_and(|token| crate::token::is_same(token.as_bytes(), self.token.0.as_bytes()))
    }
}

/// Whether a request names this machine, in its target too if that names one,
/// and comes from no foreign page. A name of somebody else's domain can be made
/// to point here, so the address alone says nothing.
pub(super) fn is_from_here(uri: &Uri, headers: &HeaderMap) -> bool {
    let is_target_known = uri.authority().is_none_or(|authority| is_loopback(authority.as_str()));
    let mut hosts = headers.get_all(header::HOST).iter();
    let is_host_known = match (hosts.next(), hosts.next()) {
        (Some(host), None) => host.to_str().is_ok_and(is_loopback),
        _ => false,
    };
    let is_known = |origin: &str| {
        let page = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        page.is_some_and(is_loopback)
    };
    let mut origins = headers.get_all(header::ORIGIN).iter();
    is_target_known && is_host_known && origins.all(|origin| origin.to_str().is_ok_and(is_known))
}

/// Whether `NAME[:PORT]` means this machine.
fn is_loopback(authority: &str) -> bool {
    let name = match authority.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((name, "")) => name,
            Some((name, port)) if port.strip_prefix(':').is_some_and(is_port) => name,
            _ => return false,
        },
        None => match authority.split_once(':') {
            Some((name, port)) if is_port(port) => name,
            Some(_) => return false,
            None => authority,
        },
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

fn is_port(text: &str) -> bool {
    text.parse::<u16>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(header::HeaderName, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect()
    }

    #[test]
    fn only_the_whole_token_opens() {
        let door = Door::new("secret".into());
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
            assert_eq!(door.knows(&headers(&[(header::AUTHORIZATION, value)])), opens, "{value}");
        }
        assert!(!door.knows(&HeaderMap::new()));
    }

    #[test]
    fn reserved_connections_are_for_operators_and_neither_for_calls_nor_for_clients() {
        let door = Door::new("secret".into());
        let (shown, wrong) = (
            headers(&[(header::AUTHORIZATION, "Bearer secret")]),
            headers(&[(header::AUTHORIZATION, "Bearer wrong")]),
        );
        let table = [
            ("/api/v1/servers", Privilege::Full, Privilege::None),
            ("/api/v1/shutdown", Privilege::Full, Privilege::None),
            ("/api/v1/proof?nonce=00", Privilege::Prelude, Privilege::Prelude),
            ("/api/v1/call", Privilege::None, Privilege::None),
            ("/api/v1/attach", Privilege::None, Privilege::None),
            ("/mcp", Privilege::None, Privilege::None),
        ];
        let asked = crate::proof::Challenge::new().unwrap().signed_target("secret");
        assert_eq!(door.privilege_of(&asked.parse().unwrap(), &HeaderMap::new()), Privilege::Full);
        for (uri, with_token, without) in table {
            let parsed = uri.parse().unwrap();
            assert_eq!(door.privilege_of(&parsed, &shown), with_token, "{uri}");
            assert_eq!(door.privilege_of(&parsed, &wrong), without, "{uri}");
        }
    }

    #[test]
    fn a_foreign_name_or_page_stays_outside() {
        let table = [
            ("127.0.0.1:7777", None, true),
            ("localhost", None, true),
            ("[::1]:7777", Some("http://localhost:7777"), true),
            ("127.0.0.1:7777", Some("https://evil.example"), false),
            ("127.0.0.1:7777", Some("null"), false),
            ("127.0.0.1:7777", Some("http://127.0.0.1.evil.example"), false),
            ("evil.example:7777", None, false),
            ("localhost.evil.example", None, false),
            ("localhost:evil.example", None, false),
            ("[::1]evil.example", None, false),
            ("localhost:80:90", None, false),
            ("", None, false),
        ];
        for (host, origin, is_let_in) in table {
            let mut given = headers(&[(header::HOST, host)]);
            if let Some(origin) = origin {
                given.insert(header::ORIGIN, origin.parse().unwrap());
            }
            assert_eq!(is_from_here(&Uri::from_static("/api"), &given), is_let_in, "{host} {origin:?}");
        }
        assert!(!is_from_here(&Uri::from_static("/api"), &HeaderMap::new()));
        let here = headers(&[(header::HOST, "localhost")]);
        assert!(is_from_here(&Uri::from_static("http://localhost/api"), &here));
        assert!(!is_from_here(&Uri::from_static("http://evil.example/api"), &here), "the target counts too");
    }
}

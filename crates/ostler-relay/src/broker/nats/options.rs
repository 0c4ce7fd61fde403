//! Where a NATS server is, and who we are there.

use std::fmt;
use std::path::PathBuf;

use async_nats::ServerAddr;
use ostler_core::loopback::is_loopback_host;
use percent_encoding::percent_decode_str;

/// Where a NATS server is, and who we are there.
#[derive(Debug, Clone)]
pub struct NatsOptions {
    /// Addresses: `nats://host:4222`, `tls://host:4222`, or just a host. One is
    /// taken at random, and the others if it is away. A user and password in
    /// one count if [`Self::credentials`] has none.
    pub servers: Vec<String>,
    /// Who we are.
    pub credentials: Credentials,
    /// How the connection is kept private.
    pub tls: Tls,
    /// What the server's own tools call this connection.
    pub name: String,
    /// What the subjects begin with on which answers to our own questions come.
    /// Only the journal in a bucket asks any.
    pub inbox_prefix: String,
}

impl NatsOptions {
    /// These servers, without credentials.
    pub fn new(servers: Vec<String>) -> Self {
        Self {
            servers,
            credentials: Credentials::None,
            tls: Tls::default(),
            name: "ostler".into(),
            inbox_prefix: "_INBOX".into(),
        }
    }

    /// The addresses, without what must not be seen.
    pub(crate) fn redacted_addresses(&self) -> String {
        let places: Vec<String> = self.servers.iter().map(|server| redact_address(server)).collect();
        places.join(", ")
    }

    /// Whether all addresses are this machine's own.
    pub(crate) fn is_loopback(&self) -> bool {
        let is_near = |address: ServerAddr| is_loopback_host(address.host());
        self.servers.iter().all(|server| server.parse().is_ok_and(is_near))
    }

    /// The user and password of the first address that has them, decoded.
    pub(crate) fn credentials_in_address(&self) -> Option<Credentials> {
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        self.servers.iter().find_map(|server| {
            let address: ServerAddr = server.parse().ok()?;
            let user = decoded(address.username()?);
            Some(match address.password() {
                Some(password) => Credentials::Password { user, password: decoded(password) },
                // As all of NATS has it: a user alone is a token.
                None => Credentials::Token(user),
            })
        })
    }
}

/// Who we are to a NATS server.
#[derive(Clone, Default)]
pub enum Credentials {
    /// Nobody, or whoever the address names.
    #[default]
    None,
    /// A user.
    Password {
        /// The name.
        user: String,
        /// The secret.
        password: String,
    },
    /// Whoever has this secret.
    Token(String),
    /// The owner of a key, whose seed is in this file.
    Nkey(PathBuf),
    /// The user of a credentials file: a JWT and the seed of its key.
    Creds(PathBuf),
}

impl fmt::Debug for Credentials {
    /// Without the secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Password { user, .. } => write!(f, "Password({user:?})"),
            Self::Token(_) => f.write_str("Token"),
            Self::Nkey(file) => write!(f, "Nkey({file:?})"),
            Self::Creds(file) => write!(f, "Creds({file:?})"),
        }
    }
}

/// How the connection to a NATS server is kept private.
#[derive(Debug, Clone, Default)]
pub struct Tls {
    /// Whether there must be TLS even if neither the address nor the server asks for it.
    pub is_required: bool,
    /// Who may vouch for the server, in place of whom the system trusts: a PEM file.
    pub ca: Option<PathBuf>,
    /// Our own certificate: a PEM file.
    pub cert: Option<PathBuf>,
    /// Its key: a PEM file.
    pub key: Option<PathBuf>,
}

/// An address that is none of a NATS server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{place}` is no address of a NATS server, which is like `nats://host:4222`: {why}")]
pub struct BadAddress {
    place: String,
    why: String,
}

/// Checks an address, without connecting.
pub fn check_address(server: &str) -> Result<(), BadAddress> {
    parse_address(server).map(|_| ())
}

/// Reads an address.
pub(crate) fn parse_address(server: &str) -> Result<ServerAddr, BadAddress> {
    let bad = |why: String| BadAddress { place: redact_address(server), why };
    let address: ServerAddr = server.parse().map_err(|error: std::io::Error| bad(error.to_string()))?;
    match address.scheme() {
        "nats" | "tls" if !address.host().is_empty() => Ok(address),
        "nats" | "tls" => Err(bad("the host is missing".into())),
        scheme => Err(bad(format!("`{scheme}` is not supported, only `nats` and `tls`"))),
    }
}

/// An address without what must not be seen.
fn redact_address(server: &str) -> String {
    match server.parse::<ServerAddr>() {
        Ok(address) if address.host().contains(':') => {
            format!("{}://[{}]:{}", address.scheme(), address.host(), address.port())
        }
        Ok(address) => format!("{}://{}:{}", address.scheme(), address.host(), address.port()),
        // Whatever is before the last `@` may be a secret.
        Err(_) => server.rsplit('@').next().unwrap_or_default().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(servers: &[&str]) -> NatsOptions {
        NatsOptions::new(servers.iter().map(|server| (*server).to_owned()).collect())
    }

    #[test]
    fn a_place_never_shows_who_comes() {
        let table = [
            ("nats://user:secret@host:4222", "nats://host:4222"),
            ("secret@host", "nats://host:4222"),
            ("tls://a:secret@[::1]:1", "tls://[::1]:1"),
            ("host:1", "nats://host:1"),
            ("ftp://a:secret@b@host", "host"),
            ("nats://a:secret@host:port", "host:port"),
        ];
        for (server, place) in table {
            assert_eq!(options(&[server]).redacted_addresses(), place);
            let check = check_address(server).map_err(|error| error.to_string());
            assert!(!format!("{check:?}").contains("secret"), "{check:?}");
        }
        assert_eq!(options(&["a", "b:1"]).redacted_addresses(), "nats://a:4222, nats://b:1");
    }

    #[test]
    fn credentials_are_not_shown_in_debug() {
        let all = [
            Credentials::Password { user: "u".into(), password: "secret".into() },
            Credentials::Token("secret".into()),
        ];
        assert_eq!(format!("{all:?}"), r#"[Password("u"), Token]"#);
    }

    #[test]
    fn credentials_in_an_address_are_decoded() {
        let found = options(&["nats://plain", "nats://a%40b:p%3Aw%20@host"]).credentials_in_address();
        assert!(
            matches!(&found, Some(Credentials::Password { user, password }) if user == "a@b" && password == "p:w "),
            "{found:?}"
        );
        let found = options(&["nats://t%2Fk@host"]).credentials_in_address();
        assert!(matches!(&found, Some(Credentials::Token(token)) if token == "t/k"), "{found:?}");
    }

    #[test]
    fn only_this_machines_own_addresses_are_loopback() {
        for local in ["localhost", "nats://127.0.0.1:1", "tls://[::1]:1", "nats://a:b@localhost"] {
            assert!(options(&[local]).is_loopback(), "{local}");
        }
        for far in ["example.org", "nats://10.0.0.1", "localhost.example.org", "nats://0.0.0.0"] {
            assert!(!options(&[far]).is_loopback(), "{far}");
            assert!(!options(&["localhost", far]).is_loopback(), "{far}");
        }
    }

    #[test]
    fn other_addresses_are_refused_with_what_would_be_one() {
        for bad in ["ws://host", "http://host", "nats://", "", "nats://host:99999"] {
            let error = check_address(bad).map_err(|error| error.to_string());
            assert!(error.as_ref().is_err_and(|text| text.contains("nats://host:4222")), "{bad}: {error:?}");
        }
    }
}

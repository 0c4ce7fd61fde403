//! NATS options: addresses, credentials and TLS.

use std::fmt;
use std::path::PathBuf;

use async_nats::ServerAddr;
use ostler_core::loopback::is_loopback_host;
use percent_encoding::percent_decode_str;

/// Addresses, credentials and TLS of a NATS server.
#[derive(Debug, Clone)]
pub struct NatsOptions {
    /// Addresses: `nats://host:4222`, `tls://host:4222`, or a host alone. The client picks one at
    /// random and falls back to the others. [`Self::credentials`] takes precedence over a user and
    /// password in an address.
    pub servers: Vec<String>,
    /// Credentials of this client.
    pub credentials: Credentials,
    /// TLS settings.
    pub tls: Tls,
    /// Name of this connection in the server's monitoring.
    pub name: String,
    /// Subject prefix of the client's own inboxes; only the key-value journal uses them.
    pub inbox_prefix: String,
}

impl NatsOptions {
    /// Returns options for these servers, without credentials.
    pub fn new(servers: Vec<String>) -> Self {
        Self {
            servers,
            credentials: Credentials::None,
            tls: Tls::default(),
            name: "ostler".into(),
            inbox_prefix: "_INBOX".into(),
        }
    }

    /// Returns the addresses with secrets redacted.
    pub(crate) fn redacted_addresses(&self) -> String {
        let addresses: Vec<String> = self.servers.iter().map(|server| redact_address(server)).collect();
        addresses.join(", ")
    }

    /// Returns whether all addresses are loopback addresses.
    pub(crate) fn is_loopback(&self) -> bool {
        let is_loopback = |address: ServerAddr| is_loopback_host(address.host());
        self.servers.iter().all(|server| server.parse().is_ok_and(is_loopback))
    }

    /// Returns the user and password of the first address that has them, decoded.
    pub(crate) fn credentials_in_address(&self) -> Option<Credentials> {
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        self.servers.iter().find_map(|server| {
            let address: ServerAddr = server.parse().ok()?;
            let user = decoded(address.username()?);
            Some(match address.password() {
                Some(password) => Credentials::Password { user, password: decoded(password) },
                // A user without a password is a token, as in every NATS client.
                None => Credentials::Token(user),
            })
        })
    }
}

/// Credentials of a NATS user.
#[derive(Clone, Default)]
pub enum Credentials {
    /// No credentials besides those in an address.
    #[default]
    None,
    /// User name and password.
    Password {
        /// User name.
        user: String,
        /// Password.
        password: String,
    },
    /// Token.
    Token(String),
    /// File with the seed of an nkey.
    Nkey(PathBuf),
    /// Credentials file: a JWT and the seed of its key.
    Creds(PathBuf),
}

impl fmt::Debug for Credentials {
    /// Omits the secrets.
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

/// TLS settings of a connection.
#[derive(Debug, Clone, Default)]
pub struct Tls {
    /// Requires TLS even if neither address nor server asks for it.
    pub is_required: bool,
    /// CA certificates that replace the system's: a PEM file.
    pub ca: Option<PathBuf>,
    /// Client certificate: a PEM file.
    pub cert: Option<PathBuf>,
    /// Private key of the client certificate: a PEM file.
    pub key: Option<PathBuf>,
}

/// Error: the text is not an address of a NATS server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{address}` is no address of a NATS server, which is like `nats://host:4222`: {why}")]
pub struct BadAddress {
    address: String,
    why: String,
}

/// Validates an address without connecting.
pub fn check_address(server: &str) -> Result<(), BadAddress> {
    parse_address(server).map(|_| ())
}

/// Parses an address.
pub(crate) fn parse_address(server: &str) -> Result<ServerAddr, BadAddress> {
    let bad = |why: String| BadAddress { address: redact_address(server), why };
    let address: ServerAddr = server.parse().map_err(|error: std::io::Error| bad(error.to_string()))?;
    match address.scheme() {
        "nats" | "tls" if !address.host().is_empty() => Ok(address),
        "nats" | "tls" => Err(bad("the host is missing".into())),
        scheme => Err(bad(format!("`{scheme}` is not supported, only `nats` and `tls`"))),
    }
}

/// Returns an address with secrets redacted.
fn redact_address(server: &str) -> String {
    match server.parse::<ServerAddr>() {
        Ok(address) if address.host().contains(':') => {
            format!("{}://[{}]:{}", address.scheme(), address.host(), address.port())
        }
        Ok(address) => format!("{}://{}:{}", address.scheme(), address.host(), address.port()),
        // Anything before the last `@` may be a secret.
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
        for (server, address) in table {
            assert_eq!(options(&[server]).redacted_addresses(), address);
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

//! `listen`: the address to listen on.

use std::net::{Ipv4Addr, SocketAddr};

use crate::config::read::SectionReader;
use crate::config::values::secret_literals::quote;

/// Loopback: other machines are served only if the operator says so.
pub const DEFAULT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 7777);

/// Reason why a text is not an address to listen on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ListenError {
    /// A host name, which could resolve to several addresses.
    #[error("an address to listen on is an IP address with a port, not a host name")]
    HostName,
    /// A port after a colon, which other programs take for all addresses of the machine.
    #[error(
        "`:{0}` does not say who may connect: write `{0}` for this machine alone, `0.0.0.0:{0}` for the network"
    )]
    AnyAddress(u16),
    /// An address without a port.
    #[error("an address to listen on has a port")]
    NoPort,
    /// A port that is no number from 0 to 65535.
    #[error("a port is a number from 0 to 65535")]
    BadPort,
}

/// Parses `ADDRESS:PORT`, or a port alone, which means loopback. An IPv6 address needs brackets. Port 0 lets
/// the system choose.
pub fn parse(text: &str) -> Result<SocketAddr, ListenError> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        let port = text.parse().map_err(|_| ListenError::BadPort)?;
        return Ok(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port));
    }
    let (host, port) = text.rsplit_once(':').ok_or(ListenError::NoPort)?;
    if text.parse::<std::net::Ipv6Addr>().is_ok() {
        return Err(ListenError::NoPort);
    }
    let port = port.parse().map_err(|_| ListenError::BadPort)?;
    Err(if host.is_empty() { ListenError::AnyAddress(port) } else { ListenError::HostName })
}

/// Reads the key `listen`.
pub(crate) fn read(reader: &SectionReader<'_>, key: &'static str) -> Option<SocketAddr> {
    let (text, node) = reader.text(key)?;
    let parsed = parse(text).map_err(|error| {
        let message = format!("`{key}` wants an address, found {}: {error}", quote(text));
        let hint = "write \"7777\" for a port of this machine, or an address such as \"127.0.0.1:7777\"";
        reader.context.error(node.span, key, message, hint);
    });
    parsed.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_one_of_this_machine() {
        assert_eq!(parse("7777"), Ok(DEFAULT));
        assert_eq!(parse("0").unwrap().to_string(), "127.0.0.1:0");
        assert_eq!(parse("65536"), Err(ListenError::BadPort));
        assert_eq!(parse("99999999999999999999"), Err(ListenError::BadPort));
    }

    #[test]
    fn addresses_have_an_ip_and_a_port() {
        assert_eq!(parse("127.0.0.1:7777"), Ok(DEFAULT));
        assert_eq!(parse("[::1]:0").unwrap().port(), 0);
        let table = [
            ("", ListenError::NoPort),
            ("127.0.0.1", ListenError::NoPort),
            ("-1", ListenError::NoPort),
            (":7777", ListenError::AnyAddress(7777)),
            (":", ListenError::BadPort),
            ("::1", ListenError::NoPort),
            ("localhost:7777", ListenError::HostName),
            ("127.0.0.1:70000", ListenError::BadPort),
        ];
        for (text, why) in table {
            assert_eq!(parse(text), Err(why), "{text:?}");
        }
    }
}

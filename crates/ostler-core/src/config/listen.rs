//! The address to listen on.

use std::net::{Ipv4Addr, SocketAddr};

/// Loopback: nothing beyond this machine is reached unless somebody says so.
pub const DEFAULT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 7777);

/// Why a text is not an address to listen on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ListenError {
    /// A host name, which could mean several addresses.
    #[error("an address to listen on is an IP address with a port, not a host name")]
    HostName,
    /// An address without a port, or a port without an address.
    #[error("an address to listen on has an IP address and a port")]
    Incomplete,
    /// A port that is no number from 0 to 65535.
    #[error("a port is a number from 0 to 65535")]
    BadPort,
}

/// Reads `ADDRESS:PORT`; an IPv6 address stands in brackets. Port 0 lets the system choose.
pub fn parse(text: &str) -> Result<SocketAddr, ListenError> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let (host, port) = text.rsplit_once(':').ok_or(ListenError::Incomplete)?;
    if host.is_empty() || text.parse::<std::net::Ipv6Addr>().is_ok() {
        return Err(ListenError::Incomplete);
    }
    if port.parse::<u16>().is_err() {
        return Err(ListenError::BadPort);
    }
    Err(ListenError::HostName)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_an_ip_and_a_port() {
        assert_eq!(parse("127.0.0.1:7777"), Ok(DEFAULT));
        assert_eq!(parse("[::1]:0").unwrap().port(), 0);
        let table = [
            ("", ListenError::Incomplete),
            ("7777", ListenError::Incomplete),
            (":7777", ListenError::Incomplete),
            ("::1", ListenError::Incomplete),
            ("localhost:7777", ListenError::HostName),
            ("127.0.0.1:70000", ListenError::BadPort),
        ];
        for (text, why) in table {
            assert_eq!(parse(text), Err(why), "{text:?}");
        }
    }
}

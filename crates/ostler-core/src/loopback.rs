//! Loopback addresses: those that reach this machine from this machine only, whatever a name server answers.
//!
//! | text | loopback | why |
//! |---|---|---|
//! | `127.0.0.0/8`, `::1` | yes | the addresses themselves |
//! | `::ffff:127.0.0.1` | yes | IPv4 written as IPv6 reaches the same address |
//! | `localhost` in any case | yes | RFC 6761 reserves it |
//! | `localhost.`, `a.localhost` | no | resolvers disagree, and some ask a name server |
//! | `0.0.0.0`, `::` | no | listens everywhere, and connects here on some systems only |

use std::net::{IpAddr, Ipv6Addr};

/// Returns whether an address is one of this machine's own.
pub fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// Returns whether a host is this machine: a name or an address without a port, IPv6 with or without brackets.
pub fn is_loopback_host(host: &str) -> bool {
    // The usual ones, which need no parsing.
    if host == "127.0.0.1" || host.eq_ignore_ascii_case("localhost") {
        return true;
    }
    match host.strip_prefix('[') {
        Some(rest) => rest
            .strip_suffix(']')
            .is_some_and(|rest| rest.parse::<Ipv6Addr>().is_ok_and(|address| is_loopback(address.into()))),
        None => host.parse::<IpAddr>().is_ok_and(is_loopback),
    }
}

/// Returns whether `HOST[:PORT]` is on this machine. IPv6 needs its brackets here, as in a URL.
pub fn is_loopback_authority(authority: &str) -> bool {
    let (host, _) = split_port(authority);
    !is_bare_ipv6(host) && is_loopback_host(host)
}

/// Splits `HOST[:PORT]`. An invalid port stays part of the host, which is then unknown.
pub fn split_port(authority: &str) -> (&str, Option<u16>) {
    let split = authority.rsplit_once(':').and_then(|(host, port)| {
        let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
        // A colon before it belongs to an IPv6 address, unless brackets end that.
        let is_apart = !is_bare_ipv6(host);
        is_number.then(|| port.parse().ok()).flatten().filter(|_| is_apart).map(|port| (host, port))
    });
    split.map_or((authority, None), |(host, port)| (host, Some(port)))
}

fn is_bare_ipv6(host: &str) -> bool {
    host.contains(':') && !host.starts_with('[')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hosts, each with its results without a port, as an authority, and as an authority with a port.
    const HOSTS: [(&str, [bool; 3]); 29] = [
        ("localhost", [true; 3]),
        ("LocalHost", [true; 3]),
        ("127.0.0.1", [true; 3]),
        ("127.0.0.2", [true; 3]),
        ("127.255.255.254", [true; 3]),
        ("[::1]", [true; 3]),
        ("[0:0:0:0:0:0:0:1]", [true; 3]),
        ("[::ffff:127.0.0.1]", [true; 3]),
        ("::1", [true, false, false]),
        ("::ffff:127.0.0.1", [true, false, false]),
        ("", [false; 3]),
        ("localhost.", [false; 3]),
        ("a.localhost", [false; 3]),
        ("localhost.evil.example", [false; 3]),
        ("evil.example", [false; 3]),
        ("127.0.0.1.evil.example", [false; 3]),
        ("127.1", [false; 3]),
        ("0177.0.0.1", [false; 3]),
        ("2130706433", [false; 3]),
        ("0.0.0.0", [false; 3]),
        ("[::]", [false; 3]),
        ("[::2]", [false; 3]),
        ("[::ffff:10.0.0.1]", [false; 3]),
        ("[127.0.0.1]", [false; 3]),
        ("[localhost]", [false; 3]),
        ("[::1]x", [false; 3]),
        ("[::1%lo]", [false; 3]),
        ("10.0.0.1", [false; 3]),
        ("user@localhost", [false; 3]),
    ];

    #[test]
    fn only_names_and_addresses_of_this_machine_are_loopback() {
        for (host, expected) in HOSTS {
            let found = [
                is_loopback_host(host),
                is_loopback_authority(host),
                is_loopback_authority(&format!("{host}:80")),
            ];
            assert_eq!(found, expected, "{host}");
        }
    }

    #[test]
    fn what_stands_for_a_port_must_be_one() {
        for port in ["", "http", "+80", " 80", "65536", "80:90", "80/", "evil.example"] {
            for host in ["localhost", "127.0.0.1", "[::1]"] {
                assert!(!is_loopback_authority(&format!("{host}:{port}")), "{host}:{port}");
            }
        }
    }

    #[test]
    fn an_authority_is_split_at_its_port_and_nowhere_else() {
        let table = [
            ("box.example:80", ("box.example", Some(80))),
            ("box.example", ("box.example", None)),
            ("box.example:", ("box.example:", None)),
            ("[::1]:80", ("[::1]", Some(80))),
            ("[::1]", ("[::1]", None)),
            ("::1", ("::1", None)),
            ("a:80:90", ("a:80:90", None)),
        ];
        for (authority, expected) in table {
            assert_eq!(split_port(authority), expected, "{authority}");
        }
    }

    #[test]
    fn an_address_is_loopback_in_either_notation() {
        for here in ["127.0.0.1", "127.8.0.1", "::1", "::ffff:127.0.0.1"] {
            assert!(is_loopback(here.parse().unwrap()), "{here}");
        }
        for elsewhere in ["10.0.0.1", "0.0.0.0", "::", "::ffff:10.0.0.1", "fe80::1"] {
            assert!(!is_loopback(elsewhere.parse().unwrap()), "{elsewhere}");
        }
    }
}

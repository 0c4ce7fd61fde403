//! Whose pages may talk to us: `Host` and `Origin`.
//!
//! A page from anywhere can make a browser send requests to loopback, and with
//! a name that resolves to loopback it can even read the answers. Both headers
//! together tell such a page: the browser sets them, and the page can't.

use http::{HeaderMap, HeaderValue, StatusCode, Uri, header};

use super::payload::Response;
use super::refuse::refuse;
use crate::auth::{is_loopback, split_port};
use crate::options::GatewayOptions;

/// Refuses requests that a stranger's page makes.
pub(super) fn check(options: &GatewayOptions, uri: &Uri, headers: &HeaderMap) -> Result<(), Box<Response>> {
    // A target in absolute form counts instead of the header, and whoever looks at the header only must not
    // be told another one: both have to be known.
    let mut headers_of_host = headers.get_all(header::HOST).iter();
    let named = headers_of_host.next().map(|host| host.to_str().unwrap_or_default());
    let is_single = headers_of_host.next().is_none();
    let is_known = |host: Option<&str>| host.is_none_or(|host| is_known_host(options, host));
    if !is_single || host(uri, headers).is_none() || !is_known(named) || !is_known(target(uri)) {
        let why = "the Host header names none of the hosts served here; add it to the allowed hosts";
        return Err(Box::new(refuse(StatusCode::FORBIDDEN, why)));
    }
    let mut origins = headers.get_all(header::ORIGIN).iter();
    if !origins.all(|origin| origin.to_str().is_ok_and(|origin| is_known_origin(options, origin))) {
        let why = "pages of this Origin may not talk to this server; add it to the allowed origins";
        return Err(Box::new(refuse(StatusCode::FORBIDDEN, why)));
    }
    Ok(())
}

/// The host that a request names. One in absolute form names it in the target, which then counts.
pub(super) fn host<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Option<&'a str> {
    target(uri).or_else(|| headers.get(header::HOST).map(HeaderValue::to_str)?.ok())
}

fn target(uri: &Uri) -> Option<&str> {
    uri.authority().map(|authority| authority.as_str())
}

fn is_known_host(options: &GatewayOptions, host: &str) -> bool {
    let (name, _) = split_port(host);
    is_loopback(name) || is_listed(&options.allowed_hosts, host, name)
}

fn is_known_origin(options: &GatewayOptions, origin: &str) -> bool {
    let Some((scheme, host)) = origin.split_once("://") else { return false };
    let (name, _) = split_port(host);
    let is_web = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
    is_web && is_loopback(name)
        || options.allowed_origins.iter().any(|known| known.eq_ignore_ascii_case(origin))
}

/// Whether the list has the host, with its port or for all ports.
fn is_listed(list: &[String], host: &str, name: &str) -> bool {
    list.iter().any(|known| known.eq_ignore_ascii_case(host) || known.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> GatewayOptions {
        GatewayOptions {
            allowed_hosts: vec!["box.example".into(), "odd.example:8080".into()],
            allowed_origins: vec!["https://app.example".into(), "vscode-webview://abc".into()],
            ..GatewayOptions::default()
        }
    }

    #[test]
    fn loopback_and_listed_hosts_are_known() {
        let good = [
            "localhost",
            "LOCALHOST:7777",
            "127.0.0.1:1",
            "127.1.2.3",
            "[::1]",
            "[::1]:80",
            "box.example",
            "Box.Example:99",
            "odd.example:8080",
        ];
        for host in good {
            assert!(is_known_host(&options(), host), "{host}");
        }
        let bad = [
            "",
            "evil",
            "localhost.evil",
            "localhost.evil:80",
            "evil:localhost",
            "127.0.0.1.evil",
            "[::1]x",
            "127.0.0.1:80:90",
            "[::2]",
            "0.0.0.0",
            "10.0.0.1",
            "odd.example",
            "odd.example:81",
            "localhost:",
            "localhost@evil",
            "localhost:http",
        ];
        for host in bad {
            assert!(!is_known_host(&options(), host), "{host}");
        }
    }

    #[test]
    fn loopback_and_listed_origins_are_known() {
        let good = [
            "http://localhost",
            "https://localhost:3000",
            "http://[::1]:1",
            "https://app.example",
            "vscode-webview://abc",
        ];
        for origin in good {
            assert!(is_known_origin(&options(), origin), "{origin}");
        }
        let bad = [
            "null",
            "",
            "localhost",
            "http://localhost.evil",
            "http://evil",
            "ftp://localhost",
            "https://app.example.evil",
            "http://app.example",
            "http://localhost/x",
            "file://",
        ];
        for origin in bad {
            assert!(!is_known_origin(&options(), origin), "{origin}");
        }
    }
}

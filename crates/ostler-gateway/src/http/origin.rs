//! Host and Origin check: accepts only served names of this machine and allowed web pages.
//!
//! Any page can make a browser send requests to loopback, and with a name that resolves to loopback it can even read
//! the answers. Both headers together reveal such a page: the browser sets them, and the page can't.

use http::{HeaderMap, HeaderValue, Uri, header};
use ostler_core::loopback::{is_loopback_authority, split_port};

/// Hosts and origins that are served beside those of loopback.
#[derive(Debug, Clone, Copy)]
pub struct OriginCheck<'a> {
    /// `name`, for all ports, or `name:port`.
    pub hosts: &'a [String],
    /// `scheme://name[:port]`.
    pub origins: &'a [String],
}

/// Header that names a host or origin that is not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OriginError {
    /// The `Host` header, or the target in absolute form.
    Host,
    /// The `Origin` header.
    Origin,
}

impl OriginError {
    /// Returns the message: the problem, and the setting that would allow the request.
    pub fn message(self) -> &'static str {
        match self {
            Self::Host => "the Host header names none of the hosts served here; add it to the allowed hosts",
            Self::Origin => "pages of this Origin may not talk to this server; add it to the allowed origins",
        }
    }
}

impl OriginCheck<'static> {
    /// Serves loopback alone.
    pub const LOOPBACK: Self = Self { hosts: &[], origins: &[] };
}

impl OriginCheck<'_> {
    /// Refuses requests that a foreign page may have sent, and those whose host is ambiguous.
    pub fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), OriginError> {
        // A target in absolute form overrides the header, and a program that reads only the header must not see another
        // host: both have to be served.
        let mut hosts = headers.get_all(header::HOST).iter();
        let named = hosts.next().map(|host| host.to_str().unwrap_or_default());
        let is_single = hosts.next().is_none();
        let knows = |host: Option<&str>| host.is_none_or(|host| self.allows_host(host));
        let is_named = named.is_some() || target_host(uri).is_some();
        if !is_single || !is_named || !knows(named) || !knows(target_host(uri)) {
            return Err(OriginError::Host);
        }
        let mut origins = headers.get_all(header::ORIGIN).iter();
        match origins.all(|origin| origin.to_str().is_ok_and(|origin| self.allows_origin(origin))) {
            true => Ok(()),
            false => Err(OriginError::Origin),
        }
    }

    fn allows_host(&self, host: &str) -> bool {
        is_loopback_authority(host) || {
            let (name, _) = split_port(host);
            self.hosts
                .iter()
                .any(|known| known.eq_ignore_ascii_case(host) || known.eq_ignore_ascii_case(name))
        }
    }

    fn allows_origin(&self, origin: &str) -> bool {
        let Some((scheme, host)) = origin.split_once("://") else { return false };
        let is_web = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
        is_web && is_loopback_authority(host)
            || self.origins.iter().any(|known| known.eq_ignore_ascii_case(origin))
    }
}

/// Returns the host that a request names. A target in absolute form overrides the header.
pub(super) fn request_host<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Option<&'a str> {
    target_host(uri).or_else(|| headers.get(header::HOST).map(HeaderValue::to_str)?.ok())
}

fn target_host(uri: &Uri) -> Option<&str> {
    uri.authority().map(|authority| authority.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_allowed<T>(test: impl FnOnce(OriginCheck<'_>) -> T) -> T {
        let hosts = ["box.example".to_owned(), "odd.example:8080".to_owned()];
        let origins = ["https://app.example".to_owned(), "vscode-webview://abc".to_owned()];
        test(OriginCheck { hosts: &hosts, origins: &origins })
    }

    fn headers(pairs: &[(header::HeaderName, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name, value.parse().unwrap());
        }
        headers
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
            assert!(with_allowed(|check| check.allows_host(host)), "{host}");
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
            assert!(!with_allowed(|check| check.allows_host(host)), "{host}");
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
            assert!(with_allowed(|check| check.allows_origin(origin)), "{origin}");
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
            assert!(!with_allowed(|check| check.allows_origin(origin)), "{origin}");
        }
    }

    #[test]
    fn a_request_is_let_in_by_all_that_it_names() {
        let table = [
            ("/", &["127.0.0.1:7777"][..], &[][..], Ok(())),
            ("/", &["localhost"], &[], Ok(())),
            ("/", &["[::1]:7777"], &["http://localhost:7777"], Ok(())),
            ("/", &["127.0.0.1:7777"], &["https://evil.example"], Err(OriginError::Origin)),
            ("/", &["127.0.0.1:7777"], &["null"], Err(OriginError::Origin)),
            ("/", &["127.0.0.1:7777"], &["http://127.0.0.1.evil.example"], Err(OriginError::Origin)),
            (
                "/",
                &["127.0.0.1:7777"],
                &["http://localhost", "https://evil.example"],
                Err(OriginError::Origin),
            ),
            ("/", &["evil.example:7777"], &[], Err(OriginError::Host)),
            ("/", &["localhost.evil.example"], &[], Err(OriginError::Host)),
            ("/", &["localhost:evil.example"], &[], Err(OriginError::Host)),
            ("/", &["[::1]evil.example"], &[], Err(OriginError::Host)),
            ("/", &["localhost:80:90"], &[], Err(OriginError::Host)),
            ("/", &[""], &[], Err(OriginError::Host)),
            ("/", &[], &[], Err(OriginError::Host)),
            ("/", &["localhost", "localhost"], &[], Err(OriginError::Host)),
            ("/", &["localhost", "evil.example"], &[], Err(OriginError::Host)),
            ("/", &["box.example"], &[], Err(OriginError::Host)),
            ("http://localhost/", &["localhost"], &[], Ok(())),
            ("http://localhost/", &[], &[], Ok(())),
            ("http://evil.example/", &["localhost"], &[], Err(OriginError::Host)),
            ("http://localhost/", &["evil.example"], &[], Err(OriginError::Host)),
            ("http://localhost@evil.example/", &["localhost"], &[], Err(OriginError::Host)),
        ];
        for (target, hosts, origins, expected) in table {
            let hosts = hosts.iter().map(|&host| (header::HOST, host));
            let named: Vec<_> = hosts.chain(origins.iter().map(|&origin| (header::ORIGIN, origin))).collect();
            let found = OriginCheck::LOOPBACK.check(&target.parse().unwrap(), &headers(&named));
            assert_eq!(found, expected, "{target} {named:?}");
        }
    }
}

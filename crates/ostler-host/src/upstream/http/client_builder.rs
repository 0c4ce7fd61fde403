//! HTTP client of one server.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ostler_core::loopback::is_loopback_host;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::{Action, Attempt, Policy};
use reqwest::{Client, ClientBuilder, Url};

/// Timeout of a new connection, TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for which an unused connection is kept. Common servers close theirs after five seconds, and a request that
/// crosses with that has an unknown outcome.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);
/// Upper bound on unused connections: as many as calls may be in flight. With fewer, a busy server would be connected
/// to again and again between two calls.
const MAX_IDLE_CONNECTIONS: usize = 64;
/// Upper bound on redirects.
pub(crate) const MAX_REDIRECTS: usize = 3;

/// Builds the client for an endpoint. Reading the machine's certificates takes time, so this is called off the
/// runtime, and only for servers that are used.
pub(crate) fn build_client(url: &Url) -> Result<Client, String> {
    let builder = Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .dns_resolver(Resolver)
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_max_idle_per_host(MAX_IDLE_CONNECTIONS)
        .redirect(Policy::custom(follow_redirect))
        .referer(false)
        // The layer above decides about a retry, by the delivery of the request.
        .retry(reqwest::retry::never())
        .user_agent(concat!("ostler/", env!("CARGO_PKG_VERSION")));
    let builder = if url.scheme() == "https" { with_machine_roots(builder) } else { without_tls(builder)? };
    // A proxy is for remote hosts only, in any environment.
    let is_near = is_loopback_host(url.host_str().unwrap_or_default());
    let builder = if is_near { builder.no_proxy() } else { builder };
    builder.build().map_err(|error| chain(&error))
}

/// The machine's resolver; its failures have a type of their own.
struct Resolver;

/// A host name that can't be resolved.
#[derive(Debug)]
pub(crate) struct UnknownHost(std::io::Error);

impl fmt::Display for UnknownHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for UnknownHost {}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await.map_err(UnknownHost)?;
            let addresses: Vec<SocketAddr> = found.collect();
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

/// Trusts the machine's certificates and `SSL_CERT_FILE`. An embedder's own provider of cryptography stays in place.
fn with_machine_roots(builder: ClientBuilder) -> ClientBuilder {
    let _ = rustls::crypto::ring::default_provider().install_default();
    builder.https_only(true)
}

/// Trusts no certificate and reads none. Only a proxy's address could require TLS, and it is not trusted then.
fn without_tls(builder: ClientBuilder) -> Result<ClientBuilder, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    Ok(builder.tls_backend_preconfigured(config))
}

/// Follows a redirect within the origin, since the configured headers go along, and only one that keeps the method: a
/// POST that becomes a GET is another request.
fn follow_redirect(attempt: Attempt<'_>) -> Action {
    let keeps_method = matches!(attempt.status().as_u16(), 307 | 308);
    let first = attempt.previous().first();
    let is_within = first.is_some_and(|first| first.origin() == attempt.url().origin());
    match keeps_method && is_within && attempt.previous().len() <= MAX_REDIRECTS {
        true => attempt.follow(),
        false => attempt.stop(),
    }
}

/// Formats an error and its causes in one line, without the address: it may hold a secret.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let text = cause.to_string();
        if !line.contains(&text) {
            line = format!("{line}: {text}");
        }
        source = cause.source();
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_can_be_made_for_both_schemes() {
        for url in ["http://localhost/", "https://localhost/"] {
            build_client(&url.parse().unwrap()).unwrap();
        }
    }
}

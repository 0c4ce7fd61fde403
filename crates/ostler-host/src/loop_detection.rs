//! Loop detection between hosts: each host names the hosts that its requests come through, and refuses requests that
//! come back.
//!
//! Two hosts may have each other among their servers, directly or through more. Lists and sessions are shared between
//! callers, so a chain belongs to a host and not to one request: a host's requests name itself and the hosts that are
//! its clients now. A host that finds itself in such a chain refuses the request, which breaks the loop.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Header of requests to remote servers.
pub const VIA_HEADER: &str = "ostler-via";
/// Environment variable of child processes that run Ostler.
pub const VIA_VARIABLE: &str = "OSTLER_VIA";

/// Bounds the hosts in a chain. A longer chain counts as a loop.
const MAX_HOPS: usize = 8;
/// Bounds the client hosts that a request names. Each is an authenticated client; further ones are left out.
const MAX_CLIENTS: usize = 64;
/// Bounds the length of a host's name.
const MAX_HOST_ID_LEN: usize = 32;
/// Time for which a host counts as a client after its last request.
const CLIENT_TTL: Duration = Duration::from_secs(10 * 60);

/// Detector of request loops: knows the client hosts of one host.
#[derive(Debug)]
pub struct LoopDetector {
    /// Random, for one life of the host. Not secret; only servers get it.
    host_id: String,
    clients: Mutex<BTreeMap<String, ClientHost>>,
}

#[derive(Debug)]
struct ClientHost {
    /// Hosts in the chain up to this one, itself included.
    hops: usize,
    /// End of its time as a client; an attached host counts longer.
    expires_at: Instant,
    attached: usize,
}

/// Error of a request that has come through this host already, or through too many.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopDetected(&'static str);

impl fmt::Display for LoopDetected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for LoopDetected {}

/// Attached client hosts: they count as clients while their connection lasts.
#[derive(Debug)]
pub struct AttachedHosts {
    loop_detector: Arc<LoopDetector>,
    names: Vec<String>,
}

impl LoopDetector {
    /// Creates the detector of a host that no other host is known to use.
    pub fn random() -> Self {
        Self::new(fastrand::u128(..))
    }

    fn new(own: u128) -> Self {
        Self { host_id: format!("{own:032x}"), clients: Mutex::default() }
    }

    /// Adds the client hosts that the environment names; they count as long as this detector exists.
    #[must_use]
    pub fn with_client_hosts(self, value: &str) -> Self {
        // In a chain that comes back, the next host reports it.
        let _ = self.record_clients(value, 1);
        self
    }

    /// Returns the header value of this host's requests: `HOPS;NAME,NAME…`.
    pub fn header_value(&self) -> String {
        let now = Instant::now();
        let mut clients = self.lock();
        clients.retain(|_, client| client.attached > 0 || client.expires_at > now);
        let hops = 1 + clients.values().map(|client| client.hops).max().unwrap_or(0);
        let names = std::iter::once(self.host_id.as_str()).chain(clients.keys().map(String::as_str));
        format!("{hops};{}", names.collect::<Vec<_>>().join(","))
    }

    /// Records the hosts that a request comes through; refuses one that comes back. An unreadable value is no chain.
    pub fn admit(&self, value: &str) -> Result<(), LoopDetected> {
        self.record_clients(value, 0).map(drop)
    }

    /// Records the hosts of a connection, which count as long as it lasts; refuses one that comes back.
    pub fn attach(self: &Arc<Self>, value: &str) -> Result<AttachedHosts, LoopDetected> {
        let names = self.record_clients(value, 1)?;
        Ok(AttachedHosts { loop_detector: Arc::clone(self), names })
    }

    fn record_clients(&self, value: &str, attached: usize) -> Result<Vec<String>, LoopDetected> {
        let Some((hops, names)) = parse_chain(value) else { return Ok(Vec::new()) };
        if names.iter().any(|name| *name == self.host_id) {
            return Err(LoopDetected(
                "this request comes from this daemon itself, through another one: each has the other among its \
                 servers; take one of the two out",
            ));
        }
        if hops > MAX_HOPS {
            return Err(LoopDetected("this request comes through more than 8 daemons, one behind the other"));
        }
        let until = Instant::now() + CLIENT_TTL;
        let mut clients = self.lock();
        let mut noted = Vec::new();
        for name in names {
            if clients.len() >= MAX_CLIENTS && !clients.contains_key(name) {
                continue;
            }
            let client =
                clients.entry(name.to_owned()).or_insert(ClientHost { hops, expires_at: until, attached: 0 });
            (client.hops, client.expires_at) = (hops, until);
            client.attached += attached;
            noted.push(name.to_owned());
        }
        Ok(noted)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, ClientHost>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for AttachedHosts {
    fn drop(&mut self) {
        let mut clients = self.loop_detector.lock();
        for name in &self.names {
            if let Some(client) = clients.get_mut(name) {
                client.attached = client.attached.saturating_sub(1);
            }
        }
    }
}

fn parse_chain(value: &str) -> Option<(usize, Vec<&str>)> {
    let (hops, names) = value.split_once(';')?;
    let names: Vec<&str> = names.split(',').take(MAX_CLIENTS + 1).collect();
    let is_name = |name: &&str| {
        (1..=MAX_HOST_ID_LEN).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let hops = hops.parse().ok().filter(|hops| *hops > 0)?;
    names.iter().all(is_name).then_some((hops, names))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_hosts_that_use_each_other_are_told_apart_from_a_chain() {
        let (a, b, c) = (LoopDetector::new(1), LoopDetector::new(2), LoopDetector::new(3));
        b.admit(&a.header_value()).unwrap();
        c.admit(&b.header_value()).unwrap();
        c.admit(&a.header_value()).unwrap();
        assert!(a.admit(&b.header_value()).is_err(), "b is used by a");
        assert!(a.admit(&c.header_value()).is_err(), "c is used by a through b");
        assert!(a.admit(&a.header_value()).is_err());
    }

    #[test]
    fn hosts_that_meet_at_the_same_moment_refuse_each_other_from_then_on() {
        let (a, b) = (LoopDetector::new(1), LoopDetector::new(2));
        let (from_a, from_b) = (a.header_value(), b.header_value());
        a.admit(&from_b).unwrap();
        b.admit(&from_a).unwrap();
        assert!(a.admit(&b.header_value()).is_err() && b.admit(&a.header_value()).is_err());
    }

    #[test]
    fn a_long_chain_is_refused_and_many_clients_of_one_host_are_not() {
        let mut value = LoopDetector::new(0).header_value();
        for number in 1..MAX_HOPS as u128 {
            let host = LoopDetector::new(number);
            host.admit(&value).unwrap();
            value = host.header_value();
        }
        let ninth = LoopDetector::new(100);
        ninth.admit(&value).unwrap();
        assert!(LoopDetector::new(101).admit(&ninth.header_value()).is_err());

        let hub = LoopDetector::new(200);
        for number in 1_000..2_000 {
            hub.admit(&LoopDetector::new(number).header_value()).unwrap();
        }
        let value = hub.header_value();
        assert!(value.starts_with("2;") && value.len() < 4_096, "{}", value.len());
        LoopDetector::new(201).admit(&value).unwrap();
    }

    #[test]
    fn an_attached_host_counts_as_long_as_it_is_there_and_nonsense_never() {
        let (a, b) = (LoopDetector::new(1), Arc::new(LoopDetector::new(2)));
        let attached = b.attach(&a.header_value()).unwrap();
        b.lock().values_mut().for_each(|client| client.expires_at = Instant::now());
        assert!(a.admit(&b.header_value()).is_err());
        drop(attached);
        assert!(a.admit(&b.header_value()).is_ok());
        for nonsense in ["", "1", "1;", "0;ab", "x;ab", "1;ab,", "1;a b", "1;ab\r\n"] {
            b.admit(nonsense).unwrap();
        }
        assert!(b.header_value().starts_with("1;"));
    }
}

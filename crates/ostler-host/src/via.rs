//! Chains of hosts: each says through which others its requests come, and refuses those that come back.
//!
//! Two hosts may have each other among their servers, directly or through more. Lists and sessions are shared between
//! callers, so a chain belongs to a host and not to one request: what a host sends names itself and the hosts that are
//! its clients now. The host that finds itself in such a chain refuses, and the circle is open at that place.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The header of requests to remote servers.
pub const VIA_HEADER: &str = "ostler-via";
/// The variable of processes that run Ostler.
pub const VIA_VARIABLE: &str = "OSTLER_VIA";

/// Hosts one behind the other. A chain that is longer is taken for a circle.
const MOST_HOPS: usize = 8;
/// Hosts that one says it is used by. Each is an authenticated client; more than that are not told.
const MOST_NAMED: usize = 64;
/// The longest name of a host.
const LONGEST_NAME: usize = 32;
/// How long a host counts as a client after its last request.
const REMEMBERED: Duration = Duration::from_secs(10 * 60);

/// The place of a host among others that use it.
#[derive(Debug)]
pub struct Via {
    /// Random, for one life of the host. No secret; it is told to servers only.
    own: String,
    clients: Mutex<BTreeMap<String, Client>>,
}

#[derive(Debug)]
struct Client {
    /// Hosts up to this one, itself included.
    hops: usize,
    /// Counts until then, and longer while it is attached.
    until: Instant,
    attached: usize,
}

/// A request that has come through this host already, or through too many.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Circle(&'static str);

impl fmt::Display for Circle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Circle {}

/// Keeps hosts among the clients while a connection of theirs lasts.
#[derive(Debug)]
pub struct Attached {
    via: Arc<Via>,
    names: Vec<String>,
}

impl Via {
    /// A host that no other is known to use.
    pub fn random() -> Self {
        Self::new(fastrand::u128(..))
    }

    fn new(own: u128) -> Self {
        Self { own: format!("{own:032x}"), clients: Mutex::default() }
    }

    /// The same behind hosts that the environment names, for as long as this one lives.
    #[must_use]
    pub fn behind(self, value: &str) -> Self {
        // In a chain that comes back, the next host says so.
        let _ = self.note(value, 1);
        self
    }

    /// Returns what requests of this host say: `HOPS;NAME,NAME…`.
    pub fn value(&self) -> String {
        let now = Instant::now();
        let mut clients = self.lock();
        clients.retain(|_, client| client.attached > 0 || client.until > now);
        let hops = 1 + clients.values().map(|client| client.hops).max().unwrap_or(0);
        let names = std::iter::once(self.own.as_str()).chain(clients.keys().map(String::as_str));
        format!("{hops};{}", names.collect::<Vec<_>>().join(","))
    }

    /// Notes the hosts that a request comes through; refuses one that comes back. What can't be read is no chain.
    pub fn admit(&self, value: &str) -> Result<(), Circle> {
        self.note(value, 0).map(drop)
    }

    /// The same for a connection, whose hosts count as long as it lasts.
    pub fn attach(self: &Arc<Self>, value: &str) -> Result<Attached, Circle> {
        let names = self.note(value, 1)?;
        Ok(Attached { via: Arc::clone(self), names })
    }

    fn note(&self, value: &str, attached: usize) -> Result<Vec<String>, Circle> {
        let Some((hops, names)) = read(value) else { return Ok(Vec::new()) };
        if names.iter().any(|name| *name == self.own) {
            return Err(Circle(
                "this request comes from this daemon itself, through another one: each has the other among its \
                 servers; take one of the two out",
            ));
        }
        if hops > MOST_HOPS {
            return Err(Circle("this request comes through more than 8 daemons, one behind the other"));
        }
        let until = Instant::now() + REMEMBERED;
        let mut clients = self.lock();
        let mut noted = Vec::new();
        for name in names {
            if clients.len() >= MOST_NAMED && !clients.contains_key(name) {
                continue;
            }
            let client = clients.entry(name.to_owned()).or_insert(Client { hops, until, attached: 0 });
            (client.hops, client.until) = (hops, until);
            client.attached += attached;
            noted.push(name.to_owned());
        }
        Ok(noted)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Client>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let mut clients = self.via.lock();
        for name in &self.names {
            if let Some(client) = clients.get_mut(name) {
                client.attached = client.attached.saturating_sub(1);
            }
        }
    }
}

fn read(value: &str) -> Option<(usize, Vec<&str>)> {
    let (hops, names) = value.split_once(';')?;
    let names: Vec<&str> = names.split(',').take(MOST_NAMED + 1).collect();
    let is_name = |name: &&str| {
        (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let hops = hops.parse().ok().filter(|hops| *hops > 0)?;
    names.iter().all(is_name).then_some((hops, names))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_hosts_that_use_each_other_are_told_apart_from_a_chain() {
        let (a, b, c) = (Via::new(1), Via::new(2), Via::new(3));
        b.admit(&a.value()).unwrap();
        c.admit(&b.value()).unwrap();
        c.admit(&a.value()).unwrap();
        assert!(a.admit(&b.value()).is_err(), "b is used by a");
        assert!(a.admit(&c.value()).is_err(), "c is used by a through b");
        assert!(a.admit(&a.value()).is_err());
    }

    #[test]
    fn hosts_that_meet_at_the_same_moment_refuse_each_other_from_then_on() {
        let (a, b) = (Via::new(1), Via::new(2));
        let (from_a, from_b) = (a.value(), b.value());
        a.admit(&from_b).unwrap();
        b.admit(&from_a).unwrap();
        assert!(a.admit(&b.value()).is_err() && b.admit(&a.value()).is_err());
    }

    #[test]
    fn a_long_chain_is_refused_and_many_clients_of_one_host_are_not() {
        let mut value = Via::new(0).value();
        for number in 1..MOST_HOPS as u128 {
            let host = Via::new(number);
            host.admit(&value).unwrap();
            value = host.value();
        }
        let ninth = Via::new(100);
        ninth.admit(&value).unwrap();
        assert!(Via::new(101).admit(&ninth.value()).is_err());

        let hub = Via::new(200);
        for number in 1_000..2_000 {
            hub.admit(&Via::new(number).value()).unwrap();
        }
        let value = hub.value();
        assert!(value.starts_with("2;") && value.len() < 4_096, "{}", value.len());
        Via::new(201).admit(&value).unwrap();
    }

    #[test]
    fn an_attached_host_counts_as_long_as_it_is_there_and_nonsense_never() {
        let (a, b) = (Via::new(1), Arc::new(Via::new(2)));
        let attached = b.attach(&a.value()).unwrap();
        b.lock().values_mut().for_each(|client| client.until = Instant::now());
        assert!(a.admit(&b.value()).is_err());
        drop(attached);
        assert!(a.admit(&b.value()).is_ok());
        for nonsense in ["", "1", "1;", "0;ab", "x;ab", "1;ab,", "1;a b", "1;ab\r\n"] {
            b.admit(nonsense).unwrap();
        }
        assert!(b.value().starts_with("1;"));
    }
}

//! Options of a host.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ostler_core::config::Config;
use ostler_core::pins::PinPolicy;
use ostler_core::policy::Rules;
use ostler_core::spec::ServerSpec;
use ostler_wire::ClientInfo;

use crate::limits::Limits;
use crate::loop_detection::LoopDetector;
use crate::process::GuardCommand;
use crate::upstream::Connector;

/// Options of a host. Every default is the documented one.
#[derive(Clone)]
pub struct HostOptions {
    /// The program that guards servers. Without one, servers run in process groups: those miss processes that leave the
    /// group and processes that outlive a killed host. `status` reports which of the two is used.
    pub guard: Option<GuardCommand>,
    /// Directory that keeps the lists of sleeping servers between runs; absent, they are not kept.
    pub state_dir: Option<PathBuf>,
    /// Adds the login shell's `PATH` for servers if the host has no terminal and only the system's directories: a
    /// daemon that a desktop program has started.
    pub use_login_path: bool,
    /// Bound on live processes; 0 allows none.
    pub max_processes: usize,
    /// Bound on calls in flight over all servers.
    pub max_in_flight: usize,
    /// Bound on calls in flight of one principal.
    pub max_per_caller: usize,
    /// Limits of each role's callers.
    pub limits: Limits,
    /// File that keeps the charges of budgets between runs; absent, they are not kept. One host at a time may use it.
    pub budget_file: Option<PathBuf>,
    /// Bound on the response cache, in bytes.
    pub cache_bytes: usize,
    /// Bound on cached answers of one tool.
    pub cache_entries_per_tool: usize,
    /// Upper bound on the TTL of a cached answer, whatever its server says.
    pub cache_max_ttl: Duration,
    /// Rules of roles. [Unrestricted](Rules::unrestricted) rules leave the decision to the [hook](crate::Host::set_policy_hook).
    pub rules: Rules,
    /// Seed of all randomness of this host: jitter of delays and idempotency keys. Only a simulation sets it.
    pub seed: Option<u64>,
    /// Retry policy for servers that do not start.
    pub start_retry: StartRetry,
    /// Set if an MCP client has started this process, whose environment is therefore that client's. Advice about
    /// variables says so.
    pub is_started_by_client: bool,
    /// Client identity that servers are told.
    pub identity: ClientInfo,
    /// Key that seals task ids, request states and a gateway's cursors. `None` generates a random one; the same key
    /// over restarts keeps task ids and cursors valid.
    pub seal_key: Option<[u8; 32]>,
    /// Approved definitions of tools; absent, every definition is accepted.
    pub pins: Option<PinPolicy>,
    /// Makes the connectors of servers that the embedder reaches in its own way. Without one, and for servers for which
    /// it returns `None`, the spec decides.
    pub connector_factory: Option<ConnectorFactory>,
    /// Detector of request loops between hosts. The default has a random name.
    pub loop_detector: Arc<LoopDetector>,
}

/// Factory of a server's connector, by its spec.
pub type ConnectorFactory = Arc<dyn Fn(&ServerSpec) -> Option<Arc<dyn Connector>> + Send + Sync>;

/// Retry policy for servers that do not start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StartRetry {
    /// One retry: the host lives as long as one command, and a person waits for it.
    Once,
    /// Retries within the restart budget. An unreachable remote server is retried on if it was ever reached.
    #[default]
    Budget,
    /// Like `Budget`, but an unreachable remote server is retried on even if it was never reached: the host is a way to
    /// that server.
    UntilReached,
}

impl HostOptions {
    /// Creates options with the bounds and rules of a config; everything else is the default.
    pub fn from_config(config: &Config) -> Self {
        Self {
            max_processes: config.pool.max_processes,
            max_in_flight: config.pool.max_in_flight,
            max_per_caller: config.pool.max_per_caller,
            limits: Limits::from_config(config),
            cache_bytes: config.cache.max_bytes,
            cache_entries_per_tool: config.cache.per_tool,
            cache_max_ttl: config.cache.max_ttl,
            rules: Rules::from_roles(&config.roles),
            ..Self::default()
        }
    }
}

impl Default for HostOptions {
    fn default() -> Self {
        Self {
            guard: None,
            state_dir: None,
            use_login_path: false,
            max_processes: 64,
            max_in_flight: 4_096,
            max_per_caller: 2_048,
            limits: Limits::default(),
            budget_file: None,
            cache_bytes: 64 << 20,
            cache_entries_per_tool: 64,
            cache_max_ttl: Duration::from_secs(24 * 60 * 60),
            rules: Rules::unrestricted(),
            seed: None,
            start_retry: StartRetry::default(),
            is_started_by_client: false,
            identity: ClientInfo { name: "ostler".into(), version: env!("CARGO_PKG_VERSION").into() },
            seal_key: None,
            pins: None,
            connector_factory: None,
            loop_detector: Arc::new(LoopDetector::random()),
        }
    }
}

impl fmt::Debug for HostOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostOptions").field("guard", &self.guard).finish_non_exhaustive()
    }
}

/// Failure of the system's random source, without which a caller could guess the key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the system's random source fails: {0}")]
pub struct RandomSourceError(String);

/// Generates a key with `fill`. There is no fallback: a key from a weaker source would let callers forge the task ids
/// of others.
pub(crate) fn random_key<E: fmt::Display>(
    fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
) -> Result<[u8; 32], RandomSourceError> {
    let mut key = [0; 32];
    fill(&mut key).map_err(|error| RandomSourceError(error.to_string()))?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_random_source_there_is_no_key() {
        let broken = random_key(|key| {
            key[..16].fill(7);
            Err("no entropy")
        });
        assert_eq!(broken.unwrap_err().to_string(), "the system's random source fails: no entropy");
    }

    #[test]
    fn two_hosts_have_different_keys() {
        assert_ne!(random_key(getrandom::fill), random_key(getrandom::fill));
    }
}

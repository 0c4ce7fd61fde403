//! How a host is set up.

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

/// How a host is set up. Every default is the documented one.
#[derive(Clone)]
pub struct HostOptions {
    /// The program that guards servers. Without one, servers run in process
    /// groups, which miss what leaves them and what a killed host leaves
    /// behind; `status` says which it is.
    pub guard: Option<GuardCommand>,
    /// Where lists of sleeping servers are kept between runs; nowhere if absent.
    pub state_dir: Option<PathBuf>,
    /// Whether servers are given the `PATH` of the login shell too, if the host has no terminal and only the directories of
    /// the system: as a daemon that a desktop program has started.
    pub use_login_path: bool,
    /// Live processes at once; 0 allows none.
    pub max_processes: usize,
    /// Calls in flight over all servers.
    pub max_in_flight: usize,
    /// Those of one principal among them.
    pub max_per_caller: usize,
    /// How much the callers of each role may use.
    pub limits: Limits,
    /// Where the charges of budgets are kept between runs; nowhere if absent.
    /// One host at a time may use it.
    pub budget_file: Option<PathBuf>,
    /// Remembered answers, in bytes.
    pub cache_bytes: usize,
    /// Remembered answers of one tool.
    pub cache_entries_per_tool: usize,
    /// The longest time an answer is remembered, whatever its server says.
    pub cache_max_ttl: Duration,
    /// What roles may use. [Open](Rules::open) rules leave that to the
    /// [hook](crate::Host::set_policy_hook).
    pub rules: Rules,
    /// Where all chance of this host comes from: the spread of delays and what
    /// tells its calls from another host's. Only a simulation sets it.
    pub seed: Option<u64>,
    /// How long servers that do not start are tried.
    pub start_retry: StartRetry,
    /// Whether an MCP client has started this process, whose environment is therefore that client's. Advice about
    /// variables says so.
    pub is_started_by_client: bool,
    /// What servers are told about their client.
    pub identity: ClientInfo,
    /// Seals task ids and request states, and the cursors of a gateway. `None` makes
    /// a random one; the same key over restarts keeps task ids and cursors valid.
    pub seal_key: Option<[u8; 32]>,
    /// The approved definitions of tools; without any, every tool is taken as it is.
    pub pins: Option<PinPolicy>,
    /// Makes the connectors of servers that are reached in your own way. Without one, and for servers of which it
    /// returns `None`, the spec says how they are reached.
    pub connector_factory: Option<ConnectorFactory>,
    /// Tells chains of hosts that come back. By default one with a random name.
    pub loop_detector: Arc<LoopDetector>,
}

/// Makes the connector of a server from its spec.
pub type ConnectorFactory = Arc<dyn Fn(&ServerSpec) -> Option<Arc<dyn Connector>> + Send + Sync>;

/// How long a host tries servers that do not start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StartRetry {
    /// Once more: the host lives as long as one command, and a person waits for it.
    Once,
    /// Within the restart budget. A remote server that can't be reached is waited for if it ever was reached.
    #[default]
    Budget,
    /// Like `Budget`, and a remote server is waited for even if it never was reached: the host is a way to that server.
    UntilReached,
}

impl HostOptions {
    /// The bounds and the rules that a config sets; everything else is the default.
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

/// The system's random source failed, so there is no key that a caller could not guess.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the system's random source fails: {0}")]
pub struct RandomSourceError(String);

/// Makes a key with `fill`. There is no second source: a key from a weaker one
/// would let callers forge the task ids of others.
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

//! Limit of open file descriptors: raised for the daemon, lowered again for its servers.
//!
//! The daemon accepts no more connections than its limit has descriptors for.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use ostler_core::config::{Config, Problem};
use ostler_core::spec::{Isolation, ServerSpec, ServerTransport};
use ostler_host::process::GuardCommand;

use crate::output::print_stderr;

/// Reserved for descriptors that are no client connections: files, the audit, the broker, the config watcher, the
/// connections reserved for the admin API.
const OWN_FDS: u64 = 64;

/// Descriptors of one server process: its pipes and its lifeline.
const FDS_PER_PROCESS: u64 = 8;

/// Processes that have descriptors however few servers the config has.
const MIN_PROCESSES: usize = 16;

/// The limits of this process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FdLimits {
    /// Limit that this process inherited; servers are started with it.
    original: u64,
    /// Limit in force now: the hard one, or `original` if it was not raised.
    current: u64,
}

impl FdLimits {
    /// Raises the soft limit to the hard one. The default of shells is meant for programs with few connections.
    pub(crate) fn raise() -> Self {
        let (original, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((u64::MAX, u64::MAX));
        // Without a guard, servers would inherit the higher limit.
        let may_raise = cfg!(target_os = "linux") && original < hard;
        let is_raised = may_raise && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok();
        Self { original, current: if is_raised { hard } else { original } }
    }

    /// Returns the guard command, which restores the original limit for servers: some programs fail with a higher one.
    pub(crate) fn guard(self) -> GuardCommand {
        let mut command = GuardCommand::this_program();
        command.args.push(self.original.to_string());
        command
    }

    /// Returns the config with no more connections than there are descriptors for.
    pub(crate) fn fit_connections(self, config: &Config) -> Config {
        let mut config = config.clone();
        if let Some(shortage) = self.shortage(&config) {
            print_stderr(&format!("warning: {}\n  hint: {}", shortage.message(), shortage.hint()));
            config.gateway.max_connections = shortage.connections;
        }
        config
    }

    /// Returns what a config lacks; `None` if there is enough for all of its connections.
    fn shortage(self, config: &Config) -> Option<FdShortage> {
        let processes = wanted_by_processes(config);
        let remote = wanted_by_remote_servers(config).min(self.current / 2);
        let left = self.current.saturating_sub(OWN_FDS + processes + remote);
        let connections = usize::try_from(left.max(1)).unwrap_or(usize::MAX);
        let wanted = config.gateway.max_connections;
        (connections < wanted).then(|| FdShortage {
            allowed: self.current,
            processes,
            connections,
            is_too_few_for_processes: left == 0,
            needed: (OWN_FDS + processes + remote).saturating_add(wanted as u64),
        })
    }
}

/// Shortage of descriptors for a config.
#[derive(Debug)]
struct FdShortage {
    allowed: u64,
    /// Descriptors of server processes.
    processes: u64,
    /// Connections that are served despite the shortage.
    connections: usize,
    is_too_few_for_processes: bool,
    /// Limit at which nothing would be short.
    needed: u64,
}

impl FdShortage {
    fn message(&self) -> String {
        let Self { allowed, processes, connections, .. } = self;
        let served = match connections {
            1 => "at most 1 connection is served".to_owned(),
            _ => format!("at most {connections} connections are served"),
        };
        let fewer = match self.is_too_few_for_processes {
            true => format!(", and servers may fail to start: their processes take up to {processes}"),
            false => String::new(),
        };
        format!("this machine allows {allowed} open files, so {served}{fewer}")
    }

    fn hint(&self) -> String {
        format!(
            "raise the limit to {} (`ulimit -n`, or `LimitNOFILE=` of a systemd service), or lower `pool.max_processes` \
             or `gateway.max_connections`",
            self.needed
        )
    }
}

/// Returns the warning of `ostler check` about the limit that a daemon started here would have.
pub(crate) fn check(config: &Config) -> Option<Problem> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    let now = if cfg!(target_os = "linux") { hard } else { soft };
    let shortage = FdLimits { original: soft, current: now }.shortage(config)?;
    let path = "pool.max_processes";
    Some(Problem::warning(config.origin_of_key(path), path, shortage.message(), shortage.hint()))
}

fn is_remote(server: &ServerSpec) -> bool {
    matches!(server.transport, ServerTransport::Http(_))
}

/// Returns the descriptors of server processes: one process for each server and some that an edit of the config may
/// add, or as many as may live where a server has one process for each caller.
fn wanted_by_processes(config: &Config) -> u64 {
    let local = || config.servers.iter().filter(|server| !is_remote(server));
    let is_shared = local().all(|server| server.isolation == Isolation::Shared);
    let processes = if is_shared { local().count().max(MIN_PROCESSES) } else { usize::MAX };
    FDS_PER_PROCESS.saturating_mul(processes.min(config.pool.max_processes) as u64)
}

/// Returns the descriptors of remote servers if all of them are busy: a connection for each call. They seldom are all
/// busy, so they get no more than half of all descriptors.
fn wanted_by_remote_servers(config: &Config) -> u64 {
    let remote = config.servers.iter().filter(|server| is_remote(server));
    remote.map(|server| server.max_in_flight as u64).fold(0, u64::saturating_add)
}

/// Restores the limit that a guard was given.
pub(crate) fn restore(told: &str) {
    let (Ok(soft), Ok((_, hard))) = (told.parse::<u64>(), getrlimit(Resource::RLIMIT_NOFILE)) else { return };
    // A server with too high a limit is better than no server.
    let _ = setrlimit(Resource::RLIMIT_NOFILE, soft.min(hard), hard);
}

#[cfg(test)]
mod tests {
    use ostler_core::config::{ConfigFormat, NoSource};

    use super::*;

    /// Returns the connections that are served with 300 descriptors, two processes, and this many remote servers.
    fn served(remote: usize, max_in_flight: usize) -> usize {
        let mut text = "[pool]\nmax_processes = 2\n".to_owned();
        for number in 0..remote {
            text += &format!(
                "[servers.r{number}]\nurl = \"http://127.0.0.1:1/mcp\"\nmax_in_flight = {max_in_flight}\n"
            );
        }
        served_with(&text)
    }

    fn served_with(text: &str) -> usize {
        let config = Config::parse("/ostler.toml".as_ref(), text, ConfigFormat::Toml, &NoSource).unwrap();
        FdLimits { original: 300, current: 300 }.fit_connections(&config).gateway.max_connections
    }

    #[test]
    fn each_call_that_a_remote_server_may_have_takes_the_place_of_a_connection() {
        assert_eq!(served(0, 0), 300 - 64 - 2 * 8);
        assert_eq!(served(1, 20), 300 - 64 - 2 * 8 - 20);
        assert_eq!(served(2, 64), 300 - 64 - 2 * 8 - 2 * 64);
    }

    #[test]
    fn remote_servers_take_no_more_than_half_of_all() {
        assert_eq!(served(3, 64), 300 - 64 - 2 * 8 - 150);
        assert_eq!(served(40, 1_000), 300 - 64 - 2 * 8 - 150);
    }

    #[test]
    fn processes_take_what_they_need_whatever_is_left() {
        assert_eq!(served_with(""), 300 - 64 - 16 * 8);
        let each = "[servers.a]\ncommand = \"x\"\nisolation = \"caller\"\n";
        assert_eq!(served_with(&format!("[pool]\nmax_processes = 29\n{each}")), 300 - 64 - 29 * 8);
        assert_eq!(served_with(&format!("[pool]\nmax_processes = 500\n{each}")), 1);
        let twenty: String = (0..20).map(|n| format!("[servers.s{n}]\ncommand = \"x\"\n")).collect();
        assert_eq!(served_with(&twenty), 300 - 64 - 20 * 8);
    }
}

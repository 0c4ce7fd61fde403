//! Launch of a daemon: from the command line to a listening socket.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ostler_core::loopback::is_loopback;
use tokio::net::TcpListener;

use super::tokens;
use crate::auth::Authenticator;
use crate::config_file::UsableConfig;
use crate::failure::CommandFailure;
use crate::instance::{self, DaemonKind, DaemonRecord, InstanceClaim};
use crate::invocation::Invocation;
use crate::output::print_stderr;

/// Options of a daemon.
#[derive(Debug)]
pub(crate) struct LaunchOptions {
    /// Config to serve.
    pub(crate) chosen: UsableConfig,
    /// Config as it was typed, for hints.
    pub(crate) config_arg: Option<PathBuf>,
    /// Exclusive right to serve the config.
    pub(crate) claim: InstanceClaim,
    /// Address to listen on in place of the config's.
    pub(crate) listen: Option<SocketAddr>,
    /// File for the port.
    pub(crate) port_file: Option<PathBuf>,
    /// Idle time after which the daemon exits; `None` for never.
    pub(crate) linger: Option<Duration>,
}

impl LaunchOptions {
    /// Returns the daemon's record for an address.
    pub(super) fn record(&self, address: SocketAddr) -> DaemonRecord {
        DaemonRecord {
            url: instance::local_url(address),
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").into(),
            config: self.chosen.file.clone(),
            started: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
            kind: if self.linger.is_some() { DaemonKind::Lingering } else { DaemonKind::Served },
            state: Some(self.claim.instance().state_dir().to_owned()),
        }
    }

    /// Returns the address to listen on.
    pub(super) fn address(&self) -> SocketAddr {
        self.listen.unwrap_or(self.chosen.config.listen)
    }

    /// Listens. An address that other machines reach requires callers that can authenticate.
    pub(super) async fn listen(&self, keeper: &Authenticator) -> Result<TcpListener, CommandFailure> {
        let address = self.address();
        let is_near = is_loopback(address.ip());
        match keeper.reload(|_| {}) {
            Ok(_) => {}
            Err(error) if is_near => print_stderr(&tokens::describe_unreadable(keeper, &error)),
            Err(why) => {
                let file = keeper.store().file().to_owned();
                return Err(CommandFailure::Tokens { file, why });
            }
        }
        if !is_near && !keeper.has_credentials() {
            return Err(CommandFailure::NoCredentials(address));
        }
        match TcpListener::bind(address).await {
            Ok(listener) => Ok(listener),
            // A daemon that a client started is found by its record, so any port does.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && self.linger.is_some() => {
                let any = SocketAddr::new(address.ip(), 0);
                TcpListener::bind(any).await.map_err(|error| listen_failure(any, &error))
            }
            Err(error) => Err(listen_failure(address, &error)),
        }
    }
}

fn listen_failure(address: SocketAddr, error: &io::Error) -> CommandFailure {
    let hint = match error.kind() {
        io::ErrorKind::AddrInUse => match instance::daemon_at(address) {
            Some(note) => {
                let (config, down) = match note.config {
                    Some(file) => (file.display().to_string(), Invocation::new(Some(&file)).command("down")),
                    None => ("no config".into(), "`ostler down --all`".into()),
                };
                format!(
                    "the daemon for {config} (pid {}) listens there; {down} ends it, or name another port with --listen",
                    note.pid
                )
            }
            None => format!(
                "name another port with --listen, or see who has it: `ss -ltnp 'sport = :{}'`",
                address.port()
            ),
        },
        io::ErrorKind::PermissionDenied => "take a port above 1023".into(),
        _ => "name an address of this machine with --listen".into(),
    };
    CommandFailure::Listen { address, why: error.to_string(), hint }
}

//! From what was typed to a socket that is listened on.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ostler_core::loopback::is_loopback;
use tokio::net::TcpListener;

use super::tokens;
use crate::auth::Keeper;
use crate::config_file::Chosen;
use crate::failure::Failure;
use crate::invocation::Invocation;
use crate::spot::{self, Claim, Kind, Note};

/// All that a daemon is started with.
#[derive(Debug)]
pub(crate) struct Launch {
    /// What it serves.
    pub(crate) chosen: Chosen,
    /// The config as it was typed, for hints.
    pub(crate) named: Option<PathBuf>,
    /// The right to serve it.
    pub(crate) claim: Claim,
    /// Where, if not where the config says.
    pub(crate) listen: Option<SocketAddr>,
    /// Where to write the port.
    pub(crate) port_file: Option<PathBuf>,
    /// How long to stay when nobody is here; for ever if absent.
    pub(crate) linger: Option<Duration>,
}

impl Launch {
    /// What the daemon says of itself when it listens at an address.
    pub(super) fn note(&self, address: SocketAddr) -> Note {
        Note {
            url: spot::url_of(address),
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").into(),
            config: self.chosen.file.clone(),
            started: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
            kind: if self.linger.is_some() { Kind::Lingering } else { Kind::Served },
            state: Some(self.claim.spot().state().to_owned()),
        }
    }

    /// Where it is to listen.
    pub(super) fn address(&self) -> SocketAddr {
        self.listen.unwrap_or(self.chosen.config.listen)
    }

    /// Listens. An address that other machines reach wants callers that can
    /// prove who they are.
    pub(super) async fn listen(&self, keeper: &Keeper) -> Result<TcpListener, Failure> {
        let address = self.address();
        let is_near = is_loopback(address.ip());
        match keeper.reload() {
            Ok(_) => {}
            Err(error) if is_near => tokens::say_unreadable(keeper, &error),
            Err(why) => {
                let file = keeper.store().file().to_owned();
                return Err(Failure::Tokens { file, why });
            }
        }
        if !is_near && !keeper.has_credentials() {
            return Err(Failure::Exposed(address));
        }
        match TcpListener::bind(address).await {
            Ok(listener) => Ok(listener),
            // A daemon that was started for somebody is found by its note, so any port does.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && self.linger.is_some() => {
                let any = SocketAddr::new(address.ip(), 0);
                TcpListener::bind(any).await.map_err(|error| refused(any, &error))
            }
            Err(error) => Err(refused(address, &error)),
        }
    }
}

fn refused(address: SocketAddr, error: &io::Error) -> Failure {
    let hint = match error.kind() {
        io::ErrorKind::AddrInUse => match spot::holder_of(address) {
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
    Failure::Listen { address, why: error.to_string(), hint }
}

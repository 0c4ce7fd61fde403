//! Finder of a client's daemon: the one that runs, or one that it starts.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ostler_host::VIA_VARIABLE;

use super::attach::{AttachTokens, attach};
use crate::client::{self, DaemonAddress};
use crate::config_file::{self, ConfigOrigin, FoundConfig, LoadedConfig};
use crate::failure::CommandFailure;
use crate::instance::{DaemonInstance, DaemonKind, DaemonRecord};
use crate::invocation::command;
use crate::output::{escape_line, print_stderr};
use crate::trust;

/// Idle time after which a daemon that a client started exits.
const LINGER: &str = "10m";
/// Timeout of the first daemon's start.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// Time for which a published daemon may be unreachable: it has just ended, or is about to.
const UNREACHABLE_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout of the next daemon: the one before may have calls to finish.
pub(super) const NEXT_DAEMON_TIMEOUT: Duration = Duration::from_secs(60);
/// Poll interval, and the time after which polling slows down tenfold.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
const FAST_POLL_TIME: Duration = Duration::from_secs(2);
/// Pause after a start before the next one, if no daemon came of it.
const RESTART_DELAY: Duration = Duration::from_millis(500);
/// Lines and bytes of the daemon's log that are shown when it does not come up.
const LOG_TAIL_LINES: usize = 8;
const LOG_TAIL_BYTES: u64 = 4 << 10;
/// Size at which the log is truncated.
const MAX_LOG_BYTES: u64 = 1 << 20;

/// Daemon that has attached the client, and the bytes it has sent already.
#[derive(Debug)]
pub(super) struct DaemonConnection {
    pub(super) reader: BufReader<TcpStream>,
    /// Address of the daemon.
    pub(super) url: String,
    /// Upper bound on a message to the daemon, in bytes.
    pub(super) max_message: usize,
}

/// Finds daemons.
#[derive(Debug)]
pub(super) struct DaemonFinder {
    found: FoundConfig,
    /// Daemon that was named; no other is used.
    named: Option<DaemonAddress>,
    caller_token: Option<String>,
    /// Last daemon that was started here.
    child: Option<Child>,
    /// Version that the user was warned of.
    warned_version: Option<String>,
}

impl DaemonFinder {
    pub(super) fn new(
        found: FoundConfig,
        named: Option<DaemonAddress>,
        caller_token: Option<String>,
    ) -> Self {
        Self { found, named, caller_token, child: None, warned_version: None }
    }

    /// Returns the first daemon. A named one is not waited for.
    pub(super) fn first(&mut self) -> Result<DaemonConnection, CommandFailure> {
        match self.named {
            Some(_) => self.try_once(),
            None => {
                self.instance()?.wait_until_settled()?;
                self.find(START_TIMEOUT, UNREACHABLE_TIMEOUT)
            }
        }
    }

    /// Returns the daemon that succeeds one that has ended.
    pub(super) fn next(&mut self) -> Result<DaemonConnection, CommandFailure> {
        self.find(NEXT_DAEMON_TIMEOUT, NEXT_DAEMON_TIMEOUT)
    }

    /// Returns whether a daemon runs, so that attaching starts none.
    pub(super) fn is_daemon_running(&mut self) -> bool {
        self.reap();
        self.named.is_none() && self.instance().is_ok_and(|spot| spot.running().is_some())
    }

    /// Looks for a daemon, and starts one where none runs or is about to.
    fn find(
        &mut self,
        coming_up: Duration,
        out_of_reach: Duration,
    ) -> Result<DaemonConnection, CommandFailure> {
        let began = Instant::now();
        let mut last_start: Option<Instant> = None;
        loop {
            let elapsed = began.elapsed();
            let why = match self.try_once() {
                Ok(connection) => return Ok(connection),
                Err(failure @ CommandFailure::Unreachable { .. }) if elapsed < out_of_reach => failure,
                Err(failure @ CommandFailure::NoDaemon { .. }) => failure,
                Err(failure) => return Err(failure),
            };
            if matches!(why, CommandFailure::NoDaemon { .. }) {
                self.start_if_needed(&mut last_start)?;
            }
            if elapsed >= coming_up {
                let why = format!("it has not come up within {}s", coming_up.as_secs());
                let last_words = self.instance().map(|spot| log_tail(&spot.log_file())).unwrap_or_default();
                return Err(CommandFailure::DaemonNotStarted { why, last_lines: last_words });
            }
            std::thread::sleep(if elapsed < FAST_POLL_TIME { POLL_INTERVAL } else { POLL_INTERVAL * 10 });
        }
    }

    /// Attaches to the daemon that runs.
    fn try_once(&mut self) -> Result<DaemonConnection, CommandFailure> {
        let (address, admin) = match &self.named {
            Some(address) => {
                (address.clone(), client::admin_token_for(address, self.instance().ok().as_ref()))
            }
            None => return self.try_running(),
        };
        self.attach(&address, admin)
    }

    fn try_running(&mut self) -> Result<DaemonConnection, CommandFailure> {
        let spot = self.instance()?;
        let (note, admin) = spot.running_with_token().ok_or(CommandFailure::NoDaemon { why: "none runs" })?;
        self.warn_version(&note);
        let unreachable = |why: &str| CommandFailure::Unreachable { url: note.url.clone(), why: why.into() };
        let address =
            DaemonAddress::local(&note.url).ok_or_else(|| unreachable("its address can't be read"))?;
        self.attach(&address, admin).map_err(|failure| match spot.running() {
            Some(now) if now == note => failure,
            // Another process may listen there by now, and has another token.
            _ => unreachable("it has ended"),
        })
    }

    fn attach(
        &self,
        address: &DaemonAddress,
        admin: Option<String>,
    ) -> Result<DaemonConnection, CommandFailure> {
        attach(address, &AttachTokens { admin, caller: self.caller_token.as_deref() })
    }

    fn instance(&self) -> Result<DaemonInstance, CommandFailure> {
        DaemonInstance::for_config(self.found.file())
    }

    /// Warns once that the daemon has another version. It serves this client all the same.
    fn warn_version(&mut self, note: &DaemonRecord) {
        let own = env!("CARGO_PKG_VERSION");
        if note.version == own || self.warned_version.as_ref() == Some(&note.version) {
            return;
        }
        let then = match note.kind {
            DaemonKind::Served => format!("start {} again to have version {own}", command("serve")),
            DaemonKind::Lingering => {
                format!("{} ends it, and the next request starts version {own}", command("down"))
            }
        };
        print_stderr(&format!(
            "warning: the daemon at {} (pid {}) is version {}, and this is version {own}\n  hint: {then}",
            note.url,
            note.pid,
            escape_line(&note.version)
        ));
        self.warned_version = Some(note.version.clone());
    }

    /// Starts a daemon, unless one holds the config or is about to, or the last one that was started may still come up.
    fn start_if_needed(&mut self, last_start: &mut Option<Instant>) -> Result<(), CommandFailure> {
        let spot = self.instance()?;
        if let Some(child) = &mut self.child {
            let Some(status) = child.try_wait().map_err(CommandFailure::Machine)? else { return Ok(()) };
            self.child = None;
            if !status.success() && last_start.is_some() {
                let why = format!("it ended at once ({status})");
                return Err(CommandFailure::DaemonNotStarted { why, last_lines: log_tail(&spot.log_file()) });
            }
        }
        if spot.is_claimed() || last_start.is_some_and(|start| start.elapsed() < RESTART_DELAY) {
            return Ok(());
        }
        if let FoundConfig::File { file, origin: ConfigOrigin::WorkingDirectory } = &self.found {
            // The daemon has no terminal, and few people read its log: the client's side checks the config and reports
            // problems.
            let LoadedConfig { config, problems, .. } = config_file::read(file.clone())?;
            trust::require_trust(
                ConfigOrigin::WorkingDirectory,
                file,
                &config_file::require_usable(file, config, &problems)?,
            )?;
        }
        self.child = Some(launch(&self.found, &spot).map_err(CommandFailure::Machine)?);
        *last_start = Some(Instant::now());
        Ok(())
    }

    /// Reaps a daemon that was started here and has exited.
    fn reap(&mut self) {
        self.child.take_if(|child| !matches!(child.try_wait(), Ok(None)));
    }
}

/// Starts the daemon in a session of its own, without any of the client's file descriptors, which would keep the client
/// from ending.
fn launch(found: &FoundConfig, spot: &DaemonInstance) -> io::Result<Child> {
    let config = found.file();
    let log = spot.open_log()?;
    if log.metadata()?.len() > MAX_LOG_BYTES {
        log.set_len(0)?;
    }
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["serve", "--linger", LINGER]);
    // It serves other clients too, and learns the origin of each from the connection.
    command.env_remove(VIA_VARIABLE);
    match config {
        Some(file) => command.arg("--config").arg(file),
        None => command.arg("--builtin"),
    };
    if let FoundConfig::File { origin: ConfigOrigin::WorkingDirectory, .. } = found {
        command.arg("--found");
    }
    // The client's directory may be deleted before the daemon ends.
    command.current_dir(config.and_then(Path::parent).unwrap_or(Path::new("/")));
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()
}

/// Returns the end of the log, for a start that failed without a message.
fn log_tail(log: &Path) -> Vec<String> {
    let read = || -> io::Result<String> {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(LOG_TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let text = read().unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].iter().map(|line| (*line).to_owned()).collect()
}

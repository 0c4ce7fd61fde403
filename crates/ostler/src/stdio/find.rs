//! The daemon of a client: the one that runs, or one that is started.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ostler_host::VIA_VARIABLE;

use super::attach::{Tokens, attach};
use crate::config_file::{self, Found, Origin, Reading};
use crate::failure::Failure;
use crate::invocation::command;
use crate::output::{clean, tell};
use crate::reach::{self, Address};
use crate::spot::{Kind, Note, Spot};
use crate::trust;

/// How long a daemon that was started for a client stays without any.
const LINGER: &str = "10m";
/// How long the first daemon may take to come up.
const COMING_UP: Duration = Duration::from_secs(20);
/// How long one that says where it is may be out of reach meanwhile: it has just ended, or is about to.
const OUT_OF_REACH: Duration = Duration::from_secs(2);
/// How long the next daemon may take: the one before may have calls to finish.
pub(super) const NEXT: Duration = Duration::from_secs(60);
/// How often it is looked for, and how long before that is ten times less often.
const LOOK: Duration = Duration::from_millis(10);
const LOOK_OFTEN: Duration = Duration::from_secs(2);
/// How long after the last start another one is tried, if no daemon came of it.
const START_AGAIN: Duration = Duration::from_millis(500);
/// Lines and bytes of its log that are shown when it does not come up.
const LAST_LINES: usize = 8;
const LAST_BYTES: u64 = 4 << 10;
/// A log that is longer than this begins anew.
const LONGEST_LOG: u64 = 1 << 20;

/// A daemon that has let the client in, and what it has said already.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) reader: BufReader<TcpStream>,
    /// Where it is.
    pub(super) url: String,
    /// The longest message that it takes, in bytes.
    pub(super) max_message: usize,
}

/// Finds daemons.
#[derive(Debug)]
pub(super) struct Finder {
    found: Found,
    /// The daemon that was named; the only one that does.
    named: Option<Address>,
    callers: Option<String>,
    /// The last one that was started here.
    child: Option<Child>,
    /// The version that the user was told of.
    told_of: Option<String>,
}

impl Finder {
    pub(super) fn new(found: Found, named: Option<Address>, callers: Option<String>) -> Self {
        Self { found, named, callers, child: None, told_of: None }
    }

    /// Returns the first daemon. One that was named is there or is not.
    pub(super) fn first(&mut self) -> Result<Connection, Failure> {
        match self.named {
            Some(_) => self.try_once(),
            None => {
                self.spot()?.settled();
                self.find(COMING_UP, OUT_OF_REACH)
            }
        }
    }

    /// Returns the daemon that comes after one that has ended.
    pub(super) fn next(&mut self) -> Result<Connection, Failure> {
        self.find(NEXT, NEXT)
    }

    /// Whether a daemon runs that can be attached to without starting one.
    pub(super) fn is_there(&mut self) -> bool {
        self.reap();
        self.named.is_none() && self.spot().is_ok_and(|spot| spot.running().is_some())
    }

    /// Looks for a daemon, and starts one where none runs or is about to.
    fn find(&mut self, coming_up: Duration, out_of_reach: Duration) -> Result<Connection, Failure> {
        let began = Instant::now();
        let mut last_start: Option<Instant> = None;
        loop {
            let elapsed = began.elapsed();
            let why = match self.try_once() {
                Ok(connection) => return Ok(connection),
                Err(failure @ Failure::Unreachable { .. }) if elapsed < out_of_reach => failure,
                Err(failure @ Failure::NoDaemon { .. }) => failure,
                Err(failure) => return Err(failure),
            };
            if matches!(why, Failure::NoDaemon { .. }) {
                self.start_if_needed(&mut last_start)?;
            }
            if elapsed >= coming_up {
                let why = format!("it has not come up within {}s", coming_up.as_secs());
                let last_words = self.spot().map(|spot| last_words(&spot.log_file())).unwrap_or_default();
                return Err(Failure::Stillborn { why, last_words });
            }
            std::thread::sleep(if elapsed < LOOK_OFTEN { LOOK } else { LOOK * 10 });
        }
    }

    /// Attaches to the daemon that runs.
    fn try_once(&mut self) -> Result<Connection, Failure> {
        let (address, admin) = match &self.named {
            Some(address) => (address.clone(), reach::token_for(address, self.spot().ok().as_ref())),
            None => return self.try_running(),
        };
        self.attach(&address, admin)
    }

    fn try_running(&mut self) -> Result<Connection, Failure> {
        let spot = self.spot()?;
        let (note, admin) = spot.running_with_token().ok_or(Failure::NoDaemon { why: "none runs" })?;
        self.tell_version(&note);
        let unreachable = |why: &str| Failure::Unreachable { url: note.url.clone(), why: why.into() };
        let address = Address::near(&note.url).ok_or_else(|| unreachable("its address can't be read"))?;
        self.attach(&address, admin).map_err(|failure| match spot.running() {
            Some(now) if now == note => failure,
            // Another one may listen there by now, and has another token.
            _ => unreachable("it has ended"),
        })
    }

    fn attach(&self, address: &Address, admin: Option<String>) -> Result<Connection, Failure> {
        attach(address, &Tokens { admin, callers: self.callers.as_deref() })
    }

    fn spot(&self) -> Result<Spot, Failure> {
        Spot::of(self.found.file())
    }

    /// Says once that a daemon is of another version. It serves this client all the same.
    fn tell_version(&mut self, note: &Note) {
        let own = env!("CARGO_PKG_VERSION");
        if note.version == own || self.told_of.as_ref() == Some(&note.version) {
            return;
        }
        let then = match note.kind {
            Kind::Served => format!("start {} again to have version {own}", command("serve")),
            Kind::Lingering => {
                format!("{} ends it, and the next request starts version {own}", command("down"))
            }
        };
        tell(&format!(
            "warning: the daemon at {} (pid {}) is version {}, and this is version {own}\n  hint: {then}",
            note.url,
            note.pid,
            clean(&note.version)
        ));
        self.told_of = Some(note.version.clone());
    }

    /// Starts a daemon, unless one holds the config or is about to, or the last one that was started may still come up.
    fn start_if_needed(&mut self, last_start: &mut Option<Instant>) -> Result<(), Failure> {
        let spot = self.spot()?;
        if let Some(child) = &mut self.child {
            let Some(status) = child.try_wait().map_err(Failure::Machine)? else { return Ok(()) };
            self.child = None;
            if !status.success() && last_start.is_some() {
                let why = format!("it ended at once ({status})");
                return Err(Failure::Stillborn { why, last_words: last_words(&spot.log_file()) });
            }
        }
        if spot.is_taken() || last_start.is_some_and(|start| start.elapsed() < START_AGAIN) {
            return Ok(());
        }
        if let Found::File { file, origin: Origin::WorkingDirectory } = &self.found {
            // The daemon has no terminal and a log that few read: the client's side asks, and says what is missing.
            let Reading { config, problems, .. } = config_file::read(file.clone())?;
            trust::require(Origin::WorkingDirectory, file, &config_file::usable(file, config, &problems)?)?;
        }
        self.child = Some(launch(&self.found, &spot).map_err(Failure::Machine)?);
        *last_start = Some(Instant::now());
        Ok(())
    }

    /// Leaves no dead process behind of a daemon that was started here.
    fn reap(&mut self) {
        self.child.take_if(|child| !matches!(child.try_wait(), Ok(None)));
    }
}

/// The daemon: in a session of its own, and with nothing of the client's in its
/// hands that would keep the client from ending.
fn launch(found: &Found, spot: &Spot) -> io::Result<Child> {
    let config = found.file();
    let log = spot.open_log()?;
    if log.metadata()?.len() > LONGEST_LOG {
        log.set_len(0)?;
    }
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["serve", "--linger", LINGER]);
    // It serves others than this client, and hears of each what it comes through.
    command.env_remove(VIA_VARIABLE);
    match config {
        Some(file) => command.arg("--config").arg(file),
        None => command.arg("--builtin"),
    };
    if let Found::File { origin: Origin::WorkingDirectory, .. } = found {
        command.arg("--found");
    }
    // Where the client was started is its affair, and may be gone before the daemon is.
    command.current_dir(config.and_then(Path::parent).unwrap_or(Path::new("/")));
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()
}

/// The end of the log, for when nothing else tells what happened.
fn last_words(log: &Path) -> Vec<String> {
    let read = || -> io::Result<String> {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(LAST_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(LAST_BYTES).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let text = read().unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].iter().map(|line| (*line).to_owned()).collect()
}

//! Instance: the one daemon of a config on this machine, with its lock, record and state files.
//!
//! The files are named by a hash of the config's path:
//!
//! ```text
//! ~/.local/state/ostler/HASH-MACHINE.json   the record: which daemon runs, and its address
//!                       HASH-MACHINE.lock   locked by the daemon as long as it lives
//!                       HASH-MACHINE.next   locked by the `ostler serve` that serves or is about to
//! $XDG_STATE_HOME/ostler/HASH.token    the admin token; only its user may read it
//!                        HASH.tokens   the hashed tokens of callers; likewise
//!                        HASH.seal     the key that seals tokens handed to clients; likewise
//!                        HASH.budgets  the charges to budgets; likewise
//!                        HASH.reviewed definitions that `ostler diff` has shown
//!                        HASH.log      the log of a daemon without a terminal
//!                        HASH.relay.db    the journal of relay calls that were begun
//!                        HASH.audit.db    the audit, and HASH.audit.key the key of its hashes
//! ```
//!
//! Clients start `ostler stdio` with few variables, so lock and record lie in the home whatever `XDG_STATE_HOME` says,
//! and the record names the state directory. Machines may share a home, and each has its own loopback: hence MACHINE.
//!
//! The lock decides; the record is valid only while the lock is held. So the record of a killed daemon is ignored, and
//! of several daemons that start at once exactly one stays.

use std::fs::{self, File, TryLockError};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use ostler_store::private_file;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::failure::CommandFailure;
use crate::output::{escape_line, print_stderr};
use crate::token::store::TokenStore;
use crate::xdg;

/// Timeout of a daemon that takes its lock. A command that looks for a daemon holds the lock for some microseconds; a
/// process that holds it after this timeout is a daemon.
const LOCK_TIMEOUT: Duration = Duration::from_millis(300);
/// Timeout for a lock whose daemon has no record. A daemon that is starting publishes its record within it, and one
/// that is ending releases the lock.
const EXIT_TIMEOUT: Duration = Duration::from_secs(12);
/// Timeout of `ostler serve` after it has asked a daemon to hand over, whose calls may take 30 s.
const HANDOVER_TIMEOUT: Duration = Duration::from_secs(45);
/// Timeout of commands while one daemon replaces another, whose calls may take 30 s.
const REPLACEMENT_TIMEOUT: Duration = Duration::from_secs(35);
/// Waits longer than this are reported on stderr.
const SLOW_AFTER: Duration = Duration::from_secs(1);
/// Polling interval of the lock: short against [`LOCK_TIMEOUT`].
const LOCK_INTERVAL: Duration = Duration::from_millis(5);
/// The bits of a mode that let group and others write.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// Limit of what is read of the kernel's list of locks, which has some 60 bytes for each.
const MAX_LOCKS_BYTES: u64 = 4 << 20;
/// Limit of the record and of the token that are read.
const MAX_RECORD_BYTES: u64 = 64 << 10;

/// Instance of one config.
#[derive(Debug, Clone)]
pub(crate) struct DaemonInstance {
    name: String,
    /// Path of the config; `None` where it is not known.
    config: Option<PathBuf>,
    /// Directories for the record, best first: the daemon uses the first in which it can lock a file.
    dirs: Vec<PathBuf>,
    state_dir: PathBuf,
}

/// Record of a daemon, as it is on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DaemonRecord {
    /// Base URL, without a path.
    pub(crate) url: String,
    /// Process id.
    pub(crate) pid: u32,
    /// Version of the program.
    pub(crate) version: String,
    /// Path of the config; `None` for the built-in server.
    pub(crate) config: Option<PathBuf>,
    /// Start time in seconds since 1970.
    pub(crate) started: u64,
    /// Origin of the daemon: started by a user or for a client.
    #[serde(default)]
    pub(crate) kind: DaemonKind,
    /// State directory; `None` in records of earlier versions.
    #[serde(default)]
    pub(crate) state: Option<PathBuf>,
}

/// Who started a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "DaemonKind"))]
#[serde(rename_all = "kebab-case")]
pub(crate) enum DaemonKind {
    /// A person or a service manager, with `ostler serve`. It ends when it is told to.
    #[default]
    Served,
    /// A client, with `ostler stdio`. It ends by itself, and makes way for `ostler serve`.
    Lingering,
}

/// Right to be the daemon of a config. It ends with the process, however that ends; dropping it removes the record
/// first.
#[derive(Debug)]
pub(crate) struct InstanceClaim {
    instance: DaemonInstance,
    record: Arc<PublishedRecord>,
    _lock: File,
    /// Lock held by `ostler serve`, so that no client starts a daemon in its place.
    _next: File,
}

/// Record file of a daemon, from its start to its end.
#[derive(Debug)]
pub(crate) struct PublishedRecord {
    file: PathBuf,
    /// Content of the file; `None` before the daemon is up and once it ends.
    published: Mutex<Option<DaemonRecord>>,
}

impl PublishedRecord {
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    fn publish(&self, record: &DaemonRecord) -> io::Result<()> {
        let mut published = self.lock();
        private_file::replace_file(&self.file, &serde_json::to_vec(record)?)?;
        *published = Some(record.clone());
        Ok(())
    }

    /// Writes the file again if it is gone or does not lead to this daemon; returns whether it did.
    pub(crate) fn restore(&self) -> io::Result<bool> {
        let published = self.lock();
        let Some(record) = &*published else { return Ok(false) };
        let found = private_file::read_at_most(&self.file, MAX_RECORD_BYTES);
        let found: Option<DaemonRecord> = found.and_then(|text| serde_json::from_slice(&text).ok());
        if found.is_some_and(|found| found.pid == record.pid && found.url == record.url) {
            return Ok(false);
        }
        private_file::replace_file(&self.file, &serde_json::to_vec(record)?).map(|()| true)
    }

    fn withdraw(&self) {
        let mut published = self.lock();
        *published = None;
        let _ = fs::remove_file(&self.file);
    }

    /// Locks the record while the file is written, so that it is not restored after the daemon's end.
    fn lock(&self) -> MutexGuard<'_, Option<DaemonRecord>> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DaemonInstance {
    /// Returns the instance of a config, or of the built-in server.
    pub(crate) fn for_config(config: Option<&Path>) -> Result<Self, CommandFailure> {
        let homeless = || io::Error::new(io::ErrorKind::NotFound, "this user has no home directory");
        let state = xdg::state_dir().ok_or_else(homeless).map_err(CommandFailure::Machine)?;
        let mut spot = Self {
            name: instance_name(config),
            config: config.map(Path::to_owned),
            dirs: xdg::instance_dirs(),
            state_dir: state,
        };
        for folder in spot.dirs.iter().chain([&spot.state_dir]) {
            check_private(folder)?;
        }
        // The running daemon may have been started in another environment.
        if let Some(state) = spot.running().and_then(|note| note.state) {
            check_private(&state)?;
            spot.state_dir = state;
        }
        Ok(spot)
    }

    /// Returns an instance in the folder of a test.
    #[cfg(test)]
    pub(crate) fn in_test_dir(folder: &Path) -> Self {
        Self {
            name: "x".into(),
            config: None,
            dirs: vec![folder.join("run")],
            state_dir: folder.join("state"),
        }
    }

    /// Returns the record of the daemon that runs here, if one does.
    pub(crate) fn running(&self) -> Option<DaemonRecord> {
        self.dirs.iter().find_map(|place| self.running_in(place))
    }

    /// Waits while one daemon replaces another or ends, when there is no record, and returns the one that runs then.
    /// Reports a slow wait on stderr. Fails if a process still holds the config then: a second host of it must not be
    /// started.
    pub(crate) fn wait_until_settled(&self) -> Result<Option<DaemonRecord>, CommandFailure> {
        self.wait_until_settled_within(REPLACEMENT_TIMEOUT)
    }

    fn wait_until_settled_within(&self, timeout: Duration) -> Result<Option<DaemonRecord>, CommandFailure> {
        let (began, mut is_told) = (Instant::now(), false);
        loop {
            if let Some(note) = self.running() {
                return Ok(Some(note));
            }
            if !self.is_claimed() {
                return Ok(None);
            }
            let elapsed = began.elapsed();
            if elapsed >= timeout {
                return Err(CommandFailure::Unrecorded {
                    config: self.config.clone(),
                    pid: self.claim_holder(),
                });
            }
            if elapsed >= SLOW_AFTER && !is_told {
                let of = self
                    .config
                    .as_deref()
                    .map(|file| format!(" of {}", escape_line(&xdg::abbreviate_home(file))));
                let pid = self.claim_holder().map(|pid| format!(" (pid {pid})"));
                print_stderr(&format!(
                    "waiting: the daemon{}{} is being replaced or ends",
                    of.unwrap_or_default(),
                    pid.unwrap_or_default()
                ));
                is_told = true;
            }
            std::thread::sleep(LOCK_INTERVAL);
        }
    }

    /// Returns the running daemon with its admin token: its state directory may differ from that of the daemon before.
    pub(crate) fn running_with_token(&self) -> Option<(DaemonRecord, Option<String>)> {
        let note = self.running()?;
        let state = note.state.clone().filter(|state| check_private(state).is_ok());
        let spot = Self { state_dir: state.unwrap_or_else(|| self.state_dir.clone()), ..self.clone() };
        Some((note, spot.admin_token()))
    }

    /// Takes over the state directory of the running daemon.
    pub(crate) fn with_state_of(mut self, note: DaemonRecord) -> (Self, DaemonRecord) {
        if let Some(state) = note.state.as_ref().filter(|state| check_private(state).is_ok()) {
            self.state_dir.clone_from(state);
        }
        (self, note)
    }

    /// Returns whether a process is, or may be, the daemon of this instance. A daemon that ends has no record any more,
    /// and holds the lock until its servers are gone.
    pub(crate) fn is_held_by(&self, pid: u32) -> bool {
        let is_held = |place: &PathBuf| {
            let lock = File::open(self.lock_file(place)).and_then(|lock| is_locked(&lock));
            lock.unwrap_or(false) && self.running_in(place).is_none_or(|note| note.pid == pid)
        };
        self.dirs.iter().any(is_held)
    }

    /// Returns whether a process surely is the daemon of this instance: its record names it, and so does the kernel as
    /// the holder of the lock. False where the kernel does not tell.
    pub(crate) fn is_lock_holder(&self, pid: u32) -> bool {
        let is_holder = |place: &PathBuf| {
            let is_noted = self.running_in(place).is_some_and(|note| note.pid == pid);
            let inode = fs::metadata(self.lock_file(place)).map(|meta| meta.ino());
            is_noted && inode.is_ok_and(|inode| lock_holders(inode).contains(&pid))
        };
        self.dirs.iter().any(is_holder)
    }

    /// Returns whether a daemon runs, ends, or is about to start.
    pub(crate) fn is_claimed(&self) -> bool {
        let is_held = |file: PathBuf| File::open(file).and_then(|lock| is_locked(&lock)).unwrap_or(false);
        self.dirs.iter().any(|place| is_held(self.lock_file(place)) || is_held(self.handover_file(place)))
    }

    /// Returns the process that is the daemon or is about to become it, where the kernel tells.
    pub(crate) fn claim_holder(&self) -> Option<u32> {
        let files = self.dirs.iter().flat_map(|place| [self.lock_file(place), self.handover_file(place)]);
        let inodes = files.filter_map(|file| Some(fs::metadata(file).ok()?.ino()));
        inodes.flat_map(lock_holders).next()
    }

    fn running_in(&self, place: &Path) -> Option<DaemonRecord> {
        let text = crate::config_file::read_at_most(&self.record_file(place), MAX_RECORD_BYTES).ok()?;
        let note = serde_json::from_str(&text).ok()?;
        let lock = File::open(self.lock_file(place)).ok()?;
        is_locked(&lock).ok()?.then_some(note)
    }

    /// Becomes the daemon of this instance; `None` if there is one. A daemon that a client has started is asked to hand
    /// over to `ostler serve`.
    pub(crate) fn claim(
        &self,
        kind: DaemonKind,
        mut ask_to_make_way: impl FnMut(&DaemonRecord),
    ) -> Result<Option<InstanceClaim>, CommandFailure> {
        private_file::create_dir(&self.state_dir).map_err(CommandFailure::Machine)?;
        // Another user may have made it a moment ago.
        check_private(&self.state_dir)?;
        let mut refused = None;
        for place in &self.dirs {
            match private_file::create_dir(place) {
                Ok(()) => check_private(place)?,
                Err(why) => {
                    refused = Some((place, why));
                    continue;
                }
            }
            match self.claim_in(place, kind, &mut ask_to_make_way) {
                Ok(claim) => return Ok(claim),
                Err(why) => refused = Some((place, why)),
            }
        }
        let (place, why) = refused
            .map_or((&self.state_dir, "there is no place for it".to_owned()), |(place, why)| {
                (place, why.to_string())
            });
        Err(CommandFailure::CannotLock { folder: place.clone(), why })
    }

    fn claim_in(
        &self,
        place: &Path,
        kind: DaemonKind,
        ask_to_make_way: &mut dyn FnMut(&DaemonRecord),
    ) -> io::Result<Option<InstanceClaim>> {
        let open = |file: PathBuf| {
            private_file::open_options().read(true).write(true).create(true).truncate(false).open(file)
        };
        let (lock, next) = (open(self.lock_file(place))?, open(self.handover_file(place))?);
        let began = Instant::now();
        let (mut is_next, mut asked) = (false, None);
        loop {
            match kind {
                DaemonKind::Served => is_next = is_next || try_lock(&next)?,
                DaemonKind::Lingering if is_locked(&next)? => return Ok(None),
                DaemonKind::Lingering => {}
            }
            if (is_next || kind == DaemonKind::Lingering) && try_lock(&lock)? {
                // An `ostler serve` that started meanwhile has not asked for a handover yet, and finds the lock free.
                if kind == DaemonKind::Lingering && is_locked(&next)? {
                    return Ok(None);
                }
                break;
            }
            let patience = match self.running_in(place) {
                Some(note) if kind == DaemonKind::Served && note.kind == DaemonKind::Lingering => {
                    if is_next && asked != Some(note.pid) {
                        asked = Some(note.pid);
                        ask_to_make_way(&note);
                    }
                    HANDOVER_TIMEOUT
                }
                Some(_) => LOCK_TIMEOUT,
                None if asked.is_some() => HANDOVER_TIMEOUT,
                None => EXIT_TIMEOUT,
            };
            if began.elapsed() >= patience {
                return Ok(None);
            }
            std::thread::sleep(LOCK_INTERVAL);
        }
        // A killed daemon leaves its record behind.
        let file = self.record_file(place);
        let _ = fs::remove_file(&file);
        let record = Arc::new(PublishedRecord { file, published: Mutex::default() });
        Ok(Some(InstanceClaim { instance: self.clone(), record, _lock: lock, _next: next }))
    }

    /// Returns the admin token, if there is one.
    pub(crate) fn admin_token(&self) -> Option<String> {
        let text = crate::config_file::read_at_most(&self.token_file(), MAX_RECORD_BYTES).ok()?;
        Some(text.trim().to_owned()).filter(|token| !token.is_empty())
    }

    /// Returns the log file of a daemon without a terminal.
    pub(crate) fn log_file(&self) -> PathBuf {
        self.state_dir.join(format!("{}.log", self.name))
    }

    /// Opens the log file, truncated.
    pub(crate) fn open_log(&self) -> io::Result<File> {
        private_file::create_dir(&self.state_dir)?;
        private_file::open_options().append(true).create(true).open(self.log_file())
    }

    /// Returns the store of the callers' tokens.
    pub(crate) fn token_store(&self) -> TokenStore {
        TokenStore::new(self.state_dir.join(format!("{}.tokens", self.name)))
    }

    /// Returns the file of the audit.
    pub(crate) fn audit_file(&self) -> PathBuf {
        self.state_dir.join(format!("{}.audit.db", self.name))
    }

    /// Returns the file of the relay journal.
    pub(crate) fn relay_file(&self) -> PathBuf {
        self.state_dir.join(format!("{}.relay.db", self.name))
    }

    /// Returns the file of the definitions that `ostler diff` has shown.
    pub(crate) fn reviewed_file(&self) -> PathBuf {
        self.state_dir.join(format!("{}.reviewed", self.name))
    }

    /// Returns the file with the key of the audit's hashes.
    pub(crate) fn audit_key_file(&self) -> PathBuf {
        self.state_dir.join(format!("{}.audit.key", self.name))
    }

    /// Returns the state directory.
    pub(crate) fn state_dir(&self) -> &Path {
        &self.state_dir
    }

    fn record_file(&self, place: &Path) -> PathBuf {
        place.join(format!("{}{}.json", self.name, machine_suffix()))
    }

    fn lock_file(&self, place: &Path) -> PathBuf {
        place.join(format!("{}{}.lock", self.name, machine_suffix()))
    }

    fn handover_file(&self, place: &Path) -> PathBuf {
        place.join(format!("{}{}.next", self.name, machine_suffix()))
    }

    fn token_file(&self) -> PathBuf {
        self.state_dir.join(format!("{}.token", self.name))
    }
}

/// Returns every instance of this user on this machine that has a daemon, or is about to have one.
pub(crate) fn all_claimed() -> Vec<DaemonInstance> {
    let Some(state) = xdg::state_dir() else { return Vec::new() };
    let places = xdg::instance_dirs();
    let end = format!("{}.lock", machine_suffix());
    let named = |entry: fs::DirEntry| {
        let name = entry.file_name().to_str()?.strip_suffix(&end)?.to_owned();
        (!name.contains('-')).then_some(name)
    };
    let private = places.iter().filter(|place| check_private(place).is_ok());
    let names = private.filter_map(|place| fs::read_dir(place).ok()).flatten().flatten().filter_map(named);
    // Sorts and removes duplicates.
    let names: std::collections::BTreeSet<String> = names.collect();
    let spot = |name| DaemonInstance { name, config: None, dirs: places.clone(), state_dir: state.clone() };
    names.into_iter().map(spot).filter(DaemonInstance::is_claimed).collect()
}

/// Returns every daemon of this user on this machine, with its instance.
pub(crate) fn all_running() -> Vec<(DaemonInstance, DaemonRecord)> {
    all_claimed().into_iter().filter_map(|spot| spot.running().map(|note| spot.with_state_of(note))).collect()
}

/// Returns the same once daemons that replace others run; a failure for each that can't be found.
pub(crate) fn all_settled() -> Vec<Result<(DaemonInstance, DaemonRecord), CommandFailure>> {
    let settled = |spot: DaemonInstance| match spot.wait_until_settled() {
        Ok(note) => note.map(|note| Ok(spot.with_state_of(note))),
        Err(failure) => Some(Err(failure)),
    };
    all_claimed().into_iter().filter_map(settled).collect()
}

/// Returns the daemon, of whichever config, that listens on an address.
pub(crate) fn daemon_at(address: SocketAddr) -> Option<DaemonRecord> {
    let url = local_url(address);
    all_running().into_iter().map(|(_, note)| note).find(|note| note.url == url)
}

/// Returns the URL at which processes of this machine reach an address.
pub(crate) fn local_url(mut address: SocketAddr) -> String {
    // A daemon that listens on all addresses is reached over loopback.
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    format!("http://{address}")
}

impl InstanceClaim {
    /// Returns the store of the callers' tokens.
    pub(crate) fn token_store(&self) -> TokenStore {
        self.instance.token_store()
    }

    /// Writes the record.
    pub(crate) fn publish(&self, note: &DaemonRecord) -> io::Result<()> {
        self.record.publish(note)
    }

    /// Removes the record and keeps the lock.
    pub(crate) fn unpublish(&self) {
        self.record.withdraw();
    }

    /// Returns the record that [`publish`](Self::publish) writes.
    pub(crate) fn record(&self) -> &Arc<PublishedRecord> {
        &self.record
    }

    /// Returns the claimed instance.
    pub(crate) fn instance(&self) -> &DaemonInstance {
        &self.instance
    }

    /// Returns the admin token of this instance, the same over restarts; creates it if there is none.
    pub(crate) fn admin_token(&self) -> io::Result<String> {
        if let Some(token) = self.instance.admin_token() {
            return Ok(token);
        }
        let token = hex(&random()?);
        private_file::replace_file(&self.instance.token_file(), token.as_bytes())?;
        Ok(token)
    }

    /// Returns the file in which charges to budgets survive restarts.
    pub(crate) fn budget_file(&self) -> PathBuf {
        self.instance.state_dir.join(format!("{}.budgets", self.instance.name))
    }

    /// Returns the key that seals tokens handed to clients, the same over restarts. Creates it if there is none, or
    /// none that is valid.
    pub(crate) fn seal_key(&self) -> io::Result<[u8; 32]> {
        let file = self.instance.state_dir.join(format!("{}.seal", self.instance.name));
        let kept = crate::config_file::read_at_most(&file, MAX_RECORD_BYTES).ok();
        if let Some(key) = kept.and_then(|text| crate::token::decode_hex_32(text.trim())) {
            return Ok(key);
        }
        let key = random()?;
        private_file::replace_file(&file, hex(&key).as_bytes())?;
        Ok(key)
    }
}

impl Drop for InstanceClaim {
    fn drop(&mut self) {
        self.unpublish();
    }
}

/// Refuses a folder that other users own or can write to: they could name another daemon in it, and read what is kept
/// there. A folder that does not exist passes; it is made private.
fn check_private(folder: &Path) -> Result<(), CommandFailure> {
    let unsafe_because = |why: String| CommandFailure::UnsafeFolder { folder: folder.to_owned(), why };
    let found = match fs::symlink_metadata(folder) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(unsafe_because(error.to_string())),
    };
    let (own, mode) = (nix::unistd::geteuid().as_raw(), found.mode() & 0o7777);
    if !found.is_dir() {
        let is = if found.is_symlink() { "a symbolic link" } else { "no directory" };
        Err(unsafe_because(format!("it is {is}")))
    } else if found.uid() != own {
        Err(unsafe_because(format!("it belongs to user {}, and this is user {own}", found.uid())))
    } else if mode & WRITABLE_BY_OTHERS != 0 {
        Err(unsafe_because(format!("other users may write to it (mode {mode:03o})")))
    } else {
        Ok(())
    }
}

/// Locks a file for this process alone; returns false if another process holds the lock.
fn try_lock(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Returns whether a process has locked a file for itself.
fn is_locked(file: &File) -> io::Result<bool> {
    match file.try_lock_shared() {
        Ok(()) => file.unlock().map(|()| false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Returns the processes that hold a whole-file lock of a file with this inode. The device is not compared: some file
/// systems report another one here than to `stat`.
fn lock_holders(inode: u64) -> Vec<u32> {
    // `1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF`; a process that waits has `->` behind the number.
    let holder = |line: &str| {
        let mut words = line.split_ascii_whitespace().skip(1);
        words.next().filter(|kind| *kind == "FLOCK")?;
        let (pid, file) = (words.nth(2)?, words.next()?);
        let is_same = file.rsplit(':').next()?.parse() == Ok(inode);
        pid.parse().ok().filter(|_| is_same)
    };
    let text =
        crate::config_file::read_at_most(Path::new("/proc/locks"), MAX_LOCKS_BYTES).unwrap_or_default();
    text.lines().filter_map(holder).collect()
}

/// Returns a suffix that distinguishes machines that share a home; empty where the machine has no id.
fn machine_suffix() -> &'static str {
    static MACHINE: OnceLock<String> = OnceLock::new();
    MACHINE.get_or_init(|| {
        let id = crate::config_file::read_at_most(Path::new("/etc/machine-id"), MAX_RECORD_BYTES);
        let id = id.ok().map(|id| id.trim().to_owned()).filter(|id| !id.is_empty());
        id.map(|id| format!("-{}", hex(&Sha256::digest(id)[..4]))).unwrap_or_default()
    })
}

/// Returns a hash of the config's path: paths have any length and alphabet.
fn instance_name(config: Option<&Path>) -> String {
    let Some(config) = config else { return "none".into() };
    // A file that is gone still has a folder.
    let in_folder = || Some(config.parent()?.canonicalize().ok()?.join(config.file_name()?));
    let absolute = || std::path::absolute(config).unwrap_or_else(|_| config.to_owned());
    let canonical = config.canonicalize().ok().or_else(in_folder).unwrap_or_else(absolute);
    hex(&Sha256::digest(canonical.as_os_str().as_encoded_bytes())[..8])
}

/// Returns 32 random bytes for a secret.
pub(crate) fn random() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(bytes)
}

/// Returns bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(nibble.into(), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spot(folder: &Path) -> DaemonInstance {
        DaemonInstance::in_test_dir(folder)
    }

    fn note() -> DaemonRecord {
        DaemonRecord {
            url: "http://127.0.0.1:1".into(),
            pid: 1,
            version: "0.1.0".into(),
            config: None,
            started: 1,
            kind: DaemonKind::Served,
            state: None,
        }
    }

    #[test]
    fn one_daemon_at_a_time_is_found_where_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let spot = spot(folder.path());
        assert_eq!(spot.running(), None);
        let claim = spot.claim(DaemonKind::Served, |_| {}).unwrap().unwrap();
        claim.publish(&note()).unwrap();
        assert!(spot.claim(DaemonKind::Served, |_| {}).unwrap().is_none());
        assert_eq!(spot.running(), Some(note()));
        drop(claim);
        assert_eq!(spot.running(), None);
        assert!(spot.claim(DaemonKind::Served, |_| {}).unwrap().is_some());
    }

    #[test]
    fn a_daemon_that_ends_is_not_found_and_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let spot = spot(folder.path());
        let claim = spot.claim(DaemonKind::Served, |_| {}).unwrap().unwrap();
        claim.publish(&note()).unwrap();
        claim.unpublish();
        assert_eq!(spot.running(), None);
        let (send, claimed) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| send.send(spot.claim(DaemonKind::Served, |_| {}).unwrap().is_some()).unwrap());
            let early = claimed.recv_timeout(2 * LOCK_TIMEOUT);
            assert!(early.is_err(), "{early:?}");
            drop(claim);
            assert_eq!(claimed.recv(), Ok(true));
        });
    }

    #[test]
    fn a_record_that_is_lost_is_written_again_until_the_daemon_ends() {
        let folder = tempfile::tempdir().unwrap();
        let spot = spot(folder.path());
        let claim = spot.claim(DaemonKind::Served, |_| {}).unwrap().unwrap();
        let record = Arc::clone(claim.record());
        assert!(!record.restore().unwrap(), "nothing is said before the daemon is up");
        claim.publish(&note()).unwrap();
        assert!(!record.restore().unwrap());
        for lose in [|file: &Path| fs::remove_file(file), |file: &Path| fs::write(file, "{}")] {
            lose(record.file()).unwrap();
            assert_eq!(spot.running(), None);
            assert!(record.restore().unwrap());
            assert_eq!(spot.running(), Some(note()));
        }
        claim.unpublish();
        assert!(!record.restore().unwrap());
        assert_eq!(spot.running(), None);
    }

    #[test]
    fn a_lock_without_a_record_is_told_with_its_holder_and_never_taken_for_no_daemon() {
        let folder = tempfile::tempdir().unwrap();
        let spot = spot(folder.path());
        assert!(matches!(spot.wait_until_settled_within(Duration::ZERO), Ok(None)));
        let claim = spot.claim(DaemonKind::Served, |_| {}).unwrap().unwrap();
        let failure = spot.wait_until_settled_within(Duration::ZERO).unwrap_err();
        let own = std::process::id();
        assert!(
            matches!(failure, CommandFailure::Unrecorded { pid: Some(pid), .. } if pid == own),
            "{failure:?}"
        );
        claim.publish(&note()).unwrap();
        assert_eq!(spot.wait_until_settled_within(Duration::ZERO).unwrap(), Some(note()));
    }

    #[test]
    fn the_note_of_a_killed_daemon_misleads_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let spot = spot(folder.path());
        let claim = spot.claim(DaemonKind::Served, |_| {}).unwrap().unwrap();
        claim.publish(&note()).unwrap();
        let text = fs::read(spot.record_file(&spot.dirs[0])).unwrap();
        drop(claim);
        fs::write(spot.record_file(&spot.dirs[0]), text).unwrap();
        assert_eq!(spot.running(), None);
        let _claim = spot.claim(DaemonKind::Served, |_| {}).unwrap().unwrap();
        assert!(!spot.record_file(&spot.dirs[0]).exists());
    }

    #[test]
    fn the_holder_of_the_lock_is_the_process_that_note_and_kernel_name() {
        let folder = tempfile::tempdir().unwrap();
        let spot = spot(folder.path());
        let (own, other) = (std::process::id(), std::os::unix::process::parent_id());
        assert!(!spot.is_lock_holder(own), "there is no lock");
        let claim = spot.claim(DaemonKind::Served, |_| {}).unwrap().unwrap();
        assert!(!spot.is_lock_holder(own), "there is no note");
        for noted in [own, other] {
            let note = serde_json::json!({
                "url": "http://127.0.0.1:1", "pid": noted, "version": "0.1.0", "config": null, "started": 1
            });
            fs::write(spot.record_file(&spot.dirs[0]), note.to_string()).unwrap();
            assert_eq!(spot.is_lock_holder(own), noted == own);
            assert!(!spot.is_lock_holder(other), "the kernel names another one");
        }
        drop(claim);
        assert!(!spot.is_lock_holder(own));
    }

    #[test]
    fn the_token_stays_the_same_and_is_nobody_elses_to_read() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let spot = spot(folder.path());
        let claim = spot.claim(DaemonKind::Served, |_| {}).unwrap().unwrap();
        let token = claim.admin_token().unwrap();
        assert_eq!(token.len(), 64);
        assert_eq!(claim.admin_token().unwrap(), token);
        assert_eq!(spot.admin_token(), Some(token));
        assert_eq!(fs::metadata(spot.token_file()).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn the_key_stays_the_same_unless_it_is_spoilt_and_is_nobody_elses_to_read() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let spot = spot(folder.path());
        let claim = spot.claim(DaemonKind::Served, |_| {}).unwrap().unwrap();
        let key = claim.seal_key().unwrap();
        assert_eq!(claim.seal_key().unwrap(), key);
        let file = spot.state_dir.join("x.seal");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        for spoilt in ["", "00", &"+1".repeat(32), &"é".repeat(32)] {
            fs::write(&file, spoilt).unwrap();
            let other = claim.seal_key().unwrap();
            assert_ne!(other, key);
            assert_eq!(claim.seal_key().unwrap(), other, "{spoilt:?}");
        }
    }

    #[test]
    fn a_folder_that_other_users_can_write_to_or_have_made_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join("state");
        let why = || match check_private(&at) {
            Ok(()) => String::new(),
            Err(CommandFailure::UnsafeFolder { folder, why }) => {
                assert_eq!(folder, at);
                why
            }
            Err(other) => panic!("{other}"),
        };
        assert_eq!(why(), "", "there is none");
        private_file::create_dir(&at).unwrap();
        assert_eq!(why(), "");
        for mode in [0o770, 0o707, 0o777, 0o1777] {
            fs::set_permissions(&at, PermissionsExt::from_mode(mode)).unwrap();
            assert!(why().contains("other users may write"), "{mode:o}: {}", why());
            assert!(spot(folder.path()).claim(DaemonKind::Served, |_| {}).is_err(), "{mode:o}");
        }
        fs::set_permissions(&at, PermissionsExt::from_mode(0o755)).unwrap();
        assert_eq!(why(), "");
        if nix::unistd::geteuid().is_root() {
            std::os::unix::fs::chown(&at, Some(65_534), None).unwrap();
            assert_eq!(why(), "it belongs to user 65534, and this is user 0");
        }
        fs::remove_dir(&at).unwrap();
        std::os::unix::fs::symlink(folder.path(), &at).unwrap();
        assert_eq!(why(), "it is a symbolic link");
        fs::remove_file(&at).unwrap();
        fs::write(&at, "").unwrap();
        assert_eq!(why(), "it is no directory");
    }

    #[test]
    fn a_config_has_one_spot_however_it_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.toml");
        fs::write(&file, "").unwrap();
        fs::create_dir(folder.path().join("sub")).unwrap();
        assert_eq!(instance_name(Some(&file)), instance_name(Some(&folder.path().join("sub/../a.toml"))));
        assert_ne!(instance_name(Some(&file)), instance_name(Some(&folder.path().join("b.toml"))));
        let link = folder.path().join("link.toml");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(instance_name(Some(&file)), instance_name(Some(&link)));
        let open = File::open(&file).unwrap();
        let by_number = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&open));
        assert_eq!(instance_name(Some(&file)), instance_name(Some(Path::new(&by_number))));
        let before = instance_name(Some(&file));
        fs::remove_file(&file).unwrap();
        assert_eq!(before, instance_name(Some(&folder.path().join("sub/../a.toml"))), "it is gone");
        assert_eq!(instance_name(None), "none");
    }

    #[test]
    fn a_place_that_can_not_be_made_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), "").unwrap();
        let mut spot = spot(folder.path());
        spot.dirs.insert(0, folder.path().join("file/below"));
        let claim = spot.claim(DaemonKind::Served, |_| {}).unwrap().unwrap();
        claim.publish(&note()).unwrap();
        assert_eq!(spot.running(), Some(note()));
        drop(claim);
        spot.dirs.pop();
        let refused = spot.claim(DaemonKind::Served, |_| {}).unwrap_err();
        assert!(matches!(refused, CommandFailure::CannotLock { .. }), "{refused}");
    }

    #[test]
    fn a_daemon_of_a_client_makes_way_for_one_that_is_served_and_not_the_other_way() {
        let folder = tempfile::tempdir().unwrap();
        let spot = spot(folder.path());
        let old = spot.claim(DaemonKind::Lingering, |_| {}).unwrap().unwrap();
        old.publish(&DaemonRecord { kind: DaemonKind::Lingering, ..note() }).unwrap();
        let mut old = Some(old);
        let served = spot.claim(DaemonKind::Served, |note| {
            assert_eq!(note.kind, DaemonKind::Lingering);
            // While the next `ostler serve` waits, no client claims the instance.
            assert!(spot.claim(DaemonKind::Lingering, |_| {}).unwrap().is_none());
            old = None;
        });
        let served = served.unwrap().unwrap();
        served.publish(&note()).unwrap();
        let asked = |_: &DaemonRecord| panic!("one that a person started is not asked");
        assert!(spot.claim(DaemonKind::Lingering, asked).unwrap().is_none());
        assert!(spot.claim(DaemonKind::Served, asked).unwrap().is_none());
    }
}

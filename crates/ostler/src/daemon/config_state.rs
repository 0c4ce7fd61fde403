//! Config as it is applied: its servers, its lock, and the outcome of the last change.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ostler_core::config::{Config, Problem};
use ostler_core::error::CallError;
use ostler_core::pins::{LockFile, PinHash};
use ostler_core::server_name::ServerName;
use ostler_core::spec::ServerSpec;
use ostler_host::Snapshot;

use crate::api::{LockChange, Reload, ReloadOutcome};
use crate::config_file::{ConfigOrigin, UsableConfig};
use crate::file_stamp::FileStamps;
use crate::pins::lock_context::lock_hash;
use crate::pins::lock_file::KnownLock;
use crate::pins::{LockFileError, LockFileResult};

/// Config as it is applied.
#[derive(Debug)]
pub(super) struct ConfigState {
    /// Main file; `None` for the built-in server.
    pub(super) file: Option<PathBuf>,
    /// Origin of the file.
    pub(super) origin: ConfigOrigin,
    /// Address to listen on in place of the config's.
    pub(super) listens: Option<SocketAddr>,
    /// Config that the host was created with: keys that can't change are compared with it.
    pub(super) startup_config: Config,
    inner: Mutex<ConfigStateInner>,
    /// Held while a config is applied, so that two edits are not applied at once.
    pub(super) apply_mutex: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct ConfigStateInner {
    /// Config that was applied last.
    config: Config,
    /// Its warnings.
    problems: Vec<Problem>,
    /// Eager servers that have neither come up nor failed yet.
    pending_starts: BTreeSet<ServerName>,
    /// Eager servers that have settled since all had; with an error for each that failed.
    finished_starts: Vec<StartResult>,
    /// Files that the config was last read from, whatever the outcome.
    stamps: FileStamps,
    /// Lock file in force.
    lock: Option<HashedLock>,
    /// Reason why the lock file on disk can't be used.
    broken_lock: Option<LockFileError>,
    /// Lock file on disk that differs and waits for an operator: its hash, or `None` if the file is gone.
    pending_lock: Option<Option<PinHash>>,
    last_reload: Option<Reload>,
    /// Number of changes that have begun.
    reloads: u64,
}

/// Lock and its hash.
#[derive(Debug)]
struct HashedLock {
    lock: Arc<LockFile>,
    hash: PinHash,
}

impl HashedLock {
    fn new(lock: Arc<LockFile>) -> Self {
        Self { hash: lock_hash(&lock), lock }
    }
}

/// Eager server and the failure of its start.
pub(super) type StartResult = (ServerName, Option<CallError>);

impl ConfigState {
    /// Returns the state before any server is registered.
    pub(super) fn new(chosen: UsableConfig) -> Self {
        let UsableConfig { file, origin, config, mut problems, stamps, lock, listens } = chosen;
        problems.extend(config.shared_state_warnings());
        let book = ConfigStateInner {
            config: config.clone(),
            problems,
            pending_starts: BTreeSet::new(),
            finished_starts: Vec::new(),
            stamps,
            lock: lock.map(HashedLock::new),
            broken_lock: None,
            pending_lock: None,
            last_reload: None,
            reloads: 0,
        };
        let (inner, apply_mutex) = (Mutex::new(book), tokio::sync::Mutex::default());
        Self { file, origin, listens, startup_config: config, inner, apply_mutex }
    }

    /// Returns the servers of the config, in its order.
    pub(super) fn specs(&self) -> Vec<ServerSpec> {
        self.lock_inner().config.servers.clone()
    }

    /// Returns the names of the servers, in the order of the config.
    pub(super) fn names(&self) -> Vec<ServerName> {
        self.lock_inner().config.servers.iter().map(|spec| spec.name.clone()).collect()
    }

    /// Returns the names of all servers, disabled ones at the end.
    pub(super) fn known_names(&self) -> Vec<ServerName> {
        let book = self.lock_inner();
        let disabled = book.config.disabled.iter().map(|disabled| &disabled.spec);
        book.config.servers.iter().chain(disabled).map(|spec| spec.name.clone()).collect()
    }

    /// Returns the number of eager servers that have neither come up nor failed yet.
    pub(super) fn pending_starts(&self) -> usize {
        self.lock_inner().pending_starts.len()
    }

    /// Returns the files that the config was last read from.
    pub(super) fn stamps(&self) -> FileStamps {
        self.lock_inner().stamps.clone()
    }

    /// Sets the files that the config was read from.
    pub(super) fn set_stamps(&self, stamps: FileStamps) {
        self.lock_inner().stamps = stamps;
    }

    /// Returns whether an edit applies by itself.
    pub(super) fn is_watched(&self) -> bool {
        self.lock_inner().config.watch
    }

    /// Returns the snapshot of a config, or of the one that is applied, with the lock in force.
    pub(super) fn snapshot(&self, config: Option<&Config>) -> Snapshot {
        let book = self.lock_inner();
        Snapshot::from_config(config.unwrap_or(&book.config), book.lock.as_ref().map(|held| &held.lock))
    }

    /// Calls a function with the lock file in force and the error of the one on disk.
    pub(super) fn with_lock<T>(
        &self,
        look: impl FnOnce(Option<&LockFile>, Option<&LockFileError>) -> T,
    ) -> T {
        let book = self.lock_inner();
        look(book.lock.as_ref().map(|held| &*held.lock), book.broken_lock.as_ref())
    }

    /// Returns the hash of the lock file in force.
    pub(super) fn lock_hash(&self) -> Option<PinHash> {
        self.lock_inner().lock.as_ref().map(|held| held.hash)
    }

    /// Returns the lock file in force, if it is the one on disk as it was last read.
    pub(super) fn known_lock(&self) -> Option<KnownLock> {
        let book = self.lock_inner();
        let held =
            book.lock.as_ref().filter(|_| book.broken_lock.is_none() && book.pending_lock.is_none())?;
        Some(KnownLock { lock: Arc::clone(&held.lock), stamps: book.stamps.clone() })
    }

    /// Takes up the lock file that has been read. One that can't be used leaves the one before in force.
    pub(super) fn set_lock(&self, locked: LockFileResult) -> LockChange {
        let locked = locked.map(|lock| lock.map(HashedLock::new));
        let mut book = self.lock_inner();
        match locked {
            Ok(lock) => {
                let change = match (&book.lock, &lock) {
                    (Some(_), None) => LockChange::Gone,
                    (None, None) => LockChange::Unchanged,
                    (Some(before), Some(now)) if before.hash == now.hash => LockChange::Unchanged,
                    _ => LockChange::TakenUp,
                };
                (book.lock, book.broken_lock, book.pending_lock) = (lock, None, None);
                change
            }
            Err(broken) => {
                book.broken_lock = Some(broken);
                LockChange::Unusable
            }
        }
    }

    /// Notes a lock file on disk that is read and not taken up. Returns whether its difference from the one in force is
    /// new.
    pub(super) fn set_lock_on_disk(&self, lock: Option<&Arc<LockFile>>) -> bool {
        let mut book = self.lock_inner();
        book.broken_lock = None;
        // Hashed only if it was read again: hashing serializes all of it.
        let found = lock.map(|lock| match &book.lock {
            Some(held) if Arc::ptr_eq(&held.lock, lock) => held.hash,
            _ => lock_hash(lock),
        });
        let pending = (book.lock.as_ref().map(|held| held.hash) != found).then_some(found);
        let is_news = pending.is_some() && book.pending_lock != pending;
        book.pending_lock = pending;
        is_news
    }

    /// Returns whether the lock file on disk differs from the one in force.
    pub(super) fn is_lock_pending(&self) -> bool {
        self.lock_inner().pending_lock.is_some()
    }

    /// Returns the names of servers without `pins = "off"`.
    pub(super) fn pinned_names(&self) -> Vec<ServerName> {
        let book = self.lock_inner();
        book.config.servers.iter().filter(|spec| spec.is_pinned).map(|spec| spec.name.clone()).collect()
    }

    /// Calls a function with the config, its warnings and its last change.
    pub(super) fn with_config<T>(&self, look: impl FnOnce(&Config, &[Problem], Option<&Reload>) -> T) -> T {
        let book = self.lock_inner();
        look(&book.config, &book.problems, book.last_reload.as_ref())
    }

    /// Removes a server from the pending starts.
    pub(super) fn remove_server(&self, server: &ServerName) {
        let mut book = self.lock_inner();
        book.pending_starts.remove(server);
    }

    /// Adds a server to the pending starts.
    pub(super) fn add_pending_start(&self, server: &ServerName) {
        self.lock_inner().pending_starts.insert(server.clone());
    }

    /// Records that a server has come up or failed. Returns all settled servers once none is pending.
    pub(super) fn finish_start(
        &self,
        server: &ServerName,
        failure: Option<CallError>,
    ) -> Option<Vec<StartResult>> {
        let mut book = self.lock_inner();
        if book.pending_starts.remove(server) {
            book.finished_starts.push((server.clone(), failure));
        }
        let is_last = book.pending_starts.is_empty() && !book.finished_starts.is_empty();
        is_last.then(|| std::mem::take(&mut book.finished_starts))
    }

    /// Sets the config that is applied.
    pub(super) fn set_config(&self, config: Config, mut problems: Vec<Problem>) {
        problems.extend(config.shared_state_warnings());
        let mut book = self.lock_inner();
        (book.config, book.problems) = (config, problems);
    }

    /// Records the outcome of a change.
    pub(super) fn set_last_reload(&self, number: u64, outcome: ReloadOutcome) -> Reload {
        let reload = Reload::now(outcome);
        let mut inner = self.lock_inner();
        // A change that has waited for servers may not be the last any more.
        if number == inner.reloads {
            inner.last_reload = Some(reload.clone());
        }
        reload
    }

    /// Returns the number of the next change.
    pub(super) fn next_reload(&self) -> u64 {
        let mut inner = self.lock_inner();
        inner.reloads += 1;
        inner.reloads
    }

    fn lock_inner(&self) -> MutexGuard<'_, ConfigStateInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! The config as it is applied: which servers there are, and what became of
//! the last change.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ostler_core::config::{Config, Problem};
use ostler_core::error::CallError;
use ostler_core::name::ServerName;
use ostler_core::pins::{Hash, Lock};
use ostler_core::spec::ServerSpec;
use ostler_host::Snapshot;

use crate::api::{LockChange, Outcome, Reload};
use crate::config_file::{Chosen, Origin};
use crate::pins::desk::hash_of;
use crate::pins::{Broken, Locked};
use crate::stamps::Stamps;

/// The config as it is applied.
#[derive(Debug)]
pub(super) struct Roster {
    /// The main file; none for the built-in server.
    pub(super) file: Option<PathBuf>,
    /// How it was found.
    pub(super) origin: Origin,
    /// Where the daemon listens, if not where the config says.
    pub(super) listens: Option<SocketAddr>,
    /// What the host was made with: keys that can't change are compared with it.
    pub(super) started_with: Config,
    book: Mutex<Book>,
    /// Held while a config is applied, so that two edits are not applied at once.
    pub(super) turn: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Book {
    /// The config that was applied last.
    config: Config,
    /// Its warnings.
    problems: Vec<Problem>,
    /// Servers that should be up and have neither come up nor failed yet.
    unsettled: BTreeSet<ServerName>,
    /// Those that have settled since all had; an error for each that failed.
    settled: Vec<Settled>,
    /// The files that the config was last read from, whatever came of it.
    stamps: Stamps,
    /// The lock file that is in force.
    lock: Option<Lock>,
    /// Why the one on disk is not.
    broken_lock: Option<Broken>,
    /// The lock file on disk, where it is another one and waits for an operator; its hash, or none if it is gone.
    pending_lock: Option<Option<Hash>>,
    last: Option<Reload>,
}

/// A server that should be up, and why it is not.
pub(super) type Settled = (ServerName, Option<CallError>);

impl Roster {
    /// Nothing is hosted yet.
    pub(super) fn new(chosen: Chosen) -> Self {
        let Chosen { file, origin, config, mut problems, stamps, lock, listens } = chosen;
        problems.extend(config.shared_state());
        let book = Book {
            config: config.clone(),
            problems,
            unsettled: BTreeSet::new(),
            settled: Vec::new(),
            stamps,
            lock,
            broken_lock: None,
            pending_lock: None,
            last: None,
        };
        let (book, turn) = (Mutex::new(book), tokio::sync::Mutex::default());
        Self { file, origin, listens, started_with: config, book, turn }
    }

    /// The servers of the config, in its order.
    pub(super) fn specs(&self) -> Vec<ServerSpec> {
        self.book().config.servers.clone()
    }

    /// The names of the servers, in the order of the config.
    pub(super) fn names(&self) -> Vec<ServerName> {
        self.book().config.servers.iter().map(|spec| spec.name.clone()).collect()
    }

    /// The names of all servers, those that are disabled at the end.
    pub(super) fn known_names(&self) -> Vec<ServerName> {
        let book = self.book();
        let disabled = book.config.disabled.iter().map(|disabled| &disabled.spec);
        book.config.servers.iter().chain(disabled).map(|spec| spec.name.clone()).collect()
    }

    /// How many servers should be up and have neither come up nor failed yet.
    pub(super) fn unsettled(&self) -> usize {
        self.book().unsettled.len()
    }

    /// The files that the config was last read from.
    pub(super) fn stamps(&self) -> Stamps {
        self.book().stamps.clone()
    }

    /// The config has been read from these files.
    pub(super) fn note_read(&self, stamps: Stamps) {
        self.book().stamps = stamps;
    }

    /// Whether an edit applies by itself.
    pub(super) fn is_watched(&self) -> bool {
        self.book().config.watch
    }

    /// Returns what the host is to be by a config, or by the one that is applied, and by the lock that is in force.
    pub(super) fn snapshot(&self, config: Option<&Config>) -> Snapshot {
        let book = self.book();
        Snapshot::of(config.unwrap_or(&book.config), book.lock.as_ref())
    }

    /// The lock file that is in force, and why the one on disk is not.
    pub(super) fn with_lock<T>(&self, look: impl FnOnce(Option<&Lock>, Option<&Broken>) -> T) -> T {
        let book = self.book();
        look(book.lock.as_ref(), book.broken_lock.as_ref())
    }

    /// Takes up the lock file that has been read. One that can't be used leaves the one before in force.
    pub(super) fn note_lock(&self, locked: Locked) -> LockChange {
        let mut book = self.book();
        match locked {
            Ok(lock) => {
                let change = match (&book.lock, &lock) {
                    (Some(_), None) => LockChange::Gone,
                    (before, now) if before.as_ref().map(hash_of) == now.as_ref().map(hash_of) => {
                        LockChange::Unchanged
                    }
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

    /// The lock file on disk has been read and is not taken up. Whether it is news that it is another one.
    pub(super) fn note_lock_on_disk(&self, lock: Option<&Lock>) -> bool {
        let mut book = self.book();
        book.broken_lock = None;
        let found = lock.map(hash_of);
        let pending = (book.lock.as_ref().map(hash_of) != found).then_some(found);
        let is_news = pending.is_some() && book.pending_lock != pending;
        book.pending_lock = pending;
        is_news
    }

    /// Whether the lock file on disk is another one than the one in force.
    pub(super) fn is_lock_pending(&self) -> bool {
        self.book().pending_lock.is_some()
    }

    /// Names of servers without `pins = "off"`.
    pub(super) fn pinned_names(&self) -> Vec<ServerName> {
        let book = self.book();
        book.config.servers.iter().filter(|spec| spec.is_pinned).map(|spec| spec.name.clone()).collect()
    }

    /// What the config says, without its text: warnings, and the last change.
    pub(super) fn with_config<T>(&self, look: impl FnOnce(&Config, &[Problem], Option<&Reload>) -> T) -> T {
        let book = self.book();
        look(&book.config, &book.problems, book.last.as_ref())
    }

    /// A server is gone.
    pub(super) fn note_removed(&self, server: &ServerName) {
        let mut book = self.book();
        book.unsettled.remove(server);
    }

    /// A server should come up now.
    pub(super) fn note_starting(&self, server: &ServerName) {
        self.book().unsettled.insert(server.clone());
    }

    /// It has come up, or has failed to. Once no other is on its way, gives all that have settled.
    pub(super) fn note_settled(
        &self,
        server: &ServerName,
        failure: Option<CallError>,
    ) -> Option<Vec<Settled>> {
        let mut book = self.book();
        if book.unsettled.remove(server) {
            book.settled.push((server.clone(), failure));
        }
        let is_last = book.unsettled.is_empty() && !book.settled.is_empty();
        is_last.then(|| std::mem::take(&mut book.settled))
    }

    /// Another config holds from now on.
    pub(super) fn adopt(&self, config: Config, mut problems: Vec<Problem>) {
        problems.extend(config.shared_state());
        let mut book = self.book();
        (book.config, book.problems) = (config, problems);
    }

    /// Remembers what became of a change.
    pub(super) fn conclude(&self, outcome: Outcome) -> Reload {
        let reload = Reload::now(outcome);
        self.book().last = Some(reload.clone());
        reload
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

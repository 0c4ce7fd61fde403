//! Watcher of the config's files: an edit applies by itself.
//!
//! Editors write in many ways: in place, by renaming a new file, by retargeting a symbolic link. Therefore directories
//! are watched, for events that name one of the files or a part of a link to them, and the stamps of the files decide
//! whether they have changed.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode, EventKind};
use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::Daemon;
use super::apply::ReloadCause;
use crate::file_stamp::FileStamps;
use crate::invocation::command;
use crate::output::print_timed;

/// Time without events before the files are read: an editor that writes in steps is not read in the middle of one.
const DEBOUNCE: Duration = Duration::from_millis(200);
/// Upper bound on that wait: a file that changes all the time is read anyway.
const MAX_DEBOUNCE: Duration = Duration::from_secs(2);

/// Applies edits for as long as the daemon runs.
pub(super) async fn run(daemon: Arc<Daemon>) {
    let bell = Arc::new(Notify::new());
    let Some(mut eyes) = ConfigWatcher::open(Arc::clone(&bell)) else { return };
    // An unreadable file is tried again after its next change.
    let mut tried = FileStamps::default();
    loop {
        let read = daemon.config_state.stamps();
        eyes.watch_files(&read);
        let now = read.refreshed();
        if now != read && now != tried && daemon.config_state.is_watched() {
            tried = now;
            daemon.reload(ReloadCause::File).await;
            continue;
        }
        bell.notified().await;
        // Every further event restarts the wait.
        let quiet = async { while timeout(DEBOUNCE, bell.notified()).await.is_ok() {} };
        let _ = timeout(MAX_DEBOUNCE, quiet).await;
    }
}

/// Subscription to events of directories.
struct ConfigWatcher {
    watcher: RecommendedWatcher,
    folders: BTreeSet<PathBuf>,
    names: WatchedNames,
}

/// Relevant names, shared with the thread that receives events. Paths would not do: one file has several.
#[derive(Debug, Clone, Default)]
struct WatchedNames(Arc<Mutex<BTreeSet<OsString>>>);

impl WatchedNames {
    fn set(&self, names: BTreeSet<OsString>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = names;
    }

    /// Returns whether an event may be a change of the files. An event without a name says that events were lost.
    fn is_relevant(&self, event: &Event) -> bool {
        let names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = |path: &PathBuf| path.file_name().is_none_or(|name| names.contains(name));
        is_change(event.kind) && (event.paths.is_empty() || event.paths.iter().any(is_known))
    }
}

impl ConfigWatcher {
    fn open(bell: Arc<Notify>) -> Option<Self> {
        let names = WatchedNames::default();
        let heard = names.clone();
        let on_event = move |event: notify::Result<Event>| {
            if event.map_or(true, |event| heard.is_relevant(&event)) {
                bell.notify_one();
            }
        };
        match notify::recommended_watcher(on_event) {
            Ok(watcher) => Some(Self { watcher, folders: BTreeSet::new(), names }),
            Err(error) => {
                warn_unwatched(&error);
                None
            }
        }
    }

    fn watch_files(&mut self, stamps: &FileStamps) {
        let wanted = stamps.dirs();
        // A change of a directory itself shows by its own name.
        let folders = wanted.iter().filter_map(|folder| folder.file_name().map(OsString::from));
        self.names.set(stamps.names().into_iter().chain(folders).collect());
        for folder in self.folders.difference(&wanted) {
            // A removed directory is not watched any more anyway.
            let _ = self.watcher.unwatch(folder);
        }
        self.folders = wanted
            .into_iter()
            .filter(|folder| {
                if self.folders.contains(folder) {
                    return true;
                }
                let watched = self.watcher.watch(folder, RecursiveMode::NonRecursive);
                watched.inspect_err(warn_unwatched).is_ok()
            })
            .collect();
    }
}

/// Returns whether an event changes a file; reading does not.
fn is_change(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => true,
        EventKind::Access(_) => false,
        _ => true,
    }
}

fn warn_unwatched(error: &notify::Error) {
    print_timed(&format!(
        "warning: the config can't be watched: {error}\n  hint: after an edit, run {} or send SIGHUP",
        command("reload")
    ));
}

#[cfg(test)]
mod tests {
    use notify::event::{CreateKind, ModifyKind};

    use super::*;

    #[test]
    fn what_happens_beside_the_files_is_nobodys_concern() {
        let names = WatchedNames::default();
        names.set(BTreeSet::from(["ostler.toml".into()]));
        let event = |kind, path: &str| Event::new(kind).add_path(path.into());
        let (write, create) = (EventKind::Modify(ModifyKind::Any), EventKind::Create(CreateKind::File));
        assert!(names.is_relevant(&event(write, "/a/ostler.toml")));
        assert!(names.is_relevant(&event(write, "/a/.ostler.toml.swp").add_path("/a/ostler.toml".into())));
        assert!(names.is_relevant(&Event::new(EventKind::Other)));
        assert!(!names.is_relevant(&event(write, "/a/app.log")));
        assert!(!names.is_relevant(&event(create, "/a/4913")));
        assert!(!names.is_relevant(&event(EventKind::Access(AccessKind::Read), "/a/ostler.toml")));
    }
}

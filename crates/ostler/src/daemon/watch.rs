//! Watching the config: an edit applies by itself.
//!
//! Editors write in many ways: in place, beside and renamed, through a symbolic
//! link that is turned. What is watched is therefore the directories, and what
//! counts is whether the files are still the ones that were read.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use notify::event::{AccessKind, AccessMode, EventKind};
use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;

use super::Daemon;
use crate::output::tell;
use crate::stamps::Stamps;

/// How long the files must have been left alone before they are read: an
/// editor that writes in steps is not read in the middle of one.
const QUIET: Duration = Duration::from_millis(200);

/// Applies edits for as long as the daemon runs.
pub(super) async fn run(daemon: Arc<Daemon>) {
    let bell = Arc::new(Notify::new());
    let Some(mut eyes) = Eyes::open(Arc::clone(&bell)) else { return };
    // What can't be read is tried again when it has changed again, not before.
    let mut tried = Stamps::default();
    loop {
        let read = daemon.roster.stamps();
        eyes.look_at(&read);
        let now = read.renewed();
        if now != read && now != tried && daemon.roster.is_watched() {
            tried = now;
            daemon.reload().await;
            continue;
        }
        bell.notified().await;
        // Every further event begins the wait anew.
        while tokio::time::timeout(QUIET, bell.notified()).await.is_ok() {}
    }
}

/// The operating system's eyes on directories.
struct Eyes {
    watcher: RecommendedWatcher,
    folders: BTreeSet<PathBuf>,
}

impl Eyes {
    fn open(bell: Arc<Notify>) -> Option<Self> {
        let on_event = move |event: notify::Result<Event>| {
            if event.map_or(true, |event| is_change(event.kind)) {
                bell.notify_one();
            }
        };
        match notify::recommended_watcher(on_event) {
            Ok(watcher) => Some(Self { watcher, folders: BTreeSet::new() }),
            Err(error) => {
                say_blind(&error);
                None
            }
        }
    }

    fn look_at(&mut self, stamps: &Stamps) {
        let wanted = stamps.folders();
        for folder in self.folders.difference(&wanted) {
            // One that is gone is not watched any more anyway.
            let _ = self.watcher.unwatch(folder);
        }
        self.folders = wanted
            .into_iter()
            .filter(|folder| {
                if self.folders.contains(folder) {
                    return true;
                }
                let watched = self.watcher.watch(folder, RecursiveMode::NonRecursive);
                watched.inspect_err(say_blind).is_ok()
            })
            .collect();
    }
}

/// Reading a file is no change of it.
fn is_change(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => true,
        EventKind::Access(_) => false,
        _ => true,
    }
}

fn say_blind(error: &notify::Error) {
    tell(&format!(
        "warning: the config can't be watched: {error}\n  hint: after an edit, run `ostler reload` or send SIGHUP"
    ));
}

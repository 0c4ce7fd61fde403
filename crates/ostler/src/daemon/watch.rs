//! Watching the config: an edit applies by itself.
//!
//! Editors write in many ways: in place, beside and renamed, through a symbolic
//! link that is turned. What is watched is therefore the directories, and what
//! counts is whether the files are still the ones that were read.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::event::{AccessKind, AccessMode, EventKind};
use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;

use super::Daemon;
use crate::output::tell;

/// How long the files must have been left alone before they are read: an
/// editor that writes in steps is not read in the middle of one.
const QUIET: Duration = Duration::from_millis(200);

/// Applies edits for as long as the daemon runs.
pub(super) async fn run(daemon: Arc<Daemon>) {
    let bell = Arc::new(Notify::new());
    let Some(mut eyes) = Eyes::open(Arc::clone(&bell)) else { return };
    let mut seen = Stamps::of(&daemon.roster.files());
    eyes.look_at(&seen);
    loop {
        bell.notified().await;
        // Every further event begins the wait anew.
        while tokio::time::timeout(QUIET, bell.notified()).await.is_ok() {}
        let now = Stamps::of(&daemon.roster.files());
        if now == seen || !daemon.roster.is_watched() {
            continue;
        }
        daemon.reload().await;
        seen = Stamps::of(&daemon.roster.files());
        // What was written while it was read is seen by the next event, or by this.
        if !now.agrees_with(&seen) {
            bell.notify_one();
            seen = now;
        }
        eyes.look_at(&seen);
    }
}

/// Which files there are, by what the file system says of them.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stamps(BTreeMap<PathBuf, Option<Stamp>>);

/// Size, time and number: no two writes leave all three the same.
type Stamp = (u64, i64, i64, u64);

impl Stamps {
    fn of(files: &[PathBuf]) -> Self {
        let stamp = |file: &PathBuf| {
            let meta = fs::metadata(file).ok()?;
            Some((meta.size(), meta.mtime(), meta.mtime_nsec(), meta.ino()))
        };
        Self(files.iter().map(|file| (file.clone(), stamp(file))).collect())
    }

    /// Whether files that are in both are the same in both.
    fn agrees_with(&self, other: &Self) -> bool {
        self.0.iter().all(|(file, stamp)| other.0.get(file).is_none_or(|other| other == stamp))
    }

    /// The directories in which a change of them shows; of a link, both ends.
    fn folders(&self) -> BTreeSet<PathBuf> {
        let ends = self.0.keys().flat_map(|file| [Some(file.clone()), file.canonicalize().ok()]);
        ends.flatten().filter_map(|file| file.parent().map(Path::to_owned)).collect()
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

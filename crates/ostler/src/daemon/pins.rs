//! The lock file, while the daemon runs.

use std::sync::Arc;

use super::Daemon;
use crate::api::LockChange;
use crate::failure::Failure;
use crate::invocation::command;
use crate::output::{Style, tell};
use crate::pins::desk::hash_of;
use crate::pins::{self, Broken, Locked};
use crate::stamps::Stamps;

impl Daemon {
    /// Takes up the lock file on disk; with a hash only if it is that one. Whether it was.
    pub(super) async fn reload_pins(self: &Arc<Self>, wanted: Option<&str>) -> Result<bool, Broken> {
        let _turn = self.roster.turn.lock().await;
        let Some(file) = self.roster.file.clone() else { return Ok(true) };
        let read = move || pins::file::read(&file, &mut Stamps::default());
        let locked = match tokio::task::spawn_blocking(read).await {
            Ok(locked) => locked,
            // The daemon is ending, and nothing is pinned or unpinned by that.
            Err(_) => return Ok(true),
        };
        let outcome = locked.as_ref().map(|_| true).map_err(Clone::clone);
        let found = locked.as_ref().ok().and_then(Option::as_ref).map(|lock| hash_of(lock).to_string());
        if wanted.is_some_and(|wanted| found.as_deref() != Some(wanted)) {
            self.hold_lock(locked);
            return Ok(false);
        }
        self.take_lock(locked);
        self.apply_config().await;
        outcome
    }

    /// Leaves the lock that is in force as it is, and tells if the one on disk is another. The processes of servers
    /// can write that file, so only an operator's request takes it up.
    pub(super) fn hold_lock(&self, locked: Locked) {
        match locked {
            Err(broken) => {
                self.take_lock(Err(broken));
            }
            Ok(lock) => {
                if self.roster.note_lock_on_disk(lock.as_ref()) {
                    tell(&format!(
                        "warning: the lock file has changed on disk, and is not taken up\n  hint: look at the change; then \
                         {} takes it up",
                        command("reload")
                    ));
                    self.note_config("pins-changed-on-disk", "it was not taken up");
                }
            }
        }
    }

    /// Takes what a lock file says, to be put in force with the next snapshot. With one that can't be used, what was
    /// approved before stays approved, and nothing else is.
    pub(super) fn take_lock(&self, locked: Locked) -> LockChange {
        if let Err(broken) = &locked {
            tell(&Failure::from(broken.clone()).render(Style::stderr()));
            tell("what was approved before stays in force");
        }
        let change = self.roster.note_lock(locked);
        if change == LockChange::Gone {
            tell("warning: the lock file is gone, so no tool is pinned any more");
        }
        change
    }
}

//! The lock file, while the daemon runs.

use std::sync::Arc;

use super::Daemon;
use crate::failure::Failure;
use crate::output::{Style, tell};
use crate::pins::{self, Broken, Locked};
use crate::stamps::Stamps;

impl Daemon {
    /// Reads the lock file again.
    pub(super) async fn reload_pins(self: &Arc<Self>) -> Result<(), Broken> {
        let _turn = self.roster.turn.lock().await;
        let Some(file) = self.roster.file.clone() else { return Ok(()) };
        let read = move || pins::file::read(&file, &mut Stamps::default());
        let locked = match tokio::task::spawn_blocking(read).await {
            Ok(locked) => locked,
            // The daemon is ending, and nothing is pinned or unpinned by that.
            Err(_) => return Ok(()),
        };
        let outcome = locked.as_ref().map(drop).map_err(Clone::clone);
        self.take_lock(locked);
        outcome
    }

    /// Takes what a lock file says. With one that can't be used, what was
    /// approved before stays approved, and nothing else is.
    pub(super) fn take_lock(&self, locked: Locked) {
        if let Err(broken) = &locked {
            tell(&Failure::from(broken.clone()).render(Style::stderr()));
            tell("what was approved before stays in force");
        }
        if self.roster.note_lock(locked) {
            tell("warning: ostler.lock is gone, so no tool is pinned any more");
        }
        self.host.set_pins(self.roster.pins());
    }
}

//! Lock file of a running daemon.

use std::sync::Arc;

use super::Daemon;
use crate::api::LockChange;
use crate::audit::{AuditedAction, AuditedActor};
use crate::failure::CommandFailure;
use crate::file_stamp::FileStamps;
use crate::invocation::command;
use crate::output::{Style, Tint};
use crate::pins::lock_context::lock_hash;
use crate::pins::{self, LockFileError, LockFileResult};

impl Daemon {
    /// Takes up the lock file on disk; with a hash only if it has that hash. Returns whether it was taken up.
    pub(super) async fn reload_pins(self: &Arc<Self>, wanted: Option<&str>) -> Result<bool, LockFileError> {
        let turn = self.config_state.apply_mutex.lock().await;
        let Some(file) = self.config_state.file.clone() else { return Ok(true) };
        let read = move || pins::lock_file::read(&file, &mut FileStamps::default(), None);
        let locked = match tokio::task::spawn_blocking(read).await {
            Ok(locked) => locked,
            // The daemon is shutting down, and pins do not matter any more.
            Err(_) => return Ok(true),
        };
        let outcome = locked.as_ref().map(|_| true).map_err(Clone::clone);
        let found = locked.as_ref().ok().and_then(Option::as_ref).map(|lock| lock_hash(lock).to_string());
        if wanted.is_some_and(|wanted| found.as_deref() != Some(wanted)) {
            self.ignore_lock(locked);
            return Ok(false);
        }
        self.apply_lock(locked);
        self.apply_config(turn).await;
        outcome
    }

    /// Keeps the lock in force, and reports if the one on disk differs. The processes of servers can write that file,
    /// so only an operator's request takes it up.
    pub(super) fn ignore_lock(&self, locked: LockFileResult) {
        match locked {
            Err(broken) => {
                self.apply_lock(Err(broken));
            }
            Ok(lock) => {
                if self.config_state.set_lock_on_disk(lock.as_ref()) {
                    self.console.write_line(Tint::Plain, &format!(
                        "warning: the lock file has changed on disk, and is not taken up\n  hint: look at the change; then \
                         {} takes it up",
                        command("reload")
                    ));
                    if let Some(audit) = &self.audit {
                        audit.record_action(&AuditedAction {
                            action: "pins-changed-on-disk",
                            detail: "it was not taken up",
                            actor: AuditedActor::Unknown,
                            ..AuditedAction::default()
                        });
                    }
                }
            }
        }
    }

    /// Takes up a lock file, in force with the next snapshot. If it can't be used, the definitions that were approved
    /// before stay approved, and no others are.
    pub(super) fn apply_lock(&self, locked: LockFileResult) -> LockChange {
        if let Err(broken) = &locked {
            self.console
                .write_line(Tint::Plain, &CommandFailure::from(broken.clone()).render(Style::stderr()));
            self.console.write_line(Tint::Plain, "what was approved before stays in force");
        }
        let change = self.config_state.set_lock(locked);
        if change == LockChange::Gone {
            self.console
                .write_line(Tint::Plain, "warning: the lock file is gone, so no tool is pinned any more");
        }
        change
    }
}

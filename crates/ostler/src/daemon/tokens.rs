//! Maintenance of tokens while the daemon runs: polls the token file and the daemon's record.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use ostler_host::Caller;
use tokio::time::MissedTickBehavior;

use super::Daemon;
use crate::auth::Authenticator;
use crate::file_stamp::FileStamps;
use crate::invocation::command;
use crate::output::Tint;

/// Interval of the check for expired tokens and for a changed file: no session outlives its token by more.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Interval in which last uses of tokens are saved: a crash loses at most this.
const SAVE_INTERVAL: Duration = Duration::from_secs(60);

/// Timeout of the last save at the shutdown.
const SAVE_TIMEOUT: Duration = Duration::from_secs(1);

impl Daemon {
    /// Saves the last uses of tokens before the daemon ends.
    pub(super) async fn save_last_uses(&self) {
        let keeper = Arc::clone(&self.authenticator);
        let kept = tokio::task::spawn_blocking(move || keeper.save_uses());
        let _ = tokio::time::timeout(SAVE_TIMEOUT, kept).await;
    }

    /// Reads the tokens again, and ends the sessions of removed ones. Returns the number of tokens.
    pub(super) async fn reload_tokens(self: &Arc<Self>) -> io::Result<usize> {
        let daemon = Arc::clone(self);
        let read =
            tokio::task::spawn_blocking(move || daemon.authenticator.reload(|gone| daemon.end_callers(gone)))
                .await;
        read.map_err(io::Error::other).flatten().inspect_err(|error| {
            self.console.write_line(Tint::Plain, &describe_unreadable(&self.authenticator, error))
        })?;
        Ok(self.authenticator.count())
    }

    /// Restores the daemon's record if it was removed. Runs in the background: tokens expire even if the disk hangs.
    fn restore_record(self: &Arc<Self>) {
        let daemon = Arc::clone(self);
        drop(tokio::task::spawn_blocking(move || {
            let file = daemon.published.file().display();
            match daemon.published.restore() {
                Ok(true) => daemon.console.write_line(
                    Tint::Warning,
                    &format!("warning: the record of this daemon was lost, and is written again: {file}"),
                ),
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, "the record of this daemon is lost: {file}"),
            }
        }));
    }

    fn end_callers(&self, gone: &[Caller]) {
        if gone.is_empty() {
            return;
        }
        self.gateway.end_sessions_of(|caller| gone.iter().any(|gone| gone.principal() == caller.principal()));
        gone.iter().for_each(|caller| self.host.end_caller(caller));
    }
}

/// Maintains credentials for as long as the daemon runs.
pub(super) async fn run(daemon: Arc<Daemon>) {
    tokio::join!(daemon.authenticator.refresh_keys(), check_periodically(&daemon));
}

async fn check_periodically(daemon: &Arc<Daemon>) {
    let mut seen = FileStamps::default();
    seen.add(daemon.authenticator.store().file());
    let mut recorded = FileStamps::default();
    recorded.add(daemon.published.file());
    // They may have changed since the start, before this task could end sessions.
    let _ = daemon.reload_tokens().await;
    let mut ticks = tokio::time::interval(CHECK_INTERVAL);
    // After the machine slept one check is enough.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut next_keep = tokio::time::Instant::now() + SAVE_INTERVAL;
    loop {
        ticks.tick().await;
        if tokio::time::Instant::now() >= next_keep {
            next_keep += SAVE_INTERVAL;
            let keeper = Arc::clone(&daemon.authenticator);
            // In the background: tokens expire even if the disk hangs.
            drop(tokio::task::spawn_blocking(move || keeper.save_uses()));
        }
        daemon.end_callers(&daemon.authenticator.expire());
        let now = recorded.refreshed();
        if now != recorded {
            recorded = now;
            daemon.restore_record();
        }
        let now = seen.refreshed();
        if now != seen {
            seen = now;
            // The failure has been printed.
            let _ = daemon.reload_tokens().await;
        }
    }
}

/// Describes unreadable tokens, and which ones are in force meanwhile.
pub(super) fn describe_unreadable(keeper: &Authenticator, error: &io::Error) -> String {
    format!(
        "error: the tokens in {} can't be read, so those from before stay\n  cause: {error}\n  hint: mend the file, \
         or move it away and make new tokens with {}",
        keeper.store().file().display(),
        command("token create")
    )
}

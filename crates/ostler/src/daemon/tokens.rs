//! Tokens that come, go and expire while the daemon runs.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::MissedTickBehavior;

use super::Daemon;
use crate::auth::Keeper;
use crate::invocation::command;
use crate::output::tell;
use crate::stamps::Stamps;

/// How often it is looked whether a token has expired, or the file has
/// changed without anybody saying so: nothing outlives its token by more.
const EVERY: Duration = Duration::from_secs(1);

/// How often it is written down when tokens were last used: what a crash may lose.
const KEEP_USES: Duration = Duration::from_secs(60);

/// How long that may take when the daemon ends.
const LAST_USES: Duration = Duration::from_secs(1);

impl Daemon {
    /// Writes down when tokens were last used, before the daemon ends.
    pub(super) async fn keep_last_uses(&self) {
        let keeper = Arc::clone(&self.keeper);
        let kept = tokio::task::spawn_blocking(move || keeper.keep_uses());
        let _ = tokio::time::timeout(LAST_USES, kept).await;
    }

    /// Reads the tokens again, and ends what was begun with those that are
    /// gone; how many there are now.
    pub(super) async fn reload_tokens(&self) -> io::Result<usize> {
        let keeper = Arc::clone(&self.keeper);
        let read = tokio::task::spawn_blocking(move || keeper.reload()).await;
        let gone = read
            .map_err(io::Error::other)
            .flatten()
            .inspect_err(|error| say_unreadable(&self.keeper, error))?;
        self.end(&gone);
        Ok(self.keeper.count())
    }

    fn end(&self, principals: &[String]) {
        if !principals.is_empty() {
            self.gateway.end_callers(|caller| principals.iter().any(|gone| gone == caller.principal()));
        }
    }
}

/// Keeps credentials as they are for as long as the daemon runs.
pub(super) async fn run(daemon: Arc<Daemon>) {
    tokio::join!(daemon.keeper.refresh_keys(), tick(&daemon));
}

async fn tick(daemon: &Daemon) {
    let mut seen = Stamps::default();
    seen.add(daemon.keeper.store().file());
    // They may have changed since the start, when nobody knew whom to tell.
    let _ = daemon.reload_tokens().await;
    let mut ticks = tokio::time::interval(EVERY);
    // After a machine has slept one look is enough.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut next_keep = tokio::time::Instant::now() + KEEP_USES;
    loop {
        ticks.tick().await;
        if tokio::time::Instant::now() >= next_keep {
            next_keep += KEEP_USES;
            let keeper = Arc::clone(&daemon.keeper);
            // Not waited for: tokens expire though the disk hangs.
            drop(tokio::task::spawn_blocking(move || keeper.keep_uses()));
        }
        daemon.end(&daemon.keeper.expire());
        let now = seen.renewed();
        if now != seen {
            seen = now;
            // What is wrong with it has been said.
            let _ = daemon.reload_tokens().await;
        }
    }
}

/// Says that tokens can't be read, and what holds meanwhile.
pub(super) fn say_unreadable(keeper: &Keeper, error: &io::Error) {
    tell(&format!(
        "error: the tokens in {} can't be read, so those from before stay\n  cause: {error}\n  hint: mend the file, \
         or move it away and make new tokens with {}",
        keeper.store().file().display(),
        command("token create")
    ));
}

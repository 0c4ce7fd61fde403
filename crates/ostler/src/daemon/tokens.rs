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

impl Daemon {
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
    loop {
        ticks.tick().await;
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

//! Harm to the daemon itself.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use nix::sys::signal::Signal;
use ostler_chaos::history::{Event, Occasion};
use ostler_testkit::Proc;
use tokio::task::JoinError;
use tokio::time::{Instant, sleep};

use super::servers::is_guard;
use super::{Act, Nemesis};
use crate::run::record::{Recorder, now};
use crate::run::world::family;

/// After this long nothing of a daemon may be left.
const GONE_AFTER: Duration = Duration::from_secs(6);

/// Between two looks at what is left.
const LOOK: Duration = Duration::from_millis(50);

impl Nemesis {
    /// Half of the time another one starts at once, beside what the guards still clear away.
    pub(super) async fn kill_daemon(&mut self) -> anyhow::Result<()> {
        let is_prompt = self.rng.bool();
        self.recorder.act(Act::KillDaemon.name(), "daemon", true);
        let (members, mark) = (self.daemon.family()?.members(), self.daemon.mark());
        self.daemon.kill().await?;
        let census = census_later(Arc::clone(&self.recorder), members, mark);
        if is_prompt {
            while let Some(taken) = self.censuses.try_join_next() {
                self.note_census(taken);
            }
            self.censuses.spawn(census);
        } else {
            census.await;
        }
        self.daemon.start_again().await?;
        self.recorder.act(Act::KillDaemon.name(), "daemon", false);
        Ok(())
    }

    pub(super) async fn freeze_daemon(&mut self) -> anyhow::Result<()> {
        let (daemon, lasts) = (self.daemon.family()?.head(), self.millis(100..2_500));
        daemon.signal(Signal::SIGSTOP);
        self.spell(Act::FreezeDaemon, "daemon", lasts).await;
        daemon.signal(Signal::SIGCONT);
        Ok(())
    }

    /// Guards go on without it, and the daemon needs another one for the next server.
    pub(super) fn kill_warden(&mut self) -> anyhow::Result<()> {
        let daemon = self.daemon.family()?.head();
        let is_warden = |proc: &Proc| proc.parent() == Some(daemon) && is_guard(*proc);
        let Some(warden) = daemon.descendants().into_iter().find(is_warden) else { return Ok(()) };
        self.recorder.act(Act::KillWarden.name(), "daemon", true);
        warden.kill();
        self.recorder.act(Act::KillWarden.name(), "daemon", false);
        Ok(())
    }

    pub(super) async fn end_daemon(&mut self) -> anyhow::Result<()> {
        self.recorder.act(Act::EndDaemon.name(), "daemon", true);
        let ended = self.end_in_order().await;
        self.daemon.start_again().await?;
        self.recorder.act(Act::EndDaemon.name(), "daemon", false);
        ended
    }

    /// Ends the daemon for good or to be started again. The census follows when nothing is left,
    /// which is moments later, or when that is overdue.
    pub(crate) async fn end_in_order(&mut self) -> anyhow::Result<()> {
        let (members, mark) = (self.daemon.family()?.members(), self.daemon.mark());
        let status = self.daemon.end().await?;
        let due = Instant::now() + GONE_AFTER;
        while Instant::now() < due && !family::left(&members, &mark).is_empty() {
            sleep(LOOK).await;
        }
        take(&self.recorder, &members, &mark);
        ensure!(status.success(), "the daemon exits with {status} after SIGTERM");
        Ok(())
    }

    /// Every daemon that was killed has had its census when this returns.
    pub(crate) async fn finish_censuses(&mut self) {
        while let Some(taken) = self.censuses.join_next().await {
            self.note_census(taken);
        }
    }

    fn note_census(&mut self, taken: Result<(), JoinError>) {
        if let Err(error) = taken {
            self.mishaps.push(format!("a census was not taken: {error}"));
        }
    }
}

async fn census_later(recorder: Arc<Recorder>, members: HashSet<Proc>, mark: String) {
    sleep(GONE_AFTER).await;
    take(&recorder, &members, &mark);
}

fn take(recorder: &Recorder, members: &HashSet<Proc>, mark: &str) {
    let processes = family::left(members, mark);
    // Once they are on record they need not outlive the run as well.
    processes.iter().filter_map(|seen| Proc::of(seen.pid)).for_each(Proc::kill);
    recorder.add(&Event::Census { at: now(), occasion: Occasion::Over, processes });
}

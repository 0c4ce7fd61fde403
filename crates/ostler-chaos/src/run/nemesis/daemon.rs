//! Harm to the daemon itself.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use nix::sys::signal::Signal;
use ostler_chaos::history::{HistoryEvent, Occasion};
use ostler_testkit::Proc;
use tokio::task::JoinError;
use tokio::time::{Instant, sleep};

use super::servers::is_guard;
use super::{Act, Nemesis};
use crate::run::environment::daemon_processes;
use crate::run::history_writer::{HistoryWriter, now};

/// After this long nothing of a daemon may be left.
const GONE_AFTER: Duration = Duration::from_secs(6);

/// Between two looks at what is left.
const SURVIVOR_POLL_INTERVAL: Duration = Duration::from_millis(50);

impl Nemesis {
    /// Half of the time another one starts at once, beside what the guards still clear away.
    pub(super) async fn kill_daemon(&mut self) -> anyhow::Result<()> {
        let is_prompt = self.rng.bool();
        self.recorder.record_act(Act::KillDaemon.name(), "daemon", true);
        let (members, mark) = (self.daemon.processes()?.members(), self.daemon.mark());
        self.daemon.kill().await?;
        let census = take_census_later(Arc::clone(&self.recorder), members, mark);
        if is_prompt {
            while let Some(taken) = self.censuses.try_join_next() {
                self.note_census(taken);
            }
            self.censuses.spawn(census);
        } else {
            census.await;
        }
        self.daemon.restart().await?;
        self.recorder.record_act(Act::KillDaemon.name(), "daemon", false);
        Ok(())
    }

    pub(super) async fn freeze_daemon(&mut self) -> anyhow::Result<()> {
        let (daemon, lasts) = (self.daemon.processes()?.daemon(), self.millis(100..2_500));
        daemon.signal(Signal::SIGSTOP);
        self.act_lasting(Act::FreezeDaemon, "daemon", lasts).await;
        daemon.signal(Signal::SIGCONT);
        Ok(())
    }

    /// Guards go on without it, and the daemon needs another one for the next server.
    pub(super) fn kill_warden(&mut self) -> anyhow::Result<()> {
        let daemon = self.daemon.processes()?.daemon();
        let is_warden = |proc: &Proc| proc.parent() == Some(daemon) && is_guard(*proc);
        let Some(warden) = daemon.descendants().into_iter().find(is_warden) else { return Ok(()) };
        self.recorder.record_act(Act::KillWarden.name(), "daemon", true);
        warden.kill();
        self.recorder.record_act(Act::KillWarden.name(), "daemon", false);
        Ok(())
    }

    pub(super) async fn end_daemon(&mut self) -> anyhow::Result<()> {
        self.recorder.record_act(Act::EndDaemon.name(), "daemon", true);
        let ended = self.stop_daemon().await;
        self.daemon.restart().await?;
        self.recorder.record_act(Act::EndDaemon.name(), "daemon", false);
        ended
    }

    /// Ends the daemon for good or to be started again. The census follows when nothing is left,
    /// which is moments later, or when that is overdue.
    pub(crate) async fn stop_daemon(&mut self) -> anyhow::Result<()> {
        let (members, mark) = (self.daemon.processes()?.members(), self.daemon.mark());
        let status = self.daemon.stop().await?;
        let due = Instant::now() + GONE_AFTER;
        while Instant::now() < due && !daemon_processes::survivors(&members, &mark).is_empty() {
            sleep(SURVIVOR_POLL_INTERVAL).await;
        }
        record_census(&self.recorder, &members, &mark);
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

async fn take_census_later(recorder: Arc<HistoryWriter>, members: HashSet<Proc>, mark: String) {
    sleep(GONE_AFTER).await;
    record_census(&recorder, &members, &mark);
}

fn record_census(recorder: &HistoryWriter, members: &HashSet<Proc>, mark: &str) {
    let processes = daemon_processes::survivors(members, mark);
    // Once they are on record they need not outlive the run as well.
    processes.iter().filter_map(|seen| Proc::find(seen.pid)).for_each(Proc::kill);
    recorder.record(&HistoryEvent::Census { at: now(), occasion: Occasion::Over, processes });
}

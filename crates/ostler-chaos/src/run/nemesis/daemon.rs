//! Acts on the daemon: kills, freezes, config edits and operator commands.

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
use crate::run::environment::config::SERVERS;
use crate::run::environment::daemon_processes;
use crate::run::history_writer::{HistoryWriter, now};

/// After this long no process of a daemon may be left.
const GONE_AFTER: Duration = Duration::from_secs(6);

/// Interval of checks for survivors.
const SURVIVOR_POLL_INTERVAL: Duration = Duration::from_millis(50);

impl Nemesis {
    /// Kills the daemon. Half of the time the next one starts at once, while the guards still clean
    /// up.
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

    /// Kills the spawner. Guards go on without it, and the daemon starts another one for the next
    /// server.
    pub(super) fn kill_spawner(&mut self) -> anyhow::Result<()> {
        let daemon = self.daemon.processes()?.daemon();
        let is_spawner = |proc: &Proc| proc.parent() == Some(daemon) && is_guard(*proc);
        let Some(spawner) = daemon.descendants().into_iter().find(is_spawner) else { return Ok(()) };
        self.recorder.record_act(Act::KillSpawner.name(), "daemon", true);
        spawner.kill();
        self.recorder.record_act(Act::KillSpawner.name(), "daemon", false);
        Ok(())
    }

    pub(super) async fn end_daemon(&mut self) -> anyhow::Result<()> {
        self.recorder.record_act(Act::EndDaemon.name(), "daemon", true);
        let ended = self.stop_daemon().await;
        self.daemon.restart().await?;
        self.recorder.record_act(Act::EndDaemon.name(), "daemon", false);
        ended
    }

    /// Stops the daemon, for good or to be started again. The census follows when nothing is left,
    /// or when that is overdue.
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

    /// Waits for the censuses of all killed daemons.
    pub(crate) async fn finish_censuses(&mut self) {
        while let Some(taken) = self.censuses.join_next().await {
            self.note_census(taken);
        }
    }

    /// Edits the config, which the daemon watches. The effect shows in the calls.
    pub(super) fn edit(&mut self, act: Act) -> anyhow::Result<()> {
        let target = match act {
            Act::EditServers => {
                self.config_variant.has_extra = !self.config_variant.has_extra;
                "extra"
            }
            Act::EditArgs => {
                self.config_variant.tools = (self.config_variant.tools + 1) % 5;
                "c"
            }
            _ => {
                self.config_variant.has_rule = !self.config_variant.has_rule;
                "roles"
            }
        };
        self.recorder.record_act(act.name(), target, true);
        self.testbed.write_config(self.config_variant)?;
        self.recorder.record_act(act.name(), target, false);
        Ok(())
    }

    pub(super) async fn reload(&mut self) -> anyhow::Result<()> {
        let name = SERVERS[self.rng.usize(..SERVERS.len())].name;
        self.recorder.record_act(Act::Reload.name(), name, true);
        // The command fails if the server is down at this moment, which is no defect.
        let _ = self.testbed.run_command(&["reload", name]).await;
        self.recorder.record_act(Act::Reload.name(), name, false);
        Ok(())
    }

    pub(super) async fn stop_start(&mut self) -> anyhow::Result<()> {
        let name = SERVERS[self.rng.usize(..SERVERS.len())].name;
        let lasts = self.millis(50..1_500);
        self.recorder.record_act(Act::StopStart.name(), name, true);
        self.testbed.run_command(&["stop", name]).await?;
        sleep(lasts).await;
        let _ = self.testbed.run_command(&["start", name]).await;
        self.recorder.record_act(Act::StopStart.name(), name, false);
        Ok(())
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
    // Recorded survivors need not outlive the run.
    processes.iter().filter_map(|seen| Proc::find(seen.pid)).for_each(Proc::kill);
    recorder.record(&HistoryEvent::Census { at: now(), occasion: Occasion::Over, processes });
}

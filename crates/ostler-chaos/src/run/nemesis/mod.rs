//! Nemesis: injects one act after another, with pauses, all drawn from the seed.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use ostler_testkit::{NatsServer, ReservedPort};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::caller::ChaosCaller;
use super::caller::program_pool::ProgramPool;
use super::environment::config::ConfigVariant;
use super::environment::daemon::DaemonProcess;
use super::environment::testbed::Testbed;
use super::history_writer::HistoryWriter;
use super::proxy::CuttableProxy;
use super::web_server::WebServer;

pub(crate) mod act;
mod clients;
mod daemon;
mod servers;

pub(crate) use act::Act;

/// Pause between two acts, in milliseconds.
const GAP_MS: std::ops::Range<u64> = 100..1_200;

/// The nemesis of a run, with handles on everything that it acts on.
#[derive(Debug)]
pub(crate) struct Nemesis {
    pub(crate) testbed: Arc<Testbed>,
    pub(crate) recorder: Arc<HistoryWriter>,
    pub(crate) programs: Arc<ProgramPool>,
    pub(crate) daemon: DaemonProcess,
    pub(crate) broker: Option<NatsServer>,
    pub(crate) web: WebServer,
    /// Between clients and the daemon.
    pub(crate) client_proxy: CuttableProxy,
    /// Between the broker and its clients.
    pub(crate) broker_proxy: Option<CuttableProxy>,
    /// Calls the targets of acts, so that their recovery is measured to the millisecond.
    pub(crate) prober: Option<ChaosCaller>,
    pub(crate) rng: Rng,
    pub(crate) config_variant: ConfigVariant,
    pub(crate) acts: Vec<Act>,
    /// Censuses of daemons that were killed and replaced at once: those of the last six seconds.
    pub(crate) censuses: JoinSet<()>,
    /// Defects that no record shows.
    pub(crate) mishaps: Vec<String>,
    pub(crate) is_over: watch::Receiver<bool>,
    /// Ports of the daemon and of the server behind a URL, reserved while neither listens.
    pub(crate) _ports: [ReservedPort; 2],
}

impl Nemesis {
    /// Injects acts until `end`. All targets are running again when it returns.
    pub(crate) async fn run(&mut self, end: Instant) {
        while Instant::now() < end && !*self.is_over.borrow() {
            let gap = Duration::from_millis(self.rng.u64(GAP_MS));
            sleep(gap.min(end.saturating_duration_since(Instant::now()))).await;
            self.restart_if_ended().await;
            let Some(act) = self.draw() else { continue };
            if Instant::now() >= end {
                return;
            }
            if let Err(error) = self.run_act(act).await {
                self.mishaps.push(format!("{}: {error:#}", act.name()));
            }
        }
    }

    fn draw(&mut self) -> Option<Act> {
        let all: u32 = self.acts.iter().map(|act| act.weight()).sum();
        let mut roll = self.rng.u32(..all.max(1));
        self.acts.iter().copied().find(|act| {
            let is_it = roll < act.weight();
            roll = roll.saturating_sub(act.weight());
            is_it
        })
    }

    /// Restarts a daemon that has ended by itself, and notes the defect.
    async fn restart_if_ended(&mut self) {
        let Some(status) = self.daemon.exit_status() else { return };
        self.mishaps.push(format!("the daemon ended by itself: {status}"));
        self.recorder.record_act("daemon-died", "daemon", true);
        if let Err(error) = self.daemon.restart().await {
            self.mishaps.push(format!("{error:#}"));
        }
        self.recorder.record_act("daemon-died", "daemon", false);
    }

    async fn wait_until_recovered(&mut self, server: &'static str) {
        if let Some(prober) = &mut self.prober {
            prober.call_until_ok(server).await;
        }
    }

    fn millis(&mut self, range: std::ops::Range<u64>) -> Duration {
        Duration::from_millis(self.rng.u64(range))
    }

    /// Records an act that lasts for a while.
    async fn act_lasting(&mut self, act: Act, target: &str, lasts: Duration) {
        self.recorder.record_act(act.name(), target, true);
        sleep(lasts).await;
        self.recorder.record_act(act.name(), target, false);
    }
}

//! Who hurts: one act after another, with pauses, all drawn from the seed.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use ostler_testkit::{HeldPort, NatsServer};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::caller::Caller;
use super::caller::hub::Hub;
use super::proxy::Proxy;
use super::record::Recorder;
use super::web::Web;
use super::world::config::Shape;
use super::world::daemon::Daemon;
use super::world::site::Site;

pub(crate) mod act;
mod broker;
mod clients;
mod daemon;
mod operator;
mod servers;

pub(crate) use act::Act;

/// Between two acts.
const GAP_MS: std::ops::Range<u64> = 100..1_200;

/// Everything that can be hurt.
#[derive(Debug)]
pub(crate) struct Nemesis {
    pub(crate) site: Arc<Site>,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) daemon: Daemon,
    pub(crate) broker: Option<NatsServer>,
    pub(crate) web: Web,
    /// Between clients and the daemon.
    pub(crate) front: Proxy,
    /// Between the broker and everybody.
    pub(crate) back: Option<Proxy>,
    /// Tries what was hurt, so that the time it takes to work again is known to the millisecond.
    pub(crate) prober: Option<Caller>,
    pub(crate) rng: Rng,
    pub(crate) shape: Shape,
    pub(crate) acts: Vec<Act>,
    /// Those of daemons that were killed and replaced at once: as many as are killed in six seconds.
    pub(crate) censuses: JoinSet<()>,
    /// What went wrong that no record shows.
    pub(crate) mishaps: Vec<String>,
    pub(crate) is_over: watch::Receiver<bool>,
    /// Of the daemon and the server behind a URL, kept while neither listens.
    pub(crate) _ports: [HeldPort; 2],
}

impl Nemesis {
    /// Hurts until that time; everything is whole again when this returns.
    pub(crate) async fn run(&mut self, end: Instant) {
        while Instant::now() < end && !*self.is_over.borrow() {
            let gap = Duration::from_millis(self.rng.u64(GAP_MS));
            sleep(gap.min(end.saturating_duration_since(Instant::now()))).await;
            self.look_after_daemon().await;
            let Some(act) = self.draw() else { continue };
            if Instant::now() >= end {
                return;
            }
            if let Err(error) = self.perform(act).await {
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

    /// A daemon that ends by itself is a defect, whatever the records say.
    async fn look_after_daemon(&mut self) {
        let Some(status) = self.daemon.has_ended() else { return };
        self.mishaps.push(format!("the daemon ended by itself: {status}"));
        self.recorder.act("daemon-died", "daemon", true);
        if let Err(error) = self.daemon.start_again().await {
            self.mishaps.push(format!("{error:#}"));
        }
        self.recorder.act("daemon-died", "daemon", false);
    }

    async fn probe(&mut self, server: &'static str) {
        if let Some(prober) = &mut self.prober {
            prober.until_good(server).await;
        }
    }

    fn millis(&mut self, range: std::ops::Range<u64>) -> Duration {
        Duration::from_millis(self.rng.u64(range))
    }

    /// An act that lasts a while: begun, waited for, ended.
    async fn spell(&mut self, act: Act, target: &str, lasts: Duration) {
        self.recorder.act(act.name(), target, true);
        sleep(lasts).await;
        self.recorder.act(act.name(), target, false);
    }
}

//! Acts on servers.

use std::time::Duration;

use nix::sys::signal::Signal;
use ostler_testkit::Proc;
use tokio::time::sleep;

use super::{Act, Nemesis};
use crate::run::environment::config::{SERVERS, SICK, TestServerKind};

impl Nemesis {
    /// Picks a server that runs as a child of the daemon, and one of its processes.
    fn pick_server_process(&mut self) -> anyhow::Result<Option<(&'static str, Proc)>> {
        let family = self.daemon.processes()?;
        let start = self.rng.usize(..SERVERS.len());
        for offset in 0..SERVERS.len() {
            let server = SERVERS[(start + offset) % SERVERS.len()];
            if server.kind == TestServerKind::Web {
                continue;
            }
            let procs = family.servers(server.name);
            if !procs.is_empty() {
                return Ok(Some((server.name, procs[self.rng.usize(..procs.len())])));
            }
        }
        Ok(None)
    }

    pub(super) async fn kill_server(&mut self) -> anyhow::Result<()> {
        let Some((name, proc)) = self.pick_server_process()? else { return Ok(()) };
        self.recorder.record_act(Act::KillServer.name(), name, true);
        proc.kill();
        self.recorder.record_act(Act::KillServer.name(), name, false);
        self.wait_until_recovered(name).await;
        Ok(())
    }

    /// Freezes a server, mostly briefly, sometimes longer than a call may take.
    pub(super) async fn freeze_server(&mut self) -> anyhow::Result<()> {
        let Some((name, proc)) = self.pick_server_process()? else { return Ok(()) };
        let lasts = if self.rng.u8(..4) == 0 { self.millis(6_000..9_000) } else { self.millis(50..1_500) };
        proc.signal(Signal::SIGSTOP);
        self.act_lasting(Act::FreezeServer, name, lasts).await;
        proc.signal(Signal::SIGCONT);
        Ok(())
    }

    pub(super) async fn kill_guard(&mut self) -> anyhow::Result<()> {
        let Some((name, proc)) = self.pick_server_process()? else { return Ok(()) };
        let mut guard = proc.parent();
        while let Some(parent) = guard.filter(|parent| !is_guard(*parent)) {
            guard = parent.parent();
        }
        // Only with a living spawner: the processes of a server whose guard and spawner are both
        // killed belong to no one.
        let Some(guard) = guard.filter(|guard| guard.parent().is_some_and(is_guard)) else { return Ok(()) };
        self.recorder.record_act(Act::KillGuard.name(), name, true);
        guard.kill();
        self.recorder.record_act(Act::KillGuard.name(), name, false);
        self.wait_until_recovered(name).await;
        Ok(())
    }

    pub(super) async fn kill_web(&mut self) -> anyhow::Result<()> {
        self.recorder.record_act(Act::KillWeb.name(), "web", true);
        self.web.kill().await?;
        let away = self.millis(0..1_500);
        sleep(away).await;
        self.web.restart().await?;
        self.recorder.record_act(Act::KillWeb.name(), "web", false);
        Ok(())
    }

    pub(super) async fn sicken(&mut self) -> anyhow::Result<()> {
        let lasts = self.millis(2_000..6_000);
        std::fs::write(self.testbed.sick_file(), "")?;
        self.act_lasting(Act::Sicken, SICK, lasts).await;
        std::fs::remove_file(self.testbed.sick_file())?;
        sleep(Duration::from_millis(10)).await;
        Ok(())
    }
}

/// Returns whether a process is a guard, which runs the product's own binary.
pub(super) fn is_guard(proc: Proc) -> bool {
    let line = std::fs::read(format!("/proc/{}/cmdline", proc.pid)).unwrap_or_default();
    line.split(|byte| *byte == 0).any(|word| word == b"guard")
}

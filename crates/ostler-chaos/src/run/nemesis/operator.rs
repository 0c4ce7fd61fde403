//! What operators do, at bad moments.

use tokio::time::sleep;

use super::{Act, Nemesis};
use crate::run::environment::config::SERVERS;

impl Nemesis {
    /// The daemon watches the file; what it makes of it shows in the calls.
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
        // A server that is down at this moment makes the command fail, which is no defect.
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
}

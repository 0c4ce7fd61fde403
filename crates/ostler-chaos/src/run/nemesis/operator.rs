//! What operators do, at bad moments.

use tokio::time::sleep;

use super::{Act, Nemesis};
use crate::run::world::config::SERVERS;

impl Nemesis {
    /// The daemon watches the file; what it makes of it shows in the calls.
    pub(super) fn edit(&mut self, act: Act) -> anyhow::Result<()> {
        let target = match act {
            Act::EditServers => {
                self.shape.has_extra = !self.shape.has_extra;
                "extra"
            }
            Act::EditArgs => {
                self.shape.tools = (self.shape.tools + 1) % 5;
                "c"
            }
            _ => {
                self.shape.has_rule = !self.shape.has_rule;
                "roles"
            }
        };
        self.recorder.act(act.name(), target, true);
        self.site.configure(self.shape)?;
        self.recorder.act(act.name(), target, false);
        Ok(())
    }

    pub(super) async fn reload(&mut self) -> anyhow::Result<()> {
        let name = SERVERS[self.rng.usize(..SERVERS.len())].name;
        self.recorder.act(Act::Reload.name(), name, true);
        // A server that is down at this moment makes the command fail, which is no defect.
        let _ = self.site.tell(&["reload", name]).await;
        self.recorder.act(Act::Reload.name(), name, false);
        Ok(())
    }

    pub(super) async fn stop_start(&mut self) -> anyhow::Result<()> {
        let name = SERVERS[self.rng.usize(..SERVERS.len())].name;
        let lasts = self.millis(50..1_500);
        self.recorder.act(Act::StopStart.name(), name, true);
        self.site.tell(&["stop", name]).await?;
        sleep(lasts).await;
        let _ = self.site.tell(&["start", name]).await;
        self.recorder.act(Act::StopStart.name(), name, false);
        Ok(())
    }
}

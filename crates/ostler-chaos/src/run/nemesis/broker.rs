//! Harm to the broker.

use tokio::time::sleep;

use super::{Act, Nemesis};

impl Nemesis {
    pub(super) async fn hurt_broker(&mut self, act: Act) -> anyhow::Result<()> {
        let lasts = self.millis(50..2_500);
        let (Some(broker), Some(back)) = (&mut self.broker, &self.broker_proxy) else { return Ok(()) };
        self.recorder.record_act(act.name(), "broker", true);
        match act {
            Act::KillBroker => {
                broker.kill();
                sleep(lasts).await;
                broker.restart().await;
            }
            Act::FreezeBroker => {
                broker.freeze().await;
                sleep(lasts).await;
                broker.thaw();
            }
            _ => back.cut(),
        }
        self.recorder.record_act(act.name(), "broker", false);
        Ok(())
    }
}

//! What happens every so often: heartbeats, and a look at who lives.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{MissedTickBehavior, interval};

use super::Shared;
use crate::broker::Message;
use crate::envelope::Beat;
use crate::tether::Up;

/// How often workers are looked for that are gone.
const LOOK: Duration = Duration::from_millis(250);

/// A heartbeat at every so many looks: one each second.
const LOOKS_PER_BEAT: u32 = 4;

/// Does what has to be done every so often, for ever.
pub(super) async fn run(service: Arc<Shared>) {
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for look in (1..=LOOKS_PER_BEAT).cycle() {
        looks.tick().await;
        service.desk.sweep();
        if look == LOOKS_PER_BEAT
            && let Some(up) = service.tether.up()
        {
            beat(&service, &up).await;
        }
    }
}

/// Says that the host lives.
pub(super) async fn beat(service: &Shared, up: &Up) {
    let beat = Beat {
        generation: service.generation,
        time: service.clock.now(),
        in_flight: service.desk.in_flight() as u64,
        is_draining: service.is_draining(),
    };
    let subject = service.subjects.heartbeat(&service.name);
    // A heartbeat that does not leave is missed, which is what it says.
    let _ = service.publish(up, Message::new(subject, beat.headers(), Bytes::new())).await;
}

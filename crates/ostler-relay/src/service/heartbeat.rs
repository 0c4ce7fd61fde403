//! What happens every so often: heartbeats, and a look at who lives.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{MissedTickBehavior, interval};

use super::ServiceCore;
use crate::broker::BrokerMessage;
use crate::envelope::Heartbeat;
use crate::reconnect::BrokerConnection;

/// How often workers are looked for that are gone.
const SWEEP_INTERVAL: Duration = Duration::from_millis(250);

/// A heartbeat at every so many looks: one each second.
const SWEEPS_PER_HEARTBEAT: u32 = 4;

/// Does what has to be done every so often, for ever.
pub(super) async fn run(service: Arc<ServiceCore>) {
    let mut looks = interval(SWEEP_INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for look in (1..=SWEEPS_PER_HEARTBEAT).cycle() {
        looks.tick().await;
        service.registry.sweep();
        if look == SWEEPS_PER_HEARTBEAT
            && let Some(up) = service.reconnector.connection()
        {
            send_heartbeat(&service, &up).await;
        }
    }
}

/// Says that the host lives.
pub(super) async fn send_heartbeat(service: &ServiceCore, up: &BrokerConnection) {
    let beat = Heartbeat {
        generation: service.generation,
        time: service.clock.now(),
        in_flight: service.registry.in_flight() as u64,
        is_draining: service.is_draining(),
    };
    let subject = service.subjects.heartbeat(&service.name);
    // A heartbeat that does not leave is missed, which is what it says.
    let _ = service.publish(up, BrokerMessage::new(subject, beat.headers(), Bytes::new())).await;
}

//! Heartbeat: announces the host each second and sweeps expired workers.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{MissedTickBehavior, interval};

use super::ServiceCore;
use crate::broker::BrokerMessage;
use crate::envelope::Heartbeat;
use crate::reconnect::BrokerConnection;

/// Interval between sweeps; bounds how late a vanished worker is noticed.
const SWEEP_INTERVAL: Duration = Duration::from_millis(250);

/// Sweeps per heartbeat: one heartbeat each second.
const SWEEPS_PER_HEARTBEAT: u32 = 4;

/// Sweeps and sends heartbeats until it is cancelled.
pub(super) async fn run(service: Arc<ServiceCore>) {
    let mut ticks = interval(SWEEP_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for sweep in (1..=SWEEPS_PER_HEARTBEAT).cycle() {
        ticks.tick().await;
        service.registry.sweep();
        if sweep == SWEEPS_PER_HEARTBEAT
            && let Some(connection) = service.reconnector.connection()
        {
            send_heartbeat(&service, &connection).await;
        }
    }
}

/// Publishes one heartbeat.
pub(super) async fn send_heartbeat(service: &ServiceCore, connection: &BrokerConnection) {
    let heartbeat = Heartbeat {
        generation: service.generation,
        time: service.clock.now(),
        in_flight: service.registry.in_flight() as u64,
        is_draining: service.is_draining(),
    };
    let subject = service.subjects.heartbeat(&service.name);
    // Workers treat a missing heartbeat as a silent host, so a failure needs no handling.
    let _ = service.publish(connection, BrokerMessage::new(subject, heartbeat.headers(), Bytes::new())).await;
}

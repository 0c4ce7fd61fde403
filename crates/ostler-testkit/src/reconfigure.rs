//! Edits of what is in force in a host, one part at a time.

use ostler_core::pins::PinPolicy;
use ostler_core::policy::Rules;
use ostler_host::{Host, Limits, Snapshot};

/// Changes a part of what is in force; everything else stays.
pub trait Reconfigure {
    /// Puts other rules in force.
    fn set_rules(&self, rules: Rules) -> impl Future<Output = ()> + Send;
    /// Puts other limits of roles in force.
    fn set_limits(&self, limits: Limits) -> impl Future<Output = ()> + Send;
    /// Approves other definitions.
    fn set_pins(&self, pins: Option<PinPolicy>) -> impl Future<Output = ()> + Send;
}

impl Reconfigure for Host {
    async fn set_rules(&self, rules: Rules) {
        self.apply(Snapshot { rules, ..self.snapshot() }).await;
    }

    async fn set_limits(&self, limits: Limits) {
        self.apply(Snapshot { limits, ..self.snapshot() }).await;
    }

    async fn set_pins(&self, pins: Option<PinPolicy>) {
        self.apply(Snapshot { pins, ..self.snapshot() }).await;
    }
}

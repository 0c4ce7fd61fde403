//! Network faults: lost, duplicated and late messages, and muted users.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use ostler_relay::broker::BrokerMessage;
use ostler_relay::broker::memory::{MemoryBroker, MessageAction, MessageFaultInjector};
use ostler_relay::envelope::CallHead;

use crate::invariants::RelayInvariants;

/// Upper bound on the delay of a message.
pub(crate) const LATEST: u64 = 3_000;

/// Fault rates of a run and its muted users.
#[derive(Clone)]
pub(crate) struct RelaySimNetwork(Arc<Mutex<RelaySimFaults>>);

struct RelaySimFaults {
    rng: Rng,
    /// Rates per thousand messages.
    drop_permille: u16,
    duplicate_permille: u16,
    delay_permille: u16,
    /// Rate of requests sent twice, which may reach two hosts.
    resend_permille: u16,
    /// Broker users that receive nothing.
    muted: BTreeSet<String>,
    is_fault_free: bool,
}

impl RelaySimNetwork {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        let mut some = |most: u16| if rng.bool() { 0 } else { rng.u16(..most) };
        let (dropped, duplicated, delayed, resent) = (some(60), some(200), some(200), some(300));
        let faults = RelaySimFaults {
            rng: rng.fork(),
            drop_permille: dropped,
            duplicate_permille: duplicated,
            delay_permille: delayed,
            resend_permille: resent,
            muted: BTreeSet::new(),
            is_fault_free: false,
        };
        Self(Arc::new(Mutex::new(faults)))
    }

    /// Installs the fault injector; it also reports requests to the invariants.
    pub(crate) fn install(&self, broker: &MemoryBroker, invariants: &Arc<RelayInvariants>) {
        let (network, invariants) = (self.clone(), Arc::clone(invariants));
        let injector: MessageFaultInjector = Box::new(move |_, to, message| {
            record_call(&invariants, message);
            network.lock().action(to)
        });
        broker.set_fault_injector(Some(injector));
    }

    pub(crate) fn mute(&self, user: &str, is_muted: bool) {
        let muted = &mut self.lock().muted;
        if is_muted {
            muted.insert(user.to_owned())
        } else {
            muted.remove(user)
        };
    }

    /// Ends all faults.
    pub(crate) fn stop_faults(&self) {
        let mut faults = self.lock();
        faults.is_fault_free = true;
        faults.muted.clear();
    }

    /// Returns the delay after which a request is sent again; `None` for most requests.
    pub(crate) fn resend_delay(&self) -> Option<Duration> {
        let mut faults = self.lock();
        let (roll, delay) = (faults.rng.u16(..1_000), faults.rng.u64(..LATEST));
        (!faults.is_fault_free && roll < faults.resend_permille).then(|| Duration::from_millis(delay))
    }

    fn lock(&self) -> MutexGuard<'_, RelaySimFaults> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RelaySimFaults {
    fn action(&mut self, to: &str) -> MessageAction {
        if self.is_fault_free {
            return MessageAction::Deliver;
        }
        if self.muted.contains(to) {
            return MessageAction::Drop;
        }
        let roll = self.rng.u16(..1_000);
        let delay = Duration::from_millis(self.rng.u64(..LATEST));
        let (dropped, duplicated) = (self.drop_permille, self.drop_permille + self.duplicate_permille);
        match roll {
            roll if roll < dropped => MessageAction::Drop,
            roll if roll < duplicated => MessageAction::Duplicate(delay),
            roll if roll < duplicated + self.delay_permille => MessageAction::Delay(delay),
            _ => MessageAction::Deliver,
        }
    }
}

/// Reports the times of a request under its unique argument.
fn record_call(invariants: &RelayInvariants, message: &BrokerMessage) {
    if let (Some(argument), Ok(head)) = (argument_of(message), CallHead::read(&message.headers)) {
        invariants.record_times(&argument, &head);
    }
}

/// Returns the unique argument of a request.
pub(crate) fn argument_of(message: &BrokerMessage) -> Option<String> {
    if !message.subject.contains(".call.") {
        return None;
    }
    let body = String::from_utf8_lossy(&message.body);
    let (_, rest) = body.split_once("\"n\":\"")?;
    rest.split_once('"').map(|(argument, _)| argument.to_owned())
}

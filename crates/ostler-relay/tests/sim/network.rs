//! What happens to messages on their way, and to whoever is connected.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use ostler_relay::broker::BrokerMessage;
use ostler_relay::broker::memory::{MemoryBroker, MessageAction, MessageFaultInjector};
use ostler_relay::envelope::CallHead;

use crate::invariants::RelayInvariants;

/// The longest delay of a message.
pub(crate) const LATEST: u64 = 3_000;

/// The climate of a life, and its weather of the moment.
#[derive(Clone)]
pub(crate) struct RelaySimNetwork(Arc<Mutex<RelaySimFaults>>);

struct RelaySimFaults {
    rng: Rng,
    /// In a thousand messages.
    drop_permille: u16,
    duplicate_permille: u16,
    delay_permille: u16,
    /// Requests that are sent twice, and so may reach two hosts.
    resend_permille: u16,
    /// Doors whose people hear nothing.
    muted: BTreeSet<String>,
    is_fault_free: bool,
}

impl RelaySimNetwork {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        let mut some = |most: u16| if rng.bool() { 0 } else { rng.u16(..most) };
        let (lost, twice, late, echoed) = (some(60), some(200), some(200), some(300));
        let clouds = RelaySimFaults {
            rng: rng.fork(),
            drop_permille: lost,
            duplicate_permille: twice,
            delay_permille: late,
            resend_permille: echoed,
            muted: BTreeSet::new(),
            is_fault_free: false,
        };
        Self(Arc::new(Mutex::new(clouds)))
    }

    /// Puts a broker under this sky; whoever watches reads what passes.
    pub(crate) fn install(&self, broker: &MemoryBroker, watch: &Arc<RelayInvariants>) {
        let (sky, watch) = (self.clone(), Arc::clone(watch));
        let weather: MessageFaultInjector = Box::new(move |_, to, message| {
            record_call(&watch, message);
            sky.lock().action(to)
        });
        broker.set_fault_injector(Some(weather));
    }

    pub(crate) fn mute(&self, door: &str, is_deaf: bool) {
        let deaf = &mut self.lock().muted;
        if is_deaf {
            deaf.insert(door.to_owned())
        } else {
            deaf.remove(door)
        };
    }

    /// Nothing is lost any more.
    pub(crate) fn stop_faults(&self) {
        let mut clouds = self.lock();
        clouds.is_fault_free = true;
        clouds.muted.clear();
    }

    /// After how long a request is sent a second time, if it is.
    pub(crate) fn resend_delay(&self) -> Option<Duration> {
        let mut clouds = self.lock();
        let (dice, delay) = (clouds.rng.u16(..1_000), clouds.rng.u64(..LATEST));
        (!clouds.is_fault_free && dice < clouds.resend_permille).then(|| Duration::from_millis(delay))
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
        let dice = self.rng.u16(..1_000);
        let delay = Duration::from_millis(self.rng.u64(..LATEST));
        let (lost, twice) = (self.drop_permille, self.drop_permille + self.duplicate_permille);
        match dice {
            dice if dice < lost => MessageAction::Drop,
            dice if dice < twice => MessageAction::Duplicate(delay),
            dice if dice < twice + self.delay_permille => MessageAction::Delay(delay),
            _ => MessageAction::Deliver,
        }
    }
}

/// What a request says of its time, by the argument that tells it from all others.
fn record_call(watch: &RelayInvariants, message: &BrokerMessage) {
    if let (Some(argument), Ok(head)) = (argument_of(message), CallHead::read(&message.headers)) {
        watch.record_times(&argument, &head);
    }
}

/// The argument that tells a request from all others.
pub(crate) fn argument_of(message: &BrokerMessage) -> Option<String> {
    if !message.subject.contains(".call.") {
        return None;
    }
    let body = String::from_utf8_lossy(&message.body);
    let (_, rest) = body.split_once("\"n\":\"")?;
    rest.split_once('"').map(|(argument, _)| argument.to_owned())
}

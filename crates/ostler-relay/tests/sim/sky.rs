//! What happens to messages on their way, and to whoever is connected.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use ostler_relay::broker::Message;
use ostler_relay::broker::memory::{Fate, MemoryBroker, Weather};
use ostler_relay::envelope::CallHead;

use crate::watch::Watch;

/// The longest delay of a message.
pub(crate) const LATEST: u64 = 3_000;

/// The climate of a life, and its weather of the moment.
#[derive(Clone)]
pub(crate) struct Sky(Arc<Mutex<Clouds>>);

struct Clouds {
    rng: Rng,
    /// In a thousand messages.
    lost: u16,
    twice: u16,
    late: u16,
    /// Requests that are sent twice, and so may reach two hosts.
    echoed: u16,
    /// Doors whose people hear nothing.
    deaf: BTreeSet<String>,
    is_calm: bool,
}

impl Sky {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        let mut some = |most: u16| if rng.bool() { 0 } else { rng.u16(..most) };
        let (lost, twice, late, echoed) = (some(60), some(200), some(200), some(300));
        let clouds =
            Clouds { rng: rng.fork(), lost, twice, late, echoed, deaf: BTreeSet::new(), is_calm: false };
        Self(Arc::new(Mutex::new(clouds)))
    }

    /// Puts a broker under this sky; whoever watches reads what passes.
    pub(crate) fn cover(&self, broker: &MemoryBroker, watch: &Arc<Watch>) {
        let (sky, watch) = (self.clone(), Arc::clone(watch));
        let weather: Weather = Box::new(move |_, to, message| {
            note_call(&watch, message);
            sky.clouds().fate(to)
        });
        broker.set_weather(Some(weather));
    }

    pub(crate) fn deafen(&self, door: &str, is_deaf: bool) {
        let deaf = &mut self.clouds().deaf;
        if is_deaf {
            deaf.insert(door.to_owned())
        } else {
            deaf.remove(door)
        };
    }

    /// Nothing is lost any more.
    pub(crate) fn clear_up(&self) {
        let mut clouds = self.clouds();
        clouds.is_calm = true;
        clouds.deaf.clear();
    }

    /// After how long a request is sent a second time, if it is.
    pub(crate) fn echo(&self) -> Option<Duration> {
        let mut clouds = self.clouds();
        let (dice, delay) = (clouds.rng.u16(..1_000), clouds.rng.u64(..LATEST));
        (!clouds.is_calm && dice < clouds.echoed).then(|| Duration::from_millis(delay))
    }

    fn clouds(&self) -> MutexGuard<'_, Clouds> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clouds {
    fn fate(&mut self, to: &str) -> Fate {
        if self.is_calm {
            return Fate::Arrives;
        }
        if self.deaf.contains(to) {
            return Fate::Lost;
        }
        let dice = self.rng.u16(..1_000);
        let delay = Duration::from_millis(self.rng.u64(..LATEST));
        let (lost, twice) = (self.lost, self.lost + self.twice);
        match dice {
            dice if dice < lost => Fate::Lost,
            dice if dice < twice => Fate::Twice(delay),
            dice if dice < twice + self.late => Fate::After(delay),
            _ => Fate::Arrives,
        }
    }
}

/// What a request says of its time, by the argument that tells it from all others.
fn note_call(watch: &Watch, message: &Message) {
    if let (Some(argument), Ok(head)) = (argument_of(message), CallHead::read(&message.headers)) {
        watch.note_head(&argument, &head);
    }
}

/// The argument that tells a request from all others.
pub(crate) fn argument_of(message: &Message) -> Option<String> {
    if !message.subject.contains(".call.") {
        return None;
    }
    let body = String::from_utf8_lossy(&message.body);
    let (_, rest) = body.split_once("\"n\":\"")?;
    rest.split_once('"').map(|(argument, _)| argument.to_owned())
}

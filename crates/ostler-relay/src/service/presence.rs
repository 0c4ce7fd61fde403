//! Which workers live, as far as they were heard.
//!
//! ```text
//!            heard                 3.5 s unheard, with calls
//!  (unknown) ─────▶ alive ─────────────────────────────────▶ gone: its calls are given up
//!                     │ 60 s unheard, without calls
//!                     └──────────────▶ forgotten
//! ```
//!
//! Only time with a connection counts: while there is none nobody can be
//! heard, and that is nobody's fault.

use std::time::{Duration, Instant};

use hashbrown::HashMap;
use ostler_host::Caller;

use crate::call_id::Instance;
use crate::name::Name;

/// A worker with calls under way says every second that it lives; three times
/// unheard, and a bit for the way, is gone.
const GONE: Duration = Duration::from_millis(3_500);

/// How long a worker without calls is remembered; it asks anew what it may use
/// as often.
pub(super) const REMEMBERED: Duration = Duration::from_secs(60);

/// Lives at once. Beyond it the one that was heard longest ago is forgotten,
/// unless it has calls under way.
const MAX_LIVES: usize = 8_192;

/// One life of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Life {
    pub(super) worker: Name,
    pub(super) instance: Instance,
}

#[derive(Debug)]
struct Heard {
    at: Instant,
    /// Calls under way.
    calls: usize,
    /// Who it is to the host, once it has asked for anything.
    caller: Option<Caller>,
    /// The version of what it was last told that it may use.
    told: Option<String>,
    /// Whether it was said that it is gone; its last calls may be ending.
    is_gone: bool,
}

/// A worker, as operators see it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WorkerStatus {
    /// Its name.
    pub name: String,
    /// Its role; empty until it has asked for anything.
    pub role: String,
    /// Its calls under way.
    pub in_flight: usize,
}

/// Who lives.
#[derive(Debug, Default)]
pub(super) struct Presence {
    lives: HashMap<Life, Heard>,
    /// Since when there is no connection; `None` while there is one.
    down: Option<Instant>,
}

impl Presence {
    /// Nobody, and no connection.
    pub(super) fn new(now: Instant) -> Self {
        Self { lives: HashMap::new(), down: Some(now) }
    }

    /// A life has asked for something.
    pub(super) fn on_heard(&mut self, life: &Life, now: Instant) {
        if self.is_known(life, now) {
            return;
        }
        if self.lives.len() >= MAX_LIVES {
            self.forget_one(&life.worker);
        }
        let heard = Heard { at: now, calls: 0, caller: None, told: None, is_gone: false };
        self.lives.insert(life.clone(), heard);
    }

    /// A life has said something. Whether it had asked for anything before.
    pub(super) fn is_known(&mut self, life: &Life, now: Instant) -> bool {
        let Some(heard) = self.lives.get_mut(life) else { return false };
        (heard.at, heard.is_gone) = (now, false);
        true
    }

    /// Of whoever makes it necessary, if there is one.
    fn forget_one(&mut self, worker: &Name) {
        let idle = self.lives.iter().filter(|(_, heard)| heard.calls == 0);
        let oldest = idle.min_by_key(|(life, heard)| (life.worker != *worker, heard.at));
        let oldest = oldest.map(|(life, _)| life.clone());
        if let Some(oldest) = oldest {
            self.lives.remove(&oldest);
        }
    }

    /// One of its calls begins.
    pub(super) fn on_begun(&mut self, life: &Life, caller: &Caller) {
        if let Some(heard) = self.lives.get_mut(life) {
            heard.calls += 1;
            heard.caller = Some(caller.clone());
        }
    }

    /// One of its calls has ended.
    pub(super) fn on_ended(&mut self, life: &Life) {
        if let Some(heard) = self.lives.get_mut(life) {
            heard.calls = heard.calls.saturating_sub(1);
        }
    }

    /// It was told what it may use; `None` where that is nothing at all.
    pub(super) fn on_told(&mut self, life: &Life, caller: &Caller, version: Option<String>) {
        if let Some(heard) = self.lives.get_mut(life) {
            (heard.caller, heard.told) = (Some(caller.clone()), Some(version.unwrap_or_default()));
        }
    }

    /// The connection is lost.
    pub(super) fn on_down(&mut self, now: Instant) {
        self.down.get_or_insert(now);
    }

    /// The connection is there: the time without it did not pass.
    pub(super) fn on_up(&mut self, now: Instant) {
        let Some(since) = self.down.take() else { return };
        for heard in self.lives.values_mut() {
            heard.at = (heard.at + now.saturating_duration_since(since)).min(now);
        }
    }

    /// Forgets who was not heard for long, and says which of them had calls.
    pub(super) fn poll(&mut self, now: Instant) -> Vec<Life> {
        if self.down.is_some() {
            return Vec::new();
        }
        let mut gone = Vec::new();
        self.lives.retain(|life, heard| {
            let silence = now.saturating_duration_since(heard.at);
            if heard.calls > 0 && silence >= GONE && !heard.is_gone {
                heard.is_gone = true;
                gone.push(life.clone());
            }
            // One that comes back meanwhile must not be taken for another one:
            // its calls are counted until they have ended.
            heard.calls > 0 || (!heard.is_gone && silence < REMEMBERED)
        });
        gone
    }

    /// The lives that know what they may use, with what they were told.
    pub(super) fn told(&self) -> Vec<(Life, Caller, String)> {
        let told =
            |(life, heard): (&Life, &Heard)| Some((life.clone(), heard.caller.clone()?, heard.told.clone()?));
        let mut told: Vec<_> = self.lives.iter().filter_map(told).collect();
        told.sort_by(|(a, ..), (b, ..)| (&a.worker, a.instance.0).cmp(&(&b.worker, b.instance.0)));
        told
    }

    /// Everybody, by name.
    pub(super) fn workers(&self) -> Vec<WorkerStatus> {
        let mut workers: Vec<WorkerStatus> = Vec::new();
        let mut lives: Vec<_> = self.lives.iter().collect();
        lives.sort_by(|(a, _), (b, _)| (&a.worker, a.instance.0).cmp(&(&b.worker, b.instance.0)));
        for (life, heard) in lives {
            let role = heard.caller.as_ref().map_or("", Caller::role);
            match workers.last_mut().filter(|last| last.name == life.worker.as_str()) {
                Some(last) => {
                    last.in_flight += heard.calls;
                    if last.role.is_empty() {
                        last.role = role.to_owned();
                    }
                }
                None => workers.push(WorkerStatus {
                    name: life.worker.to_string(),
                    role: role.to_owned(),
                    in_flight: heard.calls,
                }),
            }
        }
        workers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(instance: u64) -> Life {
        let worker = Name::new("w").unwrap_or_else(|error| panic!("{error}"));
        Life { worker, instance: Instance(instance) }
    }

    fn caller() -> Caller {
        Caller::new("worker:w", "dev")
    }

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// A presence with one life that has a call, heard at the returned time.
    fn busy() -> (Presence, Instant) {
        let now = Instant::now();
        let mut presence = Presence::new(now);
        presence.on_up(now);
        presence.on_heard(&life(1), now);
        presence.on_begun(&life(1), &caller());
        (presence, now)
    }

    #[test]
    fn a_life_with_calls_is_gone_after_three_and_a_half_silent_seconds() {
        let (mut presence, now) = busy();
        assert!(presence.poll(now + ms(3_499)).is_empty());
        assert_eq!(presence.poll(now + ms(3_500)), [life(1)]);
        assert!(presence.poll(now + ms(3_501)).is_empty(), "said once");
    }

    #[test]
    fn who_comes_back_while_its_calls_are_given_up_is_looked_after_again() {
        let (mut presence, now) = busy();
        assert_eq!(presence.poll(now + ms(3_500)), [life(1)]);
        presence.on_heard(&life(1), now + ms(3_600));
        presence.on_begun(&life(1), &caller());
        presence.on_ended(&life(1));
        assert!(presence.poll(now + ms(7_000)).is_empty());
        assert_eq!(presence.poll(now + ms(7_100)), [life(1)], "its new call is under way");
    }

    #[test]
    fn who_comes_with_ever_new_lives_makes_nobody_else_forgotten() {
        let now = Instant::now();
        let mut presence = Presence::new(now);
        let worker = Name::new("other").unwrap_or_else(|error| panic!("{error}"));
        let other = Life { worker, instance: Instance(1) };
        presence.on_heard(&other, now);
        for number in 0..=MAX_LIVES as u64 {
            presence.on_heard(&life(number), now + ms(1));
        }
        assert_eq!(presence.lives.len(), MAX_LIVES);
        assert!(presence.lives.contains_key(&other));
        assert!(!presence.is_known(&life(MAX_LIVES as u64 + 1), now), "a sign of life makes none known");
    }

    #[test]
    fn being_heard_begins_the_time_anew() {
        let (mut presence, now) = busy();
        presence.on_heard(&life(1), now + ms(3_000));
        assert!(presence.poll(now + ms(6_499)).is_empty());
        assert_eq!(presence.poll(now + ms(6_500)), [life(1)]);
    }

    #[test]
    fn another_life_of_the_same_worker_does_not_speak_for_it() {
        let (mut presence, now) = busy();
        presence.on_heard(&life(2), now + ms(3_000));
        assert_eq!(presence.poll(now + ms(3_500)), [life(1)]);
    }

    #[test]
    fn time_without_a_connection_does_not_count() {
        let (mut presence, now) = busy();
        presence.on_down(now + ms(1_000));
        assert!(presence.poll(now + ms(60_000)).is_empty());
        presence.on_up(now + ms(60_000));
        assert!(presence.poll(now + ms(62_499)).is_empty());
        assert_eq!(presence.poll(now + ms(62_500)), [life(1)]);
    }

    #[test]
    fn who_has_no_calls_is_remembered_for_a_minute() {
        let (mut presence, now) = busy();
        presence.on_ended(&life(1));
        presence.on_told(&life(1), &caller(), Some("v".into()));
        assert!(presence.poll(now + ms(59_999)).is_empty());
        assert_eq!(presence.told().len(), 1);
        assert!(presence.poll(now + ms(60_000)).is_empty());
        assert!(presence.told().is_empty());
    }

    #[test]
    fn beyond_the_limit_the_longest_unheard_without_calls_is_forgotten() {
        let (mut presence, now) = busy();
        for instance in 2..=u64::try_from(MAX_LIVES).unwrap_or(0) + 1 {
            presence.on_heard(&life(instance), now + ms(instance));
        }
        assert_eq!(presence.lives.len(), MAX_LIVES);
        assert!(presence.lives.contains_key(&life(1)), "it has a call");
        assert!(!presence.lives.contains_key(&life(2)));
    }

    #[test]
    fn operators_see_a_worker_once_whatever_lives_it_has() {
        let (mut presence, now) = busy();
        presence.on_heard(&life(2), now);
        presence.on_begun(&life(2), &caller());
        let expected = WorkerStatus { name: "w".into(), role: "dev".into(), in_flight: 2 };
        assert_eq!(presence.workers(), [expected]);
    }
}

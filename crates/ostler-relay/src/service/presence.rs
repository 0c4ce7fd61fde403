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
use crate::name::RelayName;

/// A worker with calls under way says every second that it lives; three times
/// unheard, and a bit for the way, is gone.
const GONE_AFTER: Duration = Duration::from_millis(3_500);

/// How long a worker without calls is remembered; it asks anew what it may use
/// as often.
pub(super) const FORGET_AFTER: Duration = Duration::from_secs(60);

/// Lives at once. Beyond it the one that was heard longest ago is forgotten,
/// unless it has calls under way.
const MAX_INSTANCES: usize = 8_192;

/// One life of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct WorkerInstance {
    pub(super) worker: RelayName,
    pub(super) instance: Instance,
}

#[derive(Debug)]
struct InstanceRecord {
    last_heard: Instant,
    /// Calls under way.
    calls: usize,
    /// Who it is to the host, once it has asked for anything.
    caller: Option<Caller>,
    /// The version of what it was last told that it may use.
    manifest_version: Option<String>,
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
pub(super) struct WorkerPresence {
    instances: HashMap<WorkerInstance, InstanceRecord>,
    /// Since when there is no connection; `None` while there is one.
    disconnected_since: Option<Instant>,
}

impl WorkerPresence {
    /// Nobody, and no connection.
    pub(super) fn new(now: Instant) -> Self {
        Self { instances: HashMap::new(), disconnected_since: Some(now) }
    }

    /// A life has asked for something.
    pub(super) fn on_heard(&mut self, life: &WorkerInstance, now: Instant) {
        if self.refresh(life, now) {
            return;
        }
        if self.instances.len() >= MAX_INSTANCES {
            self.evict_one(&life.worker);
        }
        let heard = InstanceRecord {
            last_heard: now,
            calls: 0,
            caller: None,
            manifest_version: None,
            is_gone: false,
        };
        self.instances.insert(life.clone(), heard);
    }

    /// A life has said something. Whether it had asked for anything before.
    pub(super) fn refresh(&mut self, life: &WorkerInstance, now: Instant) -> bool {
        let Some(heard) = self.instances.get_mut(life) else { return false };
        (heard.last_heard, heard.is_gone) = (now, false);
        true
    }

    /// Of whoever makes it necessary, if there is one.
    fn evict_one(&mut self, worker: &RelayName) {
        let idle = self.instances.iter().filter(|(_, heard)| heard.calls == 0);
        let oldest = idle.min_by_key(|(life, heard)| (life.worker != *worker, heard.last_heard));
        let oldest = oldest.map(|(life, _)| life.clone());
        if let Some(oldest) = oldest {
            self.instances.remove(&oldest);
        }
    }

    /// One of its calls begins.
    pub(super) fn on_call_begun(&mut self, life: &WorkerInstance, caller: &Caller) {
        if let Some(heard) = self.instances.get_mut(life) {
            heard.calls += 1;
            heard.caller = Some(caller.clone());
        }
    }

    /// One of its calls has ended.
    pub(super) fn on_call_ended(&mut self, life: &WorkerInstance) {
        if let Some(heard) = self.instances.get_mut(life) {
            heard.calls = heard.calls.saturating_sub(1);
        }
    }

    /// It was told what it may use; `None` where that is nothing at all.
    pub(super) fn on_manifest_sent(
        &mut self,
        life: &WorkerInstance,
        caller: &Caller,
        version: Option<String>,
    ) {
        if let Some(heard) = self.instances.get_mut(life) {
            (heard.caller, heard.manifest_version) =
                (Some(caller.clone()), Some(version.unwrap_or_default()));
        }
    }

    /// The connection is lost.
    pub(super) fn on_disconnected(&mut self, now: Instant) {
        self.disconnected_since.get_or_insert(now);
    }

    /// The connection is there: the time without it did not pass.
    pub(super) fn on_connected(&mut self, now: Instant) {
        let Some(since) = self.disconnected_since.take() else { return };
        for heard in self.instances.values_mut() {
            heard.last_heard = (heard.last_heard + now.saturating_duration_since(since)).min(now);
        }
    }

    /// Forgets who was not heard for long, and says which of them had calls.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<WorkerInstance> {
        if self.disconnected_since.is_some() {
            return Vec::new();
        }
        let mut gone = Vec::new();
        self.instances.retain(|life, heard| {
            let silence = now.saturating_duration_since(heard.last_heard);
            if heard.calls > 0 && silence >= GONE_AFTER && !heard.is_gone {
                heard.is_gone = true;
                gone.push(life.clone());
            }
            // One that comes back meanwhile must not be taken for another one:
            // its calls are counted until they have ended.
            heard.calls > 0 || (!heard.is_gone && silence < FORGET_AFTER)
        });
        gone
    }

    /// The lives that know what they may use, with what they were told.
    pub(super) fn manifest_versions(&self) -> Vec<(WorkerInstance, Caller, String)> {
        let told = |(life, heard): (&WorkerInstance, &InstanceRecord)| {
            Some((life.clone(), heard.caller.clone()?, heard.manifest_version.clone()?))
        };
        let mut told: Vec<_> = self.instances.iter().filter_map(told).collect();
        told.sort_by(|(a, ..), (b, ..)| (&a.worker, a.instance.0).cmp(&(&b.worker, b.instance.0)));
        told
    }

    /// Everybody, by name.
    pub(super) fn workers(&self) -> Vec<WorkerStatus> {
        let mut workers: Vec<WorkerStatus> = Vec::new();
        let mut lives: Vec<_> = self.instances.iter().collect();
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

    fn life(instance: u64) -> WorkerInstance {
        let worker = RelayName::new("w").unwrap_or_else(|error| panic!("{error}"));
        WorkerInstance { worker, instance: Instance(instance) }
    }

    fn caller() -> Caller {
        Caller::new("worker:w", "dev")
    }

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// A presence with one life that has a call, heard at the returned time.
    fn busy() -> (WorkerPresence, Instant) {
        let now = Instant::now();
        let mut presence = WorkerPresence::new(now);
        presence.on_connected(now);
        presence.on_heard(&life(1), now);
        presence.on_call_begun(&life(1), &caller());
        (presence, now)
    }

    #[test]
    fn a_life_with_calls_is_gone_after_three_and_a_half_silent_seconds() {
        let (mut presence, now) = busy();
        assert!(presence.expire(now + ms(3_499)).is_empty());
        assert_eq!(presence.expire(now + ms(3_500)), [life(1)]);
        assert!(presence.expire(now + ms(3_501)).is_empty(), "said once");
    }

    #[test]
    fn who_comes_back_while_its_calls_are_given_up_is_looked_after_again() {
        let (mut presence, now) = busy();
        assert_eq!(presence.expire(now + ms(3_500)), [life(1)]);
        presence.on_heard(&life(1), now + ms(3_600));
        presence.on_call_begun(&life(1), &caller());
        presence.on_call_ended(&life(1));
        assert!(presence.expire(now + ms(7_000)).is_empty());
        assert_eq!(presence.expire(now + ms(7_100)), [life(1)], "its new call is under way");
    }

    #[test]
    fn who_comes_with_ever_new_lives_makes_nobody_else_forgotten() {
        let now = Instant::now();
        let mut presence = WorkerPresence::new(now);
        let worker = RelayName::new("other").unwrap_or_else(|error| panic!("{error}"));
        let other = WorkerInstance { worker, instance: Instance(1) };
        presence.on_heard(&other, now);
        for number in 0..=MAX_INSTANCES as u64 {
            presence.on_heard(&life(number), now + ms(1));
        }
        assert_eq!(presence.instances.len(), MAX_INSTANCES);
        assert!(presence.instances.contains_key(&other));
        assert!(!presence.refresh(&life(MAX_INSTANCES as u64 + 1), now), "a sign of life makes none known");
    }

    #[test]
    fn being_heard_begins_the_time_anew() {
        let (mut presence, now) = busy();
        presence.on_heard(&life(1), now + ms(3_000));
        assert!(presence.expire(now + ms(6_499)).is_empty());
        assert_eq!(presence.expire(now + ms(6_500)), [life(1)]);
    }

    #[test]
    fn another_life_of_the_same_worker_does_not_speak_for_it() {
        let (mut presence, now) = busy();
        presence.on_heard(&life(2), now + ms(3_000));
        assert_eq!(presence.expire(now + ms(3_500)), [life(1)]);
    }

    #[test]
    fn time_without_a_connection_does_not_count() {
        let (mut presence, now) = busy();
        presence.on_disconnected(now + ms(1_000));
        assert!(presence.expire(now + ms(60_000)).is_empty());
        presence.on_connected(now + ms(60_000));
        assert!(presence.expire(now + ms(62_499)).is_empty());
        assert_eq!(presence.expire(now + ms(62_500)), [life(1)]);
    }

    #[test]
    fn who_has_no_calls_is_remembered_for_a_minute() {
        let (mut presence, now) = busy();
        presence.on_call_ended(&life(1));
        presence.on_manifest_sent(&life(1), &caller(), Some("v".into()));
        assert!(presence.expire(now + ms(59_999)).is_empty());
        assert_eq!(presence.manifest_versions().len(), 1);
        assert!(presence.expire(now + ms(60_000)).is_empty());
        assert!(presence.manifest_versions().is_empty());
    }

    #[test]
    fn beyond_the_limit_the_longest_unheard_without_calls_is_forgotten() {
        let (mut presence, now) = busy();
        for instance in 2..=u64::try_from(MAX_INSTANCES).unwrap_or(0) + 1 {
            presence.on_heard(&life(instance), now + ms(instance));
        }
        assert_eq!(presence.instances.len(), MAX_INSTANCES);
        assert!(presence.instances.contains_key(&life(1)), "it has a call");
        assert!(!presence.instances.contains_key(&life(2)));
    }

    #[test]
    fn operators_see_a_worker_once_whatever_lives_it_has() {
        let (mut presence, now) = busy();
        presence.on_heard(&life(2), now);
        presence.on_call_begun(&life(2), &caller());
        let expected = WorkerStatus { name: "w".into(), role: "dev".into(), in_flight: 2 };
        assert_eq!(presence.workers(), [expected]);
    }
}

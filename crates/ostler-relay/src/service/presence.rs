//! Worker presence: the instances of workers that the host has heard.
//!
//! ```text
//!            heard                 3.5 s of silence, with calls
//!  (unknown) ─────▶ alive ─────────────────────────────────▶ gone: its calls are cancelled
//!                     │ 60 s of silence, without calls
//!                     └──────────────▶ forgotten
//! ```
//!
//! Only time with a connection counts: without one the host can hear no worker.

use std::time::{Duration, Instant};

use hashbrown::HashMap;
use ostler_host::Caller;

use crate::call_id::Instance;
use crate::name::RelayName;

/// Silence after which a worker with calls counts as gone: three missed signs of life, sent each
/// second, plus latency.
const GONE_AFTER: Duration = Duration::from_millis(3_500);

/// Silence after which a worker without calls is forgotten; workers refresh their manifest as
/// often.
pub(super) const FORGET_AFTER: Duration = Duration::from_secs(60);

/// Bound on known instances. Beyond it the longest-silent instance without calls is evicted.
const MAX_INSTANCES: usize = 8_192;

/// One process of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct WorkerInstance {
    pub(super) worker: RelayName,
    pub(super) instance: Instance,
}

#[derive(Debug)]
struct InstanceRecord {
    last_heard: Instant,
    /// Calls in flight.
    calls: usize,
    /// Caller that the worker is to the host; set with its first request.
    caller: Option<Caller>,
    /// Version of the manifest sent last; `Some("")` after a refusal.
    manifest_version: Option<String>,
    /// `true` once reported as gone; its last calls may still be ending.
    is_gone: bool,
}

/// A worker as operators see it: all instances of one name.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WorkerStatus {
    /// Name of the worker.
    pub name: String,
    /// Role of the worker; empty before its first request.
    pub role: String,
    /// Calls in flight.
    pub in_flight: usize,
}

/// Presence of all worker instances.
#[derive(Debug, Default)]
pub(super) struct WorkerPresence {
    instances: HashMap<WorkerInstance, InstanceRecord>,
    /// Time of the disconnect; `None` while connected.
    disconnected_since: Option<Instant>,
}

impl WorkerPresence {
    /// Creates an empty presence without a connection.
    pub(super) fn new(now: Instant) -> Self {
        Self { instances: HashMap::new(), disconnected_since: Some(now) }
    }

    /// Records a request of an instance and adds the instance if it is new.
    pub(super) fn on_heard(&mut self, worker_instance: &WorkerInstance, now: Instant) {
        if self.refresh(worker_instance, now) {
            return;
        }
        if self.instances.len() >= MAX_INSTANCES {
            self.evict_one(&worker_instance.worker);
        }
        let record = InstanceRecord {
            last_heard: now,
            calls: 0,
            caller: None,
            manifest_version: None,
            is_gone: false,
        };
        self.instances.insert(worker_instance.clone(), record);
    }

    /// Records a message of an instance. Returns whether the instance is known.
    pub(super) fn refresh(&mut self, worker_instance: &WorkerInstance, now: Instant) -> bool {
        let Some(record) = self.instances.get_mut(worker_instance) else { return false };
        (record.last_heard, record.is_gone) = (now, false);
        true
    }

    /// Evicts the longest-silent instance without calls, preferably one of the same worker.
    fn evict_one(&mut self, worker: &RelayName) {
        let idle = self.instances.iter().filter(|(_, record)| record.calls == 0);
        let oldest = idle
            .min_by_key(|(worker_instance, record)| (worker_instance.worker != *worker, record.last_heard));
        let oldest = oldest.map(|(worker_instance, _)| worker_instance.clone());
        if let Some(oldest) = oldest {
            self.instances.remove(&oldest);
        }
    }

    /// Counts a call that begins.
    pub(super) fn on_call_begun(&mut self, worker_instance: &WorkerInstance, caller: &Caller) {
        if let Some(record) = self.instances.get_mut(worker_instance) {
            record.calls += 1;
            record.caller = Some(caller.clone());
        }
    }

    /// Counts a call that ends.
    pub(super) fn on_call_ended(&mut self, worker_instance: &WorkerInstance) {
        if let Some(record) = self.instances.get_mut(worker_instance) {
            record.calls = record.calls.saturating_sub(1);
        }
    }

    /// Records the manifest version sent to an instance; `None` is a refusal.
    pub(super) fn on_manifest_sent(
        &mut self,
        worker_instance: &WorkerInstance,
        caller: &Caller,
        version: Option<String>,
    ) {
        if let Some(record) = self.instances.get_mut(worker_instance) {
            (record.caller, record.manifest_version) =
                (Some(caller.clone()), Some(version.unwrap_or_default()));
        }
    }

    /// Stops the clock of all instances.
    pub(super) fn on_disconnected(&mut self, now: Instant) {
        self.disconnected_since.get_or_insert(now);
    }

    /// Restarts the clock of all instances; the time without a connection does not count.
    pub(super) fn on_connected(&mut self, now: Instant) {
        let Some(since) = self.disconnected_since.take() else { return };
        for record in self.instances.values_mut() {
            record.last_heard = (record.last_heard + now.saturating_duration_since(since)).min(now);
        }
    }

    /// Forgets silent instances and returns those that had calls.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<WorkerInstance> {
        if self.disconnected_since.is_some() {
            return Vec::new();
        }
        let mut gone = Vec::new();
        self.instances.retain(|worker_instance, record| {
            let silence = now.saturating_duration_since(record.last_heard);
            if record.calls > 0 && silence >= GONE_AFTER && !record.is_gone {
                record.is_gone = true;
                gone.push(worker_instance.clone());
            }
            // A worker that returns meanwhile must keep its record, which counts its calls until
            // they have ended.
            record.calls > 0 || (!record.is_gone && silence < FORGET_AFTER)
        });
        gone
    }

    /// Returns the instances that have a manifest, each with its version.
    pub(super) fn manifest_versions(&self) -> Vec<(WorkerInstance, Caller, String)> {
        let versions = |(worker_instance, record): (&WorkerInstance, &InstanceRecord)| {
            Some((worker_instance.clone(), record.caller.clone()?, record.manifest_version.clone()?))
        };
        let mut versions: Vec<_> = self.instances.iter().filter_map(versions).collect();
        versions.sort_by(|(a, ..), (b, ..)| (&a.worker, a.instance.0).cmp(&(&b.worker, b.instance.0)));
        versions
    }

    /// Returns the status of all workers, sorted by name.
    pub(super) fn workers(&self) -> Vec<WorkerStatus> {
        let mut workers: Vec<WorkerStatus> = Vec::new();
        let mut records: Vec<_> = self.instances.iter().collect();
        records.sort_by(|(a, _), (b, _)| (&a.worker, a.instance.0).cmp(&(&b.worker, b.instance.0)));
        for (worker_instance, record) in records {
            let role = record.caller.as_ref().map_or("", Caller::role);
            match workers.last_mut().filter(|last| last.name == worker_instance.worker.as_str()) {
                Some(last) => {
                    last.in_flight += record.calls;
                    if last.role.is_empty() {
                        last.role = role.to_owned();
                    }
                }
                None => workers.push(WorkerStatus {
                    name: worker_instance.worker.to_string(),
                    role: role.to_owned(),
                    in_flight: record.calls,
                }),
            }
        }
        workers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker_instance(instance: u64) -> WorkerInstance {
        let worker = RelayName::new("w").unwrap_or_else(|error| panic!("{error}"));
        WorkerInstance { worker, instance: Instance(instance) }
    }

    fn caller() -> Caller {
        Caller::new("worker:w", "dev")
    }

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Returns a presence with one busy instance, and the time it was heard.
    fn busy() -> (WorkerPresence, Instant) {
        let now = Instant::now();
        let mut presence = WorkerPresence::new(now);
        presence.on_connected(now);
        presence.on_heard(&worker_instance(1), now);
        presence.on_call_begun(&worker_instance(1), &caller());
        (presence, now)
    }

    #[test]
    fn a_life_with_calls_is_gone_after_three_and_a_half_silent_seconds() {
        let (mut presence, now) = busy();
        assert!(presence.expire(now + ms(3_499)).is_empty());
        assert_eq!(presence.expire(now + ms(3_500)), [worker_instance(1)]);
        assert!(presence.expire(now + ms(3_501)).is_empty(), "said once");
    }

    #[test]
    fn who_comes_back_while_its_calls_are_given_up_is_looked_after_again() {
        let (mut presence, now) = busy();
        assert_eq!(presence.expire(now + ms(3_500)), [worker_instance(1)]);
        presence.on_heard(&worker_instance(1), now + ms(3_600));
        presence.on_call_begun(&worker_instance(1), &caller());
        presence.on_call_ended(&worker_instance(1));
        assert!(presence.expire(now + ms(7_000)).is_empty());
        assert_eq!(presence.expire(now + ms(7_100)), [worker_instance(1)], "its new call is under way");
    }

    #[test]
    fn who_comes_with_ever_new_lives_makes_nobody_else_forgotten() {
        let now = Instant::now();
        let mut presence = WorkerPresence::new(now);
        let worker = RelayName::new("other").unwrap_or_else(|error| panic!("{error}"));
        let other = WorkerInstance { worker, instance: Instance(1) };
        presence.on_heard(&other, now);
        for number in 0..=MAX_INSTANCES as u64 {
            presence.on_heard(&worker_instance(number), now + ms(1));
        }
        assert_eq!(presence.instances.len(), MAX_INSTANCES);
        assert!(presence.instances.contains_key(&other));
        assert!(
            !presence.refresh(&worker_instance(MAX_INSTANCES as u64 + 1), now),
            "a sign of life makes none known"
        );
    }

    #[test]
    fn being_heard_begins_the_time_anew() {
        let (mut presence, now) = busy();
        presence.on_heard(&worker_instance(1), now + ms(3_000));
        assert!(presence.expire(now + ms(6_499)).is_empty());
        assert_eq!(presence.expire(now + ms(6_500)), [worker_instance(1)]);
    }

    #[test]
    fn another_life_of_the_same_worker_does_not_speak_for_it() {
        let (mut presence, now) = busy();
        presence.on_heard(&worker_instance(2), now + ms(3_000));
        assert_eq!(presence.expire(now + ms(3_500)), [worker_instance(1)]);
    }

    #[test]
    fn time_without_a_connection_does_not_count() {
        let (mut presence, now) = busy();
        presence.on_disconnected(now + ms(1_000));
        assert!(presence.expire(now + ms(60_000)).is_empty());
        presence.on_connected(now + ms(60_000));
        assert!(presence.expire(now + ms(62_499)).is_empty());
        assert_eq!(presence.expire(now + ms(62_500)), [worker_instance(1)]);
    }

    #[test]
    fn who_has_no_calls_is_remembered_for_a_minute() {
        let (mut presence, now) = busy();
        presence.on_call_ended(&worker_instance(1));
        presence.on_manifest_sent(&worker_instance(1), &caller(), Some("v".into()));
        assert!(presence.expire(now + ms(59_999)).is_empty());
        assert_eq!(presence.manifest_versions().len(), 1);
        assert!(presence.expire(now + ms(60_000)).is_empty());
        assert!(presence.manifest_versions().is_empty());
    }

    #[test]
    fn beyond_the_limit_the_longest_unheard_without_calls_is_forgotten() {
        let (mut presence, now) = busy();
        for instance in 2..=u64::try_from(MAX_INSTANCES).unwrap_or(0) + 1 {
            presence.on_heard(&worker_instance(instance), now + ms(instance));
        }
        assert_eq!(presence.instances.len(), MAX_INSTANCES);
        assert!(presence.instances.contains_key(&worker_instance(1)), "it has a call");
        assert!(!presence.instances.contains_key(&worker_instance(2)));
    }

    #[test]
    fn operators_see_a_worker_once_whatever_lives_it_has() {
        let (mut presence, now) = busy();
        presence.on_heard(&worker_instance(2), now);
        presence.on_call_begun(&worker_instance(2), &caller());
        let expected = WorkerStatus { name: "w".into(), role: "dev".into(), in_flight: 2 };
        assert_eq!(presence.workers(), [expected]);
    }
}

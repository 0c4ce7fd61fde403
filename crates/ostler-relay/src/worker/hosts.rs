//! Known hosts: last heartbeat, instance and clock offset of each host that the worker hears.

use std::time::Duration;

use tokio::time::Instant;

use super::pending::SILENCE;
use crate::call_id::Instance;
use crate::envelope::Heartbeat;
use crate::name::RelayName;

/// Bound on known hosts of a tenant. A further one evicts the longest-silent host.
const MOST: usize = 64;

/// Hosts that the worker hears.
#[derive(Debug, Default)]
pub(super) struct KnownHosts {
    records: Vec<HostRecord>,
    /// Start of the current connection.
    since: Option<Instant>,
}

#[derive(Debug)]
struct HostRecord {
    name: RelayName,
    generation: Instance,
    last_heard: Instant,
    is_draining: bool,
    clock_offset: ClockOffset,
}

/// Offset of a host's clock to the local one, in milliseconds. Latency makes every sample too
/// small, so the largest sample is the best one. It counts for a limited time only: clocks drift,
/// and the clock of a suspended machine stands still.
#[derive(Debug)]
struct ClockOffset {
    since: Instant,
    /// Largest sample since `since`.
    largest: i64,
    /// Largest sample of the previous window.
    before: i64,
}

/// Length of a sample window; a sample counts for one to two windows.
const WINDOW: Duration = Duration::from_secs(30);

impl ClockOffset {
    fn new(sample: i64, now: Instant) -> Self {
        Self { since: now, largest: sample, before: sample }
    }

    fn add(&mut self, sample: i64, now: Instant) {
        let age = now.saturating_duration_since(self.since);
        if age >= WINDOW * 2 {
            *self = Self::new(sample, now);
        } else if age >= WINDOW {
            *self = Self { since: now, largest: sample, before: self.largest };
        } else {
            self.largest = self.largest.max(sample);
        }
    }

    fn get(&self) -> i64 {
        self.largest.max(self.before)
    }
}

impl KnownHosts {
    /// Records the start of a connection.
    pub(super) fn on_link_up(&mut self, now: Instant) {
        self.since = Some(now);
    }

    /// Records a heartbeat; `ours` is the local clock. Returns whether a known host has restarted.
    pub(super) fn on_heartbeat(
        &mut self,
        name: &RelayName,
        heartbeat: &Heartbeat,
        ours: u64,
        now: Instant,
    ) -> bool {
        let sample = clock_difference(heartbeat.time, ours);
        let record = self.records.iter_mut().find(|record| record.name == *name);
        let Some(record) = record else {
            self.add(HostRecord {
                name: name.clone(),
                generation: heartbeat.generation,
                last_heard: now,
                is_draining: heartbeat.is_draining,
                clock_offset: ClockOffset::new(sample, now),
            });
            return false;
        };
        let is_restarted = record.generation != heartbeat.generation;
        match is_restarted {
            true => record.clock_offset = ClockOffset::new(sample, now),
            false => record.clock_offset.add(sample, now),
        }
        (record.generation, record.last_heard, record.is_draining) =
            (heartbeat.generation, now, heartbeat.is_draining);
        is_restarted
    }

    fn add(&mut self, record: HostRecord) {
        if self.records.len() >= MOST
            && let Some(oldest) = self.records.iter().enumerate().min_by_key(|(_, record)| record.last_heard)
        {
            let at = oldest.0;
            self.records.swap_remove(at);
        }
        self.records.push(record);
    }

    /// Returns the offset of the hosts' clocks. With several hosts the largest offset counts: a
    /// host that reads a start deadline as later than meant would begin a call that the worker has
    /// given up, while one that reads it as earlier refuses the call.
    pub(super) fn clock_offset(&self, now: Instant) -> Option<i64> {
        self.alive(now).map(|record| record.clock_offset.get()).max()
    }

    /// Returns whether no host accepts calls although the connection is old enough to have heard
    /// one.
    pub(super) fn is_none_accepting(&self, now: Instant) -> bool {
        let had_time = self.since.is_some_and(|since| now.saturating_duration_since(since) >= ALIVE_FOR);
        had_time && self.alive(now).all(|record| record.is_draining)
    }

    fn alive(&self, now: Instant) -> impl Iterator<Item = &HostRecord> {
        let is_alive =
            move |record: &&HostRecord| now.saturating_duration_since(record.last_heard) < ALIVE_FOR;
        self.records.iter().filter(is_alive)
    }
}

/// Time since the last heartbeat after which a host counts as gone.
const ALIVE_FOR: Duration = SILENCE;

/// Returns the offset of one clock to another.
pub(super) fn clock_difference(theirs: u64, ours: u64) -> i64 {
    let difference = i64::try_from(theirs.abs_diff(ours)).unwrap_or(i64::MAX);
    if theirs >= ours { difference } else { -difference }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> RelayName {
        RelayName::new(text).unwrap_or_else(|error| panic!("{error}"))
    }

    fn heartbeat(generation: u64, time: u64) -> Heartbeat {
        Heartbeat { generation: Instance(generation), time, in_flight: 0, is_draining: false }
    }

    #[tokio::test(start_paused = true)]
    async fn the_sample_that_was_on_its_way_for_the_shortest_time_counts() {
        let (mut hosts, now) = (KnownHosts::default(), Instant::now());
        for (theirs, ours) in [(10_500, 1_000), (10_999, 1_000), (10_700, 1_000)] {
            hosts.on_heartbeat(&name("a"), &heartbeat(1, theirs), ours, now);
        }
        assert_eq!(hosts.clock_offset(now), Some(9_999));
        hosts.on_heartbeat(&name("a"), &heartbeat(2, 400), 1_000, now);
        assert_eq!(hosts.clock_offset(now), Some(-600), "another life may have another clock");
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_has_stood_still_is_believed_again_soon() {
        let (mut hosts, began) = (KnownHosts::default(), Instant::now());
        for second in 0..200 {
            let now = began + Duration::from_secs(second);
            // The host's machine was suspended for an hour, and its clock with it.
            let slept = if second < 100 { 0 } else { 3_600_000 };
            hosts.on_heartbeat(
                &name("a"),
                &heartbeat(1, 5_000_000 + second * 1_000 - slept),
                second * 1_000,
                now,
            );
            let expected = if second < 160 { 5_000_000 } else { 5_000_000 - 3_600_000 };
            if !(100..160).contains(&second) {
                assert_eq!(hosts.clock_offset(now), Some(expected), "{second}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn of_several_hosts_the_clock_that_is_furthest_ahead_counts() {
        let (mut hosts, now) = (KnownHosts::default(), Instant::now());
        hosts.on_heartbeat(&name("a"), &heartbeat(1, 1_500), 1_000, now);
        hosts.on_heartbeat(&name("b"), &heartbeat(1, 900), 1_000, now);
        assert_eq!(hosts.clock_offset(now), Some(500));
        hosts.on_heartbeat(&name("b"), &heartbeat(1, 4_100), 4_200, now + SILENCE);
        assert_eq!(hosts.clock_offset(now + SILENCE), Some(-100), "a has not been heard");
        assert_eq!(hosts.clock_offset(now + SILENCE * 2), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_that_drains_takes_no_calls() {
        let (mut hosts, now) = (KnownHosts::default(), Instant::now());
        hosts.on_link_up(now);
        assert!(!hosts.is_none_accepting(now), "it may not have had the time to say something");
        let now = now + SILENCE;
        assert!(hosts.is_none_accepting(now));
        hosts.on_heartbeat(&name("a"), &heartbeat(1, 1), 1, now);
        assert!(!hosts.is_none_accepting(now));
        hosts.on_heartbeat(&name("a"), &Heartbeat { is_draining: true, ..heartbeat(1, 1) }, 1, now);
        assert!(hosts.is_none_accepting(now));
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_many_hosts_are_known() {
        let (mut hosts, now) = (KnownHosts::default(), Instant::now());
        for number in 0..200_u64 {
            hosts.on_heartbeat(
                &name(&format!("h{number}")),
                &heartbeat(1, 1),
                1,
                now + Duration::from_millis(number),
            );
        }
        assert_eq!(hosts.records.len(), MOST);
        assert!(hosts.records.iter().any(|record| record.name == name("h199")));
    }
}

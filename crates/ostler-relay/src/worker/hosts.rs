//! The hosts that are heard: when last, in which life, and what their clocks show.

use std::time::Duration;

use tokio::time::Instant;

use super::pending::SILENCE;
use crate::call_id::Instance;
use crate::envelope::Heartbeat;
use crate::name::RelayName;

/// Hosts of one tenant that are known at once. Who is heard beyond that
/// displaces the one that was silent for longest.
const MOST: usize = 64;

/// The hosts that are heard.
#[derive(Debug, Default)]
pub(super) struct KnownHosts {
    records: Vec<HostRecord>,
    /// Since when they can be heard.
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

/// How far a clock is ahead of ours, in milliseconds. Every sample is too small
/// by the time that it was on its way, so the largest is right; but only for a
/// while, for clocks drift, and that of a machine that sleeps stands still.
#[derive(Debug)]
struct ClockOffset {
    since: Instant,
    /// The largest since then.
    largest: i64,
    /// The largest of the time before.
    before: i64,
}

/// How long a sample counts, and at most twice that.
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
    /// From now on they can be heard.
    pub(super) fn on_link_up(&mut self, now: Instant) {
        self.since = Some(now);
    }

    /// A host says that it lives; `ours` is what our clock shows. Returns whether a host that was heard before has
    /// begun another life.
    pub(super) fn on_heartbeat(
        &mut self,
        name: &RelayName,
        beat: &Heartbeat,
        ours: u64,
        now: Instant,
    ) -> bool {
        let sample = clock_difference(beat.time, ours);
        let known = self.records.iter_mut().find(|heard| heard.name == *name);
        let Some(known) = known else {
            self.add(HostRecord {
                name: name.clone(),
                generation: beat.generation,
                last_heard: now,
                is_draining: beat.is_draining,
                clock_offset: ClockOffset::new(sample, now),
            });
            return false;
        };
        let is_new_life = known.generation != beat.generation;
        match is_new_life {
            true => known.clock_offset = ClockOffset::new(sample, now),
            false => known.clock_offset.add(sample, now),
        }
        (known.generation, known.last_heard, known.is_draining) = (beat.generation, now, beat.is_draining);
        is_new_life
    }

    fn add(&mut self, heard: HostRecord) {
        if self.records.len() >= MOST
            && let Some(oldest) = self.records.iter().enumerate().min_by_key(|(_, heard)| heard.last_heard)
        {
            let at = oldest.0;
            self.records.swap_remove(at);
        }
        self.records.push(heard);
    }

    /// How far the hosts' clocks are ahead of ours. Of several hosts the
    /// furthest counts: a host that reads a time to begin as later than it was
    /// meant begins a call that the worker has given up; one that reads it as
    /// earlier refuses every call.
    pub(super) fn clock_offset(&self, now: Instant) -> Option<i64> {
        self.alive(now).map(|heard| heard.clock_offset.get()).max()
    }

    /// Whether no host that takes calls is heard, although one would be.
    pub(super) fn is_none_accepting(&self, now: Instant) -> bool {
        let could_be = self.since.is_some_and(|since| now.saturating_duration_since(since) >= ALIVE_FOR);
        could_be && self.alive(now).all(|heard| heard.is_draining)
    }

    fn alive(&self, now: Instant) -> impl Iterator<Item = &HostRecord> {
        let is_living =
            move |heard: &&HostRecord| now.saturating_duration_since(heard.last_heard) < ALIVE_FOR;
        self.records.iter().filter(is_living)
    }
}

/// How long a host counts as living after it was heard.
const ALIVE_FOR: Duration = SILENCE;

/// How far one clock is ahead of another.
pub(super) fn clock_difference(theirs: u64, ours: u64) -> i64 {
    let away = i64::try_from(theirs.abs_diff(ours)).unwrap_or(i64::MAX);
    if theirs >= ours { away } else { -away }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> RelayName {
        RelayName::new(text).unwrap_or_else(|error| panic!("{error}"))
    }

    fn beat(generation: u64, time: u64) -> Heartbeat {
        Heartbeat { generation: Instance(generation), time, in_flight: 0, is_draining: false }
    }

    #[tokio::test(start_paused = true)]
    async fn the_sample_that_was_on_its_way_for_the_shortest_time_counts() {
        let (mut hosts, now) = (KnownHosts::default(), Instant::now());
        for (theirs, ours) in [(10_500, 1_000), (10_999, 1_000), (10_700, 1_000)] {
            hosts.on_heartbeat(&name("a"), &beat(1, theirs), ours, now);
        }
        assert_eq!(hosts.clock_offset(now), Some(9_999));
        hosts.on_heartbeat(&name("a"), &beat(2, 400), 1_000, now);
        assert_eq!(hosts.clock_offset(now), Some(-600), "another life may have another clock");
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_has_stood_still_is_believed_again_soon() {
        let (mut hosts, began) = (KnownHosts::default(), Instant::now());
        for second in 0..200 {
            let now = began + Duration::from_secs(second);
            // The host's machine has slept for an hour, and its clock with it.
            let slept = if second < 100 { 0 } else { 3_600_000 };
            hosts.on_heartbeat(&name("a"), &beat(1, 5_000_000 + second * 1_000 - slept), second * 1_000, now);
            let expected = if second < 160 { 5_000_000 } else { 5_000_000 - 3_600_000 };
            if !(100..160).contains(&second) {
                assert_eq!(hosts.clock_offset(now), Some(expected), "{second}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn of_several_hosts_the_clock_that_is_furthest_ahead_counts() {
        let (mut hosts, now) = (KnownHosts::default(), Instant::now());
        hosts.on_heartbeat(&name("a"), &beat(1, 1_500), 1_000, now);
        hosts.on_heartbeat(&name("b"), &beat(1, 900), 1_000, now);
        assert_eq!(hosts.clock_offset(now), Some(500));
        hosts.on_heartbeat(&name("b"), &beat(1, 4_100), 4_200, now + SILENCE);
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
        hosts.on_heartbeat(&name("a"), &beat(1, 1), 1, now);
        assert!(!hosts.is_none_accepting(now));
        hosts.on_heartbeat(&name("a"), &Heartbeat { is_draining: true, ..beat(1, 1) }, 1, now);
        assert!(hosts.is_none_accepting(now));
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_many_hosts_are_known() {
        let (mut hosts, now) = (KnownHosts::default(), Instant::now());
        for number in 0..200_u64 {
            hosts.on_heartbeat(
                &name(&format!("h{number}")),
                &beat(1, 1),
                1,
                now + Duration::from_millis(number),
            );
        }
        assert_eq!(hosts.records.len(), MOST);
        assert!(hosts.records.iter().any(|heard| heard.name == name("h199")));
    }
}

//! The hosts that are heard: when last, in which life, and what their clocks show.

use std::time::Duration;

use tokio::time::Instant;

use super::pending::SILENCE;
use crate::call_id::Instance;
use crate::envelope::Beat;
use crate::name::Name;

/// Hosts of one tenant that are known at once. Who is heard beyond that
/// displaces the one that was silent for longest.
const MOST: usize = 64;

/// The hosts that are heard.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    heard: Vec<Heard>,
    /// Since when they can be heard.
    since: Option<Instant>,
}

#[derive(Debug)]
struct Heard {
    name: Name,
    generation: Instance,
    at: Instant,
    is_draining: bool,
    ahead: Ahead,
}

/// How far a clock is ahead of ours, in milliseconds. Every sample is too small
/// by the time that it was on its way, so the largest is right; but only for a
/// while, for clocks drift, and that of a machine that sleeps stands still.
#[derive(Debug)]
struct Ahead {
    since: Instant,
    /// The largest since then.
    largest: i64,
    /// The largest of the time before.
    before: i64,
}

/// How long a sample counts, and at most twice that.
const WINDOW: Duration = Duration::from_secs(30);

impl Ahead {
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

impl Hosts {
    /// From now on they can be heard.
    pub(super) fn on_link_up(&mut self, now: Instant) {
        self.since = Some(now);
    }

    /// A host says that it lives; `ours` is what our clock shows. Returns whether a host that was heard before has
    /// begun another life.
    pub(super) fn on_beat(&mut self, name: &Name, beat: &Beat, ours: u64, now: Instant) -> bool {
        let sample = difference(beat.time, ours);
        let known = self.heard.iter_mut().find(|heard| heard.name == *name);
        let Some(known) = known else {
            self.add(Heard {
                name: name.clone(),
                generation: beat.generation,
                at: now,
                is_draining: beat.is_draining,
                ahead: Ahead::new(sample, now),
            });
            return false;
        };
        let is_new_life = known.generation != beat.generation;
        match is_new_life {
            true => known.ahead = Ahead::new(sample, now),
            false => known.ahead.add(sample, now),
        }
        (known.generation, known.at, known.is_draining) = (beat.generation, now, beat.is_draining);
        is_new_life
    }

    fn add(&mut self, heard: Heard) {
        if self.heard.len() >= MOST
            && let Some(oldest) = self.heard.iter().enumerate().min_by_key(|(_, heard)| heard.at)
        {
            let at = oldest.0;
            self.heard.swap_remove(at);
        }
        self.heard.push(heard);
    }

    /// How far the hosts' clocks are ahead of ours. Of several hosts the
    /// furthest counts: a host that reads a time to begin as later than it was
    /// meant begins a call that the worker has given up; one that reads it as
    /// earlier refuses every call.
    pub(super) fn ahead(&self, now: Instant) -> Option<i64> {
        self.living(now).map(|heard| heard.ahead.get()).max()
    }

    /// Whether no host that takes calls is heard, although one would be.
    pub(super) fn is_none_open(&self, now: Instant) -> bool {
        let could_be = self.since.is_some_and(|since| now.saturating_duration_since(since) >= PATIENCE);
        could_be && self.living(now).all(|heard| heard.is_draining)
    }

    fn living(&self, now: Instant) -> impl Iterator<Item = &Heard> {
        let is_living = move |heard: &&Heard| now.saturating_duration_since(heard.at) < PATIENCE;
        self.heard.iter().filter(is_living)
    }
}

/// How long a host counts as living after it was heard.
const PATIENCE: Duration = SILENCE;

/// How far one clock is ahead of another.
pub(super) fn difference(theirs: u64, ours: u64) -> i64 {
    let away = i64::try_from(theirs.abs_diff(ours)).unwrap_or(i64::MAX);
    if theirs >= ours { away } else { -away }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap_or_else(|error| panic!("{error}"))
    }

    fn beat(generation: u64, time: u64) -> Beat {
        Beat { generation: Instance(generation), time, in_flight: 0, is_draining: false }
    }

    #[tokio::test(start_paused = true)]
    async fn the_sample_that_was_on_its_way_for_the_shortest_time_counts() {
        let (mut hosts, now) = (Hosts::default(), Instant::now());
        for (theirs, ours) in [(10_500, 1_000), (10_999, 1_000), (10_700, 1_000)] {
            hosts.on_beat(&name("a"), &beat(1, theirs), ours, now);
        }
        assert_eq!(hosts.ahead(now), Some(9_999));
        hosts.on_beat(&name("a"), &beat(2, 400), 1_000, now);
        assert_eq!(hosts.ahead(now), Some(-600), "another life may have another clock");
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_has_stood_still_is_believed_again_soon() {
        let (mut hosts, began) = (Hosts::default(), Instant::now());
        for second in 0..200 {
            let now = began + Duration::from_secs(second);
            // The host's machine has slept for an hour, and its clock with it.
            let slept = if second < 100 { 0 } else { 3_600_000 };
            hosts.on_beat(&name("a"), &beat(1, 5_000_000 + second * 1_000 - slept), second * 1_000, now);
            let expected = if second < 160 { 5_000_000 } else { 5_000_000 - 3_600_000 };
            if !(100..160).contains(&second) {
                assert_eq!(hosts.ahead(now), Some(expected), "{second}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn of_several_hosts_the_clock_that_is_furthest_ahead_counts() {
        let (mut hosts, now) = (Hosts::default(), Instant::now());
        hosts.on_beat(&name("a"), &beat(1, 1_500), 1_000, now);
        hosts.on_beat(&name("b"), &beat(1, 900), 1_000, now);
        assert_eq!(hosts.ahead(now), Some(500));
        hosts.on_beat(&name("b"), &beat(1, 4_100), 4_200, now + SILENCE);
        assert_eq!(hosts.ahead(now + SILENCE), Some(-100), "a has not been heard");
        assert_eq!(hosts.ahead(now + SILENCE * 2), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_that_drains_takes_no_calls() {
        let (mut hosts, now) = (Hosts::default(), Instant::now());
        hosts.on_link_up(now);
        assert!(!hosts.is_none_open(now), "it may not have had the time to say something");
        let now = now + SILENCE;
        assert!(hosts.is_none_open(now));
        hosts.on_beat(&name("a"), &beat(1, 1), 1, now);
        assert!(!hosts.is_none_open(now));
        hosts.on_beat(&name("a"), &Beat { is_draining: true, ..beat(1, 1) }, 1, now);
        assert!(hosts.is_none_open(now));
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_many_hosts_are_known() {
        let (mut hosts, now) = (Hosts::default(), Instant::now());
        for number in 0..200_u64 {
            hosts.on_beat(&name(&format!("h{number}")), &beat(1, 1), 1, now + Duration::from_millis(number));
        }
        assert_eq!(hosts.heard.len(), MOST);
        assert!(hosts.heard.iter().any(|heard| heard.name == name("h199")));
    }
}

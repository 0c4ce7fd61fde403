//! Liveness: tells a busy server from a hung one.
//!
//! ```text
//!            silent too long                 answered by anything
//!   Healthy ──────────────────▶ Probing ──────────────────────────▶ Healthy
//!                                │  ▲
//!                       no answer└──┘ up to MAX_MISSES times, then: Hung
//! ```
//!
//! Silence is measured on the connection, not per call: any message of the server proves that it lives. A
//! probe is due if the server has been idle for [`IDLE_BEFORE_PROBE`], if its oldest call has used half its
//! time with nothing received since, or if a call has just timed out.

use std::time::{Duration, Instant};

/// Silence without calls after which the server is probed.
pub const IDLE_BEFORE_PROBE: Duration = Duration::from_secs(30);
/// Unanswered probes in a row that make a server hung.
pub const MAX_MISSES: u32 = 3;
/// Timeout of one probe.
pub const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Activity of a connection at one moment.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionActivity {
    /// Time of the last message from the server, or of the start of the session.
    pub last_received: Instant,
    /// Time at which the oldest waiting call was made.
    pub oldest_call: Option<Instant>,
    /// The time limit of a call at this server.
    pub call_timeout: Duration,
}

/// Next step for a silent server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeDecision {
    /// No probe before this time.
    NotBefore(Instant),
    /// Probe it now.
    Probe,
}

/// Effect of an unanswered probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissOutcome {
    /// Probe again.
    ProbeAgain,
    /// It hangs.
    Hung,
}

/// Liveness state of one session.
#[derive(Debug, Default)]
pub struct Liveness {
    misses: u32,
    /// True if a call has timed out since the last message.
    is_suspect: bool,
}

impl Liveness {
    /// Records a timed-out call: a probe is due at once, however short the silence.
    pub fn on_timeout(&mut self) {
        self.is_suspect = true;
    }

    /// Decides whether a probe is due.
    pub fn decide(&self, activity: &ConnectionActivity, now: Instant) -> ProbeDecision {
        let due = self.probe_due(activity);
        if now >= due { ProbeDecision::Probe } else { ProbeDecision::NotBefore(due) }
    }

    /// Records an answered probe, with a result or an error: the server lives.
    pub fn on_answer(&mut self) {
        *self = Self::default();
    }

    /// Records a probe that was not answered in time.
    pub fn on_miss(&mut self) -> MissOutcome {
        self.misses += 1;
        if self.misses >= MAX_MISSES { MissOutcome::Hung } else { MissOutcome::ProbeAgain }
    }

    fn probe_due(&self, activity: &ConnectionActivity) -> Instant {
        if self.is_suspect || self.misses > 0 {
            return activity.last_received;
        }
        match activity.oldest_call {
            Some(made) => made.max(activity.last_received) + activity.call_timeout / 2,
            None => activity.last_received + IDLE_BEFORE_PROBE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn base() -> Instant {
        #[allow(clippy::disallowed_methods, reason = "a test needs some instant to count from")]
        Instant::now()
    }

    fn activity(heard: Instant, oldest_call: Option<Instant>) -> ConnectionActivity {
        ConnectionActivity { last_received: heard, oldest_call, call_timeout: Duration::from_secs(60) }
    }

    #[test]
    fn an_idle_server_is_asked_after_half_a_minute() {
        let (t, live) = (base(), Liveness::default());
        assert_eq!(live.decide(&activity(t, None), t), ProbeDecision::NotBefore(t + IDLE_BEFORE_PROBE));
        assert_eq!(live.decide(&activity(t, None), t + IDLE_BEFORE_PROBE), ProbeDecision::Probe);
    }

    #[test]
    fn a_long_call_is_not_suspicious_while_the_server_talks() {
        let (t, live) = (base(), Liveness::default());
        let now = t + Duration::from_secs(50);
        assert_eq!(live.decide(&activity(t, Some(t)), now), ProbeDecision::Probe);
        let heard = now - Duration::from_secs(1);
        assert_eq!(
            live.decide(&activity(heard, Some(t)), now),
            ProbeDecision::NotBefore(heard + Duration::from_secs(30))
        );
    }

    #[test]
    fn a_timed_out_call_makes_the_next_look_a_probe() {
        let (t, mut live) = (base(), Liveness::default());
        live.on_timeout();
        assert_eq!(live.decide(&activity(t, None), t), ProbeDecision::Probe);
        live.on_answer();
        assert_eq!(live.decide(&activity(t, None), t), ProbeDecision::NotBefore(t + IDLE_BEFORE_PROBE));
    }

    #[test]
    fn after_a_miss_it_is_asked_again_at_once() {
        let (t, mut live) = (base(), Liveness::default());
        assert_eq!(live.on_miss(), MissOutcome::ProbeAgain);
        assert_eq!(live.decide(&activity(t, Some(t)), t), ProbeDecision::Probe);
        live.on_answer();
        assert_eq!(live.decide(&activity(t, None), t), ProbeDecision::NotBefore(t + IDLE_BEFORE_PROBE));
    }

    #[test]
    fn the_third_miss_in_a_row_means_hung() {
        let mut live = Liveness::default();
        assert_eq!([live.on_miss(), live.on_miss()], [MissOutcome::ProbeAgain, MissOutcome::ProbeAgain]);
        assert_eq!(live.on_miss(), MissOutcome::Hung);
    }

    proptest! {
        #[test]
        fn only_an_unbroken_row_of_misses_ends_a_server(events in prop::collection::vec(any::<bool>(), 0..64)) {
            let mut live = Liveness::default();
            let mut row = 0;
            for is_answer in events {
                if is_answer {
                    live.on_answer();
                    row = 0;
                } else {
                    row += 1;
                    let expected = if row >= MAX_MISSES { MissOutcome::Hung } else { MissOutcome::ProbeAgain };
                    prop_assert_eq!(live.on_miss(), expected);
                }
            }
        }
    }
}

//! Whether a silent server is thinking or hanging.
//!
//! ```text
//!            silent too long                answered by anything
//! trusting ──────────────────▶ asking ──────────────────────────▶ trusting
//!                               │  ▲
//!                      no answer└──┘ up to MISSES times, then: hung
//! ```
//!
//! Silence is measured on the connection, not per call: whatever the server
//! says proves that it lives. A probe is asked for when the server has been
//! idle for [`IDLE`], when its oldest call is past half its time with nothing
//! read in between, or when a call has just timed out.

use std::time::{Duration, Instant};

/// Silence without calls after which the server is asked whether it lives.
pub const IDLE_BEFORE_PROBE: Duration = Duration::from_secs(30);
/// Unanswered probes in a row that make a server hung.
pub const MAX_MISSES: u32 = 3;
/// How long one probe waits.
pub const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// What is known of a connection at one moment.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionActivity {
    /// When the server was last heard, or the session began.
    pub last_received: Instant,
    /// When the oldest waiting call was made.
    pub oldest_call: Option<Instant>,
    /// The time a call of this server has.
    pub call_timeout: Duration,
}

/// What to do about a silent server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeDecision {
    /// Nothing; look again then.
    NotBefore(Instant),
    /// Ask it whether it lives.
    Probe,
}

/// What an unanswered probe means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissOutcome {
    /// Ask again.
    ProbeAgain,
    /// It hangs.
    Hung,
}

/// The patience with one session.
#[derive(Debug, Default)]
pub struct Liveness {
    misses: u32,
    /// A call has timed out since the last sign of life.
    is_suspect: bool,
}

impl Liveness {
    /// A call has timed out: ask at the next look, however short the silence.
    pub fn on_timeout(&mut self) {
        self.is_suspect = true;
    }

    /// Looks at the signs.
    pub fn decide(&self, signs: &ConnectionActivity, now: Instant) -> ProbeDecision {
        let due = self.probe_due(signs);
        if now >= due { ProbeDecision::Probe } else { ProbeDecision::NotBefore(due) }
    }

    /// The probe was answered, with a result or an error: the server lives.
    pub fn on_answer(&mut self) {
        *self = Self::default();
    }

    /// The probe was not answered in time.
    pub fn on_miss(&mut self) -> MissOutcome {
        self.misses += 1;
        if self.misses >= MAX_MISSES { MissOutcome::Hung } else { MissOutcome::ProbeAgain }
    }

    fn probe_due(&self, signs: &ConnectionActivity) -> Instant {
        if self.is_suspect || self.misses > 0 {
            return signs.last_received;
        }
        match signs.oldest_call {
            Some(made) => made.max(signs.last_received) + signs.call_timeout / 2,
            None => signs.last_received + IDLE_BEFORE_PROBE,
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

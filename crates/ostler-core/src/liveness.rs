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
pub const IDLE: Duration = Duration::from_secs(30);
/// Unanswered probes in a row that make a server hung.
pub const MISSES: u32 = 3;
/// How long one probe waits.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// What is known of a connection at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Signs {
    /// When the server was last heard, or the session began.
    pub heard: Instant,
    /// When the oldest waiting call was made.
    pub oldest_call: Option<Instant>,
    /// The time a call of this server has.
    pub call_timeout: Duration,
}

/// What to do about a silent server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Nothing; look again then.
    Later(Instant),
    /// Ask it whether it lives.
    Probe,
}

/// What an unanswered probe means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missed {
    /// Ask again.
    Again,
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
    pub fn look(&self, signs: &Signs, now: Instant) -> Look {
        let due = self.due(signs);
        if now >= due { Look::Probe } else { Look::Later(due) }
    }

    /// The probe was answered, with a result or an error: the server lives.
    pub fn on_answer(&mut self) {
        *self = Self::default();
    }

    /// The probe was not answered in time.
    pub fn on_miss(&mut self) -> Missed {
        self.misses += 1;
        if self.misses >= MISSES { Missed::Hung } else { Missed::Again }
    }

    fn due(&self, signs: &Signs) -> Instant {
        if self.is_suspect || self.misses > 0 {
            return signs.heard;
        }
        match signs.oldest_call {
            Some(made) => made.max(signs.heard) + signs.call_timeout / 2,
            None => signs.heard + IDLE,
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

    fn signs(heard: Instant, oldest_call: Option<Instant>) -> Signs {
        Signs { heard, oldest_call, call_timeout: Duration::from_secs(60) }
    }

    #[test]
    fn an_idle_server_is_asked_after_half_a_minute() {
        let (t, live) = (base(), Liveness::default());
        assert_eq!(live.look(&signs(t, None), t), Look::Later(t + IDLE));
        assert_eq!(live.look(&signs(t, None), t + IDLE), Look::Probe);
    }

    #[test]
    fn a_long_call_is_not_suspicious_while_the_server_talks() {
        let (t, live) = (base(), Liveness::default());
        let now = t + Duration::from_secs(50);
        assert_eq!(live.look(&signs(t, Some(t)), now), Look::Probe);
        let heard = now - Duration::from_secs(1);
        assert_eq!(live.look(&signs(heard, Some(t)), now), Look::Later(heard + Duration::from_secs(30)));
    }

    #[test]
    fn a_timed_out_call_makes_the_next_look_a_probe() {
        let (t, mut live) = (base(), Liveness::default());
        live.on_timeout();
        assert_eq!(live.look(&signs(t, None), t), Look::Probe);
        live.on_answer();
        assert_eq!(live.look(&signs(t, None), t), Look::Later(t + IDLE));
    }

    #[test]
    fn after_a_miss_it_is_asked_again_at_once() {
        let (t, mut live) = (base(), Liveness::default());
        assert_eq!(live.on_miss(), Missed::Again);
        assert_eq!(live.look(&signs(t, Some(t)), t), Look::Probe);
        live.on_answer();
        assert_eq!(live.look(&signs(t, None), t), Look::Later(t + IDLE));
    }

    #[test]
    fn the_third_miss_in_a_row_means_hung() {
        let mut live = Liveness::default();
        assert_eq!([live.on_miss(), live.on_miss()], [Missed::Again, Missed::Again]);
        assert_eq!(live.on_miss(), Missed::Hung);
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
                    let expected = if row >= MISSES { Missed::Hung } else { Missed::Again };
                    prop_assert_eq!(live.on_miss(), expected);
                }
            }
        }
    }
}

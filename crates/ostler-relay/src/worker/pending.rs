//! What has become of one call, as far as it can be known here.
//!
//! ```text
//!               handing       published          a sign of it: accepted, a note, a chunk
//!   waiting ─────────▶ handing ──────────▶ sent ─────────────────────────────▶ running
//!     ▲  ▲               │ │                │ │ 2 s: Unknown                   │  │ host silent for 3.2 s,
//!     │  └────unsent─────┘ │                │ │                                │  │ host of another life:
//!     └──────unheard───────┴────────────────┘ └──────────┬─────────────────────┘  │ Unknown
//!                                                 link lost                       ▼
//!                                                        ▼         a sign
//!                                                     severed ─resumed─▶ resumed ──▶ running
//!                                                        ▲                  │ 2 s: Unknown; 3.2 s if a host
//!                                                        └────link lost─────┘ has it; whoever is heard that
//!                                                                             may have it is asked again
//! ```
//!
//! A host says `accepted` again when it may not, or could not, send the answer
//! where it was asked to: then it is asked for it.
//!
//! Only who waits or hands over knows that nothing has left. From `sent` on a
//! call that ends without an answer is unknown, with two exceptions, both said
//! by the broker: nobody listens, and it does not take the message from us. The
//! broker says so once for each message. An answer ends the call in every stage.
//!
//! Beside the stage a call has a time: progress moves `until` on, a question
//! that is open stops it, and neither goes beyond `at_most`.

use std::time::Duration;

use ostler_core::fault::{Fault, FaultKind, Span};
use tokio::time::Instant;

use crate::call_id::Instance;
use crate::name::Name;

/// How long a host may take to say that it has a call.
pub(super) const ACCEPT: Duration = Duration::from_secs(2);

/// How long a host that carries out a call may be silent: three heartbeats,
/// and a bit for their way.
pub(super) const SILENCE: Duration = Duration::from_millis(3_200);

/// Where a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// With us.
    Waiting,
    /// On its way into the connection, from which it can be taken back.
    Handing,
    /// With the broker, or wherever the broker has brought it.
    Sent { at: Instant },
    /// With a host.
    Running {
        /// When the host was heard last.
        heard: Instant,
    },
    /// The connection through which we would hear of it is lost.
    Severed,
    /// Asked about, on another connection.
    Resumed {
        at: Instant,
        /// Whether its host, or any if it is not known, has been heard since,
        /// and asked again: the outage may have been longer for it than for us.
        is_repeated: bool,
    },
}

/// What to do after something was heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Move {
    /// Nothing.
    Stay,
    /// Ask what has become of it.
    Ask,
    /// It is over.
    End(Fault),
}

/// The times of a call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    /// When it began.
    pub(super) began: Instant,
    /// When to stop waiting.
    pub(super) until: Instant,
    /// Beyond this `until` is never moved.
    pub(super) at_most: Instant,
    /// What a call gets after progress.
    pub(super) patience: Duration,
}

/// What has become of one call.
#[derive(Debug, Clone)]
pub(super) struct Pending {
    stage: Stage,
    times: Times,
    /// The life of the host that has accepted it.
    host: Option<(Name, Instance)>,
    /// Questions that the caller has not answered.
    questions: u32,
    /// When we last asked what has become of it, while no answer to that has come.
    asked: Option<Instant>,
}

impl Pending {
    pub(super) fn new(times: Times) -> Self {
        Self { stage: Stage::Waiting, times, host: None, questions: 0, asked: None }
    }

    /// Whether a host may have it.
    pub(super) fn may_have_left(&self) -> bool {
        !matches!(self.stage, Stage::Waiting | Stage::Handing)
    }

    /// Whether it is on its way or with a host, and nothing definite was heard.
    pub(super) fn is_severed(&self) -> bool {
        self.stage == Stage::Severed
    }

    /// It is about to be handed to the connection.
    pub(super) fn on_handing(&mut self) {
        if self.stage == Stage::Waiting {
            self.stage = Stage::Handing;
        }
    }

    /// The connection has it. What was heard of it meanwhile counts more.
    pub(super) fn on_published(&mut self, now: Instant) {
        if self.stage == Stage::Handing {
            self.stage = Stage::Sent { at: now };
        }
    }

    /// The connection has not taken it.
    pub(super) fn on_unsent(&mut self) {
        if self.stage == Stage::Handing {
            self.stage = Stage::Waiting;
        }
    }

    /// The broker says that nobody listens: nobody has got it. True if that
    /// can be so.
    pub(super) fn on_unheard(&mut self) -> bool {
        let is_so = matches!(self.stage, Stage::Handing | Stage::Sent { .. });
        if is_so {
            self.stage = Stage::Waiting;
        }
        is_so
    }

    /// The broker says that it does not let us publish where this was
    /// published. Of what a host has, that says nothing.
    pub(super) fn on_denied(&mut self, subject: &str) -> Option<Fault> {
        let is_about_it = matches!(self.stage, Stage::Handing | Stage::Sent { .. });
        is_about_it.then(|| {
            let why = format!("the broker does not let this worker publish to {subject}");
            Fault::rejected(FaultKind::Denied(why))
        })
    }

    /// A host has claimed it. Said again without being asked, it means that
    /// there is something to be asked for. So it does after an outage, when it
    /// may have been said before the host could hear our question.
    pub(super) fn on_accepted(&mut self, host: Name, generation: Instance, now: Instant) -> Move {
        // Two hosts that both say so share no journal. Asking is heard by both,
        // and were each of their answers a reason to ask, it would never end.
        if self.host.as_ref().is_some_and(|(own, _)| *own != host) {
            return Move::Stay;
        }
        let is_first = self.host.replace((host, generation)).is_none();
        let is_resumed = match self.stage {
            Stage::Resumed { is_repeated, .. } => is_first || !is_repeated,
            _ => false,
        };
        let is_answer = self.asked.is_some_and(|asked| now < asked + ACCEPT);
        self.on_sign(now);
        if !is_resumed && (is_first || is_answer) {
            return Move::Stay;
        }
        self.asked = Some(now);
        Move::Ask
    }

    /// Something was heard that only who has the call can say.
    pub(super) fn on_sign(&mut self, now: Instant) {
        self.stage = Stage::Running { heard: now };
        self.asked = None;
    }

    /// A host lives, in this life. If it is the call's host in another life,
    /// nobody knows what has become of the call.
    pub(super) fn on_beat(&mut self, host: &Name, generation: Instance, now: Instant) -> Move {
        let is_resumed = matches!(self.stage, Stage::Resumed { .. });
        match &self.host {
            Some((own, life)) if own == host && *life != generation => {
                return Move::End(lost(format!("the host `{host}` was started anew meanwhile")));
            }
            Some((own, _)) if own == host => {}
            // Whoever has it may be the one that is heard now.
            None if is_resumed => {}
            _ => return Move::Stay,
        }
        match &mut self.stage {
            Stage::Running { heard } => *heard = now,
            Stage::Resumed { at, is_repeated } if !*is_repeated => (*at, *is_repeated) = (now, true),
            _ => {}
        }
        // A question without an answer may have come before the host could hear it.
        if self.asked.is_none() {
            return Move::Stay;
        }
        self.asked = Some(now);
        Move::Ask
    }

    /// The connection is lost.
    pub(super) fn on_link_lost(&mut self) {
        match self.stage {
            // Whether the connection has taken it is about to be said.
            Stage::Waiting | Stage::Handing => {}
            Stage::Sent { .. } | Stage::Running { .. } | Stage::Resumed { .. } | Stage::Severed => {
                self.stage = Stage::Severed;
            }
        }
    }

    /// It is asked about on another connection.
    pub(super) fn on_resumed(&mut self, now: Instant) {
        if self.stage == Stage::Severed {
            self.stage = Stage::Resumed { at: now, is_repeated: false };
            self.asked = Some(now);
        }
    }

    /// It makes progress.
    pub(super) fn on_progress(&mut self, now: Instant) {
        self.on_sign(now);
        let Times { until, at_most, patience, .. } = &mut self.times;
        *until = (*until).max(now + *patience).min(*at_most);
    }

    /// Its caller is asked something: the time stands still.
    pub(super) fn on_question(&mut self, now: Instant) {
        self.on_sign(now);
        self.questions = self.questions.saturating_add(1);
        self.times.until = self.times.at_most;
    }

    /// A question is closed; with the last one the time runs again.
    pub(super) fn on_question_closed(&mut self, now: Instant) {
        self.questions = self.questions.saturating_sub(1);
        if self.questions == 0 {
            self.times.until = self.times.at_most.min(now + self.times.patience);
        }
    }

    /// Time has passed.
    pub(super) fn on_time(&mut self, now: Instant) -> Option<Fault> {
        let Times { began, until, .. } = self.times;
        if now >= until {
            let kind = FaultKind::TimedOut(until.saturating_duration_since(began));
            return Some(match self.may_have_left() {
                true => Fault::unknown(kind),
                false => Fault::not_sent(kind),
            });
        }
        let is_doubted = self.doubted().is_some_and(|doubted| now >= doubted);
        is_doubted.then(|| lost(self.doubt()))
    }

    /// When time alone changes something.
    pub(super) fn next_wake(&self) -> Instant {
        let until = self.times.until;
        self.doubted().map_or(until, |doubted| until.min(doubted))
    }

    /// When nobody can be believed to have the call any more.
    fn doubted(&self) -> Option<Instant> {
        match (self.stage, &self.host) {
            (Stage::Sent { at }, _) => Some(at + ACCEPT),
            (Stage::Resumed { at, is_repeated: false }, Some(_)) => Some(at + SILENCE),
            (Stage::Resumed { at, .. }, _) => Some(at + ACCEPT),
            (Stage::Running { heard }, Some(_)) => Some(heard + SILENCE),
            (Stage::Running { .. }, None) | (Stage::Waiting | Stage::Handing | Stage::Severed, _) => None,
        }
    }

    /// Why nobody can.
    fn doubt(&self) -> String {
        match (self.stage, &self.host) {
            (Stage::Running { .. }, Some((host, _))) => {
                format!("the host `{host}`, which has it, has not been heard for {}", Span(SILENCE))
            }
            (Stage::Resumed { .. }, Some((host, _))) => format!(
                "the connection was lost meanwhile, and the host `{host}`, which had it, says nothing of it"
            ),
            (Stage::Resumed { .. }, None) => {
                "the connection was lost meanwhile, and no host knows of it".into()
            }
            _ => format!("no host has accepted it within {}", Span(ACCEPT)),
        }
    }
}

/// Nobody knows whether it ran.
fn lost(why: String) -> Fault {
    Fault::unknown(FaultKind::Unreachable(why))
}

#[cfg(test)]
#[path = "pending_tests.rs"]
mod tests;

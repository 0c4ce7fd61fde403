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

use ostler_core::fault::{Fault, FaultKind, HumanDuration};
use tokio::time::Instant;

use crate::call_id::Instance;
use crate::name::RelayName;

/// How long a host may take to say that it has a call.
pub(super) const ACCEPT: Duration = Duration::from_secs(2);

/// How long a host that carries out a call may be silent: three heartbeats,
/// and a bit for their way.
pub(super) const SILENCE: Duration = Duration::from_millis(3_200);

/// Where a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PendingStage {
    /// With us.
    Waiting,
    /// On its way into the connection, from which it can be taken back.
    Publishing,
    /// With the broker, or wherever the broker has brought it.
    Sent { at: Instant },
    /// With a host.
    Running {
        /// When the host was heard last.
        last_heard: Instant,
    },
    /// The connection through which we would hear of it is lost.
    Disconnected,
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
pub(super) enum PendingAction {
    /// Nothing.
    Nothing,
    /// Ask what has become of it.
    Resume,
    /// It is over.
    Fail(Fault),
}

/// The times of a call.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallTimes {
    /// When it began.
    pub(super) began: Instant,
    /// When to stop waiting.
    pub(super) deadline: Instant,
    /// Beyond this `until` is never moved.
    pub(super) hard_deadline: Instant,
    /// What a call gets after progress.
    pub(super) progress_extension: Duration,
}

/// What has become of one call.
#[derive(Debug, Clone)]
pub(super) struct PendingRelayCall {
    stage: PendingStage,
    times: CallTimes,
    /// The life of the host that has accepted it.
    host: Option<(RelayName, Instance)>,
    /// Questions that the caller has not answered.
    open_requests: u32,
    /// When we last asked what has become of it, while no answer to that has come.
    resume_asked_at: Option<Instant>,
}

impl PendingRelayCall {
    pub(super) fn new(times: CallTimes) -> Self {
        Self { stage: PendingStage::Waiting, times, host: None, open_requests: 0, resume_asked_at: None }
    }

    /// Whether a host may have it.
    pub(super) fn may_have_left(&self) -> bool {
        !matches!(self.stage, PendingStage::Waiting | PendingStage::Publishing)
    }

    /// Whether it is on its way or with a host, and nothing definite was heard.
    pub(super) fn is_disconnected(&self) -> bool {
        self.stage == PendingStage::Disconnected
    }

    /// It is about to be handed to the connection.
    pub(super) fn on_publishing(&mut self) {
        if self.stage == PendingStage::Waiting {
            self.stage = PendingStage::Publishing;
        }
    }

    /// The connection has it. What was heard of it meanwhile counts more.
    pub(super) fn on_published(&mut self, now: Instant) {
        if self.stage == PendingStage::Publishing {
            self.stage = PendingStage::Sent { at: now };
        }
    }

    /// The connection has not taken it.
    pub(super) fn on_publish_failed(&mut self) {
        if self.stage == PendingStage::Publishing {
            self.stage = PendingStage::Waiting;
        }
    }

    /// The broker says that nobody listens: nobody has got it. True if that
    /// can be so.
    pub(super) fn on_no_responders(&mut self) -> bool {
        let is_so = matches!(self.stage, PendingStage::Publishing | PendingStage::Sent { .. });
        if is_so {
            self.stage = PendingStage::Waiting;
        }
        is_so
    }

    /// The broker says that it does not let us publish where this was
    /// published. Of what a host has, that says nothing.
    pub(super) fn on_denied(&mut self, subject: &str) -> Option<Fault> {
        let is_about_it = matches!(self.stage, PendingStage::Publishing | PendingStage::Sent { .. });
        is_about_it.then(|| {
            let why = format!("the broker does not let this worker publish to {subject}");
            Fault::rejected(FaultKind::Denied(why))
        })
    }

    /// A host has claimed it. Said again without being asked, it means that
    /// there is something to be asked for. So it does after an outage, when it
    /// may have been said before the host could hear our question.
    pub(super) fn on_accepted(
        &mut self,
        host: RelayName,
        generation: Instance,
        now: Instant,
    ) -> PendingAction {
        // Two hosts that both say so share no journal. Asking is heard by both,
        // and were each of their answers a reason to ask, it would never end.
        if self.host.as_ref().is_some_and(|(own, _)| *own != host) {
            return PendingAction::Nothing;
        }
        let is_first = self.host.replace((host, generation)).is_none();
        let is_resumed = match self.stage {
            PendingStage::Resumed { is_repeated, .. } => is_first || !is_repeated,
            _ => false,
        };
        let is_answer = self.resume_asked_at.is_some_and(|asked| now < asked + ACCEPT);
        self.on_host_message(now);
        if !is_resumed && (is_first || is_answer) {
            return PendingAction::Nothing;
        }
        self.resume_asked_at = Some(now);
        PendingAction::Resume
    }

    /// Something was heard that only who has the call can say.
    pub(super) fn on_host_message(&mut self, now: Instant) {
        self.stage = PendingStage::Running { last_heard: now };
        self.resume_asked_at = None;
    }

    /// A host lives, in this life. If it is the call's host in another life,
    /// nobody knows what has become of the call.
    pub(super) fn on_heartbeat(
        &mut self,
        host: &RelayName,
        generation: Instance,
        now: Instant,
    ) -> PendingAction {
        let is_resumed = matches!(self.stage, PendingStage::Resumed { .. });
        match &self.host {
            Some((own, life)) if own == host && *life != generation => {
                return PendingAction::Fail(unknown_fault(format!(
                    "the host `{host}` was started anew meanwhile"
                )));
            }
            Some((own, _)) if own == host => {}
            // Whoever has it may be the one that is heard now.
            None if is_resumed => {}
            _ => return PendingAction::Nothing,
        }
        match &mut self.stage {
            PendingStage::Running { last_heard: heard } => *heard = now,
            PendingStage::Resumed { at, is_repeated } if !*is_repeated => (*at, *is_repeated) = (now, true),
            _ => {}
        }
        // A question without an answer may have come before the host could hear it.
        if self.resume_asked_at.is_none() {
            return PendingAction::Nothing;
        }
        self.resume_asked_at = Some(now);
        PendingAction::Resume
    }

    /// The connection is lost.
    pub(super) fn on_link_lost(&mut self) {
        match self.stage {
            // Whether the connection has taken it is about to be said.
            PendingStage::Waiting | PendingStage::Publishing => {}
            PendingStage::Sent { .. }
            | PendingStage::Running { .. }
            | PendingStage::Resumed { .. }
            | PendingStage::Disconnected => {
                self.stage = PendingStage::Disconnected;
            }
        }
    }

    /// It is asked about on another connection.
    pub(super) fn on_resumed(&mut self, now: Instant) {
        if self.stage == PendingStage::Disconnected {
            self.stage = PendingStage::Resumed { at: now, is_repeated: false };
            self.resume_asked_at = Some(now);
        }
    }

    /// It makes progress.
    pub(super) fn on_progress(&mut self, now: Instant) {
        self.on_host_message(now);
        let CallTimes { deadline: until, hard_deadline: at_most, progress_extension: patience, .. } =
            &mut self.times;
        *until = (*until).max(now + *patience).min(*at_most);
    }

    /// Its caller is asked something: the time stands still.
    pub(super) fn on_server_request(&mut self, now: Instant) {
        self.on_host_message(now);
        self.open_requests = self.open_requests.saturating_add(1);
        self.times.deadline = self.times.hard_deadline;
    }

    /// A question is closed; with the last one the time runs again.
    pub(super) fn on_server_request_closed(&mut self, now: Instant) {
        self.open_requests = self.open_requests.saturating_sub(1);
        if self.open_requests == 0 {
            self.times.deadline = self.times.hard_deadline.min(now + self.times.progress_extension);
        }
    }

    /// Time has passed.
    pub(super) fn on_time_passed(&mut self, now: Instant) -> Option<Fault> {
        let CallTimes { began, deadline: until, .. } = self.times;
        if now >= until {
            let kind = FaultKind::TimedOut(until.saturating_duration_since(began));
            return Some(match self.may_have_left() {
                true => Fault::unknown(kind),
                false => Fault::not_sent(kind),
            });
        }
        let is_doubted = self.doubt_at().is_some_and(|doubted| now >= doubted);
        is_doubted.then(|| unknown_fault(self.doubt_reason()))
    }

    /// When time alone changes something.
    pub(super) fn next_wake(&self) -> Instant {
        let until = self.times.deadline;
        self.doubt_at().map_or(until, |doubted| until.min(doubted))
    }

    /// When nobody can be believed to have the call any more.
    fn doubt_at(&self) -> Option<Instant> {
        match (self.stage, &self.host) {
            (PendingStage::Sent { at }, _) => Some(at + ACCEPT),
            (PendingStage::Resumed { at, is_repeated: false }, Some(_)) => Some(at + SILENCE),
            (PendingStage::Resumed { at, .. }, _) => Some(at + ACCEPT),
            (PendingStage::Running { last_heard: heard }, Some(_)) => Some(heard + SILENCE),
            (PendingStage::Running { .. }, None)
            | (PendingStage::Waiting | PendingStage::Publishing | PendingStage::Disconnected, _) => None,
        }
    }

    /// Why nobody can.
    fn doubt_reason(&self) -> String {
        match (self.stage, &self.host) {
            (PendingStage::Running { .. }, Some((host, _))) => {
                format!("the host `{host}`, which has it, has not been heard for {}", HumanDuration(SILENCE))
            }
            (PendingStage::Resumed { .. }, Some((host, _))) => format!(
                "the connection was lost meanwhile, and the host `{host}`, which had it, says nothing of it"
            ),
            (PendingStage::Resumed { .. }, None) => {
                "the connection was lost meanwhile, and no host knows of it".into()
            }
            _ => format!("no host has accepted it within {}", HumanDuration(ACCEPT)),
        }
    }
}

/// Nobody knows whether it ran.
fn unknown_fault(why: String) -> Fault {
    Fault::unknown(FaultKind::Unreachable(why))
}

#[cfg(test)]
#[path = "pending_tests.rs"]
mod tests;

//! Pending call: the state of one call as far as the worker can know it.
//!
//! ```text
//!          on_publishing      on_published       accepted, notification or chunk
//!  waiting ──────────▶ publishing ──────▶ sent ───────────────────────────────▶ running
//!    ▲  ▲                │ │               │ │ 2 s: Unknown                     │  │ host silent for 3.2 s,
//!    │  └─publish failed─┘ │               │ │                                  │  │ host restarted:
//!    └────no responders────┴───────────────┘ └──────────┬───────────────────────┘  │ Unknown
//!                                                   link lost                      ▼
//!                                                       ▼              accepted, …
//!                                                 disconnected ──▶ resumed ──▶ running
//!                                                       ▲             │ 2 s: Unknown; 3.2 s if its host is known;
//!                                                       └──link lost──┘ a heartbeat of a host that may have it
//!                                                                       repeats the resume
//! ```
//!
//! A host sends `accepted` again if it may not, or could not, send the answer to the reply subject; then the
//! worker asks for the answer.
//!
//! Only in `waiting` and `publishing` is it certain that the call has not left. From `sent` on a call that ends
//! without an answer has an unknown outcome, with two exceptions that the broker reports, once per message: no
//! subscriber, and a denied publish. An answer ends the call in every stage.
//!
//! Besides its stage a call has deadlines: progress extends `deadline`, an open server request suspends it, and
//! neither exceeds `hard_deadline`.

use std::time::Duration;

use ostler_core::fault::{Fault, FaultKind, HumanDuration};
use tokio::time::Instant;

use crate::call_id::Instance;
use crate::name::RelayName;

/// Timeout for a host to accept a call.
pub(super) const ACCEPT: Duration = Duration::from_secs(2);

/// Silence after which an executing host counts as gone: three heartbeats plus latency.
pub(super) const SILENCE: Duration = Duration::from_millis(3_200);

/// Stage of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PendingStage {
    /// Not handed to a connection.
    Waiting,
    /// Being handed to the connection; can still be withdrawn.
    Publishing,
    /// With the broker, or delivered by it.
    Sent { at: Instant },
    /// Accepted by a host.
    Running {
        /// Time of the host's last message or heartbeat.
        last_heard: Instant,
    },
    /// The connection that the answer would come by is lost.
    Disconnected,
    /// The worker has asked for the state over another connection.
    Resumed {
        at: Instant,
        /// `true` once the host, or any host if it is unknown, was heard and asked again: its
        /// outage may have lasted longer than the worker's.
        is_repeated: bool,
    },
}

/// Action that an event requires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PendingAction {
    /// Nothing.
    Nothing,
    /// Ask the host for the state of the call.
    Resume,
    /// Fail the call.
    Fail(Fault),
}

/// Deadlines of a call.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallTimes {
    /// Start of the call.
    pub(super) began: Instant,
    /// Current deadline.
    pub(super) deadline: Instant,
    /// Upper bound of `deadline`.
    pub(super) hard_deadline: Instant,
    /// Extension of `deadline` after progress.
    pub(super) progress_extension: Duration,
}

/// State of one call in flight.
#[derive(Debug, Clone)]
pub(super) struct PendingRelayCall {
    stage: PendingStage,
    times: CallTimes,
    /// Host that accepted the call, and its instance.
    host: Option<(RelayName, Instance)>,
    /// Server requests without a response.
    open_requests: u32,
    /// Time of the last resume; `None` once the host has sent a message.
    resume_asked_at: Option<Instant>,
}

impl PendingRelayCall {
    pub(super) fn new(times: CallTimes) -> Self {
        Self { stage: PendingStage::Waiting, times, host: None, open_requests: 0, resume_asked_at: None }
    }

    /// Returns whether a host may have received the call.
    pub(super) fn may_have_left(&self) -> bool {
        !matches!(self.stage, PendingStage::Waiting | PendingStage::Publishing)
    }

    /// Returns whether the call lost the connection that its answer would come by.
    pub(super) fn is_disconnected(&self) -> bool {
        self.stage == PendingStage::Disconnected
    }

    /// The caller hands the call to the connection.
    pub(super) fn on_publishing(&mut self) {
        if self.stage == PendingStage::Waiting {
            self.stage = PendingStage::Publishing;
        }
    }

    /// The connection has taken the call. Messages received meanwhile take precedence.
    pub(super) fn on_published(&mut self, now: Instant) {
        if self.stage == PendingStage::Publishing {
            self.stage = PendingStage::Sent { at: now };
        }
    }

    /// The connection has not taken the call.
    pub(super) fn on_publish_failed(&mut self) {
        if self.stage == PendingStage::Publishing {
            self.stage = PendingStage::Waiting;
        }
    }

    /// The broker reports that the call had no subscriber. Returns whether the report is plausible.
    pub(super) fn on_no_responders(&mut self) -> bool {
        let is_plausible = matches!(self.stage, PendingStage::Publishing | PendingStage::Sent { .. });
        if is_plausible {
            self.stage = PendingStage::Waiting;
        }
        is_plausible
    }

    /// The broker denies publishing to the call's subject. The report says nothing about a call
    /// that a host has.
    pub(super) fn on_denied(&mut self, subject: &str) -> Option<Fault> {
        let is_unaccepted = matches!(self.stage, PendingStage::Publishing | PendingStage::Sent { .. });
        is_unaccepted.then(|| {
            let why = format!("the broker does not let this worker publish to {subject}");
            Fault::rejected(FaultKind::Denied(why))
        })
    }

    /// A host has accepted the call. Repeated without a resume, `accepted` means that the answer
    /// must be asked for. So it does after an outage, where it may have been sent before the host
    /// received the resume.
    pub(super) fn on_accepted(
        &mut self,
        host: RelayName,
        generation: Instance,
        now: Instant,
    ) -> PendingAction {
        // Two hosts that accept one call share no journal. Both hear a resume; resuming after each
        // `accepted` would never end.
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

    /// A message arrived that only the executing host can send.
    pub(super) fn on_host_message(&mut self, now: Instant) {
        self.stage = PendingStage::Running { last_heard: now };
        self.resume_asked_at = None;
    }

    /// A host sent a heartbeat. If the call's host has another instance now, the outcome is
    /// unknown.
    pub(super) fn on_heartbeat(
        &mut self,
        host: &RelayName,
        generation: Instance,
        now: Instant,
    ) -> PendingAction {
        let is_resumed = matches!(self.stage, PendingStage::Resumed { .. });
        match &self.host {
            Some((own, own_generation)) if own == host && *own_generation != generation => {
                return PendingAction::Fail(unknown_fault(format!(
                    "the host `{host}` was started anew meanwhile"
                )));
            }
            Some((own, _)) if own == host => {}
            // Any host may be the one that has the call.
            None if is_resumed => {}
            _ => return PendingAction::Nothing,
        }
        match &mut self.stage {
            PendingStage::Running { last_heard } => *last_heard = now,
            PendingStage::Resumed { at, is_repeated } if !*is_repeated => (*at, *is_repeated) = (now, true),
            _ => {}
        }
        // The last resume may have arrived before the host was connected.
        if self.resume_asked_at.is_none() {
            return PendingAction::Nothing;
        }
        self.resume_asked_at = Some(now);
        PendingAction::Resume
    }

    /// The connection is lost.
    pub(super) fn on_link_lost(&mut self) {
        match self.stage {
            // The publish in progress reports whether the connection has taken the call.
            PendingStage::Waiting | PendingStage::Publishing => {}
            PendingStage::Sent { .. }
            | PendingStage::Running { .. }
            | PendingStage::Resumed { .. }
            | PendingStage::Disconnected => {
                self.stage = PendingStage::Disconnected;
            }
        }
    }

    /// The worker asks for the state over another connection.
    pub(super) fn on_resumed(&mut self, now: Instant) {
        if self.stage == PendingStage::Disconnected {
            self.stage = PendingStage::Resumed { at: now, is_repeated: false };
            self.resume_asked_at = Some(now);
        }
    }

    /// The call makes progress.
    pub(super) fn on_progress(&mut self, now: Instant) {
        self.on_host_message(now);
        let CallTimes { deadline, hard_deadline, progress_extension, .. } = &mut self.times;
        *deadline = (*deadline).max(now + *progress_extension).min(*hard_deadline);
    }

    /// The server asks the caller; the timeout is suspended.
    pub(super) fn on_server_request(&mut self, now: Instant) {
        self.on_host_message(now);
        self.open_requests = self.open_requests.saturating_add(1);
        self.times.deadline = self.times.hard_deadline;
    }

    /// A server request is closed; with the last one the timeout runs again.
    pub(super) fn on_server_request_closed(&mut self, now: Instant) {
        self.open_requests = self.open_requests.saturating_sub(1);
        if self.open_requests == 0 {
            self.times.deadline = self.times.hard_deadline.min(now + self.times.progress_extension);
        }
    }

    /// Returns the fault if a deadline has passed.
    pub(super) fn on_time_passed(&mut self, now: Instant) -> Option<Fault> {
        let CallTimes { began, deadline, .. } = self.times;
        if now >= deadline {
            let kind = FaultKind::TimedOut(deadline.saturating_duration_since(began));
            return Some(match self.may_have_left() {
                true => Fault::unknown(kind),
                false => Fault::not_sent(kind),
            });
        }
        let is_expired = self.doubt_at().is_some_and(|doubt_at| now >= doubt_at);
        is_expired.then(|| unknown_fault(self.doubt_reason()))
    }

    /// Returns the next moment at which time alone changes the state.
    pub(super) fn next_wake(&self) -> Instant {
        let deadline = self.times.deadline;
        self.doubt_at().map_or(deadline, |doubt_at| deadline.min(doubt_at))
    }

    /// Returns the moment at which the call's outcome becomes unknown.
    fn doubt_at(&self) -> Option<Instant> {
        match (self.stage, &self.host) {
            (PendingStage::Sent { at }, _) => Some(at + ACCEPT),
            (PendingStage::Resumed { at, is_repeated: false }, Some(_)) => Some(at + SILENCE),
            (PendingStage::Resumed { at, .. }, _) => Some(at + ACCEPT),
            (PendingStage::Running { last_heard }, Some(_)) => Some(last_heard + SILENCE),
            (PendingStage::Running { .. }, None)
            | (PendingStage::Waiting | PendingStage::Publishing | PendingStage::Disconnected, _) => None,
        }
    }

    /// Describes why the outcome is unknown.
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

/// Returns the fault of a call that may have been executed.
fn unknown_fault(why: String) -> Fault {
    Fault::unknown(FaultKind::Unreachable(why))
}

#[cfg(test)]
#[path = "pending_tests.rs"]
mod tests;

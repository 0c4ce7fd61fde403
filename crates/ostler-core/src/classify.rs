//! Classification of outcomes: the table "what counts" of the breaker and of restarts.
//!
//! An answer is never a failure of the server, whatever it says: any caller can provoke an error, a result of the
//! wrong shape or one above the limit with the right arguments.

use std::time::Duration;

use crate::breaker::HealthSignal;
use crate::fault::FaultKind;

/// How an attempt ended, as far as supervision cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptOutcome<'a> {
    /// Any result, `isError` and `input_required` included.
    Result,
    /// A JSON-RPC error of the server's own, whatever its code.
    RpcError,
    /// The server or the way to it failed.
    Fault(&'a FaultKind),
    /// The caller cancelled or went away.
    CallerGone,
    /// Time ran out before the server had its share of it: by the caller's own
    /// deadline, or because most of it was spent on waiting.
    TimeRanOut,
    /// We refused the call ourselves.
    Refused,
}

/// What supervision makes of an outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Classification {
    /// For the breaker.
    pub signal: HealthSignal,
    /// For the session.
    pub effect: SessionEffect,
}

/// What happens to the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionEffect {
    /// Nothing.
    None,
    /// It has shown that it works, though not in a way that the breaker counts.
    MarkProven,
    /// It is over; a child process is started again.
    Restart,
    /// A liveness probe decides whether the server hangs.
    Probe,
    /// Nobody gets in for so long: the server has asked for it.
    Pause(Duration),
}

/// Weighs an outcome. Only failures of the server or of the way to it count
/// against it: a server that says no is a server that works.
pub fn classify(outcome: &AttemptOutcome<'_>) -> Classification {
    let (mark, effect) = match outcome {
        AttemptOutcome::Result | AttemptOutcome::RpcError => (HealthSignal::Success, SessionEffect::None),
        AttemptOutcome::Fault(kind) => classify_fault(kind),
        AttemptOutcome::CallerGone | AttemptOutcome::TimeRanOut | AttemptOutcome::Refused => {
            (HealthSignal::Neutral, SessionEffect::None)
        }
    };
    Classification { signal: mark, effect }
}

fn classify_fault(kind: &FaultKind) -> (HealthSignal, SessionEffect) {
    match kind {
        FaultKind::Start(_)
        | FaultKind::Permanent(_)
        | FaultKind::StartTimeout(_)
        | FaultKind::Handshake(_)
        | FaultKind::Exited(_)
        | FaultKind::EndedAtProbe(_)
        | FaultKind::Closed
        | FaultKind::Write(_)
        | FaultKind::Connect(_)
        | FaultKind::Hung(_) => (HealthSignal::Failure, SessionEffect::Restart),
        // Fails its call and tells nothing of the server's health: the caller chose the arguments.
        FaultKind::Malformed(_) | FaultKind::ContentType(_) | FaultKind::Oversize(_) => {
            (HealthSignal::Neutral, SessionEffect::None)
        }
        FaultKind::TimedOut(_) => (HealthSignal::Failure, SessionEffect::Probe),
        // A connection less; the next request makes another.
        FaultKind::Transfer(_) | FaultKind::Status { .. } => (HealthSignal::Failure, SessionEffect::None),
        FaultKind::RetryAfter { wait, .. } => (HealthSignal::Failure, SessionEffect::Pause(*wait)),
        // Only a person can help, and the server itself may be well.
        FaultKind::NeedsAuth { .. } | FaultKind::Denied(_) => (HealthSignal::Neutral, SessionEffect::None),
        // Says nothing of the server, and whoever keeps up the way to it tries again by itself.
        FaultKind::Unreachable(_) => (HealthSignal::Neutral, SessionEffect::None),
        // Our own doing: closing a session or filling it up tells nothing about the server.
        FaultKind::Retired | FaultKind::StaleSession | FaultKind::Congested => {
            (HealthSignal::Neutral, SessionEffect::None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::{ConnectFailure, ConnectFault, Exit, PermanentCause};

    #[test]
    fn each_outcome_has_its_row_in_the_table() {
        use {AttemptOutcome as O, HealthSignal as M, SessionEffect as E};
        let text = || String::from("connect error: timed out, please restart");
        let second = Duration::from_secs(1);
        let faults = [
            (FaultKind::Start(text()), M::Failure, E::Restart),
            (FaultKind::from(PermanentCause::Config(text())), M::Failure, E::Restart),
            (FaultKind::StartTimeout(second), M::Failure, E::Restart),
            (FaultKind::Handshake(text()), M::Failure, E::Restart),
            (FaultKind::Exited(Exit::Code(0)), M::Failure, E::Restart),
            (FaultKind::EndedAtProbe(Exit::Code(1)), M::Failure, E::Restart),
            (FaultKind::Closed, M::Failure, E::Restart),
            (FaultKind::Write(text()), M::Failure, E::Restart),
            (FaultKind::Hung(3), M::Failure, E::Restart),
            (FaultKind::Malformed(text()), M::Neutral, E::None),
            (FaultKind::ContentType(text()), M::Neutral, E::None),
            (FaultKind::Oversize(1), M::Neutral, E::None),
            (FaultKind::TimedOut(second), M::Failure, E::Probe),
            (
                FaultKind::Connect(Box::new(ConnectFailure {
                    authority: text(),
                    why: ConnectFault::Refused,
                })),
                M::Failure,
                E::Restart,
            ),
            (FaultKind::Transfer(text()), M::Failure, E::None),
            (FaultKind::Status { code: 502, text: text() }, M::Failure, E::None),
            (FaultKind::RetryAfter { code: 429, wait: second }, M::Failure, E::Pause(second)),
            (FaultKind::NeedsAuth { code: 401, challenge: text() }, M::Neutral, E::None),
            (FaultKind::Denied(text()), M::Neutral, E::None),
            (FaultKind::Unreachable(text()), M::Neutral, E::None),
            (FaultKind::Retired, M::Neutral, E::None),
            (FaultKind::StaleSession, M::Neutral, E::None),
            (FaultKind::Congested, M::Neutral, E::None),
        ];
        for (kind, mark, effect) in &faults {
            assert_eq!(
                classify(&O::Fault(kind)),
                Classification { signal: *mark, effect: *effect },
                "{kind:?}"
            );
        }
        let others = [
            (O::Result, M::Success),
            (O::RpcError, M::Success),
            (O::CallerGone, M::Neutral),
            (O::TimeRanOut, M::Neutral),
            (O::Refused, M::Neutral),
        ];
        for (outcome, mark) in others {
            assert_eq!(classify(&outcome), Classification { signal: mark, effect: E::None }, "{outcome:?}");
        }
    }
}

//! Classification of outcomes: the table that says what counts for the breaker and for restarts.
//!
//! An answer is never a failure of the server, whatever it holds: with the right arguments any caller can
//! provoke an error, a malformed result or an oversize one.

use std::time::Duration;

use crate::breaker::HealthSignal;
use crate::fault::FaultKind;

/// Outcome of an attempt, as far as supervision is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptOutcome<'a> {
    /// Any result, `isError` and `input_required` included.
    Result,
    /// A JSON-RPC error of the server's own, whatever its code.
    RpcError,
    /// The server or the connection to it failed.
    Fault(&'a FaultKind),
    /// The caller cancelled or disconnected.
    CallerGone,
    /// The deadline passed before the server had its share of the time: it was the caller's own deadline, or
    /// most of the time was spent waiting.
    TimeRanOut,
    /// The host refused the call itself.
    Refused,
}

/// Effect of an outcome on supervision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Classification {
    /// Signal for the breaker.
    pub signal: HealthSignal,
    /// Effect on the session.
    pub effect: SessionEffect,
}

/// Effect on a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionEffect {
    /// Nothing.
    None,
    /// The session has shown that it works, though not in a way that the breaker counts.
    MarkProven,
    /// The session has ended; a child process is started again.
    Restart,
    /// A liveness probe decides whether the server hangs.
    Probe,
    /// No call is admitted for this long, as the server has asked.
    Pause(Duration),
}

/// Classifies an outcome. Only failures of the server or of the connection to it count against it: a server
/// that refuses a call works.
pub fn classify(outcome: &AttemptOutcome<'_>) -> Classification {
    let (signal, effect) = match outcome {
        AttemptOutcome::Result | AttemptOutcome::RpcError => (HealthSignal::Success, SessionEffect::None),
        AttemptOutcome::Fault(kind) => classify_fault(kind),
        AttemptOutcome::CallerGone | AttemptOutcome::TimeRanOut | AttemptOutcome::Refused => {
            (HealthSignal::Neutral, SessionEffect::None)
        }
    };
    Classification { signal, effect }
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
        // Fails its call and is no evidence about the server's health: the caller chose the arguments.
        FaultKind::Malformed(_) | FaultKind::ContentType(_) | FaultKind::Oversize(_) => {
            (HealthSignal::Neutral, SessionEffect::None)
        }
        FaultKind::TimedOut(_) => (HealthSignal::Failure, SessionEffect::Probe),
        // One connection is lost; the next request makes another.
        FaultKind::Transfer(_) | FaultKind::Status { .. } => (HealthSignal::Failure, SessionEffect::None),
        FaultKind::RetryAfter { wait, .. } => (HealthSignal::Failure, SessionEffect::Pause(*wait)),
        // Only a person can help, and the server itself may be well.
        FaultKind::NeedsAuth { .. } | FaultKind::Denied(_) => (HealthSignal::Neutral, SessionEffect::None),
        // No evidence about the server; the relay reconnects by itself.
        FaultKind::Unreachable(_) => (HealthSignal::Neutral, SessionEffect::None),
        // The host's own doing: closing or overloading a session is no evidence about the server.
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
        for (kind, signal, effect) in &faults {
            assert_eq!(
                classify(&O::Fault(kind)),
                Classification { signal: *signal, effect: *effect },
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
        for (outcome, signal) in others {
            assert_eq!(classify(&outcome), Classification { signal, effect: E::None }, "{outcome:?}");
        }
    }
}

//! Retry rules of calls.
//!
//! ```text
//!   continuation of an earlier request ─▶ no, always
//!   NotSent  ─▶ yes: it did not run
//!   Rejected ─▶ only if its cause has changed since
//!   Unknown  ─▶ once, and only if running twice does no harm
//!   Answered ─▶ no: there is an answer
//! ```
//!
//! Deadlines are not checked here: the host ends attempts at the deadline.

use crate::fault::Delivery;
use crate::sabotage;
use crate::spec::RetryRule;

/// Effect of a method, as far as retries are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MethodKind {
    /// List, read, get, discover, complete: repeating it changes nothing.
    Read,
    /// A tool call or an unknown method.
    Call,
}

impl MethodKind {
    /// Returns the effect of an MCP method; an unknown one may do anything.
    pub fn from_method(method: &str) -> Self {
        match method {
            "tools/list"
            | "resources/list"
            | "resources/templates/list"
            | "resources/read"
            | "prompts/list"
            | "prompts/get"
            | "completion/complete"
            | "resources/subscribe"
            | "resources/unsubscribe"
            | "tasks/get"
            | "server/discover" => Self::Read,
            _ => Self::Call,
        }
    }
}

/// A failed attempt, and the facts about its call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailedAttempt {
    /// Delivery of the request.
    pub delivery: Delivery,
    /// The effect of the method.
    pub kind: MethodKind,
    /// The operator's rule for the tool.
    pub retry: RetryRule,
    /// True if the server is trusted and the pinned definition declares the tool idempotent.
    pub is_trusted_idempotent: bool,
    /// True if the request carries `inputResponses` or `requestState`: it answers a question which the server
    /// may have forgotten by now.
    pub is_continuation: bool,
    /// Number of retries of this call after an unknown outcome.
    pub retries_after_unknown: u32,
    /// True if the cause of the rejection has changed: version, headers, or the pause the server asked for is
    /// over.
    pub has_rejection_cause_changed: bool,
}

/// Returns whether the call may be sent again on the current session.
pub fn may_retry(attempt: &FailedAttempt) -> bool {
    if attempt.is_continuation {
        return false;
    }
    match attempt.delivery {
        Delivery::NotSent => true,
        Delivery::Rejected => attempt.has_rejection_cause_changed,
        Delivery::Unknown => attempt.retries_after_unknown == 0 && is_idempotent(attempt),
        Delivery::Answered => false,
    }
}

fn is_idempotent(attempt: &FailedAttempt) -> bool {
    sabotage!(RetryUnknown, return true);
    let is_read = match attempt.kind {
        MethodKind::Read => true,
        MethodKind::Call => false,
    };
    let is_vouched_for = match attempt.retry {
        RetryRule::Safe => true,
        RetryRule::Never => false,
    };
    is_read || is_vouched_for || attempt.is_trusted_idempotent
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns a plain tool call without any rule.
    fn call(delivery: Delivery) -> FailedAttempt {
        FailedAttempt {
            delivery,
            kind: MethodKind::Call,
            retry: RetryRule::Never,
            is_trusted_idempotent: false,
            is_continuation: false,
            retries_after_unknown: 0,
            has_rejection_cause_changed: false,
        }
    }

    #[test]
    fn each_rule_has_its_row() {
        let unknown = call(Delivery::Unknown);
        let rejected = call(Delivery::Rejected);
        let table = [
            ("not sent", call(Delivery::NotSent), true),
            ("not sent, often", FailedAttempt { retries_after_unknown: 9, ..call(Delivery::NotSent) }, true),
            ("rejected", rejected, false),
            ("rejected, changed", FailedAttempt { has_rejection_cause_changed: true, ..rejected }, true),
            ("unknown", unknown, false),
            ("unknown, changed", FailedAttempt { has_rejection_cause_changed: true, ..unknown }, false),
            ("unknown read", FailedAttempt { kind: MethodKind::Read, ..unknown }, true),
            ("unknown, vouched for", FailedAttempt { retry: RetryRule::Safe, ..unknown }, true),
            ("unknown, trusted", FailedAttempt { is_trusted_idempotent: true, ..unknown }, true),
            (
                "second unknown",
                FailedAttempt { kind: MethodKind::Read, retries_after_unknown: 1, ..unknown },
                false,
            ),
            ("answered", FailedAttempt { kind: MethodKind::Read, ..call(Delivery::Answered) }, false),
            ("continuation", FailedAttempt { is_continuation: true, ..call(Delivery::NotSent) }, false),
        ];
        for (what, attempt, expected) in table {
            assert_eq!(may_retry(&attempt), expected, "{what}");
        }
    }

    fn attempts() -> impl Strategy<Value = FailedAttempt> {
        let delivery = prop::sample::select(vec![
            Delivery::NotSent,
            Delivery::Rejected,
            Delivery::Unknown,
            Delivery::Answered,
        ]);
        let kind = prop::sample::select(vec![MethodKind::Read, MethodKind::Call]);
        let retry = prop::sample::select(vec![RetryRule::Never, RetryRule::Safe]);
        (delivery, kind, retry, any::<[bool; 3]>(), 0u32..3).prop_map(
            |(delivery, kind, retry, [trusted, continuation, changed], repeats_of_unknown)| FailedAttempt {
                delivery,
                kind,
                retry,
                is_trusted_idempotent: trusted,
                is_continuation: continuation,
                retries_after_unknown: repeats_of_unknown,
                has_rejection_cause_changed: changed,
            },
        )
    }

    proptest! {
        #[test]
        fn a_call_nobody_vouched_for_is_never_sent_again_once_bytes_left(attempt in attempts()) {
            let attempt = FailedAttempt {
                delivery: Delivery::Unknown,
                kind: MethodKind::Call,
                retry: RetryRule::Never,
                is_trusted_idempotent: false,
                ..attempt
            };
            prop_assert!(!may_retry(&attempt));
        }

        #[test]
        fn an_unknown_outcome_is_repeated_once_at_most(attempt in attempts()) {
            let attempt = FailedAttempt { delivery: Delivery::Unknown, ..attempt };
            let again = FailedAttempt { retries_after_unknown: attempt.retries_after_unknown + 1, ..attempt };
            prop_assert!(!may_retry(&again));
        }

        #[test]
        fn a_continuation_is_never_repeated(attempt in attempts()) {
            let continuation = FailedAttempt { is_continuation: true, ..attempt };
            prop_assert!(!may_retry(&continuation));
        }
    }
}

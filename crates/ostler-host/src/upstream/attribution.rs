//! Attribution of server requests and notifications that carry no call id.

use std::sync::atomic::{AtomicBool, Ordering};

use super::SharedCallObserver;

/// A call that has been sent and can have caused the message.
pub(crate) struct CallCandidate {
    pub(crate) call: u64,
    pub(crate) observer: Option<SharedCallObserver>,
    /// True while the call has an open server request.
    pub(crate) has_open_request: bool,
    /// True if the call may receive a notification that names no call.
    pub(crate) accepts_unattributed: bool,
}

/// The call that a server request belongs to.
pub(crate) enum CallMatch {
    /// The caller of this call.
    One(u64, SharedCallObserver),
    /// No call that can have caused it has a caller able to answer.
    NoCall,
    /// More than one call can have caused it, and the server does not say which.
    Ambiguous,
}

/// Returns whether a request of this method can make its server send a request or notification. The host's own lists
/// and pings can't.
pub(crate) fn can_trigger_messages(method: &str) -> bool {
    matches!(method, "tools/call" | "prompts/get" | "resources/read" | "completion/complete")
}

/// Returns whether a call may receive a notification that names no call. See
/// [`UpstreamRequest::has_other_callers`](super::UpstreamRequest).
pub(crate) fn accepts_unattributed(has_others: Option<&AtomicBool>) -> bool {
    has_others.is_none_or(|has_others| !has_others.load(Ordering::Acquire))
}

/// Finds the one call that can have caused a server request. A call whose caller can't answer may have caused it too:
/// asking another caller instead would show it data that is not its own.
pub(crate) fn find_call(mut candidates: Vec<CallCandidate>, method: &str) -> CallMatch {
    let is_able =
        |candidate: &CallCandidate| candidate.observer.as_ref().is_some_and(|voice| voice.can_answer(method));
    if !candidates.iter().any(is_able) {
        return CallMatch::NoCall;
    }
    if candidates.len() > 1 {
        // A call that waits for an answer does not cause the next request.
        candidates.retain(|candidate| !candidate.has_open_request);
    }
    match candidates.as_slice() {
        [CallCandidate { call, observer: Some(voice), .. }] if voice.can_answer(method) => {
            CallMatch::One(*call, voice.clone())
        }
        [_] => CallMatch::NoCall,
        _ => CallMatch::Ambiguous,
    }
}

/// Returns the observer of the only call in flight that a notification can be about, if it accepts unattributed ones.
/// An ended call can have caused it too, so calls of restricted callers accept none at servers that others use.
pub(crate) fn sole_observer(mut candidates: Vec<CallCandidate>) -> Option<(u64, SharedCallObserver)> {
    if candidates.len() > 1 {
        return None;
    }
    let CallCandidate { call, observer: voice, accepts_unattributed: takes_unattributed, .. } =
        candidates.pop()?;
    voice
        .filter(|_| takes_unattributed)
        .filter(|voice| voice.wants_notifications())
        .map(|voice| (call, voice))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::upstream::CallObserver;

    struct AnsweringObserver;

    impl CallObserver for AnsweringObserver {
        fn can_answer(&self, _: &str) -> bool {
            true
        }
    }

    /// Attributes a request among calls, each given as (can answer, has an open request).
    fn matched_call(calls: &[(bool, bool)]) -> &'static str {
        let candidates = calls.iter().zip(0..).map(|(&(is_able, is_asked), call)| {
            let voice: Option<SharedCallObserver> =
                if is_able { Some(Arc::new(AnsweringObserver)) } else { None };
            CallCandidate { call, observer: voice, has_open_request: is_asked, accepts_unattributed: true }
        });
        match find_call(candidates.collect(), "roots/list") {
            CallMatch::One(0, _) => "first",
            CallMatch::One(..) => "other",
            CallMatch::NoCall => "nobody",
            CallMatch::Ambiguous => "several",
        }
    }

    #[test]
    fn a_question_is_attributed_only_where_one_call_can_have_caused_it() {
        let (able, quiet, asked) = ((true, false), (false, false), (true, true));
        for (calls, expected) in [
            (&[][..], "nobody"),
            (&[quiet], "nobody"),
            (&[quiet, quiet], "nobody"),
            (&[able], "first"),
            (&[asked], "first"),
            (&[able, quiet], "several"),
            (&[able, able], "several"),
            (&[able, asked], "first"),
            (&[asked, able, quiet], "several"),
            (&[asked, quiet], "nobody"),
            (&[asked, asked], "several"),
        ] {
            assert_eq!(matched_call(calls), expected, "{calls:?}");
        }
    }
}

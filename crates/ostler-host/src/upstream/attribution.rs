//! Which call something is about that does not say so.

use std::sync::atomic::{AtomicBool, Ordering};

use super::SharedCallObserver;

/// A call that has been sent and can have caused what the server says.
pub(crate) struct CallCandidate {
    pub(crate) call: u64,
    pub(crate) observer: Option<SharedCallObserver>,
    /// Whether it has a question open.
    pub(crate) has_open_request: bool,
    /// Whether it may hear a notice that names no call.
    pub(crate) accepts_unattributed: bool,
}

/// Whom a question is for.
pub(crate) enum CallMatch {
    /// The caller of this call.
    One(u64, SharedCallObserver),
    /// No caller here that can be meant can answer it.
    NoCall,
    /// More than one call can have caused it, and the server does not say which.
    Ambiguous,
}

/// Whether a request of this method can make its server ask or tell something.
/// What the host asks by itself, lists and signs of life, does not.
pub(crate) fn can_trigger_messages(method: &str) -> bool {
    matches!(method, "tools/call" | "prompts/get" | "resources/read" | "completion/complete")
}

/// Whether a call may hear a notice that names no call. See [`Ask::has_others`](super::Ask).
pub(crate) fn accepts_unattributed(has_others: Option<&AtomicBool>) -> bool {
    has_others.is_none_or(|has_others| !has_others.load(Ordering::Acquire))
}

/// Finds the one call that can have caused a question. A call whose caller
/// can't answer may have caused it too: to ask another caller instead would
/// show it what is not its business.
pub(crate) fn find_call(mut candidates: Vec<CallCandidate>, method: &str) -> CallMatch {
    let is_able =
        |candidate: &CallCandidate| candidate.observer.as_ref().is_some_and(|voice| voice.can_answer(method));
    if !candidates.iter().any(is_able) {
        return CallMatch::NoCall;
    }
    if candidates.len() > 1 {
        // Who waits for an answer does not ask the next question.
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

/// The only call in flight that a notice can be about, if it takes such
/// notices. One that is over can have caused it too, so calls of restricted
/// callers take none at servers that others use.
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

    /// Whose a question is among calls that are able and asked, or not.
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

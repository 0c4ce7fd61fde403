//! Which call something is about that does not say so.

use std::sync::atomic::{AtomicBool, Ordering};

use super::SharedVoice;

/// A call that has been sent and can have caused what the server says.
pub(crate) struct Candidate {
    pub(crate) call: u64,
    pub(crate) voice: Option<SharedVoice>,
    /// Whether it has a question open.
    pub(crate) is_asked: bool,
    /// Whether it may hear a notice that names no call.
    pub(crate) takes_unattributed: bool,
}

/// Whom a question is for.
pub(crate) enum Whose {
    /// The caller of this call.
    One(u64, SharedVoice),
    /// No caller here that can be meant can answer it.
    Nobody,
    /// More than one call can have caused it, and the server does not say which.
    Several,
}

/// Whether a request of this method can make its server ask or tell something.
/// What the host asks by itself, lists and signs of life, does not.
pub(crate) fn can_cause(method: &str) -> bool {
    matches!(method, "tools/call" | "prompts/get" | "resources/read" | "completion/complete")
}

/// Whether a call may hear a notice that names no call. See [`Ask::has_others`](super::Ask).
pub(crate) fn takes_unattributed(has_others: Option<&AtomicBool>) -> bool {
    has_others.is_none_or(|has_others| !has_others.load(Ordering::Acquire))
}

/// Finds the one call that can have caused a question. A call whose caller
/// can't answer may have caused it too: to ask another caller instead would
/// show it what is not its business.
pub(crate) fn find(mut candidates: Vec<Candidate>, method: &str) -> Whose {
    let is_able =
        |candidate: &Candidate| candidate.voice.as_ref().is_some_and(|voice| voice.can_answer(method));
    if !candidates.iter().any(is_able) {
        return Whose::Nobody;
    }
    if candidates.len() > 1 {
        // Who waits for an answer does not ask the next question.
        candidates.retain(|candidate| !candidate.is_asked);
    }
    match candidates.as_slice() {
        [Candidate { call, voice: Some(voice), .. }] if voice.can_answer(method) => {
            Whose::One(*call, voice.clone())
        }
        [_] => Whose::Nobody,
        _ => Whose::Several,
    }
}

/// The only call in flight that a notice can be about, if it takes such
/// notices. One that is over can have caused it too, so calls of restricted
/// callers take none at servers that others use.
pub(crate) fn sole_listener(mut candidates: Vec<Candidate>) -> Option<(u64, SharedVoice)> {
    if candidates.len() > 1 {
        return None;
    }
    let Candidate { call, voice, takes_unattributed, .. } = candidates.pop()?;
    voice.filter(|_| takes_unattributed).filter(|voice| voice.wants_notices()).map(|voice| (call, voice))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::upstream::Voice;

    struct Able;

    impl Voice for Able {
        fn can_answer(&self, _: &str) -> bool {
            true
        }
    }

    /// Whose a question is among calls that are able and asked, or not.
    fn whose(calls: &[(bool, bool)]) -> &'static str {
        let candidates = calls.iter().zip(0..).map(|(&(is_able, is_asked), call)| {
            let voice: Option<SharedVoice> = if is_able { Some(Arc::new(Able)) } else { None };
            Candidate { call, voice, is_asked, takes_unattributed: true }
        });
        match find(candidates.collect(), "roots/list") {
            Whose::One(0, _) => "first",
            Whose::One(..) => "other",
            Whose::Nobody => "nobody",
            Whose::Several => "several",
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
            assert_eq!(whose(calls), expected, "{calls:?}");
        }
    }
}

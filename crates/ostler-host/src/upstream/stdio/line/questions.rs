//! Whose question it is.
//!
//! A legacy server that asks something during a call does not say which call
//! it means. The question belongs to the only call in flight that can have caused
//! it; with several of them nobody can tell, and it is refused.

use std::time::Duration;

use ostler_wire::Id;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{Line, State};
use crate::upstream::SharedVoice;
use crate::upstream::whose::{self, Candidate, Whose};

/// Questions that one call may have open. A person answers one at a time.
const MAX_OPEN: usize = 16;

/// A question that waits for its answer.
#[derive(Debug)]
pub(super) struct Open {
    /// The server's own id.
    id: Id,
    /// Used when the server withdraws the question; dropped when the call is over.
    withdraw: oneshot::Sender<()>,
}

/// Who is to answer a question.
pub(crate) enum Attribution {
    /// The caller of this call.
    To(Asked),
    /// No caller here can answer it.
    Nobody,
    /// More than one call can have caused it, and the server does not say which.
    Several,
    /// The call has too many questions open.
    TooMany,
}

/// A question that has found its call.
pub(crate) struct Asked {
    pub(crate) voice: SharedVoice,
    pub(crate) call: u64,
    /// A value when the server withdraws the question, closed when the call is over.
    pub(crate) withdrawn: oneshot::Receiver<()>,
}

impl Line {
    /// Finds the call that a question belongs to and stops its time.
    pub(crate) fn attribute(&self, id: &Id, method: &str) -> Attribution {
        // A modern server asks in its answers, so what it sends here means nobody.
        if self.meta.is_some() {
            return Attribution::Nobody;
        }
        // Voices are other people's code and are asked without the lock.
        match whose::find(self.candidates(), method) {
            Whose::One(call, voice) => self.open_question(call, voice, id),
            Whose::Several => Attribution::Several,
            Whose::Nobody => Attribution::Nobody,
        }
    }

    /// The voice that a notice is for: that of the only call it can be about.
    pub(crate) fn sole_voice(&self) -> Option<SharedVoice> {
        whose::sole_listener(self.candidates()).map(|(_, voice)| voice)
    }

    /// The calls that have been sent and can have caused what the server says.
    fn candidates(&self) -> Vec<Candidate> {
        let state = self.lock();
        let sent = state.waiting.iter().filter(|(_, waiting)| waiting.is_sent && waiting.can_cause);
        sent.map(|(call, waiting)| Candidate {
            call: *call,
            voice: waiting.voice.clone(),
            is_asked: !waiting.questions.is_empty(),
            takes_unattributed: whose::takes_unattributed(waiting.has_others.as_deref()),
        })
        .collect()
    }

    fn open_question(&self, call: u64, voice: SharedVoice, id: &Id) -> Attribution {
        let mut state = self.lock();
        // The call may have ended while its voice was asked.
        let Some(waiting) = state.waiting.get_mut(&call) else { return Attribution::Nobody };
        if waiting.questions.len() >= MAX_OPEN {
            return Attribution::TooMany;
        }
        let (withdraw, withdrawn) = oneshot::channel();
        waiting.questions.push(Open { id: id.detached(), withdraw });
        waiting.until = waiting.at_most;
        Attribution::To(Asked { voice, call, withdrawn })
    }

    /// A question has been answered or refused: the call's time runs again.
    pub(crate) fn close_question(&self, call: u64, id: &Id, patience: Duration) {
        let mut state = self.lock();
        let Some(waiting) = state.waiting.get_mut(&call) else { return };
        waiting.questions.retain(|open| open.id != *id);
        if state.run_on(call, patience) {
            self.alarm.notify_one();
        }
    }

    /// The server does not want to know any more.
    pub(crate) fn withdraw_question(&self, id: &Id, patience: Duration) {
        let mut state = self.lock();
        let found = state.waiting.iter_mut().find_map(|(call, waiting)| {
            let at = waiting.questions.iter().position(|open| open.id == *id)?;
            Some((*call, waiting.questions.swap_remove(at)))
        });
        let Some((call, open)) = found else { return };
        let is_sooner = state.run_on(call, patience);
        drop(state);
        if is_sooner {
            self.alarm.notify_one();
        }
        let _ = open.withdraw.send(());
    }
}

impl State {
    /// Lets the time of a call run on, unless another question stops it; true
    /// if the clock has to be told.
    fn run_on(&mut self, call: u64, patience: Duration) -> bool {
        let Some(waiting) = self.waiting.get_mut(&call) else { return false };
        if !waiting.questions.is_empty() {
            return false;
        }
        waiting.until = waiting.at_most.min(Instant::now() + patience);
        let until = waiting.until;
        self.look_by(until)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ostler_wire::Params;
    use tokio::net::unix::pipe;

    use super::*;
    use crate::upstream::{Ask, ClientMeta, Question, Voice};

    struct Anything;

    impl Voice for Anything {
        fn can_answer(&self, _: &str) -> bool {
            true
        }

        fn ask(&self, question: Question) {
            drop(question);
        }
    }

    fn id(number: usize) -> Id {
        Id::parse(number.to_string().into()).unwrap()
    }

    #[tokio::test]
    async fn a_call_has_so_many_questions_open_and_not_one_more() {
        let (stdin, _server) = pipe::pipe().unwrap();
        let line = Line::new(stdin, None);
        let (params, voice): (_, SharedVoice) = (Params::empty(), Arc::new(Anything));
        let until = Instant::now() + Duration::from_secs(60);
        let ask = Ask {
            method: "tools/call",
            params: &params,
            idempotency_key: None,
            until,
            client: ClientMeta::Host,
            voice: Some(&voice),
            has_others: None,
            at_most: until + Duration::from_secs(60),
            headers: &[],
            is_fit: None,
        };
        let (call, _answer) = line.enter(&ask).await.unwrap();
        // What has not been sent is not what the server asks about.
        assert!(matches!(line.attribute(&id(0), "roots/list"), Attribution::Nobody));
        line.take_batch(&mut Vec::new(), &mut Vec::new());
        let mut open = Vec::new();
        for number in 0..MAX_OPEN {
            match line.attribute(&id(number), "roots/list") {
                Attribution::To(asked) => open.push(asked),
                _ => panic!("question {number} was refused"),
            }
        }
        assert!(matches!(line.attribute(&id(99), "roots/list"), Attribution::TooMany));
        line.close_question(call, &id(0), Duration::ZERO);
        assert!(matches!(line.attribute(&id(99), "roots/list"), Attribution::To(_)));

        // The server takes one back; the end of the call takes the rest.
        line.withdraw_question(&id(1), Duration::ZERO);
        assert_eq!(open[1].withdrawn.try_recv(), Ok(()));
        assert_eq!(open[2].withdrawn.try_recv(), Err(oneshot::error::TryRecvError::Empty));
        line.give_up(call, "test");
        assert_eq!(open[2].withdrawn.try_recv(), Err(oneshot::error::TryRecvError::Closed));
    }
}

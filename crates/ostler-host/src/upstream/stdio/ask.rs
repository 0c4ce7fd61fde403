//! Requests of the server: every one is answered, or it might wait for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ostler_wire::{Id, Outcome, Text, code, write_error, write_error_object, write_result};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::line::{Asked, Attribution, Line};
use crate::upstream::{Question, voice};

/// The code of a refusal that says nothing against the server: should it pass
/// the error on as its own, that is no failure of it.
const NOT_NOW: i64 = -31_005;

/// Where the server's requests are taken. How many there can be is bounded by
/// the calls in flight and by what the server reads of the answers.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) line: Arc<Line>,
    /// How much time a call gets after an answer.
    pub(super) patience: Duration,
    /// Set when it could not be told whose question one was.
    pub(super) is_confused: Arc<AtomicBool>,
}

impl Desk {
    /// Requests of the server have ids of their own, which may equal ours:
    /// what tells them apart is that they name a method.
    pub(super) fn take(&self, id: &Id, method: Text, params: Option<Bytes>) {
        if method == "ping" {
            return self.line.post(|out| write_result(out, id, b"{}"));
        }
        match self.line.attribute(id, method.as_str()) {
            Attribution::To(asked) => self.hand_over(id, method, params, asked),
            Attribution::Nobody => {
                self.refuse(id, code::METHOD_NOT_FOUND, &voice::not_offered(method.as_str()));
            }
            Attribution::Several => {
                self.is_confused.store(true, Ordering::Release);
                let why = "several calls are in flight and the question does not say which one it is for; \
                           such calls come one at a time from now on";
                self.refuse(id, NOT_NOW, why);
            }
            Attribution::TooMany => {
                self.refuse(id, code::INTERNAL_ERROR, "the call has too many questions open");
            }
        }
    }

    fn hand_over(&self, id: &Id, method: Text, params: Option<Bytes>, asked: Asked) {
        let (question, answer) = Question::new(method, params);
        let Asked { voice, call, withdrawn } = asked;
        voice.ask(question);
        let (line, id, patience) = (Arc::clone(&self.line), id.detached(), self.patience);
        tokio::spawn(async move {
            let Some(reply) = outcome(answer, withdrawn).await else { return };
            line.close_question(call, &id, patience);
            line.post(|out| match &reply {
                Reply::Answer(Outcome::Result(result)) => write_result(out, &id, result),
                Reply::Answer(Outcome::Error(error)) => write_error_object(out, &id, &error.raw),
                Reply::Refusal(why) => write_error(out, &id, code::INTERNAL_ERROR, why, None),
            });
        });
    }

    fn refuse(&self, id: &Id, code: i64, why: &str) {
        self.line.post(|out| write_error(out, id, code, why, None));
    }
}

enum Reply {
    Answer(Outcome),
    Refusal(&'static str),
}

/// Waits for the answer or for the end of the call; `None` if the server does
/// not want to know any more.
async fn outcome(answer: oneshot::Receiver<Outcome>, withdrawn: oneshot::Receiver<()>) -> Option<Reply> {
    tokio::select! {
        biased;
        answer = answer => Some(match answer {
            Ok(outcome) => Reply::Answer(outcome),
            Err(_) => Reply::Refusal("the caller does not answer"),
        }),
        withdrawn = withdrawn => match withdrawn {
            Ok(()) => None,
            Err(_) => Some(Reply::Refusal("the call that this was asked for is over")),
        },
    }
}

/// The id in the parameters of a cancellation.
pub(super) fn cancelled_id(params: &[u8]) -> Option<Id> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Cancelled<'a> {
        #[serde(borrow)]
        request_id: &'a RawValue,
    }
    let cancelled: Cancelled<'_> = serde_json::from_slice(params).ok()?;
    Id::parse(Bytes::copy_from_slice(cancelled.request_id.get().as_bytes())).ok()
}

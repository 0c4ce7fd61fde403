//! What a server says beside its answers: notifications and questions.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use ostler_core::meter::Meter;
use ostler_wire::{Id, Notice, Outcome, Progress, RpcError, Text, code};
use tokio::time::Instant;

use super::calls::Calls;
use super::tally::Tally;
use crate::upstream::whose::{self, Whose};
use crate::upstream::{Event, Events, Question, SharedVoice, voice};

/// Notifications a server may send per second, and in one burst.
const NOTIFICATIONS: (u32, u32) = (200, 1_000);
/// Questions that one call may have open. A person answers one at a time.
const MAX_QUESTIONS: usize = 16;

/// The code of a refusal that says nothing against the server: should it pass
/// the error on as its own, that is no failure of it.
const NOT_NOW: i64 = -31_005;
const SEVERAL: &str = "several calls are in flight and the question does not say which one it is for; \
                       such calls come one at a time from now on";

/// Takes what a server says beside its answers.
pub(crate) struct Ear {
    events: Events,
    meter: Mutex<Meter>,
    /// How much time a sign of life gives a call.
    patience: Duration,
    /// Set when it could not be told whose question one was.
    is_confused: Arc<AtomicBool>,
}

/// A question of the server.
pub(crate) struct Asked {
    pub(crate) id: Id,
    pub(crate) method: Text,
    pub(crate) params: Option<Bytes>,
    /// The call on whose stream it came.
    pub(crate) call: Option<u64>,
}

impl Ear {
    pub(crate) fn new(events: Events, patience: Duration, is_confused: Arc<AtomicBool>) -> Self {
        let (rate, burst) = NOTIFICATIONS;
        Self { events, meter: Mutex::new(Meter::new(rate, burst)), patience, is_confused }
    }

    /// Tells that something has changed which the server did not say.
    pub(crate) fn tell(&self, event: Event) {
        (self.events)(event);
    }

    /// Takes a notification; `call` is the one on whose stream it came.
    pub(crate) fn notice(
        &self,
        (calls, tally): (&Calls, &Tally),
        (method, params): (Text, Option<Bytes>),
        call: Option<u64>,
    ) {
        let event = match Notice::of(method.as_str()) {
            // Never dropped, for nothing else would tell.
            Notice::ToolsChanged => Event::ToolsChanged,
            Notice::ResourcesChanged => Event::ResourcesChanged,
            Notice::ResourceUpdated => Event::ResourceUpdated(params.unwrap_or_default()),
            Notice::PromptsChanged => Event::PromptsChanged,
            _ if !self.may_speak() => return tally.drop_one(),
            Notice::Progress => return self.progress(calls, params),
            // A call under way says nothing about whose task it is; clients ask for its state.
            Notice::Cancelled | Notice::Task => return,
            kind @ (Notice::Log | Notice::Other) => {
                if let Some(call) = call {
                    // It is that caller's, and no one else's if it takes none.
                    let voice = calls.voice(call).filter(|voice| voice.wants_notices());
                    return voice
                        .into_iter()
                        .for_each(|voice| voice.notice(method.as_str(), params.as_ref()));
                }
                match kind {
                    Notice::Log => Event::Log(params.unwrap_or_default()),
                    _ => Event::Other { method, params },
                }
            }
        };
        (self.events)(event);
    }

    fn progress(&self, calls: &Calls, params: Option<Bytes>) {
        let Some(progress) = params.as_ref().and_then(Progress::parse) else { return };
        if let Some(voice) = calls.progress(progress.token, self.patience) {
            voice.progress(&progress);
        }
    }

    /// Answers a question: the message to be sent back. One that came on a
    /// call's stream is that call's; any other goes to the only call that can
    /// have caused it, and with several of them nobody can tell.
    pub(crate) async fn answer(&self, calls: &Calls, asked: Asked) -> Vec<u8> {
        let Asked { id, method, params, call } = asked;
        if method == "ping" {
            return reply(&id, &Outcome::Result(Bytes::from_static(b"{}")));
        }
        let found = match call {
            Some(call) => calls.voice(call).map_or(Whose::Nobody, |voice| Whose::One(call, voice)),
            None => whose::find(calls.candidates(), method.as_str()),
        };
        let outcome = match found {
            Whose::One(call, voice) if voice.can_answer(method.as_str()) => {
                self.ask(calls, (call, &voice), method, params).await
            }
            Whose::One(..) | Whose::Nobody => {
                refusal(code::METHOD_NOT_FOUND, &voice::not_offered(method.as_str()))
            }
            Whose::Several => {
                self.is_confused.store(true, Ordering::Release);
                refusal(NOT_NOW, SEVERAL)
            }
        };
        reply(&id, &outcome)
    }

    async fn ask(
        &self,
        calls: &Calls,
        (call, voice): (u64, &SharedVoice),
        method: Text,
        params: Option<Bytes>,
    ) -> Outcome {
        if !calls.open_question(call, MAX_QUESTIONS) {
            return refusal(code::INTERNAL_ERROR, "the call has too many questions open");
        }
        // Also when the stream ends on which it was asked, and this with it.
        let _open = OpenQuestion { calls, call, patience: self.patience };
        let (question, answer) = Question::new(method, params);
        voice.ask(question);
        tokio::select! {
            biased;
            answer = answer => {
                answer.unwrap_or_else(|_| refusal(code::INTERNAL_ERROR, "the caller does not answer"))
            }
            () = calls.over(call) => {
                refusal(code::INTERNAL_ERROR, "the call that this was asked for is over")
            }
        }
    }

    fn may_speak(&self) -> bool {
        let mut meter = self.meter.lock().unwrap_or_else(PoisonError::into_inner);
        meter.take(Instant::now().into_std())
    }
}

/// A question that is open; dropping it lets the call's time run again.
struct OpenQuestion<'a> {
    calls: &'a Calls,
    call: u64,
    patience: Duration,
}

impl Drop for OpenQuestion<'_> {
    fn drop(&mut self) {
        self.calls.close_question(self.call, self.patience);
    }
}

fn refusal(code: i64, why: &str) -> Outcome {
    Outcome::Error(RpcError::own(code, why))
}

fn reply(id: &Id, outcome: &Outcome) -> Vec<u8> {
    let mut body = Vec::new();
    match outcome {
        Outcome::Result(raw) => ostler_wire::write_result(&mut body, id, raw),
        Outcome::Error(error) => {
            let parts: [&[u8]; 5] =
                [b"{\"jsonrpc\":\"2.0\",\"id\":", id.raw(), b",\"error\":", &error.raw, b"}"];
            body = parts.concat();
        }
    }
    body
}

//! What a server says beside its answers: notifications and questions.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use ostler_core::meter::Meter;
use ostler_wire::{Id, Notice, Outcome, Progress, RpcError, Text, code};
use tokio::time::Instant;

use super::calls::Calls;
use super::tally::Tally;
use crate::upstream::{Event, Events, Question, SharedVoice};

/// Notifications a server may send per second, and in one burst.
const NOTIFICATIONS: (u32, u32) = (200, 1_000);
/// Questions that one call may have open. A person answers one at a time.
const MAX_QUESTIONS: usize = 16;

/// Takes what a server says beside its answers.
pub(crate) struct Ear {
    events: Events,
    meter: Mutex<Meter>,
    /// How much time a sign of life gives a call.
    patience: Duration,
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
    pub(crate) fn new(events: Events, patience: Duration) -> Self {
        let (rate, burst) = NOTIFICATIONS;
        Self { events, meter: Mutex::new(Meter::new(rate, burst)), patience }
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
            Notice::Cancelled => return,
            kind @ (Notice::Log | Notice::Other) => {
                if let Some(voice) = call.and_then(|call| calls.voice(call)) {
                    return voice.notice(method.as_str(), params.as_ref());
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
    /// call's stream is that call's; any other goes to the one call whose
    /// caller can answer it, and with several of them nobody can tell.
    pub(crate) async fn answer(&self, calls: &Calls, asked: Asked) -> Vec<u8> {
        let Asked { id, method, params, call } = asked;
        if method == "ping" {
            return reply(&id, &Outcome::Result(Bytes::from_static(b"{}")));
        }
        let able = match call {
            Some(call) => calls.voice(call).map(|voice| (call, voice)),
            None => sole(calls, method.as_str()),
        };
        let outcome = match able.filter(|(_, voice)| voice.can_answer(method.as_str())) {
            Some((call, voice)) => self.ask(calls, (call, &voice), method, params).await,
            None => None,
        };
        let refused =
            || Outcome::Error(RpcError::own(code::METHOD_NOT_FOUND, "the client has no such method"));
        reply(&id, &outcome.unwrap_or_else(refused))
    }

    async fn ask(
        &self,
        calls: &Calls,
        (call, voice): (u64, &SharedVoice),
        method: Text,
        params: Option<Bytes>,
    ) -> Option<Outcome> {
        if !calls.open_question(call, MAX_QUESTIONS) {
            return None;
        }
        let (question, answer) = Question::new(method, params);
        voice.ask(question);
        let outcome = answer.await.ok();
        calls.close_question(call, self.patience);
        outcome
    }

    fn may_speak(&self) -> bool {
        let mut meter = self.meter.lock().unwrap_or_else(PoisonError::into_inner);
        meter.take(Instant::now().into_std())
    }
}

/// The only call whose caller can answer.
fn sole(calls: &Calls, method: &str) -> Option<(u64, SharedVoice)> {
    let mut able = calls.voices();
    able.retain(|(_, voice)| voice.can_answer(method));
    if able.len() == 1 { able.pop() } else { None }
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

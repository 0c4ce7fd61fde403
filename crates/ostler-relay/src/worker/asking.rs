//! Questions of servers to the caller of a tool: every one is answered, or the
//! server might wait for ever.

use std::sync::Arc;

use bytes::Bytes;
use ostler_host::upstream::{Question, SharedVoice};
use ostler_wire::{Id, Message, Outcome, code, write_error, write_error_object, write_result};
use tokio::sync::oneshot;

use super::Core;
use crate::call_id::CallId;
use crate::envelope::Control;

/// Asks the caller of a call. How many tasks this makes is bounded by the
/// questions that a call may have open.
pub(super) fn ask(core: &Arc<Core>, call: CallId, number: u32, body: Bytes) {
    let Ok(Message::Request { id, method, params }) = Message::parse(body) else { return };
    let Some((voice, over)) = core.table.open_question(call, number) else { return };
    let id = id.detached();
    let voice: Option<SharedVoice> = voice.filter(|voice| voice.can_answer(method.as_str()));
    let Some(voice) = voice else {
        return close(core, (call, number), |out| {
            write_error(out, &id, code::METHOD_NOT_FOUND, "the client has no such method", None);
        });
    };
    let (question, answer) = Question::new(method, params);
    voice.ask(question);
    let core = Arc::clone(core);
    tokio::spawn(async move {
        let Some(answer) = until_over(answer, over).await else { return };
        close(&core, (call, number), |out| write(out, &id, answer));
    });
}

/// The answer, or that the caller gives none; `None` if the call is over, and
/// with it the question.
async fn until_over(
    answer: oneshot::Receiver<Outcome>,
    over: oneshot::Receiver<()>,
) -> Option<Option<Outcome>> {
    tokio::select! {
        biased;
        answer = answer => Some(answer.ok()),
        _ = over => None,
    }
}

fn write(out: &mut Vec<u8>, id: &Id, answer: Option<Outcome>) {
    match answer {
        Some(Outcome::Result(result)) => write_result(out, id, &result),
        Some(Outcome::Error(error)) => write_error_object(out, id, &error.raw),
        None => write_error(out, id, code::INTERNAL_ERROR, "the caller does not answer", None),
    }
}

fn close(core: &Core, (call, number): (CallId, u32), write: impl FnOnce(&mut Vec<u8>)) {
    core.table.close_question(call, number);
    let mut body = Vec::new();
    write(&mut body);
    // A message of its own needs no end of line.
    body.pop();
    core.outbox.control(call, Control::Answer(number), body);
}

//! Questions of servers to the caller of a tool: every one is answered, or the
//! server might wait for ever.

use std::sync::Arc;

use bytes::Bytes;
use ostler_host::upstream::{ServerRequest, SharedCallObserver};
use ostler_wire::{
    Message, RequestId, RpcOutcome, error_code, write_error, write_error_object, write_result,
};
use tokio::sync::oneshot;

use super::WorkerCore;
use crate::call_id::CallId;
use crate::envelope::Control;

/// Asks the caller of a call. How many tasks this makes is bounded by the
/// questions that a call may have open.
pub(super) fn forward_server_request(core: &Arc<WorkerCore>, call: CallId, number: u32, body: Bytes) {
    let Ok(Message::Request { id, method, params }) = Message::parse(body) else { return };
    let Some((voice, over)) = core.calls.open_server_request(call, number) else { return };
    let id = id.detached();
    let voice: Option<SharedCallObserver> = voice.filter(|voice| voice.can_answer(method.as_str()));
    let Some(voice) = voice else {
        return send_response(core, (call, number), |out| {
            write_error(out, &id, error_code::METHOD_NOT_FOUND, "the client has no such method", None);
        });
    };
    let (question, answer) = ServerRequest::new(method, params);
    voice.on_request(question);
    let core = Arc::clone(core);
    tokio::spawn(async move {
        let Some(answer) = await_response(answer, over).await else { return };
        send_response(&core, (call, number), |out| write(out, &id, answer));
    });
}

/// The answer, or that the caller gives none; `None` if the call is over, and
/// with it the question.
async fn await_response(
    answer: oneshot::Receiver<RpcOutcome>,
    over: oneshot::Receiver<()>,
) -> Option<Option<RpcOutcome>> {
    tokio::select! {
        biased;
        answer = answer => Some(answer.ok()),
        _ = over => None,
    }
}

fn write(out: &mut Vec<u8>, id: &RequestId, answer: Option<RpcOutcome>) {
    match answer {
        Some(RpcOutcome::Result(result)) => write_result(out, id, &result),
        Some(RpcOutcome::Error(error)) => write_error_object(out, id, &error.raw),
        None => write_error(out, id, error_code::INTERNAL_ERROR, "the caller does not answer", None),
    }
}

fn send_response(core: &WorkerCore, (call, number): (CallId, u32), write: impl FnOnce(&mut Vec<u8>)) {
    core.calls.close_server_request(call, number);
    let mut body = Vec::new();
    write(&mut body);
    // A message of its own needs no end of line.
    body.pop();
    core.outbox.control(call, Control::Answer(number), body);
}

//! Server requests (elicitation, sampling, roots) of a call: each gets a response, or its server
//! would wait.

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

/// Forwards a server request to the caller of its call. The limit of open requests per call bounds
/// the number of tasks.
pub(super) fn forward_server_request(core: &Arc<WorkerCore>, call: CallId, number: u32, body: Bytes) {
    let Ok(Message::Request { id, method, params }) = Message::parse(body) else { return };
    let Some((observer, call_ended)) = core.calls.open_server_request(call, number) else { return };
    let id = id.detached();
    let observer: Option<SharedCallObserver> =
        observer.filter(|observer| observer.can_answer(method.as_str()));
    let Some(observer) = observer else {
        return send_response(core, (call, number), |out| {
            write_error(out, &id, error_code::METHOD_NOT_FOUND, "the client has no such method", None);
        });
    };
    let (request, response) = ServerRequest::new(method, params);
    observer.on_request(request);
    let core = Arc::clone(core);
    tokio::spawn(async move {
        let Some(response) = await_response(response, call_ended).await else { return };
        send_response(&core, (call, number), |out| write(out, &id, response));
    });
}

/// Waits for the response; `Some(None)` if the caller gives none, `None` if the call has ended.
async fn await_response(
    response: oneshot::Receiver<RpcOutcome>,
    call_ended: oneshot::Receiver<()>,
) -> Option<Option<RpcOutcome>> {
    tokio::select! {
        biased;
        response = response => Some(response.ok()),
        _ = call_ended => None,
    }
}

fn write(out: &mut Vec<u8>, id: &RequestId, response: Option<RpcOutcome>) {
    match response {
        Some(RpcOutcome::Result(result)) => write_result(out, id, &result),
        Some(RpcOutcome::Error(error)) => write_error_object(out, id, &error.raw),
        None => write_error(out, id, error_code::INTERNAL_ERROR, "the caller does not answer", None),
    }
}

fn send_response(core: &WorkerCore, (call, number): (CallId, u32), write: impl FnOnce(&mut Vec<u8>)) {
    core.calls.close_server_request(call, number);
    let mut body = Vec::new();
    write(&mut body);
    // A message has no line break at its end.
    body.pop();
    core.outbox.control(call, Control::Answer(number), body);
}

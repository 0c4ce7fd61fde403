//! MCP client of a daemon, on a connection upgraded by `/api/v1/attach`.
//!
//! The daemon serves it as a connection of commands: results come byte for byte as servers sent them, and the `data` of
//! an error is the error with all its parts. The end of the connection cancels what is under way.

use std::collections::HashMap;

use bytes::Bytes;
use hyper::Response;
use hyper::body::Incoming;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use ostler_host::upstream::{CallObserver, ServerRequest};
use ostler_wire::{Message, RequestId, RpcOutcome};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use super::http::{HttpError, MAX_RESPONSE_BYTES};
use crate::call_events::{CallEvent, CallEventSender, finish_json_line};

/// Upper bound on replies of the person at the terminal that wait to be written.
const ANSWER_CAPACITY: usize = 16;
/// Protocol version of the connection: in it, server questions are requests.
const VERSION: &str = "2025-11-25";
/// Id of the first request; the others count on.
const FIRST_ID: u64 = 1;
/// `_meta` key of a result that is not on one line, and is sent as a string.
const TEXT_META_KEY: &str = "dev.ostler/text";

/// Connection without a request in flight.
#[derive(Debug)]
pub(super) struct McpConnection {
    from: BufReader<ReadHalf<TokioIo<Upgraded>>>,
    to: WriteHalf<TokioIo<Upgraded>>,
    last_id: u64,
}

impl McpConnection {
    /// Takes the connection of a response that has switched protocols, and initializes MCP on it.
    pub(super) async fn open(response: Response<Incoming>) -> Result<Self, HttpError> {
        let lost = |error: hyper::Error| HttpError::NotSent(error.to_string());
        let connection = hyper::upgrade::on(response).await.map_err(lost)?;
        let (from, mut to) = tokio::io::split(TokioIo::new(connection));
        let client = json!({ "name": "ostler", "version": env!("CARGO_PKG_VERSION") });
        let capabilities = json!({ "elicitation": { "form": {}, "url": {} } });
        let params =
            json!({ "protocolVersion": VERSION, "capabilities": capabilities, "clientInfo": client });
        let initialize =
            json!({ "jsonrpc": "2.0", "id": FIRST_ID, "method": "initialize", "params": params });
        let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        let lines = format!("{initialize}\n{initialized}\n");
        to.write_all(lines.as_bytes()).await.map_err(|error| HttpError::NotSent(error.to_string()))?;
        Ok(Self { from: BufReader::new(from), to, last_id: FIRST_ID })
    }

    /// Sends a request, passes on events of the call, and returns its outcome.
    pub(super) async fn request(
        &mut self,
        method: &str,
        params: &[u8],
        observer: Option<&CallEventSender>,
    ) -> Result<RpcOutcome, HttpError> {
        self.last_id += 1;
        let id = self.last_id;
        let mut line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":"#).into_bytes();
        line.extend_from_slice(params);
        line.push(b'}');
        finish_json_line(&mut line);
        self.to.write_all(&line).await.map_err(|error| HttpError::OutcomeUnknown(error.to_string()))?;
        let (answers, mut given) = mpsc::channel::<Vec<u8>>(ANSWER_CAPACITY);
        let to = &mut self.to;
        let write = async {
            while let Some(answer) = given.recv().await {
                // A write error shows where the connection is read.
                let _ = to.write_all(&answer).await;
            }
            std::future::pending().await
        };
        tokio::select! {
            outcome = read_until_response(&mut self.from, id, observer, answers) => outcome.map(unwrap_text),
            never = write => never,
        }
    }
}

async fn read_until_response(
    from: &mut BufReader<ReadHalf<TokioIo<Upgraded>>>,
    wanted: u64,
    observer: Option<&CallEventSender>,
    answers: mpsc::Sender<Vec<u8>>,
) -> Result<RpcOutcome, HttpError> {
    // Cancels the waits for replies with the request.
    let mut waits = JoinSet::new();
    let mut open: HashMap<RequestId, AbortHandle> = HashMap::new();
    loop {
        let mut text = Vec::new();
        let mut line = (&mut *from).take(MAX_RESPONSE_BYTES as u64);
        line.read_until(b'\n', &mut text)
            .await
            .map_err(|error| HttpError::OutcomeUnknown(error.to_string()))?;
        let message =
            Message::parse(text.into()).map_err(|_| HttpError::OutcomeUnknown("it hung up".into()))?;
        match (message, observer) {
            (Message::Response { id: Some(id), outcome }, _) if id.number() == Some(wanted) => {
                return Ok(outcome);
            }
            (Message::Notification { method, params: Some(params) }, Some(observer)) => {
                match method.as_str() {
                    "notifications/progress" => observer.send(CallEvent::Progress(params)),
                    "notifications/message" => observer.send_log(&params),
                    "notifications/cancelled" => {
                        let id = ostler_wire::member(&params, "requestId");
                        let id = id.and_then(|raw| RequestId::parse(params.slice_ref(raw)).ok());
                        if let Some(wait) = id.and_then(|id| open.remove(&id)) {
                            wait.abort();
                        }
                    }
                    _ => {}
                }
            }
            (Message::Request { id, method, params }, observer) => {
                let (question, answer) = ServerRequest::new(method, params);
                let (answers, asked) = (answers.clone(), id.detached());
                let wait = waits.spawn(async move {
                    let outcome = answer.await.ok();
                    let _ = answers.send(write_answer(&asked, outcome)).await;
                });
                open.insert(id.detached(), wait);
                if let Some(observer) = observer {
                    observer.on_request(question);
                }
            }
            _ => {}
        }
    }
}

/// Returns the response to a server request; one without an outcome is refused.
fn write_answer(id: &RequestId, outcome: Option<RpcOutcome>) -> Vec<u8> {
    let mut line = Vec::new();
    match outcome {
        Some(RpcOutcome::Result(result)) => ostler_wire::write_result(&mut line, id, &result),
        Some(RpcOutcome::Error(error)) => ostler_wire::write_error_object(&mut line, id, &error.raw),
        None => {
            let error = ostler_wire::error_object(ostler_wire::INTERNAL_ERROR, "nobody answers", None);
            ostler_wire::write_error_object(&mut line, id, &error);
        }
    }
    line
}

/// Returns the text of a result that was sent as a string because it is not on one line.
fn unwrap_text(outcome: RpcOutcome) -> RpcOutcome {
    let text = match &outcome {
        RpcOutcome::Result(result) => ostler_wire::member(result, "_meta")
            .and_then(|meta| ostler_wire::text_member(meta, TEXT_META_KEY))
            .map(|text| Bytes::from(text.into_owned())),
        RpcOutcome::Error(_) => None,
    };
    text.map_or(outcome, RpcOutcome::Result)
}

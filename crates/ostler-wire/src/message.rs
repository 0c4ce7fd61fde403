//! JSON-RPC envelope, opened in one pass.

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::json_string::{decode_string, decode_string_lossy};
use crate::method::MethodName;
use crate::object::{ObjectError, select_members_str};
use crate::request_id::RequestId;

/// The members of an envelope that are read, in the order in which [`Message::parse`] destructures them.
const ENVELOPE_KEYS: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];

/// One JSON-RPC message. Values are slices of the line it was read from, byte for byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A request, to be answered under `id`.
    Request {
        /// The peer's id, returned to it unchanged.
        id: RequestId,
        /// The requested method.
        method: MethodName,
        /// The raw parameters; `null` counts as absent.
        params: Option<Bytes>,
    },
    /// A notification, which expects no answer.
    Notification {
        /// The method of the notification.
        method: MethodName,
        /// The raw parameters; `null` counts as absent.
        params: Option<Bytes>,
    },
    /// An answer.
    Response {
        /// The id of the answered request. `None` only with an error: the peer could not read our id.
        id: Option<RequestId>,
        /// The result or the error.
        outcome: RpcOutcome,
    },
}

/// Outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RpcOutcome {
    /// The raw `result`, of any JSON type.
    Result(Bytes),
    /// The peer refused the request or failed.
    Error(RpcError),
}

/// A JSON-RPC error object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RpcError {
    /// The code, see [`crate::error_code`].
    pub code: i64,
    /// The message for people; never decides anything. Empty if the peer sent none.
    pub message: String,
    /// The whole error object as it was written, `data` included.
    pub raw: Bytes,
}

/// Reason why bytes are no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// The bytes are no UTF-8.
    #[error("not UTF-8")]
    NotUtf8,
    /// The text is no JSON.
    #[error("not JSON: {why}")]
    NotJson {
        /// The parser's message and position.
        why: String,
    },
    /// JSON, but no object.
    #[error("not a JSON object")]
    NotAnObject,
    /// A JSON array. Only revision 2025-03-26 has batches; the gateway splits them before it parses messages.
    #[error("a batch; one message at a time is expected")]
    Batch,
    /// A member that decides something occurs twice, so two readers could understand different messages.
    #[error("the key `{0}` occurs twice")]
    DuplicateKey(&'static str),
    /// The id is neither a string nor an integer.
    #[error("the id is neither a string nor an integer")]
    BadId,
    /// A result without an id answers no request.
    #[error("a result without an id")]
    MissingId,
    /// `jsonrpc` is not "2.0", or a request leaves it out.
    #[error("`jsonrpc` is not \"2.0\"")]
    BadVersion,
    /// `method` is no string.
    #[error("`method` is not a string")]
    BadMethod,
    /// `error` is no object with an integer `code`.
    #[error("`error` is not an object with an integer `code`")]
    BadError,
    /// A request or notification that also has an outcome.
    #[error("both `method` and `result` or `error`")]
    BothMethodAndOutcome,
    /// An answer with a result and an error.
    #[error("both `result` and `error`")]
    BothResultAndError,
    /// Neither a `method` nor an outcome.
    #[error("neither `method` nor `result` nor `error`")]
    NeitherResultNorError,
}

impl Message {
    /// Parses one message from a line or a body.
    ///
    /// Only `method` tells the direction, never the id: a server's request may carry an id that one of ours
    /// has too. A wrong `jsonrpc` is always refused. A missing one is refused in a request, because a request
    /// makes us act. It is tolerated in answers and notifications: some servers leave it out, the rest of the
    /// message is unambiguous, and failing a call that has been executed has no use.
    ///
    /// Allocates only for an unknown method's name and an error's message.
    pub fn parse(line: Bytes) -> Result<Message, MessageError> {
        let text = std::str::from_utf8(&line).map_err(|_| MessageError::NotUtf8)?;
        let [version, id, method, params, result, error] = match select_members_str(text, &ENVELOPE_KEYS) {
            Ok(members) => members,
            Err(why) => return Err(message_error(text, why)),
        };
        let part = |text: &str| line.slice_ref(text.as_bytes());

        match version.map(decode_string) {
            None if method.is_some() && id.is_some() => return Err(MessageError::BadVersion),
            None => {}
            Some(Some(version)) if version == "2.0" => {}
            Some(_) => return Err(MessageError::BadVersion),
        }
        if let Some(method) = method {
            if result.is_some() || error.is_some() {
                return Err(MessageError::BothMethodAndOutcome);
            }
            let method = MethodName::from(&*decode_string(method).ok_or(MessageError::BadMethod)?);
            let params = params.filter(|raw| *raw != "null").map(part);
            return Ok(match id {
                Some(id) => Message::Request { id: RequestId::from_token(part(id))?, method, params },
                None => Message::Notification { method, params },
            });
        }
        let outcome = match (result, error) {
            (Some(_), Some(_)) => return Err(MessageError::BothResultAndError),
            (None, None) => return Err(MessageError::NeitherResultNorError),
            (Some(result), None) => RpcOutcome::Result(part(result)),
            (None, Some(error)) => RpcOutcome::Error(RpcError::parse(part(error))?),
        };
        let id = id.filter(|raw| *raw != "null").map(|raw| RequestId::from_token(part(raw))).transpose()?;
        if id.is_none() && matches!(outcome, RpcOutcome::Result(_)) {
            return Err(MessageError::MissingId);
        }
        Ok(Message::Response { id, outcome })
    }
}

impl RpcError {
    /// Creates an error of our own, without data.
    pub fn new(code: i64, message: &str) -> RpcError {
        let mut raw = b"{\"code\":".to_vec();
        raw.extend_from_slice(code.to_string().as_bytes());
        raw.extend_from_slice(b",\"message\":");
        crate::json_string::push_string(&mut raw, message);
        raw.push(b'}');
        RpcError { code, message: message.to_owned(), raw: raw.into() }
    }

    /// Parses an error object. The code is required, because it decides; the message may be missing.
    fn parse(raw: Bytes) -> Result<RpcError, MessageError> {
        let keys = ["code", "message"];
        let [code, message] = crate::object::select_members(&raw, &keys).map_err(|why| match why {
            ObjectError::Duplicate(at) => MessageError::DuplicateKey(keys[at]),
            _ => MessageError::BadError,
        })?;
        let code = code.and_then(|code| code.parse().ok()).ok_or(MessageError::BadError)?;
        let message = message.and_then(decode_string_lossy).unwrap_or_default();
        Ok(RpcError { code, message, raw })
    }
}

/// Returns the reason why a text could not be opened. A log line like `[INFO] ready` is no batch, so a text
/// that is no object is parsed to its end.
fn message_error(text: &str, why: ObjectError) -> MessageError {
    match why {
        ObjectError::NotUtf8 => MessageError::NotUtf8,
        ObjectError::Duplicate(at) => MessageError::DuplicateKey(ENVELOPE_KEYS[at]),
        ObjectError::NotJson(error) => MessageError::NotJson { why: error.to_string() },
        ObjectError::NotAnObject => match serde_json::from_str::<&RawValue>(text) {
            Err(error) => MessageError::NotJson { why: error.to_string() },
            Ok(value) if value.get().starts_with('[') => MessageError::Batch,
            Ok(_) => MessageError::NotAnObject,
        },
    }
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;

//! Kept-alive HTTP connection that tells whether a failed request was sent.

use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

/// Shorter than the time between a caller's last attempt and its deadline.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// The reason why a request has no answer.
#[derive(Debug)]
pub(crate) enum HttpSendError {
    /// No byte of the request was written.
    NotSent,
    /// The request may have arrived.
    Sent(String),
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct CallerReply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// The JSON-RPC message in it, or null.
    pub(crate) message: Value,
}

/// A connection to one port, opened when it is needed.
#[derive(Debug)]
pub(crate) struct CallerConnection {
    port: u16,
    sender: Option<SendRequest<Full<Bytes>>>,
}

impl CallerConnection {
    pub(crate) fn new(port: u16) -> Self {
        Self { port, sender: None }
    }

    /// Closes the connection; the daemon takes that for a cancellation.
    pub(crate) fn close(&mut self) {
        self.sender = None;
    }

    /// Sends a request and reads the whole answer. If the future is dropped before its end, the
    /// connection must be closed with [`Self::close`].
    pub(crate) async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<CallerReply, HttpSendError> {
        let outcome = self.send_and_read(request).await;
        if outcome.is_err() {
            self.close();
        }
        outcome
    }

    async fn send_and_read(&mut self, request: Request<Full<Bytes>>) -> Result<CallerReply, HttpSendError> {
        let sender = self.sender().await?;
        let response = match sender.try_send_request(request).await {
            Ok(response) => response,
            // The request comes back only if nothing of it was written.
            Err(mut error) => {
                return Err(match error.take_message() {
                    Some(_) => HttpSendError::NotSent,
                    None => HttpSendError::Sent(error.into_error().to_string()),
                });
            }
        };
        let (head, body) = response.into_parts();
        let body = body.collect().await.map_err(|error| HttpSendError::Sent(error.to_string()))?.to_bytes();
        let is_stream = head
            .headers
            .get(CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        let message = if is_stream { last_event(&body) } else { serde_json::from_slice(&body).ok() };
        if is_stream && message.is_none() {
            return Err(HttpSendError::Sent("the stream ends without an answer".into()));
        }
        Ok(CallerReply { status: head.status, headers: head.headers, message: message.unwrap_or_default() })
    }

    async fn sender(&mut self) -> Result<&mut SendRequest<Full<Bytes>>, HttpSendError> {
        if let Some(sender) = &mut self.sender
            && sender.ready().await.is_err()
        {
            self.sender = None;
        }
        if self.sender.is_none() {
            let connecting =
                tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(("127.0.0.1", self.port)));
            let stream = connecting.await.ok().and_then(Result::ok).ok_or(HttpSendError::NotSent)?;
            let _ = stream.set_nodelay(true);
            let (sender, connection) =
                http1::handshake(TokioIo::new(stream)).await.map_err(|_| HttpSendError::NotSent)?;
            tokio::spawn(connection);
            self.sender = Some(sender);
        }
        self.sender.as_mut().ok_or(HttpSendError::NotSent)
    }
}

/// Returns the answer in an event stream: the last message that has an id and no method.
fn last_event(body: &[u8]) -> Option<Value> {
    let text = std::str::from_utf8(body).ok()?;
    let messages = text.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim_start);
    let is_answer = |message: &Value| message.get("id").is_some() && message.get("method").is_none();
    messages.filter_map(|data| serde_json::from_str(data).ok()).rfind(is_answer)
}

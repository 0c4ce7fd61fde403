//! Responses of the endpoints: bodies, refusals before a request is a message, and statuses.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode, header};
use http_body::{Frame, SizeHint};
use ostler_core::error::CallError;
use ostler_core::keyed_limit::KeyedPermit;
use ostler_wire::{RequestId, error_code};

use crate::client_request::GatewayReply;

pub(super) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
pub(super) const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
pub(super) const METHOD: HeaderName = HeaderName::from_static("mcp-method");
pub(super) const NAME: HeaderName = HeaderName::from_static("mcp-name");

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Returns a refusal that is about no request in particular.
pub(super) fn refuse(status: StatusCode, why: &str) -> Response {
    let mut response = json(status, &GatewayReply::refusal(error_code::INVALID_REQUEST, why), None);
    response.extensions_mut().insert(RefusalReason(why.into()));
    response
}

/// Refuses to open a session whose id could be guessed.
pub(super) fn no_randomness() -> Response {
    refuse(StatusCode::SERVICE_UNAVAILABLE, "this machine has no source of randomness")
}

/// Delay after which a client refused for overload may retry.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Returns the refusal for overload, to the request `id` if it is known already.
pub(super) fn overloaded(what: &str, id: Option<&RequestId>) -> Response {
    let error = CallError::Overloaded { what: what.into(), retry_after: RETRY_AFTER };
    let mut response = json(StatusCode::SERVICE_UNAVAILABLE, &GatewayReply::from_own_error(&error), id);
    response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER.as_secs().into());
    response.extensions_mut().insert(RefusalReason(what.into()));
    response
}

/// Reason of the refusal of a connection above the limit.
const NO_CONNECTION: &str = "too many connections are open";

/// Refuses a request on a reserved connection that it may not use, and closes the connection.
pub(crate) fn no_connection() -> Response {
    let mut response = overloaded(NO_CONNECTION, None);
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Returns the bytes of the refusal of a connection above the limit, before its first request.
pub(crate) fn raw_no_connection() -> Vec<u8> {
    let what = NO_CONNECTION.into();
    let error = CallError::Overloaded { what, retry_after: RETRY_AFTER };
    let body = GatewayReply::from_own_error(&error).frame(None);
    let mut text = format!(
        "HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: {}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        RETRY_AFTER.as_secs(),
        body.len()
    )
    .into_bytes();
    text.extend(body);
    text
}

/// Response extension of a request refused before it was parsed: the reason, for audit logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusalReason(pub Arc<str>);

/// Returns a response with one JSON body.
pub(super) fn json(status: StatusCode, reply: &GatewayReply, id: Option<&RequestId>) -> Response {
    body(status, reply.frame(id))
}

/// Returns a response whose body is JSON text already.
pub(super) fn body(status: StatusCode, text: Vec<u8>) -> Response {
    let mut response = Response::new(Payload::whole(text));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, JSON);
    response
}

/// Returns a response without a body.
pub(super) fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Payload::whole(Bytes::new()));
    *response.status_mut() = status;
    response
}

/// Returns the status of a modern answer. Errors about the request itself have a status of their own; errors of a
/// server or the host get 200.
pub(super) fn modern_status(reply: &GatewayReply) -> StatusCode {
    match reply {
        GatewayReply::Result(_) | GatewayReply::UnknownServer(_) => StatusCode::OK,
        GatewayReply::Error { code, .. } => match *code {
            error_code::METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
            error_code::HEADER_MISMATCH
            | error_code::MISSING_CAPABILITY
            | error_code::UNSUPPORTED_VERSION => StatusCode::BAD_REQUEST,
            _ => StatusCode::OK,
        },
    }
}

/// Response of the endpoints.
pub(crate) type Response = http::Response<Payload>;

/// Body of a response. Most consist of one text, for which nothing is allocated.
pub(crate) struct Payload {
    form: PayloadForm,
    /// Permit of the caller, released with the last byte.
    permit: Option<KeyedPermit>,
}

enum PayloadForm {
    Whole(Bytes),
    Stream(Body),
}

impl Payload {
    /// Makes a body of one text.
    pub(crate) fn whole(text: impl Into<Bytes>) -> Self {
        Self { form: PayloadForm::Whole(text.into()), permit: None }
    }

    /// Makes a body that streams until it ends.
    pub(crate) fn stream(body: Body) -> Self {
        Self { form: PayloadForm::Stream(body), permit: None }
    }

    /// Keeps the permit until the body ends.
    pub(super) fn with_permit(self, permit: KeyedPermit) -> Self {
        Self { permit: Some(permit), ..self }
    }

    /// Returns whether it answers a caller that was authenticated.
    pub(crate) fn serves_caller(&self) -> bool {
        self.permit.is_some()
    }

    /// Returns the bytes of an answer that is in memory as a whole.
    pub(crate) fn whole_len(&self) -> usize {
        match &self.form {
            PayloadForm::Whole(text) => text.len(),
            PayloadForm::Stream(_) => 0,
        }
    }

    pub(super) fn into_body(self) -> Body {
        match self {
            Self { form: PayloadForm::Whole(text), permit: None } => Body::from(text),
            Self { form: PayloadForm::Stream(body), permit: None } => body,
            payload => Body::new(payload),
        }
    }
}

impl http_body::Body for Payload {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        match &mut self.form {
            PayloadForm::Whole(text) if text.is_empty() => Poll::Ready(None),
            PayloadForm::Whole(text) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(text))))),
            PayloadForm::Stream(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.form {
            PayloadForm::Whole(text) => text.is_empty(),
            PayloadForm::Stream(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.form {
            PayloadForm::Whole(text) => SizeHint::with_exact(text.len() as u64),
            PayloadForm::Stream(body) => body.size_hint(),
        }
    }
}

//! What a response of the endpoints says.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};

use crate::shares::Share;

/// A response of the endpoints.
pub(super) type Response = http::Response<Payload>;

/// The body of a response. Most say one thing, for which nothing is allocated.
pub(super) struct Payload {
    form: Form,
    /// What the caller holds open, given back with the last byte.
    share: Option<Share>,
}

enum Form {
    Whole(Bytes),
    Stream(Body),
}

impl Payload {
    /// One text.
    pub(super) fn whole(text: impl Into<Bytes>) -> Self {
        Self { form: Form::Whole(text.into()), share: None }
    }

    /// Whatever comes, until it ends.
    pub(super) fn stream(body: Body) -> Self {
        Self { form: Form::Stream(body), share: None }
    }

    /// Keeps the share until the body is over.
    pub(super) fn holding(self, share: Share) -> Self {
        Self { share: Some(share), ..self }
    }

    pub(super) fn into_body(self) -> Body {
        match self {
            Self { form: Form::Whole(text), share: None } => Body::from(text),
            Self { form: Form::Stream(body), share: None } => body,
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
            Form::Whole(text) if text.is_empty() => Poll::Ready(None),
            Form::Whole(text) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(text))))),
            Form::Stream(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.form {
            Form::Whole(text) => text.is_empty(),
            Form::Stream(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.form {
            Form::Whole(text) => SizeHint::with_exact(text.len() as u64),
            Form::Stream(body) => body.size_hint(),
        }
    }
}

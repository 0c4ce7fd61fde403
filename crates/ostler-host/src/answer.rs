//! What a caller gets.

use std::time::Duration;

use bytes::Bytes;
use ostler_core::error::CallError;
use ostler_core::server_name::ServerName;
use ostler_wire::{CacheScopeHint, MemberEdit, ResultHead};
use serde::de::DeserializeOwned;

/// A server's result, byte for byte, and where it came from.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The JSON text of the result.
    pub body: Bytes,
    /// The server that gave it.
    pub server: ServerName,
    /// The session that gave it; `None` for a remembered one.
    pub generation: Option<u64>,
    /// How long it may be remembered, and by whom; for a remembered answer,
    /// what is left of that.
    pub ttl: Duration,
    /// See `ttl`.
    pub scope: CacheScopeHint,
}

impl Answer {
    /// An answer just received, of which nothing says that it may be kept.
    pub(crate) fn received(server: ServerName, generation: u64, body: Bytes) -> Self {
        Self {
            body,
            server,
            generation: Some(generation),
            ttl: Duration::ZERO,
            scope: CacheScopeHint::Private,
        }
    }

    /// Whether it was remembered and not asked for.
    pub fn is_cached(&self) -> bool {
        self.generation.is_none()
    }

    /// The result as it is told now: a remembered one says how long it is
    /// still good for.
    pub fn body_with_remaining_ttl(&self) -> Bytes {
        if !self.is_cached() || !ostler_wire::may_carry_ttl(&self.body) {
            return self.body.clone();
        }
        let left = self.ttl.as_millis().to_string();
        let changes = [("ttlMs", MemberEdit::Set(left.as_bytes()))];
        ostler_wire::edit(&self.body, &changes).map_or_else(|| self.body.clone(), Bytes::from)
    }

    /// Whether the tool says that it failed.
    pub fn is_error(&self) -> bool {
        ostler_wire::may_be_error(&self.body) && ResultHead::parse(&self.body).is_ok_and(|head| head.is_error)
    }

    /// Reads the result into a type of the caller's own.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, CallError> {
        serde_json::from_slice(&self.body).map_err(|error| CallError::UpstreamProtocol {
            server: self.server.clone(),
            detail: format!("the result has another shape: {error}"),
        })
    }

    /// The text parts of the content, joined by newlines.
    pub fn text(&self) -> String {
        #[derive(serde::Deserialize)]
        struct ResultContent {
            #[serde(default)]
            content: Vec<ContentPart>,
        }
        #[derive(serde::Deserialize)]
        struct ContentPart {
            #[serde(default)]
            text: Option<String>,
        }
        let content: Result<ResultContent, _> = serde_json::from_slice(&self.body);
        let parts = content.map(|c| c.content).unwrap_or_default();
        parts.into_iter().filter_map(|part| part.text).collect::<Vec<_>>().join("\n")
    }
}

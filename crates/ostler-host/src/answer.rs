//! Answers to callers.

use std::time::Duration;

use bytes::Bytes;
use ostler_core::error::CallError;
use ostler_core::server_name::ServerName;
use ostler_wire::{CacheScopeHint, MemberEdit, ResultHead};
use serde::de::DeserializeOwned;

/// A server's result, byte for byte, with its origin.
#[derive(Debug, Clone)]
pub struct Answer {
    /// JSON text of the result.
    pub body: Bytes,
    /// Server that gave it.
    pub server: ServerName,
    /// Session that gave it; `None` for a cached answer.
    pub generation: Option<u64>,
    /// Time for which it may be cached; for a cached answer, the time that remains.
    pub ttl: Duration,
    /// Callers that a cached copy may be served to.
    pub scope: CacheScopeHint,
}

impl Answer {
    /// Creates an answer that was just received and that nothing allows to be cached.
    pub(crate) fn received(server: ServerName, generation: u64, body: Bytes) -> Self {
        Self {
            body,
            server,
            generation: Some(generation),
            ttl: Duration::ZERO,
            scope: CacheScopeHint::Private,
        }
    }

    /// Returns whether it came from the cache.
    pub fn is_cached(&self) -> bool {
        self.generation.is_none()
    }

    /// Returns the result, with the remaining TTL if it came from the cache.
    pub fn body_with_remaining_ttl(&self) -> Bytes {
        if !self.is_cached() || !ostler_wire::may_carry_ttl(&self.body) {
            return self.body.clone();
        }
        let left = self.ttl.as_millis().to_string();
        let changes = [("ttlMs", MemberEdit::Set(left.as_bytes()))];
        ostler_wire::edit(&self.body, &changes).map_or_else(|| self.body.clone(), Bytes::from)
    }

    /// Returns whether the tool reports a failure (`isError`).
    pub fn is_error(&self) -> bool {
        ostler_wire::may_be_error(&self.body) && ResultHead::parse(&self.body).is_ok_and(|head| head.is_error)
    }

    /// Deserializes the result.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, CallError> {
        serde_json::from_slice(&self.body).map_err(|error| CallError::UpstreamProtocol {
            server: self.server.clone(),
            detail: format!("the result has another shape: {error}"),
        })
    }

    /// Returns the text parts of the content, joined by newlines.
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

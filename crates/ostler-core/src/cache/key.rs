//! Cache key: the address of a cached answer.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::Arc;

use bytes::Bytes;

use crate::server_name::ServerName;

/// The request, without the caller.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CacheKey {
    /// The server that answers.
    pub server: ServerName,
    /// The generation of its spec: an answer under another spec is another answer.
    pub spec: u64,
    /// The JSON-RPC method.
    pub method: &'static str,
    /// The tool or URI; empty for methods without one.
    pub subject: Arc<str>,
    /// The relevant parameters, as canonical JSON.
    pub params: Bytes,
}

/// Callers that may receive a cached answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheVisibility {
    /// Every caller.
    Public,
    /// The caller that asked.
    Private,
}

/// A key in a partition.
pub(super) struct PartitionKey {
    pub(super) key: CacheKey,
    /// The principal it belongs to; `None` for all callers.
    pub(super) owner: Option<Arc<str>>,
}

impl PartitionKey {
    pub(super) fn matches(&self, key: &CacheKey, owner: Option<&str>) -> bool {
        self.owner.as_deref() == owner && self.key == *key
    }

    pub(super) fn scope(&self) -> CacheVisibility {
        match self.owner {
            Some(_) => CacheVisibility::Private,
            None => CacheVisibility::Public,
        }
    }
}

/// Hashes under which one request of one caller is stored.
pub(super) struct KeyHashes {
    /// Hash of server, method and subject.
    pub(super) subject: u64,
    /// Hash of the whole key, for all callers.
    pub(super) public: u64,
    /// Hash of the whole key and the caller.
    pub(super) private: u64,
}

impl CacheKey {
    /// Computes all three hashes in one pass.
    pub(super) fn hashes(&self, hasher: &RandomState, principal: &str) -> KeyHashes {
        let mut state = hasher.build_hasher();
        self.server.hash(&mut state);
        self.method.hash(&mut state);
        self.subject.hash(&mut state);
        let subject = state.finish();
        self.spec.hash(&mut state);
        self.params.hash(&mut state);
        let mut private = state.clone();
        None::<&str>.hash(&mut state);
        Some(principal).hash(&mut private);
        KeyHashes { subject, public: state.finish(), private: private.finish() }
    }
}

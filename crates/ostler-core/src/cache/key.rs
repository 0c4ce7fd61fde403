//! What an answer is remembered under.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::Arc;

use bytes::Bytes;

use crate::server_name::ServerName;

/// The question, without the caller.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CacheKey {
    /// Who was asked.
    pub server: ServerName,
    /// The generation of its spec: an answer under another spec is another answer.
    pub spec: u64,
    /// The JSON-RPC method.
    pub method: &'static str,
    /// The tool or URI; empty for methods without one.
    pub subject: Arc<str>,
    /// The parameters that matter, as canonical JSON.
    pub params: Bytes,
}

/// Who may be given an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheVisibility {
    /// Anybody.
    Public,
    /// The caller who asked.
    Private,
}

/// A key in a partition.
pub(super) struct PartitionKey {
    pub(super) key: CacheKey,
    /// The principal it belongs to; `None` for everybody.
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

/// The hashes under which one question of one caller is kept.
pub(super) struct KeyHashes {
    /// Of server, method and subject.
    pub(super) subject: u64,
    /// Of the whole key, for everybody.
    pub(super) public: u64,
    /// Of the whole key and the caller.
    pub(super) private: u64,
}

impl CacheKey {
    /// Reads the key once for all three.
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

//! What an answer is remembered under.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::Arc;

use bytes::Bytes;

use crate::name::ServerName;

/// The question, without the caller.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
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
pub enum Scope {
    /// Anybody.
    Public,
    /// The caller who asked.
    Private,
}

/// A key in a partition.
pub(super) struct Address {
    pub(super) key: Key,
    /// The principal it belongs to; `None` for everybody.
    pub(super) owner: Option<Arc<str>>,
}

impl Address {
    pub(super) fn is(&self, key: &Key, owner: Option<&str>) -> bool {
        self.owner.as_deref() == owner && self.key == *key
    }

    pub(super) fn scope(&self) -> Scope {
        match self.owner {
            Some(_) => Scope::Private,
            None => Scope::Public,
        }
    }
}

/// The hashes under which one question of one caller is kept.
pub(super) struct Hashes {
    /// Of server, method and subject.
    pub(super) subject: u64,
    /// Of the whole key, for everybody.
    pub(super) public: u64,
    /// Of the whole key and the caller.
    pub(super) private: u64,
}

impl Key {
    /// Reads the key once for all three.
    pub(super) fn hashes(&self, hasher: &RandomState, principal: &str) -> Hashes {
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
        Hashes { subject, public: state.finish(), private: private.finish() }
    }
}

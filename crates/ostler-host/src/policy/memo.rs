//! Verdict cache of the rules: a role may have hundreds of patterns, and a call asks about one name.

use std::hash::{Hash, Hasher};
use std::sync::{PoisonError, RwLock};

use hashbrown::{Equivalent, HashMap};
use ostler_core::policy::Subject;

/// Bounds the cached verdicts; beyond that the cache is cleared. More than fifty roles with five hundred tools each
/// have.
const MAX_VERDICTS: usize = 32_768;

/// Longest cached name: callers choose the names, and must not fill the memory with them.
const MAX_CACHED_NAME_LEN: usize = 256;

/// Cached verdicts of one set of rules. Dropped with the rules.
#[derive(Debug, Default)]
pub(super) struct VerdictMemo(RwLock<HashMap<VerdictKey, bool>>);

/// Query that a verdict answers.
#[derive(Debug, Clone, Copy)]
pub(super) struct VerdictQuery<'a> {
    pub(super) role: &'a str,
    pub(super) server: &'a str,
    /// `None` asks about the server as a whole.
    pub(super) subject: Option<Subject<'a>>,
}

#[derive(Debug, PartialEq, Eq)]
struct VerdictKey {
    role: Box<str>,
    server: Box<str>,
    kind: u8,
    name: Box<str>,
}

impl VerdictMemo {
    /// Returns the cached verdict, or decides and caches it.
    pub(super) fn get_or_decide(&self, asked: VerdictQuery<'_>, decide: impl FnOnce() -> bool) -> bool {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner).get(&asked).copied();
        if let Some(verdict) = known {
            return verdict;
        }
        let verdict = decide();
        if asked.name().len() <= MAX_CACHED_NAME_LEN {
            let mut verdicts = self.0.write().unwrap_or_else(PoisonError::into_inner);
            if verdicts.len() >= MAX_VERDICTS {
                verdicts.clear();
            }
            verdicts.insert(asked.to_key(), verdict);
        }
        verdict
    }
}

impl VerdictQuery<'_> {
    fn kind(&self) -> u8 {
        match self.subject {
            None => 0,
            Some(Subject::Tool(_)) => 1,
            Some(Subject::Prompt(_)) => 2,
            Some(Subject::Resource(_)) => 3,
            Some(Subject::Method(_)) => 4,
        }
    }

    fn name(&self) -> &str {
        self.subject.as_ref().map_or("", Subject::name)
    }

    fn to_key(self) -> VerdictKey {
        let (role, server, name) = (self.role.into(), self.server.into(), self.name().into());
        VerdictKey { role, server, kind: self.kind(), name }
    }
}

// Both hash the same parts in the same order, so that a query finds its verdict without being copied.
impl Hash for VerdictQuery<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.role, self.server, self.kind(), self.name()).hash(state);
    }
}

impl Hash for VerdictKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&*self.role, &*self.server, self.kind, &*self.name).hash(state);
    }
}

impl Equivalent<VerdictKey> for VerdictQuery<'_> {
    fn equivalent(&self, known: &VerdictKey) -> bool {
        *self.name() == *known.name
            && *self.server == *known.server
            && *self.role == *known.role
            && self.kind() == known.kind
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(name: &str) -> VerdictQuery<'_> {
        VerdictQuery { role: "r", server: "s", subject: Some(Subject::Tool(name)) }
    }

    #[test]
    fn a_verdict_is_found_once_and_kept_apart_from_every_other() {
        let memo = VerdictMemo::default();
        assert!(memo.get_or_decide(asked("a"), || true));
        assert!(memo.get_or_decide(asked("a"), || panic!("it is known")));
        let others = [
            asked("b"),
            VerdictQuery { role: "q", ..asked("a") },
            VerdictQuery { server: "t", ..asked("a") },
            VerdictQuery { subject: Some(Subject::Prompt("a")), ..asked("a") },
            VerdictQuery { subject: None, ..asked("a") },
        ];
        for other in others {
            assert!(!memo.get_or_decide(other, || false), "{other:?}");
        }
        assert!(memo.get_or_decide(asked("a"), || panic!("it is still known")));
    }

    #[test]
    fn callers_can_not_fill_the_memory() {
        let memo = VerdictMemo::default();
        let long = "x".repeat(MAX_CACHED_NAME_LEN + 1);
        memo.get_or_decide(asked(&long), || true);
        assert_eq!(memo.0.read().unwrap().len(), 0);
        for n in 0..=MAX_VERDICTS {
            memo.get_or_decide(asked(&n.to_string()), || true);
        }
        assert_eq!(memo.0.read().unwrap().len(), 1);
    }
}

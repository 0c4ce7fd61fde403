//! Cache of verified tokens: a repeated token costs a hash and a lookup.

use std::sync::{Mutex, MutexGuard, PoisonError};

use hashlink::LruCache;
use ostler_gateway::{Authenticated, CredentialLifetime};
use sha2::{Digest, Sha256};

/// Upper bound on cached tokens.
const MAX_TOKENS: usize = 4_096;

/// Verified tokens by their SHA-256, and the lifetimes of those in use.
pub(super) struct VerifiedTokens(Mutex<VerifiedTokensInner>);

struct VerifiedTokensInner {
    verified: LruCache<[u8; 32], VerifiedToken>,
    /// Lifetimes of tokens in use now or in the last second. A lifetime ends with its token, also after the token is
    /// evicted.
    lifetimes: Vec<(u64, CredentialLifetime)>,
}

struct VerifiedToken {
    admitted: Authenticated,
    until: u64,
    /// Epoch of the keys and roles that the token was verified with.
    epoch: u64,
}

/// Returns the key of a token in the cache.
pub(super) fn token_hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

impl VerifiedTokens {
    pub(super) fn new() -> Self {
        Self(Mutex::new(VerifiedTokensInner { verified: LruCache::new(MAX_TOKENS), lifetimes: Vec::new() }))
    }

    /// Returns the caller of a token, if it was verified in this epoch and has not expired.
    pub(super) fn get(&self, name: &[u8; 32], epoch: u64, now: u64) -> Option<Authenticated> {
        let mut book = self.lock();
        let verified = book.verified.get(name)?;
        if verified.epoch == epoch && now < verified.until {
            return Some(verified.admitted.clone());
        }
        book.verified.remove(name);
        None
    }

    /// Caches the caller of a token.
    pub(super) fn insert(&self, name: [u8; 32], admitted: &Authenticated, until: u64, epoch: u64) {
        let mut book = self.lock();
        book.lifetimes.extend(admitted.lifetime.clone().map(|pass| (until, pass)));
        book.verified.insert(name, VerifiedToken { admitted: admitted.clone(), until, epoch });
    }

    /// Ends the lifetimes of expired tokens, and drops lifetimes without a holder.
    pub(super) fn expire(&self, now: u64) {
        self.lock().lifetimes.retain(|(until, pass)| {
            if now >= *until {
                pass.expire();
            }
            now < *until && pass.is_held()
        });
    }

    fn lock(&self) -> MutexGuard<'_, VerifiedTokensInner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for VerifiedTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Memory")
    }
}

#[cfg(test)]
mod tests {
    use ostler_gateway::CredentialState;
    use ostler_host::Caller;

    use super::*;

    fn admitted(number: usize) -> Authenticated {
        Authenticated {
            caller: Caller::new(format!("jwt:{number}"), "ci"),
            lifetime: Some(CredentialLifetime::new()),
        }
    }

    #[test]
    fn what_was_found_out_holds_until_the_time_or_the_keys_are_over() {
        let memory = VerifiedTokens::new();
        memory.insert(token_hash("a"), &admitted(1), 10, 0);
        assert_eq!(memory.get(&token_hash("a"), 0, 9).unwrap().caller.principal(), "jwt:1");
        assert!(memory.get(&token_hash("b"), 0, 9).is_none());
        assert!(memory.get(&token_hash("a"), 1, 9).is_none());
        memory.insert(token_hash("a"), &admitted(1), 10, 1);
        assert!(memory.get(&token_hash("a"), 1, 10).is_none());
    }

    #[test]
    fn a_token_that_is_forgotten_still_ends_what_was_begun_with_it() {
        let memory = VerifiedTokens::new();
        let first = admitted(0);
        memory.insert(token_hash("0"), &first, 10, 0);
        for number in 1..=MAX_TOKENS {
            memory.insert(token_hash(&number.to_string()), &admitted(number), 20, 0);
        }
        assert!(memory.get(&token_hash("0"), 0, 1).is_none(), "there is no room for all");
        memory.expire(10);
        assert_eq!(first.lifetime.unwrap().state(), CredentialState::Expired);
        assert_eq!(memory.lock().lifetimes.len(), MAX_TOKENS, "those that are remembered");
    }
}

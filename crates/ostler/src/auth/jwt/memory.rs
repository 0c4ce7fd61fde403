//! Tokens that were verified: what is shown again costs a hash and a look.

use std::sync::{Mutex, MutexGuard, PoisonError};

use hashlink::LruCache;
use ostler_gateway::{Admitted, Pass};
use sha2::{Digest, Sha256};

/// Tokens that are remembered.
const MOST: usize = 4_096;

/// Verified tokens by their SHA-256, and the passes of those in use.
pub(super) struct Memory(Mutex<Book>);

struct Book {
    verified: LruCache<[u8; 32], Verified>,
    /// What was begun with a token ends with it, also when the token is
    /// forgotten meanwhile. As many as are in use, and were in the last second.
    passes: Vec<(u64, Pass)>,
}

struct Verified {
    admitted: Admitted,
    until: u64,
    /// Under which keys and roles that was found out.
    epoch: u64,
}

/// The name of a token in the memory.
pub(super) fn name(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

impl Memory {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Book { verified: LruCache::new(MOST), passes: Vec::new() }))
    }

    /// Whose token it is, if that was found out and still holds.
    pub(super) fn recall(&self, name: &[u8; 32], epoch: u64, now: u64) -> Option<Admitted> {
        let mut book = self.book();
        let verified = book.verified.get(name)?;
        if verified.epoch == epoch && now < verified.until {
            return Some(verified.admitted.clone());
        }
        book.verified.remove(name);
        None
    }

    /// Remembers whose token it is.
    pub(super) fn remember(&self, name: [u8; 32], admitted: &Admitted, until: u64, epoch: u64) {
        let mut book = self.book();
        book.passes.extend(admitted.pass.clone().map(|pass| (until, pass)));
        book.verified.insert(name, Verified { admitted: admitted.clone(), until, epoch });
    }

    /// Ends what was begun with tokens whose time is over, and forgets passes
    /// that nobody holds.
    pub(super) fn expire(&self, now: u64) {
        self.book().passes.retain(|(until, pass)| {
            if now >= *until {
                pass.expire();
            }
            now < *until && pass.is_held()
        });
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Memory")
    }
}

#[cfg(test)]
mod tests {
    use ostler_gateway::Standing;
    use ostler_host::Caller;

    use super::*;

    fn admitted(number: usize) -> Admitted {
        Admitted { caller: Caller::new(format!("jwt:{number}"), "ci"), pass: Some(Pass::new()) }
    }

    #[test]
    fn what_was_found_out_holds_until_the_time_or_the_keys_are_over() {
        let memory = Memory::new();
        memory.remember(name("a"), &admitted(1), 10, 0);
        assert_eq!(memory.recall(&name("a"), 0, 9).unwrap().caller.principal(), "jwt:1");
        assert!(memory.recall(&name("b"), 0, 9).is_none());
        assert!(memory.recall(&name("a"), 1, 9).is_none());
        memory.remember(name("a"), &admitted(1), 10, 1);
        assert!(memory.recall(&name("a"), 1, 10).is_none());
    }

    #[test]
    fn a_token_that_is_forgotten_still_ends_what_was_begun_with_it() {
        let memory = Memory::new();
        let first = admitted(0);
        memory.remember(name("0"), &first, 10, 0);
        for number in 1..=MOST {
            memory.remember(name(&number.to_string()), &admitted(number), 20, 0);
        }
        assert!(memory.recall(&name("0"), 0, 1).is_none(), "there is no room for all");
        memory.expire(10);
        assert_eq!(first.pass.unwrap().standing(), Standing::Expired);
        assert_eq!(memory.book().passes.len(), MOST, "those that are remembered");
    }
}

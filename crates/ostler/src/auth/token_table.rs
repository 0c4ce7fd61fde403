//! Table of the valid tokens, by id.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ostler_gateway::{Authenticated, CredentialLifetime, CredentialState, Unauthorized};
use ostler_host::Caller;

use crate::token::store::TokenUses;
use crate::token::{self, TokenRecord};

/// Tokens of a config as they were last read.
#[derive(Debug, Default)]
pub(super) struct TokenTable {
    by_id: HashMap<String, Arc<KnownToken>>,
}

/// One token.
#[derive(Debug)]
pub(super) struct KnownToken {
    record: TokenRecord,
    hash: [u8; 32],
    /// Made once: every request gets a clone.
    admitted: Authenticated,
    pass: CredentialLifetime,
    /// Seconds since 1970; 0 if no use is known.
    last_used: AtomicU64,
}

impl TokenTable {
    /// Returns the table of these records. Unchanged tokens keep their state, with everything that was begun with them.
    pub(super) fn updated_with(&self, records: Vec<TokenRecord>) -> Self {
        let known = |record: TokenRecord| {
            let before = self.by_id.get(&record.id).filter(|known| known.record == record);
            let known = before.cloned().or_else(|| KnownToken::new(record).map(Arc::new))?;
            Some((known.record.id.clone(), known))
        };
        Self { by_id: records.into_iter().filter_map(known).collect() }
    }

    /// Revokes the tokens that another table lacks, and returns their callers.
    pub(super) fn revoke_all_but(&self, kept: &Self) -> Vec<Caller> {
        let is_kept = |known: &&Arc<KnownToken>| {
            kept.by_id.get(&known.record.id).is_some_and(|other| Arc::ptr_eq(other, known))
        };
        let gone = self.by_id.values().filter(|known| !is_kept(known));
        gone.inspect(|known| known.end(CredentialState::Revoked))
            .map(|known| known.admitted.caller.clone())
            .collect()
    }

    /// Ends the tokens that have expired since the last call, and returns their callers.
    pub(super) fn expire(&self, now: u64) -> Vec<Caller> {
        let is_newly_over =
            |known: &&Arc<KnownToken>| known.is_expired(now) && known.pass.state() == CredentialState::Valid;
        let over = self.by_id.values().filter(is_newly_over);
        over.inspect(|known| known.end(CredentialState::Expired))
            .map(|known| known.admitted.caller.clone())
            .collect()
    }

    /// Returns the caller of a token.
    pub(super) fn find(&self, text: &str, now: u64) -> Result<Authenticated, Unauthorized> {
        let unknown = || Unauthorized::invalid("the token is not known here");
        let (id, secret) = token::parse(text).ok_or_else(unknown)?;
        let known = self.by_id.get(id).ok_or_else(unknown)?;
        if !token::constant_time_eq(&token::digest(secret), &known.hash) {
            return Err(unknown());
        }
        if known.is_expired(now) {
            return Err(Unauthorized::invalid("the token has expired"));
        }
        if known.last_used.load(Ordering::Relaxed) != now {
            known.last_used.store(now, Ordering::Relaxed);
        }
        Ok(known.admitted.clone())
    }

    /// Restores the last uses of tokens from before the daemon's start.
    pub(super) fn restore_uses(&self, uses: &TokenUses) {
        for (id, used) in uses {
            if let Some(known) = self.by_id.get(id) {
                known.last_used.fetch_max(*used, Ordering::Relaxed);
            }
        }
    }

    /// Returns the last uses of tokens by id; unused ones are left out.
    pub(super) fn uses(&self) -> TokenUses {
        let used = |(id, known): (&String, &Arc<KnownToken>)| {
            let used = known.last_used.load(Ordering::Relaxed);
            (used > 0).then(|| (id.clone(), used))
        };
        self.by_id.iter().filter_map(used).collect()
    }

    /// Returns the number of tokens that are valid at a time.
    pub(super) fn count(&self, now: u64) -> usize {
        self.by_id.values().filter(|known| !known.is_expired(now)).count()
    }

    /// Returns the last uses of tokens, by their names.
    pub(super) fn last_used(&self) -> Vec<(String, Option<u64>)> {
        let used =
            |known: &KnownToken| Some(known.last_used.load(Ordering::Relaxed)).filter(|used| *used > 0);
        self.by_id.values().map(|known| (known.record.name.clone(), used(known))).collect()
    }
}

impl KnownToken {
    /// Returns `None` for a malformed record.
    fn new(record: TokenRecord) -> Option<Self> {
        let hash = token::decode_hex_32(&record.sha256)?;
        let pass = CredentialLifetime::new();
        let caller = Caller::new(principal(&record.name), record.role.as_str()).with_ending_credential();
        let caller = match record.budget {
            Some(budget) => caller.with_window(budget.calls, budget.per()),
            None => caller,
        };
        let admitted = Authenticated { caller, lifetime: Some(pass.clone()) };
        Some(Self { record, hash, admitted, pass, last_used: AtomicU64::new(0) })
    }

    /// Ends everything that was begun with the token. The caller is marked first, so that a request that ends with the
    /// lifetime is recorded with the reason.
    fn end(&self, state: CredentialState) {
        self.admitted.caller.end_credential(state);
        match state {
            CredentialState::Valid => {}
            CredentialState::Expired => self.pass.expire(),
            CredentialState::Revoked => self.pass.revoke(),
        }
    }

    fn is_expired(&self, now: u64) -> bool {
        self.record.expires.is_some_and(|expires| now >= expires)
    }
}

/// Returns the principal of a token. No other source of callers has this prefix.
fn principal(name: &str) -> String {
    format!("token:{name}")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::token::TokenBudget;

    fn record(name: &str, expires: Option<u64>) -> (TokenRecord, String) {
        let fresh = token::create().unwrap();
        let budget = Some(TokenBudget { calls: 3, per_ms: 1_000 });
        let (name, role) = (name.into(), "ci".into());
        let record =
            TokenRecord { name, role, id: fresh.id, sha256: fresh.sha256, created: 1, expires, budget };
        (record, fresh.text)
    }

    fn principals(callers: &[Caller]) -> Vec<String> {
        callers.iter().map(|caller| caller.principal().to_owned()).collect()
    }

    #[test]
    fn a_token_is_somebodys_until_it_expires() {
        let (record, text) = record("a", Some(10));
        let table = TokenTable::default().updated_with(vec![record]);
        let admitted = table.find(&text, 9).unwrap();
        assert_eq!((admitted.caller.principal(), admitted.caller.role()), ("token:a", "ci"));
        assert_eq!(admitted.caller.window().unwrap().per, Duration::from_secs(1));
        assert_eq!(table.last_used(), [("a".to_owned(), Some(9))]);
        assert_eq!((table.count(9), table.count(10)), (1, 0));
        assert!(table.find(&text, 10).is_err());
        assert_eq!(principals(&table.expire(9)), Vec::<String>::new());
        assert_eq!(principals(&table.expire(10)), ["token:a"]);
        assert_eq!(principals(&table.expire(11)), Vec::<String>::new(), "once is enough");
        assert_eq!(admitted.caller.credential_state(), CredentialState::Expired);
        assert_eq!(admitted.lifetime.unwrap().state(), CredentialState::Expired);
    }

    #[test]
    fn a_use_that_was_written_down_does_not_hide_a_later_one() {
        let ((used, text), (unused, _)) = (record("used", None), record("unused", None));
        let (id, other) = (used.id.clone(), unused.id.clone());
        let table = TokenTable::default().updated_with(vec![used, unused]);
        assert_eq!(table.uses(), TokenUses::new());
        table.restore_uses(&TokenUses::from([(id.clone(), 5), ("revoked".into(), 6)]));
        assert_eq!(table.uses(), TokenUses::from([(id.clone(), 5)]));
        table.find(&text, 9).unwrap();
        table.restore_uses(&TokenUses::from([(id.clone(), 5), (other.clone(), 1)]));
        assert_eq!(table.uses(), TokenUses::from([(id, 9), (other, 1)]));
    }

    #[test]
    fn a_wrong_secret_of_a_known_id_is_nobodys() {
        let (record, text) = record("a", None);
        let table = TokenTable::default().updated_with(vec![record]);
        let digit = if text.ends_with('0') { "1" } else { "0" };
        assert!(table.find(&format!("{}{digit}", &text[..text.len() - 1]), 1).is_err());
        assert!(table.find(&text, u64::MAX).is_ok());
    }

    #[test]
    fn what_is_gone_is_taken_back_and_what_stays_goes_on() {
        let ((stays, kept), (goes, lost)) = (record("stays", None), record("goes", None));
        let before = TokenTable::default().updated_with(vec![stays.clone(), goes]);
        let (kept_pass, lost_pass) = (
            before.find(&kept, 1).unwrap().lifetime.unwrap(),
            before.find(&lost, 1).unwrap().lifetime.unwrap(),
        );
        let after = before.updated_with(vec![stays]);
        assert_eq!(principals(&before.revoke_all_but(&after)), ["token:goes"]);
        assert!(after.find(&lost, 1).is_err());
        assert_eq!(
            (kept_pass.state(), lost_pass.state()),
            (CredentialState::Valid, CredentialState::Revoked)
        );
    }

    #[test]
    fn a_token_of_the_same_name_is_another_one() {
        let ((old, text), (new, _)) = (record("a", None), record("a", None));
        let before = TokenTable::default().updated_with(vec![old]);
        let after = before.updated_with(vec![new]);
        assert_eq!(principals(&before.revoke_all_but(&after)), ["token:a"]);
        assert!(after.find(&text, 1).is_err());
    }
}

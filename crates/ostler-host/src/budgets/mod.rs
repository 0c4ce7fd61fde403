//! Budgets: calls per sliding window, of a role and of a token.

mod charge_record;
mod journal;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hashbrown::HashMap;
use ostler_core::call_budget::{BudgetExhausted, CallBudget, CallCharge};
use ostler_core::caller::{CallWindow, Caller};
use ostler_core::error::{BudgetOwner, CallError};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use self::charge_record::ChargeRecord;
pub(crate) use self::journal::ChargeJournal;
use self::journal::unix_millis;
use crate::limits::Limits;

/// Bounds the principals with windows of their own whose calls are counted: more than the tokens of any operator.
const MAX_ACCOUNTS: usize = 65_536;
/// Retry delay for a caller that exceeds that bound.
const ACCOUNTS_RETRY_AFTER: Duration = Duration::from_secs(60);
/// Bounds the wait for the last charges to be written at shutdown.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(300);

/// One budget as operators see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BudgetStatus {
    /// Whether it is a role's or a token's.
    pub of: BudgetOwner,
    /// The role, or the principal of the token.
    pub name: String,
    /// Calls in the window.
    pub used: u64,
    /// Calls that are allowed in it.
    pub calls: u64,
    /// The length of the window.
    pub per_ms: u64,
    /// Until the oldest call leaves the window; absent if there is none in it.
    pub resets_ms: Option<u64>,
}

/// Budgets of one host.
pub(crate) struct BudgetTracker {
    accounts: Mutex<BudgetAccounts>,
    journal: Option<Arc<ChargeJournal>>,
}

#[derive(Default)]
struct BudgetAccounts {
    /// Accounts of roles that have made a call while they had a budget: no more than there are roles in the configs of
    /// this run.
    roles: HashMap<String, BudgetAccount>,
    /// Accounts of principals with a window; at most [`MAX_ACCOUNTS`].
    principals: HashMap<String, BudgetAccount>,
    /// Charges of earlier runs to accounts that are not used in this one yet; bounded by the bytes that are read of a
    /// journal.
    restored: HashMap<u64, Vec<ChargeRecord>>,
}

struct BudgetAccount {
    /// Its name in the journal.
    id: u64,
    window: CallWindow,
    budget: CallBudget,
}

/// Cost of a call, to be refunded if the call is not made.
#[must_use = "a call that is not made is given back"]
#[derive(Default)]
pub(crate) struct Charge {
    principal: Option<ChargeEntry>,
    role: Option<ChargeEntry>,
}

/// One charge, in the account and in the journal.
struct ChargeEntry {
    charged: CallCharge,
    record: ChargeRecord,
}

impl BudgetTracker {
    /// Creates budgets that are kept in a file, if one is given. Reads the file.
    pub(crate) fn new(file: Option<PathBuf>) -> Self {
        let Some(file) = file else { return Self { accounts: Mutex::default(), journal: None } };
        let (journal, records) = ChargeJournal::open(file);
        let mut book = BudgetAccounts::default();
        for record in records {
            book.restored.entry(record.account).or_default().push(record);
        }
        Self { accounts: Mutex::new(book), journal: Some(Arc::new(journal)) }
    }

    /// Charges a call to both windows of a caller, or to neither.
    pub(crate) fn charge(&self, caller: &Caller, role: Option<CallWindow>) -> Result<Charge, CallError> {
        let own = caller.window();
        if own.is_none() && role.is_none() {
            return Ok(Charge::default());
        }
        let now = Instant::now();
        let mut book = self.accounts();
        let BudgetAccounts { roles, principals, restored: kept } = &mut *book;
        let mut own = match own {
            Some(window) => {
                Some(open_account(principals, kept, (BudgetOwner::Token, caller.principal()), window)?)
            }
            None => None,
        };
        let mut role = match role {
            Some(window) => Some(open_account(roles, kept, (BudgetOwner::Role, caller.role()), window)?),
            None => None,
        };
        let over = [
            own.as_mut().and_then(|account| account.check(now)).map(|over| (over, BudgetOwner::Token)),
            role.as_mut().and_then(|account| account.check(now)).map(|over| (over, BudgetOwner::Role)),
        ];
        // Of two exhausted budgets, the later reset decides when a retry can succeed.
        if let Some((over, of)) = over.into_iter().flatten().max_by_key(|(over, _)| over.reset_after) {
            return Err(CallError::OverBudget { owner: of, reset_after: Some(over.reset_after) });
        }
        let charge = Charge {
            principal: own.map(|account| account.charge(now)),
            role: role.map(|account| account.charge(now)),
        };
        drop(book);
        charge.entries().for_each(|entry| self.append_to_journal(entry.record));
        Ok(charge)
    }

    /// Refunds a call that was not made.
    pub(crate) fn refund(&self, caller: &Caller, charge: Charge) {
        if charge.principal.is_none() && charge.role.is_none() {
            return;
        }
        let mut book = self.accounts();
        let BudgetAccounts { roles, principals, .. } = &mut *book;
        if let (Some(entry), Some(account)) = (&charge.principal, principals.get_mut(caller.principal())) {
            account.budget.refund(entry.charged);
        }
        if let (Some(entry), Some(account)) = (&charge.role, roles.get_mut(caller.role())) {
            account.budget.refund(entry.charged);
        }
        drop(book);
        charge.entries().for_each(|entry| {
            self.append_to_journal(ChargeRecord { calls: -entry.record.calls, ..entry.record })
        });
    }

    fn append_to_journal(&self, record: ChargeRecord) {
        if let Some(journal) = &self.journal {
            journal.enqueue(record);
        }
    }

    fn accounts(&self) -> MutexGuard<'_, BudgetAccounts> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens the account of a name, restored from an earlier run if it is new.
fn open_account<'b>(
    accounts: &'b mut HashMap<String, BudgetAccount>,
    kept: &mut HashMap<u64, Vec<ChargeRecord>>,
    (of, name): (BudgetOwner, &str),
    window: CallWindow,
) -> Result<&'b mut BudgetAccount, CallError> {
    if accounts.len() >= MAX_ACCOUNTS && !accounts.contains_key(name) {
        let now = Instant::now().into_std();
        accounts.retain(|_, account| account.budget.used(now) > 0);
        if accounts.len() >= MAX_ACCOUNTS {
            let what = format!("{MAX_ACCOUNTS} callers with budgets of their own have made calls");
            return Err(CallError::Overloaded { what, retry_after: ACCOUNTS_RETRY_AFTER });
        }
    }
    let account = accounts.entry_ref(name).or_insert_with(|| {
        let id = account_id(of, name);
        BudgetAccount::new(id, window, kept.remove(&id).unwrap_or_default())
    });
    account.resize(window);
    Ok(account)
}

impl BudgetAccount {
    fn new(id: u64, window: CallWindow, kept: Vec<ChargeRecord>) -> Self {
        let mut budget = CallBudget::new(window.calls, window.per);
        let (now, today) = (Instant::now().into_std(), unix_millis());
        for record in kept {
            // A charge from the future was made under another clock; it counts as now.
            let age = Duration::from_millis(today.saturating_sub(record.at));
            let at = now.checked_sub(age).unwrap_or(now);
            budget.restore(at, record.calls.unsigned_abs());
        }
        Self { id, window, budget }
    }

    /// Resizes the window.
    fn resize(&mut self, window: CallWindow) {
        if self.window != window {
            self.window = window;
            self.budget.resize(window.calls, window.per);
        }
    }

    fn check(&mut self, now: Instant) -> Option<BudgetExhausted> {
        self.budget.check(now.into_std()).err()
    }

    fn charge(&mut self, now: Instant) -> ChargeEntry {
        let now = now.into_std();
        let charged = self.budget.charge_unchecked(now);
        let at = unix_millis().saturating_add(millis(charged.0.saturating_duration_since(now)));
        let until = at.saturating_add(millis(self.window.per));
        ChargeEntry { charged, record: ChargeRecord { account: self.id, at, until, calls: 1 } }
    }

    fn status(&mut self, of: BudgetOwner, name: &str, window: CallWindow) -> BudgetStatus {
        let now = Instant::now().into_std();
        self.resize(window);
        BudgetStatus {
            of,
            name: name.to_owned(),
            used: self.budget.used(now),
            calls: window.calls,
            per_ms: millis(window.per),
            resets_ms: self.budget.next_expiry(now).map(millis),
        }
    }
}

impl Charge {
    fn entries(&self) -> impl Iterator<Item = &ChargeEntry> {
        self.principal.iter().chain(&self.role)
    }
}

/// Returns the name of an account in the journal, a hash: names are of any length, and not every reader of the file may
/// see them.
fn account_id(of: BudgetOwner, name: &str) -> u64 {
    let mut hash = Sha256::new();
    hash.update(of.as_str());
    hash.update([0]);
    hash.update(name);
    let digest = hash.finalize();
    digest.iter().take(8).fold(0, |id, &byte| id << 8 | u64::from(byte))
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

impl BudgetTracker {
    /// Describes the budgets of all roles that have one, and of the tokens with a budget of their own that have made
    /// calls lately.
    pub(crate) fn status(&self, limits: &Limits) -> Vec<BudgetStatus> {
        let mut book = self.accounts();
        let BudgetAccounts { roles, principals, restored: kept } = &mut *book;
        let mut found = Vec::new();
        for (name, role) in &limits.roles {
            let Some(window) = role.budget else { continue };
            if let Ok(account) = open_account(roles, kept, (BudgetOwner::Role, name), window) {
                found.push(account.status(BudgetOwner::Role, name, window));
            }
        }
        for (name, account) in principals {
            let status = account.status(BudgetOwner::Token, name, account.window);
            found.extend(Some(status).filter(|status| status.used > 0));
        }
        drop(book);
        found.sort_by(|a, b| (a.of.as_str(), &a.name).cmp(&(b.of.as_str(), &b.name)));
        found
    }

    /// Returns whether a restart would lose current charges because the budget file can't be written.
    pub(crate) fn is_journal_failing(&self) -> bool {
        self.journal.as_ref().is_some_and(|journal| journal.is_failing())
    }

    /// Flushes the last charges to the journal.
    pub(crate) async fn close(&self) {
        let Some(journal) = self.journal.clone() else { return };
        let closing = tokio::task::spawn_blocking(move || journal.close());
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, closing).await;
    }
}

//! Budgets: calls per sliding window, of a role and of a token.

mod journal;
mod record;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hashbrown::HashMap;
use ostler_core::budget::{CallBudget, Charged, Over};
use ostler_core::caller::{Caller, Window};
use ostler_core::error::{BudgetOf, CallError};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

pub(crate) use self::journal::Journal;
use self::journal::wall;
use self::record::Record;
use crate::limits::Limits;

/// Principals with windows of their own whose calls are counted: more than
/// tokens that anybody hands out.
const MAX_ACCOUNTS: usize = 65_536;
/// How soon a caller may come back who found that many.
const COME_BACK: Duration = Duration::from_secs(60);
/// How long the last charges may take to be written when the host is shut down.
const LAST_CHARGES: Duration = Duration::from_millis(300);

/// One budget as operators see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BudgetStatus {
    /// Whether it is a role's or a token's.
    pub of: BudgetOf,
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

/// The budgets of one host.
pub(crate) struct Budgets {
    book: Mutex<Book>,
    journal: Option<Arc<Journal>>,
}

#[derive(Default)]
struct Book {
    /// Of the roles that have made a call while they had a budget: no more than
    /// there are roles in the configs of this run.
    roles: HashMap<String, Account>,
    /// Of principals with a window; at most [`MAX_ACCOUNTS`].
    principals: HashMap<String, Account>,
    /// What earlier runs have charged to accounts that nobody has used in this
    /// one; bounded by what is read of a journal.
    kept: HashMap<u64, Vec<Record>>,
}

struct Account {
    /// Its name in the journal.
    id: u64,
    window: Window,
    budget: CallBudget,
}

/// What a call has cost, to be given back if it is not made.
#[must_use = "a call that is not made is given back"]
#[derive(Default)]
pub(crate) struct Charge {
    principal: Option<Entry>,
    role: Option<Entry>,
}

/// One charge, in the account and in the journal.
struct Entry {
    charged: Charged,
    record: Record,
}

impl Budgets {
    /// Budgets that are kept in a file, if one is given. Reads the file.
    pub(crate) fn new(file: Option<PathBuf>) -> Self {
        let Some(file) = file else { return Self { book: Mutex::default(), journal: None } };
        let (journal, records) = Journal::open(file);
        let mut book = Book::default();
        for record in records {
            book.kept.entry(record.account).or_default().push(record);
        }
        Self { book: Mutex::new(book), journal: Some(Arc::new(journal)) }
    }

    /// Charges a call to both windows of a caller, or to neither.
    pub(crate) fn charge(&self, caller: &Caller, role: Option<Window>) -> Result<Charge, CallError> {
        let own = caller.window();
        if own.is_none() && role.is_none() {
            return Ok(Charge::default());
        }
        let now = Instant::now();
        let mut book = self.book();
        let Book { roles, principals, kept } = &mut *book;
        let mut own = match own {
            Some(window) => Some(open(principals, kept, (BudgetOf::Token, caller.principal()), window)?),
            None => None,
        };
        let mut role = match role {
            Some(window) => Some(open(roles, kept, (BudgetOf::Role, caller.role()), window)?),
            None => None,
        };
        let over = [
            own.as_mut().and_then(|account| account.over(now)).map(|over| (over, BudgetOf::Token)),
            role.as_mut().and_then(|account| account.over(now)).map(|over| (over, BudgetOf::Role)),
        ];
        // What matters to who waits is the one that takes longer.
        if let Some((over, of)) = over.into_iter().flatten().max_by_key(|(over, _)| over.reset_after) {
            return Err(CallError::OverBudget { of, reset_after: Some(over.reset_after) });
        }
        let charge = Charge {
            principal: own.map(|account| account.enter(now)),
            role: role.map(|account| account.enter(now)),
        };
        drop(book);
        charge.entries().for_each(|entry| self.note(entry.record));
        Ok(charge)
    }

    /// Gives back what a call has cost that was not made.
    pub(crate) fn refund(&self, caller: &Caller, charge: Charge) {
        if charge.principal.is_none() && charge.role.is_none() {
            return;
        }
        let mut book = self.book();
        let Book { roles, principals, .. } = &mut *book;
        if let (Some(entry), Some(account)) = (&charge.principal, principals.get_mut(caller.principal())) {
            account.budget.refund(entry.charged);
        }
        if let (Some(entry), Some(account)) = (&charge.role, roles.get_mut(caller.role())) {
            account.budget.refund(entry.charged);
        }
        drop(book);
        charge.entries().for_each(|entry| self.note(Record { calls: -entry.record.calls, ..entry.record }));
    }

    fn note(&self, record: Record) {
        if let Some(journal) = &self.journal {
            journal.note(record);
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The account of a name, as it was left by an earlier run if it is new.
fn open<'b>(
    accounts: &'b mut HashMap<String, Account>,
    kept: &mut HashMap<u64, Vec<Record>>,
    (of, name): (BudgetOf, &str),
    window: Window,
) -> Result<&'b mut Account, CallError> {
    if accounts.len() >= MAX_ACCOUNTS && !accounts.contains_key(name) {
        let now = Instant::now().into_std();
        accounts.retain(|_, account| account.budget.used(now) > 0);
        if accounts.len() >= MAX_ACCOUNTS {
            let what = format!("{MAX_ACCOUNTS} callers with budgets of their own have made calls");
            return Err(CallError::Overloaded { what, retry_after: COME_BACK });
        }
    }
    let account = accounts.entry_ref(name).or_insert_with(|| {
        let id = id_of(of, name);
        Account::new(id, window, kept.remove(&id).unwrap_or_default())
    });
    account.fit(window);
    Ok(account)
}

impl Account {
    fn new(id: u64, window: Window, kept: Vec<Record>) -> Self {
        let mut budget = CallBudget::new(window.calls, window.per);
        let (now, today) = (Instant::now().into_std(), wall());
        for record in kept {
            // A charge from the future was made under another clock; it counts as now.
            let age = Duration::from_millis(today.saturating_sub(record.at));
            let at = now.checked_sub(age).unwrap_or(now);
            budget.restore(at, record.calls.unsigned_abs());
        }
        Self { id, window, budget }
    }

    /// Takes on the size that is wanted now.
    fn fit(&mut self, window: Window) {
        if self.window != window {
            self.window = window;
            self.budget.resize(window.calls, window.per);
        }
    }

    fn over(&mut self, now: Instant) -> Option<Over> {
        self.budget.check(now.into_std()).err()
    }

    fn enter(&mut self, now: Instant) -> Entry {
        let now = now.into_std();
        let charged = self.budget.enter(now);
        let at = wall().saturating_add(millis(charged.0.saturating_duration_since(now)));
        let until = at.saturating_add(millis(self.window.per));
        Entry { charged, record: Record { account: self.id, at, until, calls: 1 } }
    }

    fn status(&mut self, of: BudgetOf, name: &str, window: Window) -> BudgetStatus {
        let now = Instant::now().into_std();
        self.fit(window);
        BudgetStatus {
            of,
            name: name.to_owned(),
            used: self.budget.used(now),
            calls: window.calls,
            per_ms: millis(window.per),
            resets_ms: self.budget.next_leaves(now).map(millis),
        }
    }
}

impl Charge {
    fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.principal.iter().chain(&self.role)
    }
}

/// The name of an account in the journal: names are of any length and not for
/// everybody's eyes.
fn id_of(of: BudgetOf, name: &str) -> u64 {
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

impl Budgets {
    /// Describes the budgets of all roles that have one, and of the tokens with one of
    /// their own that have made calls lately.
    pub(crate) fn status(&self, limits: &Limits) -> Vec<BudgetStatus> {
        let mut book = self.book();
        let Book { roles, principals, kept } = &mut *book;
        let mut found = Vec::new();
        for (name, role) in &limits.roles {
            let Some(window) = role.budget else { continue };
            if let Ok(account) = open(roles, kept, (BudgetOf::Role, name), window) {
                found.push(account.status(BudgetOf::Role, name, window));
            }
        }
        for (name, account) in principals {
            let status = account.status(BudgetOf::Token, name, account.window);
            found.extend(Some(status).filter(|status| status.used > 0));
        }
        drop(book);
        found.sort_by(|a, b| (a.of.as_str(), &a.name).cmp(&(b.of.as_str(), &b.name)));
        found
    }

    /// Returns whether what is charged now would be forgotten by a restart although it
    /// should not be: the file can't be written.
    pub(crate) fn is_forgetting(&self) -> bool {
        self.journal.as_ref().is_some_and(|journal| journal.is_failing())
    }

    /// Has the last charges written.
    pub(crate) async fn close(&self) {
        let Some(journal) = self.journal.clone() else { return };
        let closing = tokio::task::spawn_blocking(move || journal.close());
        let _ = tokio::time::timeout(LAST_CHARGES, closing).await;
    }
}

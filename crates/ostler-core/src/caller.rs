//! Caller: a principal and its role.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::time::Duration;

/// Principal and role of callers on this machine without a credential.
const LOCAL: &str = "local";

/// Principal and role of the operator, who runs the host.
pub(crate) const OPERATOR: &str = "operator";

/// A principal and its role, from a credential and never from a message.
///
/// Cloning is cheap, and clones share one dispatch budget.
#[derive(Debug, Clone)]
pub struct Caller {
    principal: Arc<str>,
    role: Arc<str>,
    /// True for the operator. No principal's name makes a caller the operator.
    is_operator: bool,
    /// The client session it calls from, if any.
    session: Option<Arc<CallerSession>>,
    /// The directory its client works in, if known and allowed to be named.
    workspace: Option<Arc<str>>,
    /// True if its client may name another directory.
    may_name_workspace: bool,
    /// Calls left in this dispatch, shared by all clones; `None` is unlimited.
    budget: Option<Arc<AtomicU32>>,
    /// The limit of its credential in a sliding window, beside its role's budget.
    window: Option<CallWindow>,
    /// A [`CredentialState`], shared by all clones; absent where the credential can't end before its caller.
    credential: Option<Arc<AtomicU8>>,
}

/// Validity of the credential that a caller came with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum CredentialState {
    /// It is good.
    Valid = 0,
    /// Its time is over. Requests under way may finish; streams that would last are ended.
    Expired = 1,
    /// It was taken back: everything that was begun with it is ended.
    Revoked = 2,
}

/// A client session, shared by all callers of it.
#[derive(Debug)]
struct CallerSession {
    id: Box<str>,
    /// Set once, when the client is gone.
    is_ended: AtomicBool,
}

/// A number of calls in a sliding window of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallWindow {
    /// Calls that may begin within the window.
    pub calls: u64,
    /// The length of the window.
    pub per: Duration,
}

/// Error of a dispatch that has no calls left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the call budget of this dispatch is used up")]
pub struct DispatchBudgetExhausted;

impl Caller {
    /// Creates a caller from its credential, without a dispatch budget.
    pub fn new(principal: impl Into<Arc<str>>, role: impl Into<Arc<str>>) -> Self {
        Self {
            principal: principal.into(),
            role: role.into(),
            is_operator: false,
            session: None,
            workspace: None,
            may_name_workspace: false,
            budget: None,
            window: None,
            credential: None,
        }
    }

    /// Creates a caller on this machine without a credential.
    pub fn local() -> Self {
        let name: Arc<str> = LOCAL.into();
        Self::new(Arc::clone(&name), name)
    }

    /// Returns whether it is a caller on this machine without a credential.
    pub fn is_local(&self) -> bool {
        *self.principal == *LOCAL
    }

    /// Creates the operator. The rules of roles do not apply to the operator, who could change them anyway.
    pub fn operator() -> Self {
        Self { is_operator: true, ..Self::new(OPERATOR, OPERATOR) }
    }

    /// Returns whether it is the operator.
    pub fn is_operator(&self) -> bool {
        self.is_operator
    }

    /// Returns the principal: the partition of private answers.
    pub fn principal(&self) -> &str {
        &self.principal
    }

    /// Returns the role, which decides what it may use.
    pub fn role(&self) -> &str {
        &self.role
    }

    /// Sets a new client session with this id.
    pub fn in_session(mut self, id: impl Into<Box<str>>) -> Self {
        self.session = Some(Arc::new(CallerSession { id: id.into(), is_ended: AtomicBool::new(false) }));
        self
    }

    /// Sets the client session of another caller.
    pub fn in_session_of(mut self, other: &Self) -> Self {
        self.session.clone_from(&other.session);
        self
    }

    /// Returns the id of its client session, if any.
    pub fn session(&self) -> Option<&str> {
        self.session.as_ref().map(|session| &*session.id)
    }

    /// Ends the client session, for all callers of it.
    pub fn end_session(&self) {
        if let Some(session) = &self.session {
            session.is_ended.store(true, Ordering::Release);
        }
    }

    /// Returns whether the client session has ended.
    pub fn is_session_ended(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.is_ended.load(Ordering::Acquire))
    }

    /// Sets the working directory: the real path of an existing one. Servers with
    /// [`Isolation::Workspace`](crate::spec::Isolation::Workspace) start processes there, so only a client
    /// that may run programs on this machine may name one.
    pub fn in_workspace(mut self, folder: impl Into<Arc<str>>) -> Self {
        self.workspace = Some(folder.into());
        self
    }

    /// Allows its client to name its working directory, because it may run programs on this machine anyway.
    pub fn allow_naming_workspace(mut self) -> Self {
        self.may_name_workspace = true;
        self
    }

    /// Returns whether its client may name its working directory.
    pub fn may_name_workspace(&self) -> bool {
        self.may_name_workspace
    }

    /// Returns the directory its client works in, if known.
    pub fn workspace(&self) -> Option<&str> {
        self.workspace.as_deref()
    }

    /// Allows this caller and its clones `calls` calls together, apart from the caller it was made from.
    pub fn with_budget(mut self, calls: u32) -> Self {
        self.budget = Some(Arc::new(AtomicU32::new(calls)));
        self
    }

    /// Limits this principal to `calls` calls in each `per`. The caller only carries the limit; the host
    /// counts by principal.
    pub fn with_window(mut self, calls: u64, per: Duration) -> Self {
        self.window = Some(CallWindow { calls, per });
        self
    }

    /// Returns the limit of its credential in a sliding window.
    pub fn window(&self) -> Option<CallWindow> {
        self.window
    }

    /// The same caller, whose credential can end before it.
    pub fn with_ending_credential(mut self) -> Self {
        self.credential = Some(Arc::new(AtomicU8::new(CredentialState::Valid as u8)));
        self
    }

    /// Marks the credential as ended, for all clones of the caller. A state only gets worse.
    pub fn end_credential(&self, state: CredentialState) {
        if let Some(credential) = &self.credential {
            credential.fetch_max(state as u8, Ordering::AcqRel);
        }
    }

    /// Returns the state of the credential.
    pub fn credential_state(&self) -> CredentialState {
        match self.credential.as_ref().map_or(0, |credential| credential.load(Ordering::Acquire)) {
            0 => CredentialState::Valid,
            1 => CredentialState::Expired,
            _ => CredentialState::Revoked,
        }
    }

    /// Returns whether the credential has expired or was revoked.
    pub fn is_credential_ended(&self) -> bool {
        self.credential_state() != CredentialState::Valid
    }

    /// Takes one call from the dispatch budget, before it is sent.
    pub fn spend(&self) -> Result<(), DispatchBudgetExhausted> {
        // Only the count itself is shared, so no ordering with other memory is needed.
        match &self.budget {
            None => Ok(()),
            Some(left) => left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                .map(drop)
                .map_err(|_| DispatchBudgetExhausted),
        }
    }

    /// Returns one call to the budget that was not sent after all.
    pub fn refund(&self) {
        if let Some(left) = &self.budget {
            left.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the guarantee is about threads")]
    fn of_a_hundred_parallel_calls_with_a_budget_of_ten_exactly_ten_pass() {
        let caller = Caller::new("ada", "researcher").with_budget(10);
        let threads: Vec<_> = (0..100)
            .map(|_| caller.clone())
            .map(|clone| std::thread::spawn(move || clone.spend().is_ok()))
            .collect();
        let passed =
            threads.into_iter().filter_map(|thread| thread.join().ok()).filter(|&passed| passed).count();
        assert_eq!(passed, 10);
        assert_eq!(caller.spend(), Err(DispatchBudgetExhausted));
    }

    #[test]
    fn a_refunded_call_can_be_spent_again() {
        let caller = Caller::local().with_budget(1);
        caller.spend().unwrap();
        caller.refund();
        assert_eq!(caller.spend(), Ok(()));
        assert_eq!(caller.spend(), Err(DispatchBudgetExhausted));
    }

    #[test]
    fn a_new_budget_is_apart_from_the_one_it_was_made_from() {
        let outer = Caller::local().with_budget(1);
        let inner = outer.clone().with_budget(2);
        inner.spend().unwrap();
        inner.spend().unwrap();
        assert_eq!(outer.spend(), Ok(()));
    }

    #[test]
    fn a_window_goes_with_every_clone_and_costs_no_dispatch_budget() {
        let caller = Caller::new("token:ci", "ci").with_window(3, Duration::from_secs(60));
        let clone = caller.clone().in_session("one");
        assert_eq!(clone.window(), Some(CallWindow { calls: 3, per: Duration::from_secs(60) }));
        assert!((0..10).all(|_| clone.spend().is_ok()));
        assert_eq!(Caller::local().window(), None);
    }

    #[test]
    fn a_caller_keeps_its_session_and_only_the_operator_is_one() {
        assert_eq!(Caller::local().session(), None);
        let caller = Caller::local().in_session("s-1");
        assert_eq!(caller.clone().session(), Some("s-1"));
        assert!(Caller::operator().is_operator() && !caller.is_operator());
    }

    #[test]
    fn a_session_is_over_for_everybody_who_asks_from_it() {
        let caller = Caller::local().in_session("s-1");
        let (clone, other) = (caller.clone(), Caller::new("local", "guest").in_session_of(&caller));
        let namesake = Caller::local().in_session("s-1");
        caller.end_session();
        assert!(caller.is_session_ended() && clone.is_session_ended() && other.is_session_ended());
        assert!(!namesake.is_session_ended() && !Caller::local().is_session_ended());
    }

    #[test]
    fn a_credential_ends_for_every_clone_and_never_gets_better() {
        let caller = Caller::new("token:ada", "ci").with_ending_credential();
        let (clone, namesake) = (caller.clone().in_session("one"), Caller::new("token:ada", "ci"));
        assert!(!clone.is_credential_ended());
        caller.end_credential(CredentialState::Revoked);
        caller.end_credential(CredentialState::Expired);
        namesake.end_credential(CredentialState::Revoked);
        assert_eq!(
            (clone.credential_state(), namesake.credential_state()),
            (CredentialState::Revoked, CredentialState::Valid)
        );
    }

    #[test]
    fn a_caller_without_a_budget_spends_freely() {
        let caller = Caller::local();
        assert_eq!((caller.principal(), caller.role()), ("local", "local"));
        assert!((0..1_000).all(|_| caller.spend().is_ok()));
    }
}

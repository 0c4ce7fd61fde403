//! Who asks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::time::Duration;

/// The principal and the role of callers on this machine without a credential.
const LOCAL: &str = "local";

/// The principal and the role of whoever runs the host.
pub(crate) const OPERATOR: &str = "operator";

/// A principal and its role, from a credential and never from a message.
///
/// Cloning is cheap, and clones share one dispatch budget.
#[derive(Debug, Clone)]
pub struct Caller {
    principal: Arc<str>,
    role: Arc<str>,
    /// Whether it is whoever runs the host: no name makes anybody that.
    is_operator: bool,
    /// The client session it asks from, where there is one.
    session: Option<Arc<CallerSession>>,
    /// The directory that its client works in, where it is known and may be named.
    workspace: Option<Arc<str>>,
    /// Whether its client may name another one.
    may_name_workspace: bool,
    /// Calls left to this dispatch, shared by all clones; without one nothing is counted.
    budget: Option<Arc<AtomicU32>>,
    /// What its credential allows it in a sliding window, beside its role's budget.
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

/// A session of one client, shared by all callers that ask from it.
#[derive(Debug)]
struct CallerSession {
    id: Box<str>,
    /// Set once, when the client is gone.
    is_ended: AtomicBool,
}

/// A number of calls in a sliding window of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallWindow {
    /// Calls that may begin within the time.
    pub calls: u64,
    /// The length of the window.
    pub per: Duration,
}

/// The dispatch has no calls left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the call budget of this dispatch is used up")]
pub struct DispatchBudgetExhausted;

impl Caller {
    /// A caller as its credential names it, without a dispatch budget.
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

    /// A caller on this machine that showed no credential.
    pub fn local() -> Self {
        let name: Arc<str> = LOCAL.into();
        Self::new(Arc::clone(&name), name)
    }

    /// Returns whether it is a caller on this machine that showed no credential.
    pub fn is_local(&self) -> bool {
        *self.principal == *LOCAL
    }

    /// Whoever runs the host. The rules of roles are for others: who could
    /// change them need not be held back by them.
    pub fn operator() -> Self {
        Self { is_operator: true, ..Self::new(OPERATOR, OPERATOR) }
    }

    /// Whether it is whoever runs the host.
    pub fn is_operator(&self) -> bool {
        self.is_operator
    }

    /// Who it is: the partition of private answers.
    pub fn principal(&self) -> &str {
        &self.principal
    }

    /// What it may do.
    pub fn role(&self) -> &str {
        &self.role
    }

    /// The same caller, asking from a client session that begins with this.
    pub fn in_session(mut self, id: impl Into<Box<str>>) -> Self {
        self.session = Some(Arc::new(CallerSession { id: id.into(), is_ended: AtomicBool::new(false) }));
        self
    }

    /// The same caller, asking from the client session of another one.
    pub fn in_session_of(mut self, other: &Self) -> Self {
        self.session.clone_from(&other.session);
        self
    }

    /// The client session it asks from, where there is one.
    pub fn session(&self) -> Option<&str> {
        self.session.as_ref().map(|session| &*session.id)
    }

    /// Marks the client session as over, for all callers that ask from it.
    pub fn end_session(&self) {
        if let Some(session) = &self.session {
            session.is_ended.store(true, Ordering::Release);
        }
    }

    /// Returns whether the client session has ended.
    pub fn is_session_ended(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.is_ended.load(Ordering::Acquire))
    }

    /// The same caller, working in a directory: the real path of one that exists. Servers with
    /// [`Isolation::Workspace`](crate::spec::Isolation::Workspace) start processes there, so that only a client that may
    /// run programs on this machine may name one.
    pub fn in_workspace(mut self, folder: impl Into<Arc<str>>) -> Self {
        self.workspace = Some(folder.into());
        self
    }

    /// The same caller, whose client may name the directory that it works in: it may run programs on this machine anyway.
    pub fn allow_naming_workspace(mut self) -> Self {
        self.may_name_workspace = true;
        self
    }

    /// Returns whether its client may name the directory that it works in.
    pub fn may_name_workspace(&self) -> bool {
        self.may_name_workspace
    }

    /// The directory that its client works in, where it is known.
    pub fn workspace(&self) -> Option<&str> {
        self.workspace.as_deref()
    }

    /// Allows this caller and its clones `calls` calls together, apart from the
    /// caller it was made from.
    pub fn with_budget(mut self, calls: u32) -> Self {
        self.budget = Some(Arc::new(AtomicU32::new(calls)));
        self
    }

    /// Limits whoever has this principal to `calls` calls in each `per`. The
    /// caller only carries the limit; who charges counts by principal.
    pub fn with_window(mut self, calls: u64, per: Duration) -> Self {
        self.window = Some(CallWindow { calls, per });
        self
    }

    /// What its credential allows it in a sliding window.
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

    /// Gives one call back that was spent and not sent after all.
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

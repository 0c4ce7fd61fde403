//! Admission control: bounds how much callers may use. Budgets bound calls over time, and the in-flight count bounds
//! concurrent requests. A refused request costs nothing.

use std::sync::Arc;

use ostler_core::caller::{CallWindow, Caller};
use ostler_core::error::{BudgetOwner, CallError};
use ostler_core::fault::HumanDuration;
use ostler_core::keyed_limit::KeyedLimit;

use crate::budgets::{BudgetStatus, BudgetTracker, Charge};
use crate::host::Host;
use crate::in_flight::{InFlight, RequestClass, acquire};
use crate::limits::Limits;
use crate::options::HostOptions;
use crate::request::Request;

/// Budgets and in-flight counts of callers.
pub(crate) struct AdmissionControl {
    in_flight: Arc<KeyedLimit>,
    budgets: BudgetTracker,
}

impl AdmissionControl {
    /// Creates the counters. Reads the budget file, if the options name one.
    pub(crate) fn new(options: &HostOptions) -> Self {
        Self {
            in_flight: KeyedLimit::new(options.max_in_flight, options.max_per_caller),
            budgets: BudgetTracker::new(options.budget_file.clone()),
        }
    }

    /// Charges a request to every budget of its caller, or to none. Cached answers count; a request that is refused or
    /// never sent is refunded.
    pub(crate) fn charge(&self, limits: &Limits, request: &Request<'_>) -> Result<Charge, CallError> {
        let caller = request.caller();
        caller
            .spend()
            .map_err(|_| CallError::OverBudget { owner: BudgetOwner::Dispatch, reset_after: None })?;
        if !request.is_charged() {
            return Ok(Charge::default());
        }
        let role = limits.for_caller(caller).and_then(|role| role.budget);
        self.budgets.charge(caller, role).inspect_err(|_| caller.refund())
    }

    /// Refunds a request that was not sent.
    pub(crate) fn refund(&self, caller: &Caller, charge: Charge) {
        caller.refund();
        self.budgets.refund(caller, charge);
    }

    /// Acquires a request's in-flight permit, over all servers.
    pub(crate) fn acquire_in_flight(
        &self,
        limits: &Limits,
        caller: &Caller,
        errand: RequestClass,
    ) -> Result<InFlight, CallError> {
        let max_calls = match errand {
            RequestClass::Call => limits.for_caller(caller).and_then(|role| role.max_in_flight),
            RequestClass::Listing => None,
        };
        acquire(&self.in_flight, caller.principal(), errand, max_calls)
    }

    /// Flushes the last charges to the journal.
    pub(crate) async fn close(&self) {
        self.budgets.close().await;
    }
}

/// Returns the caller's exhausted budget, for the record.
pub(crate) fn describe_exhausted_budget(limits: &Limits, caller: &Caller, error: &CallError) -> String {
    let CallError::OverBudget { owner: of, .. } = error else { return String::new() };
    let (whose, window) = match of {
        BudgetOwner::Role => {
            let window = limits.for_caller(caller).and_then(|role| role.budget);
            (format!("of role `{}`", caller.role()), window)
        }
        BudgetOwner::Token => (format!("of `{}`", caller.principal()), caller.window()),
        BudgetOwner::Dispatch => ("of the dispatch".to_owned(), None),
    };
    match window {
        Some(CallWindow { calls, per }) => format!("the budget {whose}: {calls} in {}", HumanDuration(per)),
        None => format!("the budget {whose}"),
    }
}

impl Host {
    /// Returns the number of calls in flight, over all servers and callers. Lists don't count: one may wait for the
    /// start of a server, and can be requested again.
    pub fn calls_in_flight(&self) -> usize {
        self.inner().admission.in_flight.marked()
    }

    /// Describes the budgets of all roles that have one, and of the tokens with a budget of their own that have made
    /// calls lately.
    pub fn budgets(&self) -> Vec<BudgetStatus> {
        self.inner().admission.budgets.status(&self.current().limits)
    }

    /// Returns whether a restart would lose current charges because the budget file can't be written.
    pub fn is_budget_journal_failing(&self) -> bool {
        self.inner().admission.budgets.is_journal_failing()
    }

    /// Acquires an in-flight permit for work that the host does for a caller, over all servers.
    pub(crate) fn acquire_in_flight(
        &self,
        caller: &Caller,
        errand: RequestClass,
    ) -> Result<InFlight, CallError> {
        self.inner().admission.acquire_in_flight(&self.current().limits, caller, errand)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ostler_wire::Params;

    use super::*;
    use crate::limits::RoleLimits;

    fn limits(max_in_flight: usize, calls: u64) -> Limits {
        let budget = Some(CallWindow { calls, per: Duration::from_secs(60) });
        let role = RoleLimits { budget, max_in_flight: Some(max_in_flight) };
        Limits { roles: [("dev".to_owned(), role)].into() }
    }

    #[tokio::test]
    async fn the_limits_of_the_moment_decide_and_what_was_charged_stays_charged() {
        let admission = AdmissionControl::new(&HostOptions::default());
        let ada = Caller::new("ada", "dev");
        let call = Request::new(&ada, "tools/call", Params::default());
        let _charge = admission.charge(&limits(1, 1), &call).ok().unwrap();
        let error = admission.charge(&limits(1, 1), &call).err().unwrap();
        assert!(matches!(error, CallError::OverBudget { owner: BudgetOwner::Role, .. }), "{error}");
        assert!(describe_exhausted_budget(&limits(1, 1), &ada, &error).contains("of role `dev`: 1 in"));
        let _larger = admission.charge(&limits(1, 2), &call).ok().unwrap();
        assert!(admission.charge(&limits(1, 2), &call).is_err(), "the first charge was forgotten");
    }

    #[tokio::test]
    async fn a_role_bounds_calls_in_flight_and_not_lists() {
        let admission = AdmissionControl::new(&HostOptions::default());
        let (limits, ada) = (limits(1, 9), Caller::new("ada", "dev"));
        let call = admission.acquire_in_flight(&limits, &ada, RequestClass::Call).unwrap();
        assert!(admission.acquire_in_flight(&limits, &ada, RequestClass::Call).is_err());
        admission.acquire_in_flight(&limits, &ada, RequestClass::Listing).unwrap();
        assert_eq!(admission.in_flight.marked(), 1);
        drop(call);
        admission.acquire_in_flight(&limits, &ada, RequestClass::Call).unwrap();
    }
}

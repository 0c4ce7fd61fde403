//! Admission: how much callers may use. Budgets bound their calls over time, the count of requests in flight bounds
//! what they do at once. What is refused here has cost nothing.

use std::sync::Arc;

use ostler_core::caller::{Caller, Window};
use ostler_core::error::{BudgetOf, CallError};
use ostler_core::fault::Span;
use ostler_core::keyed_limit::KeyedLimit;

use crate::budgets::{BudgetStatus, Budgets, Charge};
use crate::host::Host;
use crate::in_flight::{Errand, InFlight, enter};
use crate::limits::Limits;
use crate::options::HostOptions;
use crate::request::Request;

/// Counts what callers use.
pub(crate) struct Admission {
    in_flight: Arc<KeyedLimit>,
    budgets: Budgets,
}

impl Admission {
    /// Reads the file of budgets, if the options name one.
    pub(crate) fn new(options: &HostOptions) -> Self {
        Self {
            in_flight: KeyedLimit::new(options.max_in_flight, options.max_per_caller),
            budgets: Budgets::new(options.budget_file.clone()),
        }
    }

    /// Takes a request from every budget of its caller, or from none.
    /// Remembered answers count; what is refused or never sent is given back.
    pub(crate) fn charge(&self, limits: &Limits, request: &Request<'_>) -> Result<Charge, CallError> {
        let caller = request.caller();
        caller.spend().map_err(|_| CallError::OverBudget { of: BudgetOf::Dispatch, reset_after: None })?;
        if !request.is_counted() {
            return Ok(Charge::default());
        }
        let role = limits.of(caller).and_then(|role| role.budget);
        self.budgets.charge(caller, role).inspect_err(|_| caller.refund())
    }

    /// Gives back what a request has cost that was not made.
    pub(crate) fn refund(&self, caller: &Caller, charge: Charge) {
        caller.refund();
        self.budgets.refund(caller, charge);
    }

    /// Counts a request in, over all servers.
    pub(crate) fn count_in(
        &self,
        limits: &Limits,
        caller: &Caller,
        errand: Errand,
    ) -> Result<InFlight, CallError> {
        let max_calls = match errand {
            Errand::Call => limits.of(caller).and_then(|role| role.max_in_flight),
            Errand::Look => None,
        };
        enter(&self.in_flight, caller.principal(), errand, max_calls)
    }

    /// Has the last charges written.
    pub(crate) async fn close(&self) {
        self.budgets.close().await;
    }
}

/// Returns which budget of a caller is used up, for the record.
pub(crate) fn whose_budget(limits: &Limits, caller: &Caller, error: &CallError) -> String {
    let CallError::OverBudget { of, .. } = error else { return String::new() };
    let (whose, window) = match of {
        BudgetOf::Role => {
            let window = limits.of(caller).and_then(|role| role.budget);
            (format!("of role `{}`", caller.role()), window)
        }
        BudgetOf::Token => (format!("of `{}`", caller.principal()), caller.window()),
        BudgetOf::Dispatch => ("of the dispatch".to_owned(), None),
    };
    match window {
        Some(Window { calls, per }) => format!("the budget {whose}: {calls} in {}", Span(per)),
        None => format!("the budget {whose}"),
    }
}

impl Host {
    /// Returns how many calls are under way, over all servers and callers. Lists don't count: one may wait for the
    /// start of a server, and can be asked for again.
    pub fn calls_in_flight(&self) -> usize {
        self.shared().admission.in_flight.marked()
    }

    /// Describes the budgets of all roles that have one, and of the tokens with one of
    /// their own that have made calls lately.
    pub fn budgets(&self) -> Vec<BudgetStatus> {
        self.shared().admission.budgets.status(&self.current().limits)
    }

    /// Returns whether what is charged now would be forgotten by a restart although it
    /// should not be: the file can't be written.
    pub fn is_forgetting_charges(&self) -> bool {
        self.shared().admission.budgets.is_forgetting()
    }

    /// Counts in what the host does for a caller, over all servers.
    pub(crate) fn count_in(&self, caller: &Caller, errand: Errand) -> Result<InFlight, CallError> {
        self.shared().admission.count_in(&self.current().limits, caller, errand)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ostler_wire::Params;

    use super::*;
    use crate::limits::RoleLimits;

    fn limits(max_in_flight: usize, calls: u64) -> Limits {
        let budget = Some(Window { calls, per: Duration::from_secs(60) });
        let role = RoleLimits { budget, max_in_flight: Some(max_in_flight) };
        Limits { roles: [("dev".to_owned(), role)].into() }
    }

    #[tokio::test]
    async fn the_limits_of_the_moment_decide_and_what_was_charged_stays_charged() {
        let admission = Admission::new(&HostOptions::default());
        let ada = Caller::new("ada", "dev");
        let call = Request::new(&ada, "tools/call", Params::default());
        let _charge = admission.charge(&limits(1, 1), &call).ok().unwrap();
        let error = admission.charge(&limits(1, 1), &call).err().unwrap();
        assert!(matches!(error, CallError::OverBudget { of: BudgetOf::Role, .. }), "{error}");
        assert!(whose_budget(&limits(1, 1), &ada, &error).contains("of role `dev`: 1 in"));
        let _larger = admission.charge(&limits(1, 2), &call).ok().unwrap();
        assert!(admission.charge(&limits(1, 2), &call).is_err(), "the first charge was forgotten");
    }

    #[tokio::test]
    async fn a_role_bounds_calls_in_flight_and_not_lists() {
        let admission = Admission::new(&HostOptions::default());
        let (limits, ada) = (limits(1, 9), Caller::new("ada", "dev"));
        let call = admission.count_in(&limits, &ada, Errand::Call).unwrap();
        assert!(admission.count_in(&limits, &ada, Errand::Call).is_err());
        admission.count_in(&limits, &ada, Errand::Look).unwrap();
        assert_eq!(admission.in_flight.marked(), 1);
        drop(call);
        admission.count_in(&limits, &ada, Errand::Call).unwrap();
    }
}

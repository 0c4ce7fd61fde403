//! Limits of roles: budgets and calls in flight.

use std::collections::HashMap;

use ostler_core::caller::{CallWindow, Caller};
use ostler_core::config::Config;

/// Limits of each role's callers; a role that is absent has none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Limits {
    /// By the name of the role.
    pub roles: HashMap<String, RoleLimits>,
}

/// Limits of one role's callers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RoleLimits {
    /// Calls of all callers of the role together; unlimited when absent.
    pub budget: Option<CallWindow>,
    /// Calls of one caller at once, over all servers; unlimited when absent.
    pub max_in_flight: Option<usize>,
}

impl Limits {
    /// Reads the limits of a config's roles.
    pub fn from_config(config: &Config) -> Self {
        let limits = config.roles.iter().map(|(name, role)| {
            let budget = role.budget.map(|budget| CallWindow { calls: budget.calls, per: budget.per });
            (name.clone(), RoleLimits { budget, max_in_flight: role.max_in_flight })
        });
        let is_limited = |(_, role): &(String, RoleLimits)| *role != RoleLimits::default();
        Self { roles: limits.filter(is_limited).collect() }
    }

    /// Returns the limits of a caller's role. The operator has none.
    pub(crate) fn for_caller(&self, caller: &Caller) -> Option<&RoleLimits> {
        if self.roles.is_empty() || caller.is_operator() {
            return None;
        }
        self.roles.get(caller.role())
    }
}

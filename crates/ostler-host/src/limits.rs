//! How much the callers of a role may use.

use std::collections::HashMap;

use ostler_core::caller::{CallWindow, Caller};
use ostler_core::config::Config;

/// How much the callers of each role may use; a role that is not in it may
/// use as much as there is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Limits {
    /// By the name of the role.
    pub roles: HashMap<String, RoleLimits>,
}

/// How much the callers of one role may use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RoleLimits {
    /// Calls of all callers of the role together; unlimited when absent.
    pub budget: Option<CallWindow>,
    /// Calls of one caller at once, over all servers; unlimited when absent.
    pub max_in_flight: Option<usize>,
}

impl Limits {
    /// What a config says about its roles.
    pub fn from_config(config: &Config) -> Self {
        let limits = config.roles.iter().map(|(name, role)| {
            let budget = role.budget.map(|budget| CallWindow { calls: budget.calls, per: budget.per });
            (name.clone(), RoleLimits { budget, max_in_flight: role.max_in_flight })
        });
        let is_limited = |(_, role): &(String, RoleLimits)| *role != RoleLimits::default();
        Self { roles: limits.filter(is_limited).collect() }
    }

    /// The limits of a caller's role. Whoever runs the host has none.
    pub(crate) fn for_caller(&self, caller: &Caller) -> Option<&RoleLimits> {
        if self.roles.is_empty() || caller.is_operator() {
            return None;
        }
        self.roles.get(caller.role())
    }
}

//! Deliberate faults, to prove that `scripts/chaos` detects them.
//!
//! They exist only in builds with `--cfg ostler_sabotage`, which `scripts/chaos-proof` makes and which can't
//! be optimised. There the variable `OSTLER_SABOTAGE` names the one fault of a process; without it a process
//! has none. In every other build [`sabotage!`](crate::sabotage!) expands to nothing.

#[cfg(all(ostler_sabotage, not(debug_assertions)))]
compile_error!("`--cfg ostler_sabotage` builds a program that is broken on purpose; it is never released");

/// Runs a statement if the process has the fault: `sabotage!(LostAnswer, return)`.
#[cfg(ostler_sabotage)]
#[macro_export]
macro_rules! sabotage {
    ($fault:ident, $($statement:tt)+) => {
        if $crate::sabotage::is_on($crate::sabotage::InjectedFault::$fault) {
            $($statement)+;
        }
    };
}

/// Expands to nothing: this build has no faults.
#[cfg(not(ostler_sabotage))]
#[macro_export]
macro_rules! sabotage {
    ($fault:ident, $($statement:tt)+) => {};
}

#[cfg(ostler_sabotage)]
pub use self::faults::{FAULTS, InjectedFault, VARIABLE, chosen, inherited, is_on};

#[cfg(ostler_sabotage)]
mod faults {
    use std::ffi::OsString;
    use std::sync::OnceLock;

    /// The variable that names the fault.
    pub const VARIABLE: &str = "OSTLER_SABOTAGE";

    /// A promise that is broken.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum InjectedFault {
        /// Loses every eighth answer of a server on its way to the caller.
        LostAnswer,
        /// Gives two callers each other's answers.
        SwappedAnswers,
        /// Sends a call again that may have run.
        RetryUnknown,
        /// Tells the caller that a call which may have run has not.
        FalseRefusal,
        /// Treats every caller of a server's own endpoint as a local one.
        PolicyHole,
        /// Shows items in lists that the caller may not use.
        UnfilteredList,
        /// Shares answers that are cached for one caller with all callers.
        UnpartitionedCache,
        /// Never expires cached answers.
        StaleCache,
        /// Lets every call through a half-open breaker.
        BreakerWithoutPermit,
        /// Leaves ended processes as zombies.
        UnreapedChild,
        /// Spares descendants of a server that have left its process group.
        StrayDescendant,
        /// Does not restart a crashed server.
        StayDown,
        /// Opens the breaker for every caller when one caller's calls fail.
        SharedBreaker,
        /// Restarts a server by refreshing its lists after a start.
        RestlessRefresh,
    }

    /// Each fault with its name in the variable.
    pub const FAULTS: [(InjectedFault, &str); 14] = [
        (InjectedFault::LostAnswer, "lost-answer"),
        (InjectedFault::SwappedAnswers, "swapped-answers"),
        (InjectedFault::RetryUnknown, "retry-unknown"),
        (InjectedFault::FalseRefusal, "false-refusal"),
        (InjectedFault::PolicyHole, "policy-hole"),
        (InjectedFault::UnfilteredList, "unfiltered-list"),
        (InjectedFault::UnpartitionedCache, "unpartitioned-cache"),
        (InjectedFault::StaleCache, "stale-cache"),
        (InjectedFault::BreakerWithoutPermit, "breaker-without-permit"),
        (InjectedFault::UnreapedChild, "unreaped-child"),
        (InjectedFault::StrayDescendant, "stray-descendant"),
        (InjectedFault::StayDown, "stay-down"),
        (InjectedFault::SharedBreaker, "shared-breaker"),
        (InjectedFault::RestlessRefresh, "restless-refresh"),
    ];

    /// Returns whether this process has the fault.
    pub fn is_on(fault: InjectedFault) -> bool {
        static CHOSEN: OnceLock<Option<InjectedFault>> = OnceLock::new();
        *CHOSEN.get_or_init(|| chosen().ok().flatten().map(|(fault, _)| fault)) == Some(fault)
    }

    /// Returns the variable for a process with a cleared environment.
    #[expect(clippy::disallowed_methods, reason = "as in `chosen`")]
    pub fn inherited() -> Option<(&'static str, OsString)> {
        Some((VARIABLE, std::env::var_os(VARIABLE)?))
    }

    /// Returns the fault of this process and its name. The error is a value of the variable that names no fault.
    #[expect(
        clippy::disallowed_methods,
        reason = "a fault that came in as an argument would change every signature on its way, in honest builds too"
    )]
    pub fn chosen() -> Result<Option<(InjectedFault, &'static str)>, String> {
        let Some(wanted) = std::env::var_os(VARIABLE).filter(|name| !name.is_empty()) else {
            return Ok(None);
        };
        let named = FAULTS.into_iter().find(|(_, name)| wanted == *name);
        named.map(Some).ok_or_else(|| wanted.to_string_lossy().into_owned())
    }
}

#[cfg(all(test, not(ostler_sabotage)))]
mod tests {
    /// Would not compile if the macro kept anything of its arguments.
    fn verdict() -> &'static str {
        sabotage!(NoSuchFault, return no_such_function("broken"));
        "honest"
    }

    #[test]
    fn an_honest_build_has_no_fault_whatever_the_environment_says() {
        assert_eq!(verdict(), "honest");
    }
}

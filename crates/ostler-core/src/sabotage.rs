//! Faults that are built in on purpose, to find out whether a checker sees them.
//!
//! They exist only in builds with the feature `sabotage`, which no release build
//! can have. Without it [`is_on`] is `false` at compile time, and nothing of a
//! fault is left. With it, the variable `OSTLER_SABOTAGE` names the one fault
//! that a process has; without the variable it has none.

#[cfg(all(feature = "sabotage", not(debug_assertions)))]
compile_error!("the feature `sabotage` builds a program that is broken on purpose; it is never released");

/// What can be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sabotage {
    /// An answer is lost on its way to whoever waits for it.
    LostAnswer,
    /// Two callers are given each other's answers.
    SwappedAnswers,
    /// A call that may have run is sent again.
    RetryUnknown,
    /// A call that may have run is said not to have.
    FalseRefusal,
    /// The endpoint of one server takes every caller for a local one.
    PolicyHole,
    /// Lists show what their reader may not use.
    UnfilteredList,
    /// What is remembered for one caller is remembered for all.
    UnpartitionedCache,
    /// What is remembered is never forgotten.
    StaleCache,
    /// A breaker that tries again lets everybody through.
    BreakerWithoutPermit,
    /// A process that has ended is not waited for.
    UnreapedChild,
    /// Descendants in sessions of their own are not ended with their server.
    StrayDescendant,
    /// A server that has crashed is not started again.
    StayDown,
    /// Failures of one caller open the breaker for every caller.
    SharedBreaker,
    /// Looking at lists after a start starts the server again.
    RestlessRefresh,
}

/// Whether this process has that fault.
#[cfg(not(feature = "sabotage"))]
#[inline]
pub const fn is_on(_: Sabotage) -> bool {
    false
}

/// The variable that processes with a cleared environment need nevertheless; none.
#[cfg(not(feature = "sabotage"))]
pub const fn inherited() -> Option<&'static str> {
    None
}

/// The variable that processes with a cleared environment need nevertheless.
#[cfg(feature = "sabotage")]
pub const fn inherited() -> Option<&'static str> {
    Some(VARIABLE)
}

#[cfg(feature = "sabotage")]
pub use self::chosen::{VARIABLE, chosen, is_on};

#[cfg(feature = "sabotage")]
mod chosen {
    use std::sync::OnceLock;

    use super::Sabotage;

    /// The variable that names the fault.
    pub const VARIABLE: &str = "OSTLER_SABOTAGE";

    /// Whether this process has that fault.
    pub fn is_on(fault: Sabotage) -> bool {
        static CHOSEN: OnceLock<Option<Sabotage>> = OnceLock::new();
        *CHOSEN.get_or_init(|| chosen().ok().flatten()) == Some(fault)
    }

    /// The fault of this process. The error names what the variable holds instead of one.
    #[expect(
        clippy::disallowed_methods,
        reason = "a fault that came in as an argument would change every signature on its way, in honest builds too"
    )]
    pub fn chosen() -> Result<Option<Sabotage>, String> {
        let Some(name) = std::env::var_os(VARIABLE).filter(|name| !name.is_empty()) else { return Ok(None) };
        let named = Sabotage::ALL.into_iter().find(|fault| name == fault.name());
        named.map(Some).ok_or_else(|| name.to_string_lossy().into_owned())
    }

    impl Sabotage {
        /// All of them.
        pub const ALL: [Self; 14] = [
            Self::LostAnswer,
            Self::SwappedAnswers,
            Self::RetryUnknown,
            Self::FalseRefusal,
            Self::PolicyHole,
            Self::UnfilteredList,
            Self::UnpartitionedCache,
            Self::StaleCache,
            Self::BreakerWithoutPermit,
            Self::UnreapedChild,
            Self::StrayDescendant,
            Self::StayDown,
            Self::SharedBreaker,
            Self::RestlessRefresh,
        ];

        /// Its name in the variable.
        pub const fn name(self) -> &'static str {
            match self {
                Self::LostAnswer => "lost-answer",
                Self::SwappedAnswers => "swapped-answers",
                Self::RetryUnknown => "retry-unknown",
                Self::FalseRefusal => "false-refusal",
                Self::PolicyHole => "policy-hole",
                Self::UnfilteredList => "unfiltered-list",
                Self::UnpartitionedCache => "unpartitioned-cache",
                Self::StaleCache => "stale-cache",
                Self::BreakerWithoutPermit => "breaker-without-permit",
                Self::UnreapedChild => "unreaped-child",
                Self::StrayDescendant => "stray-descendant",
                Self::StayDown => "stay-down",
                Self::SharedBreaker => "shared-breaker",
                Self::RestlessRefresh => "restless-refresh",
            }
        }
    }
}

#[cfg(all(test, not(feature = "sabotage")))]
mod tests {
    use super::*;

    /// Evaluated by the compiler, so an honest build can't even ask at run time.
    const IS_BROKEN: bool = is_on(Sabotage::RetryUnknown);

    #[test]
    fn an_honest_build_has_no_fault_whatever_the_environment_says() {
        assert_eq!([IS_BROKEN, is_on(Sabotage::PolicyHole)], [false; 2]);
    }
}

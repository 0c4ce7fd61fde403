//! Requests in flight: bounded over all servers, for each caller, and by the roles of callers.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::error::CallError;
use ostler_core::keyed_limit::{Full, KeyedLimit, Permit, Wanted};

/// How soon a caller that was one too many may come back.
const COME_BACK: Duration = Duration::from_secs(1);

/// What is counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Errand {
    /// Something that budgets count and the `max_in_flight` of a role bounds.
    Call,
    /// Asking what there is, which must go on while calls are under way.
    Look,
}

/// A request that is counted; dropping it counts it out.
pub(crate) type InFlight = Permit;

/// Counts a request in; `max_calls` is what the role of its caller allows. Calls are the marked ones.
pub(crate) fn enter(
    limit: &Arc<KeyedLimit>,
    principal: &str,
    errand: Errand,
    max_calls: Option<usize>,
) -> Result<InFlight, CallError> {
    let wanted = match errand {
        Errand::Call => Wanted::marked(max_calls.unwrap_or(usize::MAX)),
        Errand::Look => Wanted::ONE,
    };
    limit.acquire_wanted(principal, wanted).map_err(|full| {
        let what = match full {
            Full::All => format!("{} calls are in flight", limit.max()),
            Full::Key => {
                let max = limit.max_per_key();
                format!("{max} of your calls are in flight, and one caller may have no more")
            }
            Full::Marked { held } => {
                format!("{held} of your calls are in flight, and your role allows no more")
            }
        };
        CallError::Overloaded { what, retry_after: COME_BACK }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_caller_gets_its_share_and_the_others_the_rest() {
        let limit = KeyedLimit::new(3, 2);
        let enter = |principal| enter(&limit, principal, Errand::Call, None);
        let (first, _second) = (enter("ada").unwrap(), enter("ada").unwrap());
        let error = enter("ada").err().unwrap();
        assert!(error.to_string().contains("2 of your calls"), "{error}");
        let _third = enter("bob").unwrap();
        assert!(enter("bob").err().unwrap().to_string().contains("3 calls are in flight"));
        drop(first);
        enter("ada").unwrap();
    }

    #[test]
    fn a_role_bounds_calls_and_not_the_look_at_what_there_is() {
        let limit = KeyedLimit::new(10, 10);
        let call = enter(&limit, "ada", Errand::Call, Some(1)).unwrap();
        let error = enter(&limit, "ada", Errand::Call, Some(1)).err().unwrap();
        assert!(error.to_string().contains("1 of your calls"), "{error}");
        enter(&limit, "ada", Errand::Look, Some(1)).unwrap();
        enter(&limit, "bob", Errand::Call, Some(1)).unwrap();
        drop(call);
        enter(&limit, "ada", Errand::Call, Some(1)).unwrap();
    }
}

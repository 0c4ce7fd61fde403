//! Requests in flight: bounded over all servers, for each caller, and by the roles of callers.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::error::CallError;
use ostler_core::keyed_limit::{KeyedLimit, KeyedPermit, LimitReached, PermitRequest};

/// Delay after which a caller that exceeded a bound may retry.
const IN_FLIGHT_RETRY_AFTER: Duration = Duration::from_secs(1);

/// Class of a request in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestClass {
    /// A request that budgets count and the `max_in_flight` of a role bounds.
    Call,
    /// A list request, which must go on while calls are in flight.
    Listing,
}

/// Permit of a request in flight; dropping it releases its place.
pub(crate) type InFlight = KeyedPermit;

/// Acquires a permit for a request; `max_calls` is the bound of its caller's role. Calls are the marked ones.
pub(crate) fn acquire(
    limit: &Arc<KeyedLimit>,
    principal: &str,
    errand: RequestClass,
    max_calls: Option<usize>,
) -> Result<InFlight, CallError> {
    let wanted = match errand {
        RequestClass::Call => PermitRequest::marked(max_calls.unwrap_or(usize::MAX)),
        RequestClass::Listing => PermitRequest::ONE,
    };
    limit.acquire_many(principal, wanted).map_err(|full| {
        let what = match full {
            LimitReached::All => format!("{} calls are in flight", limit.max()),
            LimitReached::Key => {
                let max = limit.max_per_key();
                format!("{max} of your calls are in flight, and one caller may have no more")
            }
            LimitReached::Marked { held } => {
                format!("{held} of your calls are in flight, and your role allows no more")
            }
        };
        CallError::Overloaded { what, retry_after: IN_FLIGHT_RETRY_AFTER }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_caller_gets_its_share_and_the_others_the_rest() {
        let limit = KeyedLimit::new(3, 2);
        let enter = |principal| acquire(&limit, principal, RequestClass::Call, None);
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
        let call = acquire(&limit, "ada", RequestClass::Call, Some(1)).unwrap();
        let error = acquire(&limit, "ada", RequestClass::Call, Some(1)).err().unwrap();
        assert!(error.to_string().contains("1 of your calls"), "{error}");
        acquire(&limit, "ada", RequestClass::Listing, Some(1)).unwrap();
        acquire(&limit, "bob", RequestClass::Call, Some(1)).unwrap();
        drop(call);
        acquire(&limit, "ada", RequestClass::Call, Some(1)).unwrap();
    }
}

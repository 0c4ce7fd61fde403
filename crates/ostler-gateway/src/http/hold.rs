//! What a caller holds open, counted until the last byte of its answer.

use ostler_core::caller::Caller;
use ostler_wire::Id;

use super::payload::Response;
use super::refuse::overloaded;
use crate::gateway::Gateway;
use crate::shares::Share;
use crate::slots::Slot;

/// A long stream's place among all, and among those of its caller.
pub(super) struct LongPlace {
    _slot: Slot,
    _share: Share,
}

/// A place for a long stream of the caller, or why there is none.
pub(super) fn long_place(
    gateway: &Gateway,
    caller: &Caller,
    id: Option<&Id>,
) -> Result<LongPlace, Box<Response>> {
    let shares = &gateway.0.long_per_caller;
    let Some(share) = shares.take(caller.principal()) else {
        let why = format!("this caller has {} streams open", shares.max());
        return Err(Box::new(overloaded(&why, id)));
    };
    match gateway.0.long_streams.take() {
        Some(slot) => Ok(LongPlace { _slot: slot, _share: share }),
        None => Err(Box::new(overloaded("too many streams are open", id))),
    }
}

/// A place for a request of the caller, before its body is read.
pub(super) fn place(gateway: &Gateway, caller: &Caller) -> Result<Share, Box<Response>> {
    let shares = &gateway.0.per_caller;
    shares.take(caller.principal()).ok_or_else(|| {
        let why = format!("this caller has {} requests and streams open", shares.max());
        Box::new(overloaded(&why, None))
    })
}

/// The response, which keeps the place until its body is over.
pub(super) fn keep(response: Response, share: Share) -> Response {
    response.map(|payload| payload.holding(share))
}

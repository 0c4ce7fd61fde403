//! Lists of one server, as far as the worker's role may use them.

use bytes::Bytes;
use ostler_core::error::CallError;
use ostler_host::{Kind, Scope, ServerListing};

use super::ServiceCore;
use super::request::RelayRequest;

/// Answers a list, whole and in one page.
pub(super) async fn answer(
    service: &ServiceCore,
    order: &RelayRequest,
    kind: Kind,
) -> Result<Bytes, CallError> {
    let left = service.clock.until(order.head.deadline).unwrap_or_default();
    let mut listings =
        service.host.list(&order.caller, &Scope::Server(order.head.server.clone()), kind, left).await;
    let listing = listings.pop().ok_or_else(|| order.unknown_server())?.require_known()?;
    Ok(write(kind, &listing).into())
}

/// What is shown depends on the role, so it is nobody else's.
fn write(kind: Kind, listing: &ServerListing) -> Vec<u8> {
    let size: usize = listing.items.iter().map(|listed| listed.item.definition.len() + 1).sum();
    let mut out = Vec::with_capacity(size + 96);
    out.push(b'{');
    let definitions = listing.items.iter().map(|listed| &listed.item.definition[..]);
    ostler_wire::push_array_member(&mut out, kind.member(), definitions);
    out.extend_from_slice(b",\"resultType\":\"complete\",\"ttlMs\":");
    out.extend_from_slice(listing.ttl.as_millis().to_string().as_bytes());
    out.extend_from_slice(b",\"cacheScope\":\"private\"}");
    out
}

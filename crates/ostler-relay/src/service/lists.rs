//! Lists of one server, as far as the worker's role may use them.

use bytes::Bytes;
use ostler_core::error::CallError;
use ostler_host::{Kind, Offer, Refused};

use super::Shared;
use super::order::Order;

/// Answers a list, whole and in one page.
pub(super) async fn answer(service: &Shared, order: &Order, kind: Kind) -> Result<Bytes, CallError> {
    let left = service.clock.until(order.head.deadline).unwrap_or_default();
    let offered = service.host.offer(&order.caller, &order.server, kind, left).await;
    let offer = offered.inspect_err(|error| {
        if matches!(error, CallError::UnknownServer { .. }) {
            let refused = Refused { server: &order.server, method: kind.method(), item: None };
            service.host.record_refusal(&order.caller, refused);
        }
    })?;
    Ok(write(kind, &offer).into())
}

/// What is shown depends on the role, so it is nobody else's.
fn write(kind: Kind, offer: &Offer) -> Vec<u8> {
    let size: usize = offer.items.iter().map(|item| item.definition.len() + 1).sum();
    let mut out = Vec::with_capacity(size + 96);
    out.push(b'{');
    ostler_wire::push_text(&mut out, kind.member());
    out.extend_from_slice(b":[");
    for (at, item) in offer.items.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        out.extend_from_slice(&item.definition);
    }
    out.extend_from_slice(b"],\"resultType\":\"complete\",\"ttlMs\":");
    out.extend_from_slice(offer.ttl.as_millis().to_string().as_bytes());
    out.extend_from_slice(b",\"cacheScope\":\"private\"}");
    out
}

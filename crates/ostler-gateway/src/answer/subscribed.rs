//! Subscriptions of clients to resources, bounded over all sessions and listens: in all, and of one caller in number
//! and in bytes of URIs.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::caller::Caller;
use ostler_core::error::CallError;
use ostler_host::Subscription;

use crate::gateway::Gateway;
use crate::shares::{Share, Shares};
use crate::slots::{Slot, Slots};

/// Subscriptions of all clients, half of them for one caller. Each takes some 200 bytes.
const MAX: usize = 32_768;

/// Bytes of the URIs that one caller is subscribed to, each counted once for every subscription.
const MAX_URI_BYTES: usize = 4 * 1_024 * 1_024;

/// How soon a refused caller may come back.
const COME_BACK: Duration = Duration::from_secs(1);

/// Room for subscriptions.
pub(crate) struct SubscriptionRoom {
    all: Arc<Slots>,
    per_caller: Arc<Shares>,
    uri_bytes: Arc<Shares>,
}

/// Room of one subscription, given back when dropped.
#[derive(Debug)]
struct Taken {
    _slot: Slot,
    _share: Share,
    _bytes: Share,
}

/// A subscription and its room.
pub(crate) struct Subscribed {
    subscription: Subscription,
    _taken: Taken,
}

impl Default for SubscriptionRoom {
    fn default() -> Self {
        let (all, per_caller) = (Slots::new(MAX), Shares::new(MAX / 2));
        Self { all, per_caller, uri_bytes: Shares::new(MAX_URI_BYTES) }
    }
}

impl SubscriptionRoom {
    /// Takes room before the server is asked, so that a refusal tells nothing of the resource.
    fn take(&self, principal: &str, uri: &str) -> Result<Taken, CallError> {
        let overloaded = |what| CallError::Overloaded { what, retry_after: COME_BACK };
        let Some(share) = self.per_caller.take(principal) else {
            let max = self.per_caller.max();
            return Err(overloaded(format!("you have {max} subscriptions in all your sessions; end some")));
        };
        let Some(bytes) = self.uri_bytes.take_many(principal, uri.len()) else {
            let max = self.uri_bytes.max();
            return Err(overloaded(format!(
                "the URIs of your subscriptions in all your sessions would exceed {max} bytes; end some"
            )));
        };
        let slot = self.all.take().ok_or_else(|| overloaded(format!("there are {MAX} subscriptions")))?;
        Ok(Taken { _slot: slot, _share: share, _bytes: bytes })
    }
}

impl Subscribed {
    /// The resource: one text for all subscriptions to it.
    pub(crate) fn uri(&self) -> &Arc<str> {
        self.subscription.uri()
    }
}

/// Subscribes a caller to a server's resource.
pub(crate) async fn subscribe(
    gateway: &Gateway,
    caller: &Caller,
    server: &str,
    uri: &str,
) -> Result<Subscribed, CallError> {
    let taken = gateway.0.subscription_room.take(caller.principal(), uri)?;
    let subscription = gateway.0.host.subscribe(caller, server, uri).await?;
    Ok(Subscribed { subscription, _taken: taken })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_caller_has_half_of_all_subscriptions() {
        let room = SubscriptionRoom::default();
        let fill =
            |principal: &str| (0..).map_while(|_| room.take(principal, "a:1").ok()).collect::<Vec<_>>();
        let hers = fill("ada");
        assert_eq!(hers.len(), MAX / 2);
        assert_eq!(room.take("ada", "a:1").unwrap_err().code(), "overloaded");
        let his = fill("bob");
        assert_eq!(his.len(), MAX / 2);
        assert_eq!(room.take("cyd", "a:1").unwrap_err().code(), "overloaded");
        drop(hers);
        assert!(room.take("cyd", "a:1").is_ok());
    }

    #[test]
    fn a_uri_that_is_too_long_leaves_room_for_others() {
        let room = SubscriptionRoom::default();
        let half = "a".repeat(MAX_URI_BYTES / 2);
        let first = room.take("ada", &half).unwrap();
        let _second = room.take("ada", &half).unwrap();
        assert_eq!(room.take("ada", "a").unwrap_err().code(), "overloaded");
        drop(first);
        assert!(room.take("ada", "a").is_ok() && room.take("bob", &half).is_ok());
    }
}

//! Subscriptions of clients to resources, bounded over all sessions and listens: in all, and of one caller in number
//! and in bytes of URIs.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::caller::Caller;
use ostler_core::error::CallError;
use ostler_core::keyed_limit::{Full, KeyedLimit, Permit, Wanted};
use ostler_host::Subscription;

use crate::gateway::Gateway;

/// Subscriptions of all clients, half of them for one caller. Each takes some 200 bytes.
const MAX: usize = 32_768;

/// Bytes of the URIs that one caller is subscribed to, each counted once for every subscription.
const MAX_URI_BYTES: usize = 4 * 1_024 * 1_024;

/// How soon a refused caller may come back.
const COME_BACK: Duration = Duration::from_secs(1);

/// Room for subscriptions.
pub(crate) struct SubscriptionRoom {
    subscriptions: Arc<KeyedLimit>,
    uri_bytes: Arc<KeyedLimit>,
}

/// Room of one subscription, given back when dropped.
#[derive(Debug)]
struct Taken {
    _subscription: Permit,
    _bytes: Permit,
}

/// A subscription and its room.
pub(crate) struct Subscribed {
    subscription: Subscription,
    _taken: Taken,
}

impl Default for SubscriptionRoom {
    fn default() -> Self {
        let subscriptions = KeyedLimit::new(MAX, MAX / 2);
        Self { subscriptions, uri_bytes: KeyedLimit::per_key(MAX_URI_BYTES) }
    }
}

impl SubscriptionRoom {
    /// Takes room before the server is asked, so that a refusal tells nothing of the resource.
    fn take(&self, principal: &str, uri: &str) -> Result<Taken, CallError> {
        let overloaded = |what| CallError::Overloaded { what, retry_after: COME_BACK };
        let subscription = self.subscriptions.acquire(principal).map_err(|full| {
            overloaded(match full {
                Full::All => format!("there are {MAX} subscriptions"),
                _ => format!("you have {} subscriptions in all your sessions; end some", MAX / 2),
            })
        })?;
        let bytes = self.uri_bytes.acquire_wanted(principal, Wanted::many(uri.len())).map_err(|_| {
            overloaded(format!(
                "the URIs of your subscriptions in all your sessions would exceed {MAX_URI_BYTES} bytes; end some"
            ))
        })?;
        Ok(Taken { _subscription: subscription, _bytes: bytes })
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

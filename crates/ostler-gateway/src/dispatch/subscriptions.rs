//! Subscriptions of clients to resources: bounded over all sessions and listens, and per caller in number and in bytes
//! of URIs.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::caller::Caller;
use ostler_core::error::CallError;
use ostler_core::keyed_limit::{KeyedLimit, KeyedPermit, LimitReached, PermitRequest};
use ostler_host::ResourceSubscription;

use crate::gateway::Gateway;

/// Subscriptions of all clients, half of them for one caller. Each takes some 200 bytes.
const MAX_SUBSCRIPTIONS: usize = 32_768;

/// Bytes of the URIs that one caller is subscribed to; each subscription counts its own URI.
const MAX_URI_BYTES: usize = 4 * 1_024 * 1_024;

/// Delay after which a refused caller may retry.
const OVERLOAD_RETRY_AFTER: Duration = Duration::from_secs(1);

/// Limits for subscriptions.
pub(crate) struct SubscriptionLimits {
    subscriptions: Arc<KeyedLimit>,
    uri_bytes: Arc<KeyedLimit>,
}

/// Permit of one subscription, released when dropped.
#[derive(Debug)]
struct SubscriptionPermit {
    _subscription: KeyedPermit,
    _bytes: KeyedPermit,
}

/// Subscription and its permit.
pub(crate) struct ClientSubscription {
    subscription: ResourceSubscription,
    _permit: SubscriptionPermit,
}

impl Default for SubscriptionLimits {
    fn default() -> Self {
        let subscriptions = KeyedLimit::new(MAX_SUBSCRIPTIONS, MAX_SUBSCRIPTIONS / 2);
        Self { subscriptions, uri_bytes: KeyedLimit::per_key(MAX_URI_BYTES) }
    }
}

impl SubscriptionLimits {
    /// Acquires a permit before the server is asked, so that a refusal reveals nothing about the resource.
    fn acquire(&self, principal: &str, uri: &str) -> Result<SubscriptionPermit, CallError> {
        let overloaded = |what| CallError::Overloaded { what, retry_after: OVERLOAD_RETRY_AFTER };
        let subscription = self.subscriptions.acquire(principal).map_err(|full| {
            overloaded(match full {
                LimitReached::All => format!("there are {MAX_SUBSCRIPTIONS} subscriptions"),
                _ => {
                    format!("you have {} subscriptions in all your sessions; end some", MAX_SUBSCRIPTIONS / 2)
                }
            })
        })?;
        let bytes = self.uri_bytes.acquire_many(principal, PermitRequest::many(uri.len())).map_err(|_| {
            overloaded(format!(
                "the URIs of your subscriptions in all your sessions would exceed {MAX_URI_BYTES} bytes; end some"
            ))
        })?;
        Ok(SubscriptionPermit { _subscription: subscription, _bytes: bytes })
    }
}

impl ClientSubscription {
    /// Returns the URI: one text for all subscriptions to it.
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
) -> Result<ClientSubscription, CallError> {
    let taken = gateway.0.subscription_limits.acquire(caller.principal(), uri)?;
    let subscription = gateway.0.host.subscribe(caller, server, uri).await?;
    Ok(ClientSubscription { subscription, _permit: taken })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_caller_has_half_of_all_subscriptions() {
        let room = SubscriptionLimits::default();
        let fill =
            |principal: &str| (0..).map_while(|_| room.acquire(principal, "a:1").ok()).collect::<Vec<_>>();
        let hers = fill("ada");
        assert_eq!(hers.len(), MAX_SUBSCRIPTIONS / 2);
        assert_eq!(room.acquire("ada", "a:1").unwrap_err().code(), "overloaded");
        let his = fill("bob");
        assert_eq!(his.len(), MAX_SUBSCRIPTIONS / 2);
        assert_eq!(room.acquire("cyd", "a:1").unwrap_err().code(), "overloaded");
        drop(hers);
        assert!(room.acquire("cyd", "a:1").is_ok());
    }

    #[test]
    fn a_uri_that_is_too_long_leaves_room_for_others() {
        let room = SubscriptionLimits::default();
        let half = "a".repeat(MAX_URI_BYTES / 2);
        let first = room.acquire("ada", &half).unwrap();
        let _second = room.acquire("ada", &half).unwrap();
        assert_eq!(room.acquire("ada", "a").unwrap_err().code(), "overloaded");
        drop(first);
        assert!(room.acquire("ada", "a").is_ok() && room.acquire("bob", &half).is_ok());
    }
}

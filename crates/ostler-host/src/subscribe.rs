//! Subscriptions to changes of resources.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ostler_core::caller::Caller;
use ostler_core::error::CallError;
use ostler_core::fault::Delivery;
use ostler_core::server_name::ServerName;
use ostler_wire::{Era, Params};
use tokio::time::{Instant, timeout_at};

use crate::call::unknown_item;
use crate::host::Host;
use crate::lists::Kind;
use crate::record::BriefRecord;
use crate::request::Request;
use crate::server::Binding;
use crate::server::slot::Slot;
use crate::server::subscriptions::{HeldSubscription, MAX_RESOURCES, SubscriptionLimit};

/// Delay after which a caller that exceeded the bound may subscribe again.
const SUBSCRIPTION_RETRY_AFTER: Duration = Duration::from_secs(1);

/// Subscription to one resource. While any is held for a resource, its server is kept up and reports its changes, also
/// after a restart; dropping the last one ends that.
#[must_use = "dropping a subscription ends it"]
pub struct ResourceSubscription {
    slot: Arc<Slot>,
    held: HeldSubscription,
    /// Taken by the task that unsubscribes at the server.
    binding: Option<Binding>,
}

impl Host {
    /// Subscribes to changes of a resource at its server, unless the host already is subscribed. Changes arrive as
    /// [notifications](Self::notifications). The caller gets a legacy server's answer.
    pub async fn subscribe(
        &self,
        caller: &Caller,
        server: &str,
        uri: &str,
    ) -> Result<ResourceSubscription, CallError> {
        let (current, method) = (Arc::clone(&self.current()), "resources/subscribe");
        let name = ServerName::new(server).map_err(|_| current.unknown_server(Some(caller), server))?;
        let mut request = Request::new(caller, method, Params::resource_read(uri))
            .with_snapshot(&current)
            .with_server(name);
        let (judged, rule) = match self.authorize_opened(&mut request) {
            Ok((_, slot, rule)) => (Ok(slot), rule),
            Err((error, rule)) => (Err(error), rule),
        };
        if rule.is_some() {
            let outcome = unknown_item(Kind::Resources, uri).code();
            let rule = rule.as_deref();
            self.record_brief(caller, BriefRecord { server, method, subject: uri, outcome, rule });
        }
        let slot = judged?;
        let binding = Binding::acquire(&slot).await?;
        if current.is_restricted(caller) && !self.is_resource_listed(&slot, &request, uri).await? {
            return Err(unknown_item(Kind::Resources, uri));
        }
        let until = Instant::now() + slot.spec.call_timeout;
        let held = slot
            .subscriptions
            .add(uri, caller.principal())
            .map_err(|full| subscription_limit_error(&slot, full))?;
        let telling = Arc::clone(&held.server_subscribed);
        // Dropping the subscription decrements the count from here on.
        let subscription = ResourceSubscription { slot: Arc::clone(&slot), held, binding: Some(binding) };
        let Ok(mut is_told) = timeout_at(until, telling.lock()).await else {
            let (server, after) = (slot.key.server.clone(), slot.spec.call_timeout);
            return Err(CallError::TimedOut { server, after, delivery: Delivery::NotSent });
        };
        if *is_told {
            return Ok(subscription);
        }
        match slot.last_server_info().map(|hello| hello.era) {
            Some(Era::Modern) => slot.listen(),
            Some(Era::Legacy) | None => {
                if let Err(error) = self.send_with_retries(&slot, &request).await {
                    subscription.abandon();
                    return Err(self.conceal_missing(&request, error));
                }
            }
        }
        *is_told = true;
        Ok(subscription)
    }
}

fn subscription_limit_error(slot: &Slot, full: SubscriptionLimit) -> CallError {
    let server = &slot.key.server;
    let what = match full {
        SubscriptionLimit::Server => format!("server `{server}` tells of {MAX_RESOURCES} resources already"),
        SubscriptionLimit::Caller(share) => format!(
            "you are subscribed to {share} resources of server `{server}`, as many as one caller may be; \
             unsubscribe from some"
        ),
    };
    CallError::Overloaded { what, retry_after: SUBSCRIPTION_RETRY_AFTER }
}

impl ResourceSubscription {
    /// Returns the resource's URI: one text shared by all subscriptions to it.
    pub fn uri(&self) -> &Arc<str> {
        &self.held.uri
    }

    /// Drops the subscription without unsubscribing: the server never confirmed it.
    fn abandon(mut self) {
        self.binding = None;
        if self.slot.subscriptions.remove(&self.held) {
            self.slot.subscriptions.forget(&self.held.uri);
        }
    }
}

impl Drop for ResourceSubscription {
    fn drop(&mut self) {
        let Some(binding) = self.binding.take() else { return };
        if !self.slot.subscriptions.remove(&self.held) {
            return;
        }
        let (slot, uri, telling) =
            (Arc::clone(&self.slot), Arc::clone(&self.held.uri), Arc::clone(&self.held.server_subscribed));
        // Without a runtime there is no session to unsubscribe at.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return slot.subscriptions.forget(&uri);
        };
        runtime.spawn(async move {
            let _permit = slot.subscriptions.unsubscribe_permits.acquire().await;
            let mut is_told = telling.lock().await;
            if slot.subscriptions.is_over(&uri) {
                *is_told = false;
                slot.listen();
                slot.unsubscribe(&uri).await;
                slot.subscriptions.forget(&uri);
            }
            drop(binding);
        });
    }
}

impl fmt::Debug for ResourceSubscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Subscription({}, {})", self.slot.key.server, self.held.uri)
    }
}

//! Hearing of changed resources.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ostler_core::caller::Caller;
use ostler_core::error::CallError;
use ostler_core::fault::Delivery;
use ostler_core::name::ServerName;
use ostler_wire::{Era, Params};
use tokio::time::{Instant, timeout_at};

use crate::call::unknown_item;
use crate::host::Host;
use crate::lists::Kind;
use crate::record::Aside;
use crate::request::Request;
use crate::server::Binding;
use crate::server::interest::{Full, Held, MAX_RESOURCES};
use crate::server::slot::Slot;

/// How soon somebody who found no room may come back.
const COME_BACK: Duration = Duration::from_secs(1);

/// The wish to hear of one resource. While any is held for a resource, its
/// server is kept up and tells of its changes, also after a restart; dropping
/// the last one ends that.
#[must_use = "dropping a subscription ends it"]
pub struct Subscription {
    slot: Arc<Slot>,
    held: Held,
    /// Taken by whoever tells the server of the end.
    binding: Option<Binding>,
}

impl Host {
    /// Asks a server to tell of changes of a resource, unless it does so
    /// already. They come as [events](Self::events). What a legacy server
    /// answers to that is what the caller gets.
    pub async fn subscribe(
        &self,
        caller: &Caller,
        server: &str,
        uri: &str,
    ) -> Result<Subscription, CallError> {
        let (current, method) = (Arc::clone(&self.current()), "resources/subscribe");
        let name = ServerName::new(server).map_err(|_| current.unknown_server(Some(caller), server))?;
        let mut request =
            Request::new(caller, method, Params::resource_read(uri)).judged_by(&current).at(name);
        let (judged, rule) = match self.judge_opened(&mut request) {
            Ok((_, slot, rule)) => (Ok(slot), rule),
            Err((error, rule)) => (Err(error), rule),
        };
        if rule.is_some() {
            let outcome = unknown_item(Kind::Resources, uri).code();
            let rule = rule.as_deref();
            self.record_aside(caller, Aside { server, method, subject: uri, outcome, rule });
        }
        let slot = judged?;
        let binding = Binding::hold(&slot).await?;
        if current.is_restricted(caller) && !self.lists_resource(&slot, &request, uri).await? {
            return Err(unknown_item(Kind::Resources, uri));
        }
        let until = Instant::now() + slot.spec.call_timeout;
        let held = slot.interests.add(uri, caller.principal()).map_err(|full| crowded(&slot, full))?;
        let telling = Arc::clone(&held.telling);
        // From here on dropping it takes the count back.
        let subscription = Subscription { slot: Arc::clone(&slot), held, binding: Some(binding) };
        let Ok(mut is_told) = timeout_at(until, telling.lock()).await else {
            let (server, after) = (slot.key.server.clone(), slot.spec.call_timeout);
            return Err(CallError::TimedOut { server, after, delivery: Delivery::NotSent });
        };
        if *is_told {
            return Ok(subscription);
        }
        match slot.hello().map(|hello| hello.era) {
            Some(Era::Modern) => slot.listen(),
            Some(Era::Legacy) | None => {
                if let Err(error) = self.perform(&slot, &request).await {
                    subscription.fail();
                    return Err(self.hide_missing(&request, error));
                }
            }
        }
        *is_told = true;
        Ok(subscription)
    }
}

fn crowded(slot: &Slot, full: Full) -> CallError {
    let server = &slot.key.server;
    let what = match full {
        Full::Server => format!("server `{server}` tells of {MAX_RESOURCES} resources already"),
        Full::Caller(share) => format!(
            "you are subscribed to {share} resources of server `{server}`, as many as one caller may be; \
             unsubscribe from some"
        ),
    };
    CallError::Overloaded { what, retry_after: COME_BACK }
}

impl Subscription {
    /// The resource: one text for all subscriptions to it.
    pub fn uri(&self) -> &Arc<str> {
        &self.held.uri
    }

    /// The server does not tell of it, so it need not be told of the end.
    fn fail(mut self) {
        self.binding = None;
        if self.slot.interests.remove(&self.held) {
            self.slot.interests.forget(&self.held.uri);
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let Some(binding) = self.binding.take() else { return };
        if !self.slot.interests.remove(&self.held) {
            return;
        }
        let (slot, uri, telling) =
            (Arc::clone(&self.slot), Arc::clone(&self.held.uri), Arc::clone(&self.held.telling));
        // Without a runtime there is no session either that could be told.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return slot.interests.forget(&uri) };
        runtime.spawn(async move {
            let _permit = slot.interests.ending.acquire().await;
            let mut is_told = telling.lock().await;
            if slot.interests.is_over(&uri) {
                *is_told = false;
                slot.listen();
                slot.unsubscribe(&uri).await;
                slot.interests.forget(&uri);
            }
            drop(binding);
        });
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Subscription({}, {})", self.slot.key.server, self.held.uri)
    }
}

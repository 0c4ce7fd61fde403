//! Setup of a new session: the log level, the subscribed resources, and the listen request for changes.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use ostler_core::caller::Caller;
use ostler_core::sabotage;
use ostler_wire::{Era, Params, RpcOutcome};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use super::slot::{LiveSession, Slot};
use crate::lists::Kind;
use crate::upstream::UpstreamRequest;

/// Delay between a start and the refresh of lists, so that waiting calls go first.
const REFRESH_DELAY: Duration = Duration::from_millis(100);

/// Timeout for an unsubscribe request.
const UNSUBSCRIBING: Duration = Duration::from_secs(5);

/// Gives a new session the settings of those before it, and fetches what has changed meanwhile. Runs in the
/// background.
pub(super) fn set_up_session(slot: &Arc<Slot>) {
    slot.listen();
    if let Some(host) = slot.host.upgrade() {
        host.report_instructions_drift(slot);
    }
    resync_session(slot);
}

/// Sets up a session that continues after its server has forgotten it.
pub(super) fn resync_session(slot: &Arc<Slot>) {
    if slot.level.get().is_some() || !slot.subscriptions.resources().is_empty() {
        let slot = Arc::clone(slot);
        tokio::spawn(async move {
            slot.set_level().await;
            slot.subscribe_again().await;
        });
    }
    if slot.bus.has_listeners() {
        let slot = Arc::clone(slot);
        tokio::spawn(async move { refresh_lists(&slot).await });
    }
    sabotage!(RestlessRefresh, start_again(slot));
}

/// Lists the tools until that has started the server again, however fast the machine ends a process.
#[cfg(ostler_sabotage)]
fn start_again(slot: &Arc<Slot>) {
    let slot = Arc::clone(slot);
    tokio::spawn(async move {
        loop {
            sleep(REFRESH_DELAY).await;
            let Some(host) = slot.host.upgrade() else { return };
            let starts = slot.live().is_none();
            if host.fetch_list(&slot, &Caller::local(), Kind::Tools).await.is_ok() && starts {
                return;
            }
        }
    });
}

/// Fetches the lists that are known from earlier sessions, so that listeners learn of differences. Starts nothing: a
/// session that has ended meanwhile is left alone.
async fn refresh_lists(slot: &Arc<Slot>) {
    sleep(REFRESH_DELAY).await;
    for kind in Kind::ALL {
        let Some(known) = slot.cached_list(kind) else { continue };
        // A private list is compared with what the same principal is shown now.
        let caller = known.owner().map_or_else(Caller::local, |owner| Caller::new(owner, ""));
        let Some(host) = slot.host.upgrade() else { return };
        // A list that fails here is fetched when a caller needs it.
        let _ = host.refresh_live_list(slot, &caller, kind).await;
    }
}

impl Slot {
    /// Asks a modern server to announce changes of its lists and of the subscribed resources.
    pub(crate) fn listen(&self) {
        let Some(live) = self.live() else { return };
        let hello = live.session.server_info();
        if hello.era == Era::Legacy {
            return;
        }
        let _listening = self.subscriptions.listen_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let resources = self.subscriptions.resources();
        let announces =
            Kind::ALL.into_iter().any(|kind| hello.has_capability(kind.list_changed_capability()));
        let may_have_asked = hello.has_capability("resources.subscribe");
        if announces || may_have_asked || !resources.is_empty() {
            live.session.listen(&resources);
        }
    }

    /// Sends the requested log level to a legacy server.
    pub(crate) async fn set_level(&self) {
        let (Some(live), Some(level)) = (self.live(), self.level.get()) else { return };
        if live.session.server_info().has_capability("logging") {
            self.request_legacy(&live, "logging/setLevel", json!({"level": level.as_str()}).to_string())
                .await;
        }
    }

    async fn subscribe_again(&self) {
        let Some(live) = self.live() else { return };
        for uri in self.subscriptions.resources() {
            let Some(telling) = self.subscriptions.server_subscribed(&uri) else { continue };
            let is_told = telling.lock().await;
            // The remaining resources are subscribed by their first subscription, or no longer wanted.
            if !*is_told || self.subscriptions.server_subscribed(&uri).is_none() {
                continue;
            }
            self.request_legacy(&live, "resources/subscribe", json!({"uri": uri}).to_string()).await;
        }
    }

    /// Unsubscribes a legacy server from a resource without subscribers.
    pub(crate) async fn unsubscribe(&self, uri: &str) {
        let Some(live) = self.live() else { return };
        let told = self.request_legacy(&live, "resources/unsubscribe", json!({"uri": uri}).to_string());
        let _ = timeout(UNSUBSCRIBING, told).await;
    }

    /// Sends a request without a caller. It is no call, so it takes no lease; only the operator learns of a failure.
    async fn request_legacy(&self, live: &LiveSession, method: &'static str, params: String) {
        if live.session.server_info().era == Era::Modern {
            return;
        }
        let Ok(params) = Params::parse(Bytes::from(params)) else { return };
        let until = Instant::now() + self.spec.call_timeout;
        let why = match live.session.request(UpstreamRequest::from_host(method, &params, until)).await {
            Ok(RpcOutcome::Result(_)) => return,
            Ok(RpcOutcome::Error(error)) => error.message,
            Err(fault) => fault.to_string(),
        };
        tracing::warn!(server = %self.key.server, method, why, "the server was told in vain");
    }
}

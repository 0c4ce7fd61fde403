//! Fetches of a server's lists; concurrent fetches of one list are coalesced.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ostler_core::caller::Caller;
use ostler_core::error::CallError;
use ostler_wire::Params;
use tokio::sync::OwnedMutexGuard;
use tokio::time::timeout;

use super::Kind;
use super::pages::Pages;
use crate::blocking::run_blocking_if_large;
use crate::host::Host;
use crate::options::StartRetry;
use crate::request::Request;
use crate::server::PartitionOwner;
use crate::server::lease::Demand;
use crate::server::list_cache::LastFetch;
use crate::server::server_list::{ServerList, list_owner};
use crate::server::slot::Slot;

/// Bounds the time for all pages of one list together.
const MAX_FETCH_TIME: Duration = Duration::from_secs(120);

/// Permission of a list request to start its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServerStart {
    Allowed,
    Forbidden,
}

/// Role of a caller in a coalesced fetch.
pub(super) enum CoalescedFetch {
    /// Another fetch was in progress, with this outcome.
    Shared(Result<Arc<ServerList>, CallError>),
    /// No fetch is in progress, and none begins while this guard is held.
    Leader(OwnedMutexGuard<LastFetch>),
}

impl Slot {
    /// Waits for the fetch in progress, if there is one.
    pub(super) async fn join_fetch(&self, caller: &Caller, kind: Kind) -> Result<CoalescedFetch, CallError> {
        // A caller that the server would refuse need not wait for the fetch of a caller that was admitted before.
        self.check_accepts_lists()?;
        let shelf = self.list_cache(kind);
        let before = shelf.fetches.load(Ordering::Acquire);
        let listing = Arc::clone(&shelf.last_fetch).lock_owned().await;
        let is_over = shelf.fetches.load(Ordering::Acquire) != before;
        match &*listing {
            Some(outcome) if is_over && may_share(outcome, caller) => {
                Ok(CoalescedFetch::Shared(outcome.clone()))
            }
            _ => Ok(CoalescedFetch::Leader(listing)),
        }
    }
}

/// Returns whether the outcome of another caller's fetch may be given to a caller.
fn may_share(outcome: &Result<Arc<ServerList>, CallError>, caller: &Caller) -> bool {
    outcome.as_ref().map_or(true, |known| !known.is_outdated() && known.is_for(caller))
}

impl Host {
    /// Fetches a list of a single requested server. If that has ever come up, fails as soon as a start has failed; one
    /// that never did is given up at its second failure anyway. A host that serves a single command, which has no later
    /// list, and a host that is a way to that server wait for the next start.
    pub(crate) async fn fetch_list_of_one(
        &self,
        slot: &Arc<Slot>,
        caller: &Caller,
        kind: Kind,
    ) -> Result<Arc<ServerList>, CallError> {
        match slot.start_retry {
            StartRetry::Budget if slot.state().supervisor.has_ever_come_up() => {
                self.fetch_list_unless_start_fails(slot, caller, kind).await
            }
            StartRetry::Budget | StartRetry::Once | StartRetry::UntilReached => {
                self.fetch_list(slot, caller, kind).await
            }
        }
    }

    /// Fetches a list, and fails as soon as a start of its server has failed.
    pub(crate) async fn fetch_list_unless_start_fails(
        &self,
        slot: &Arc<Slot>,
        caller: &Caller,
        kind: Kind,
    ) -> Result<Arc<ServerList>, CallError> {
        tokio::select! {
            biased;
            fetched = self.fetch_list_for(slot, (caller, kind), Demand::UntilStartFails) => fetched,
            error = slot.until_start_failed() => Err(error),
        }
    }

    /// Fetches all pages of a list from the server. Concurrent callers share one fetch, and its failure too.
    pub(crate) async fn fetch_list(
        &self,
        slot: &Arc<Slot>,
        caller: &Caller,
        kind: Kind,
    ) -> Result<Arc<ServerList>, CallError> {
        self.fetch_list_for(slot, (caller, kind), Demand::Lasting).await
    }

    async fn fetch_list_for(
        &self,
        slot: &Arc<Slot>,
        (caller, kind): (&Caller, Kind),
        demand: Demand,
    ) -> Result<Arc<ServerList>, CallError> {
        match slot.join_fetch(caller, kind).await? {
            CoalescedFetch::Shared(outcome) => outcome,
            CoalescedFetch::Leader(listing) => self.lead_fetch(slot, (caller, kind, demand), listing).await,
        }
    }

    /// Fetches a list that may be stale from the live session. Never starts one.
    pub(crate) async fn refresh_live_list(
        &self,
        slot: &Arc<Slot>,
        caller: &Caller,
        kind: Kind,
    ) -> Result<(), CallError> {
        if slot.fresh_list(caller, kind).is_some() || slot.live().is_none() {
            return Ok(());
        }
        if let CoalescedFetch::Leader(mut listing) = slot.join_fetch(caller, kind).await? {
            let reading = self.fetch_and_store(slot, (caller, kind), ServerStart::Forbidden);
            let outcome = timeout(slot.spec.call_timeout.min(MAX_FETCH_TIME), reading).await;
            // A failure is not shared: a waiting caller may start a session.
            if let Ok(Ok(known)) = outcome {
                *listing = Some(Ok(known));
                slot.list_cache(kind).fetches.fetch_add(1, Ordering::Release);
            }
        }
        Ok(())
    }

    /// Fetches the list, and leaves the outcome to the callers that wait.
    pub(super) async fn lead_fetch(
        &self,
        slot: &Arc<Slot>,
        (caller, kind, demand): (&Caller, Kind, Demand),
        mut listing: OwnedMutexGuard<LastFetch>,
    ) -> Result<Arc<ServerList>, CallError> {
        // Keeps the session wanted until the list is there.
        let _wanted = slot.demand_session(demand);
        slot.until_started().await;
        let longest = slot.spec.call_timeout.min(MAX_FETCH_TIME);
        let reading = self.fetch_and_store(slot, (caller, kind), ServerStart::Allowed);
        let outcome = match timeout(longest, reading).await {
            Ok(outcome) => outcome,
            Err(_) => Err(slot.list_timed_out_error(longest)),
        };
        *listing = Some(outcome.clone());
        slot.list_cache(kind).fetches.fetch_add(1, Ordering::Release);
        outcome
    }

    async fn fetch_and_store(
        &self,
        slot: &Arc<Slot>,
        (caller, kind): (&Caller, Kind),
        demand: ServerStart,
    ) -> Result<Arc<ServerList>, CallError> {
        let (epoch, changes) = (slot.cache_epoch(), slot.list_cache(kind).changes.load(Ordering::Acquire));
        let known =
            Arc::new(self.fetch_pages(slot, (caller, kind), demand).await?.with_seen_changes(changes));
        // Evaluated before it is published: otherwise each reader would have to evaluate it.
        self.evaluate_pins(&slot.key.server, kind, &known).await;
        // A change announced meanwhile invalidated the previous list, not this one.
        if slot.cache_epoch() != epoch {
            known.outdate();
        }
        let is_news = slot.store_list(kind, Arc::clone(&known));
        // No list is kept for a caller whose credential has ended meanwhile.
        if caller.is_credential_ended() {
            slot.list_cache(kind).remove_owned(PartitionOwner(caller.principal()));
        }
        if is_news {
            slot.log_invalid(kind, &known);
            self.persist_lists(slot);
        }
        // The operator may have made the list private after it was received and before it could be found here.
        if known.owner().is_none() && slot.is_private(&known, self.current().spec_of(slot).cache_scope) {
            slot.list_cache(kind).clear();
        }
        // Callers that got the pinned items got more than the server has.
        if self.report_list_drift(slot, kind, &known) {
            slot.on_repinned(kind);
        }
        Ok(known)
    }

    async fn fetch_pages(
        &self,
        slot: &Arc<Slot>,
        (caller, kind): (&Caller, Kind),
        demand: ServerStart,
    ) -> Result<ServerList, CallError> {
        let server = slot.key.server.clone();
        // Loaded before the list is stored: the list is compared with the persisted one.
        self.load_persisted_lists(slot).await;
        if slot.lacks_capability(kind) {
            let generation = slot.state().supervisor.generation();
            return Ok(ServerList::fresh(Vec::new(), Duration::ZERO, generation, true));
        }
        let mut pages = Pages::new(kind, kind.max_items(&slot.spec));
        loop {
            let params = Params::list(pages.cursor());
            let mut request = Request::new(caller, kind.method(), params).with_server(server.clone());
            request.is_passive = demand == ServerStart::Forbidden;
            let answer = match self.send_with_retries(slot, &request).await {
                Ok(answer) => answer,
                // A server without such items says that it has no such method.
                Err(CallError::Rpc(error))
                    if error.code == ostler_wire::METHOD_NOT_FOUND && pages.is_first() =>
                {
                    let generation = slot.state().supervisor.generation();
                    return Ok(ServerList::fresh(Vec::new(), Duration::ZERO, generation, true));
                }
                Err(error) => return Err(error),
            };
            let is_last;
            let size = answer.body.len();
            let add = move || {
                let is_last = pages.add(&answer);
                (pages, is_last)
            };
            (pages, is_last) = run_blocking_if_large(size, add).await;
            if is_last? {
                let known = pages.finish(slot.announces_changes(kind));
                let is_private = slot.is_private(&known, self.current().spec_of(slot).cache_scope);
                return Ok(if is_private { known.owned_by(&*list_owner(caller)) } else { known });
            }
        }
    }
}

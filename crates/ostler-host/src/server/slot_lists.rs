//! Lists, cached responses and waiters of a slot.

use std::borrow::Cow;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use ostler_core::caller::Caller;
use ostler_core::classify::{AttemptOutcome, SessionEffect, classify};
use ostler_core::error::{CallError, Unavailable, UnavailableState};
use ostler_core::fault::{Delivery, Fault, FaultKind};
use ostler_core::sabotage;
use ostler_core::server_name::ServerName;
use ostler_core::spec::{CacheScopeRule, Isolation};
use ostler_core::supervisor::{Availability, Phase};
use ostler_wire::{Era, ServerInfo};
use tokio::time::{Instant, timeout, timeout_at};

use super::list_cache::ListCache;
use super::server_list::ServerList;
use super::slot::{LiveSession, Slot, SlotState};
use crate::lists::Kind;
use crate::notifications::HostNotification;
use crate::options::StartRetry;
use crate::upstream::ServerNotification;

impl Slot {
    pub(crate) fn list_cache(&self, kind: Kind) -> &ListCache {
        &self.list_caches[kind.index()]
    }

    /// Returns the latest list, at any age.
    pub(crate) fn cached_list(&self, kind: Kind) -> Option<Arc<ServerList>> {
        self.list_cache(kind).latest()
    }

    /// Returns the latest list that the caller may see, at any age.
    pub(crate) fn cached_list_for(&self, caller: &Caller, kind: Kind) -> Option<Arc<ServerList>> {
        self.list_cache(kind).latest_for(caller.principal())
    }

    /// Returns whether a list that was just received is private to the caller that fetched it: its server says so, or
    /// the operator. A slot that is not shared has one caller, and servers of the older revisions know only one
    /// client, which all callers of a shared process are together.
    pub(crate) fn is_private(&self, known: &ServerList, rule: CacheScopeRule) -> bool {
        let is_modern = || self.last_server_info().is_some_and(|hello| hello.era == Era::Modern);
        let is_said = rule == CacheScopeRule::Private || (!known.is_public && is_modern());
        is_said && self.has_several_callers()
    }

    /// Returns the list if it need not be fetched again.
    pub(crate) fn fresh_list(&self, caller: &Caller, kind: Kind) -> Option<Arc<ServerList>> {
        let known = self.cached_list_for(caller, kind)?;
        let generation = self.state().supervisor.generation();
        known.is_fresh(generation).then_some(known)
    }

    /// Returns whether the live session declares that there is no such list. Tools are fetched all the same: most
    /// servers have nothing else, and one that omits the declaration loses nothing.
    pub(crate) fn lacks_capability(&self, kind: Kind) -> bool {
        kind != Kind::Tools
            && self.live().is_some_and(|live| !live.session.server_info().has_capability(kind.capability()))
    }

    /// Stores a list that was just received. Returns whether it differs from the known one. Announces a change that
    /// the server did not announce, and the first list if a caller was answered without it.
    pub(crate) fn store_list(&self, kind: Kind, known: Arc<ServerList>) -> bool {
        let shelf = self.list_cache(kind);
        // Another principal's private list says nothing about changes.
        let before = match known.owner() {
            Some(owner) => shelf.latest_for(owner),
            None => shelf.latest(),
        };
        let is_empty = known.items.is_empty();
        let last = before.clone().or_else(|| shelf.latest());
        let is_news = last.is_none_or(|last| last.items != known.items);
        shelf.store(Arc::clone(&known));
        let was_missed = shelf.was_omitted.swap(false, Ordering::AcqRel);
        if !is_news {
            return false;
        }
        self.bus.bump_lists_version();
        let is_untold = match before {
            Some(before) => !before.is_outdated(),
            None => was_missed && !is_empty,
        };
        if is_untold {
            let others = shelf.all().into_iter().filter(|other| !Arc::ptr_eq(other, &known));
            others.for_each(|other| other.outdate());
            self.invalidate_answers(&kind.list_changed());
            self.emit(kind.list_changed());
        }
        true
    }

    /// Returns the server info of the last session.
    pub(crate) fn last_server_info(&self) -> Option<Arc<ServerInfo>> {
        self.last_server_info.load_full()
    }

    /// Sends a change to the listeners.
    fn emit(&self, event: ServerNotification) {
        let (server, partition) = (self.key.server.clone(), Arc::clone(&self.key.partition));
        self.bus.publish(HostNotification { server, partition, notification: event });
    }

    /// Returns the cache epoch. It is raised before every invalidation; a response requested under another epoch is
    /// not cached.
    pub(crate) fn cache_epoch(&self) -> u64 {
        self.cache_epoch.load(Ordering::Acquire)
    }

    pub(crate) fn bump_cache_epoch(&self) {
        self.cache_epoch.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns whether any response of this server was ever cached.
    pub(crate) fn has_cached_answers(&self) -> bool {
        self.has_cached_answers.load(Ordering::Acquire)
    }

    /// Passes the number of requests that skipped the cache to the cache.
    pub(crate) fn flush_misses(&self) {
        let misses = self.uncounted_misses.swap(0, Ordering::Relaxed);
        if misses > 0 {
            let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
            cache.count_misses(&self.key.server, misses);
        }
    }

    pub(crate) fn note_cached_answer(&self) {
        self.has_cached_answers.store(true, Ordering::Release);
    }

    /// Returns the owner of the private responses that a caller may get: its own slot, or where callers share one,
    /// its own entries there.
    pub(crate) fn cache_owner<'a>(&'a self, caller: &'a Caller) -> Cow<'a, str> {
        sabotage!(UnpartitionedCache, return "".into());
        match self.spec.isolation {
            Isolation::Shared => caller.principal().into(),
            Isolation::Workspace => format!("{}\0{}", self.key.partition, caller.principal()).into(),
            Isolation::Caller | Isolation::Session => (&*self.key.partition).into(),
        }
    }

    /// Returns whether a start waits for a permit of the process pool.
    pub(crate) fn is_waiting_for_process(&self) -> bool {
        self.startup.load().as_ref().is_some_and(|startup| startup.is_waiting_for_process())
    }

    /// Returns whether a start is in progress that will end by itself. One that waits for a permit of the process
    /// pool may not.
    pub(crate) fn is_starting(&self) -> bool {
        self.startup.load().as_ref().is_some_and(|startup| !startup.is_waiting_for_process())
    }

    /// Returns whether the last start failed and lists are better answered without the next one. A host that serves
    /// one command has no later list.
    pub(crate) fn has_failed_start(&self) -> bool {
        self.start_retry != StartRetry::Once && self.state().supervisor.has_failed_start()
    }

    /// Returns whether a session is up or starting.
    pub(crate) fn is_active(&self) -> bool {
        matches!(self.state().supervisor.phase(), Phase::Ready { .. } | Phase::Starting { .. })
    }

    /// Returns whether the live session announces changes of a list.
    pub(crate) fn announces_changes(&self, kind: Kind) -> bool {
        self.live().is_some_and(|live| {
            live.session.server_info().has_capability(kind.list_changed_capability())
                && live.session.notifies_changes(kind)
        })
    }

    /// Returns the session in use.
    pub(crate) fn live(&self) -> Option<Arc<LiveSession>> {
        self.state().live.clone()
    }

    /// Handles a server notification: marks its lists stale and invalidates cached responses.
    pub(crate) fn on_notification(&self, event: ServerNotification) {
        self.invalidate_answers(&event);
        for kind in Kind::ALL.into_iter().filter(|kind| kind.list_changed() == event) {
            // Marked before any listener is notified: a list fetched from now on is newer.
            self.list_cache(kind).changes.fetch_add(1, Ordering::AcqRel);
            self.list_cache(kind).all().iter().for_each(|known| known.outdate());
        }
        self.emit(event);
    }

    /// Returns a list as this session returned it to a caller, if it is known.
    pub(crate) fn list_of_session(
        &self,
        caller: &Caller,
        (kind, generation): (Kind, u64),
    ) -> Option<Arc<ServerList>> {
        let changes = self.list_cache(kind).changes.load(Ordering::Acquire);
        self.cached_list_for(caller, kind).filter(|known| known.is_current_for(generation, changes))
    }

    /// Marks all lists as stale: the server has forgotten the session, and the one that continues under its
    /// generation may be another server's.
    pub(crate) fn mark_lists_stale(&self) {
        for kind in Kind::ALL {
            self.list_cache(kind).changes.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Removes all lists: their visibility changes from now on.
    pub(crate) fn forget_lists(&self) {
        Kind::ALL.into_iter().for_each(|kind| self.list_cache(kind).clear());
    }

    /// Notifies listeners that pin verdicts of a list have changed.
    pub(crate) fn on_repinned(&self, kind: Kind) {
        self.invalidate_answers(&kind.list_changed());
        self.emit(kind.list_changed());
    }

    /// Invalidates the cached responses that an event affects.
    fn invalidate_answers(&self, event: &ServerNotification) {
        let methods: &[&str] = match event {
            ServerNotification::ToolsChanged => &["tools/list", "tools/call", "server/discover"],
            ServerNotification::ResourcesChanged => {
                &["resources/list", "resources/templates/list", "resources/read"]
            }
            ServerNotification::ResourceUpdated(_) => &["resources/read"],
            ServerNotification::PromptsChanged => &["prompts/list"],
            ServerNotification::Log(_) | ServerNotification::Other { .. } => return,
        };
        self.bump_cache_epoch();
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        for method in methods {
            cache.purge_method(&self.key.server, method);
        }
    }

    /// Waits until a session that failed a call is no longer leased. The session's own watcher sees its end within
    /// moments; this only keeps the caller from leasing it again before that.
    pub(crate) async fn until_replaced(&self, generation: u64, fault: &Fault, until: Instant) {
        let is_over = classify(&AttemptOutcome::Fault(&fault.kind)).effect == SessionEffect::Restart;
        if !is_over && fault.kind != FaultKind::Retired {
            return;
        }
        loop {
            let moved = self.phase_changed.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            if self.state().supervisor.availability(Instant::now().into_std())
                != Availability::Ready(generation)
            {
                return;
            }
            if timeout_at(until, moved).await.is_err() {
                return;
            }
        }
    }

    /// Waits until the state satisfies a condition.
    pub(crate) async fn until_state<T>(&self, look: impl Fn(&SlotState) -> Option<T>) -> T {
        loop {
            let moved = self.phase_changed.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            if let Some(found) = look(&self.state()) {
                return found;
            }
            moved.await;
        }
    }

    /// Waits for a start that is due or in progress, with any result. The start has a limit of its own; the wait for
    /// a permit of the process pool is bounded by the time of a call.
    pub(crate) async fn until_started(&self) {
        let is_over = |desk: &SlotState| {
            (!matches!(desk.supervisor.phase(), Phase::Idle | Phase::Starting { .. })).then_some(())
        };
        while timeout(self.spec.call_timeout, self.until_state(is_over)).await.is_err() && self.is_starting()
        {
        }
    }

    /// Waits until a start has failed and the next one is not due yet, and returns the failure. A lost session is no
    /// failed start: the next one may be moments away.
    pub(crate) async fn until_start_failed(&self) -> CallError {
        self.until_state(|desk| match desk.supervisor.phase() {
            Phase::Backoff { soonest, is_start_failure: true, .. }
                if *soonest > Instant::now().into_std() =>
            {
                Some(self.failed_error(desk))
            }
            _ => None,
        })
        .await
    }

    /// Waits until nothing of a removed slot is left.
    pub(crate) async fn until_gone(&self) {
        loop {
            let moved = self.phase_changed.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            if self.is_gone.load(Ordering::Acquire) {
                return;
            }
            moved.await;
        }
    }

    /// Makes the error for a list that timed out.
    pub(crate) fn list_timed_out_error(&self, after: Duration) -> CallError {
        match self.live() {
            // A session that began meanwhile has used part of the time for its start.
            Some(live) if live.since.elapsed() >= after => {
                CallError::TimedOut { server: self.key.server.clone(), after, delivery: Delivery::Unknown }
            }
            _ => self.not_ready_error(),
        }
    }

    /// Makes the error for a session that refuses more requests.
    pub(crate) fn congested_error(&self) -> CallError {
        let what = format!("server `{}` does not read its requests", self.key.server);
        CallError::Overloaded { what, retry_after: Duration::from_secs(1) }
    }

    /// Makes the error for a read or an unsent call that can't be retried any more.
    pub(crate) fn lost_error(&self, fault: &Fault) -> CallError {
        let state = match fault.delivery {
            Delivery::Unknown | Delivery::Answered => UnavailableState::Lost,
            Delivery::NotSent | Delivery::Rejected => UnavailableState::Backoff,
        };
        self.unavailable_error(state, fault.to_string(), None)
    }

    /// Makes the error for a request that a server has rejected for now.
    pub(crate) fn paused_error(
        &self,
        state: UnavailableState,
        fault: &Fault,
        retry_after: Option<Duration>,
    ) -> CallError {
        self.unavailable_error(state, fault.to_string(), retry_after)
    }

    /// Makes the error for a coalesced read that ended without a result.
    pub(crate) fn shutting_down_error(&self) -> CallError {
        shutting_down(self.key.server.clone())
    }
}

/// Makes the error of a host that shuts down.
pub(crate) fn shutting_down(server: ServerName) -> CallError {
    let (state, cause) = (UnavailableState::Stopped, "the host is shutting down".into());
    CallError::Unavailable(Unavailable::new(server, state, cause, None))
}

//! What a slot knows and says of itself.

use std::borrow::Cow;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use ostler_core::caller::Caller;
use ostler_core::error::{CallError, Unavailable, UnavailableState};
use ostler_core::fault::{Delivery, Fault, FaultKind};
use ostler_core::name::ServerName;
use ostler_core::sabotage;
use ostler_core::spec::{CacheScopeRule, Isolation};
use ostler_core::supervisor::{Entry, Phase};
use ostler_core::weigh::{Effect, Outcome, weigh};
use ostler_wire::{Era, Hello};
use tokio::time::{Instant, timeout, timeout_at};

use super::known::Known;
use super::shelf::Shelf;
use super::slot::{Desk, Live, Slot};
use crate::bus::ServerEvent;
use crate::lists::Kind;
use crate::options::StartPatience;
use crate::upstream::Event;

impl Slot {
    pub(crate) fn shelf(&self, kind: Kind) -> &Shelf {
        &self.shelves[kind.index()]
    }

    /// The last list, however old.
    pub(crate) fn known(&self, kind: Kind) -> Option<Arc<Known>> {
        self.shelf(kind).known()
    }

    /// The last list that the caller may see, however old.
    pub(crate) fn known_to(&self, caller: &Caller, kind: Kind) -> Option<Arc<Known>> {
        self.shelf(kind).known_to(caller.principal())
    }

    /// Whether a list that was just received is only for who asked for it: its
    /// server says so, or the operator. A place that is not shared has one
    /// caller, and servers of the older revisions know only one client, which
    /// all callers of a shared process are together.
    pub(crate) fn is_private(&self, known: &Known) -> bool {
        let is_modern = || self.hello().is_some_and(|hello| hello.era == Era::Modern);
        let is_said = self.spec.cache_scope == CacheScopeRule::Private || (!known.is_public && is_modern());
        is_said && self.has_several_callers()
    }

    /// The list, if it need not be asked for again.
    pub(crate) fn fresh_list(&self, caller: &Caller, kind: Kind) -> Option<Arc<Known>> {
        let known = self.known_to(caller, kind)?;
        let generation = self.desk().supervisor.generation();
        known.is_fresh(generation).then_some(known)
    }

    /// Whether the live session says that there is no such list. Tools are
    /// asked for all the same: most servers are nothing else, and one that
    /// forgets to say so loses nothing.
    pub(crate) fn surely_lacks(&self, kind: Kind) -> bool {
        kind != Kind::Tools
            && self.live().is_some_and(|live| !live.session.hello().has_capability(kind.capability()))
    }

    /// Takes a list that was just received; true if it is not what was known.
    /// A change that the server did not announce is told here, and so is the
    /// first list of all where somebody was answered without it.
    pub(crate) fn learn(&self, kind: Kind, known: Arc<Known>) -> bool {
        let shelf = self.shelf(kind);
        // What somebody else was shown says nothing about what has changed.
        let before = match known.owner() {
            Some(owner) => shelf.known_to(owner),
            None => shelf.known(),
        };
        let is_empty = known.items.is_empty();
        let last = before.clone().or_else(|| shelf.known());
        let is_news = last.is_none_or(|last| last.items != known.items);
        shelf.learn(Arc::clone(&known));
        let was_missed = shelf.is_missed.swap(false, Ordering::AcqRel);
        if !is_news {
            return false;
        }
        self.bus.raise_version();
        let is_untold = match before {
            Some(before) => !before.is_outdated(),
            None => was_missed && !is_empty,
        };
        if is_untold {
            let others = shelf.all().into_iter().filter(|other| !Arc::ptr_eq(other, &known));
            others.for_each(|other| other.outdate());
            self.forget_answers(&kind.change());
            self.tell(kind.change());
        }
        true
    }

    /// What the last session said of itself.
    pub(crate) fn hello(&self) -> Option<Arc<Hello>> {
        self.last_hello.load_full()
    }

    /// Tells whoever listens.
    fn tell(&self, event: Event) {
        let (server, partition) = (self.key.server.clone(), Arc::clone(&self.key.partition));
        self.bus.tell(ServerEvent { server, partition, event });
    }

    /// Raised before every invalidation; an answer asked for under another
    /// epoch is not remembered.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    pub(crate) fn raise_epoch(&self) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether any answer of this server has ever been remembered.
    pub(crate) fn has_memories(&self) -> bool {
        self.has_memories.load(Ordering::Acquire)
    }

    /// Lets the cache count the requests for which nobody looked into it.
    pub(crate) fn settle_misses(&self) {
        let misses = self.misses.swap(0, Ordering::Relaxed);
        if misses > 0 {
            let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
            cache.count_misses(&self.key.server, misses);
        }
    }

    pub(crate) fn note_memory(&self) {
        self.has_memories.store(true, Ordering::Release);
    }

    /// Whose private answers a caller may be given: those of its own place, or
    /// where callers share one, its own there.
    pub(crate) fn owner<'a>(&'a self, caller: &'a Caller) -> Cow<'a, str> {
        sabotage!(UnpartitionedCache, return "".into());
        match self.spec.isolation {
            Isolation::Shared => caller.principal().into(),
            Isolation::Workspace => format!("{}\0{}", self.key.partition, caller.principal()).into(),
            Isolation::Caller | Isolation::Session => (&*self.key.partition).into(),
        }
    }

    /// Returns whether a start waits for a place in the process pool.
    pub(crate) fn lacks_room(&self) -> bool {
        self.startup.load().as_ref().is_some_and(|startup| startup.lacks_room())
    }

    /// Returns whether a start is under way that will end by itself. One that waits for a place in the process pool may not.
    pub(crate) fn is_coming_up(&self) -> bool {
        self.startup.load().as_ref().is_some_and(|startup| !startup.lacks_room())
    }

    /// Returns whether the last start failed and lists are better answered without the next one. A host that serves one
    /// command has no later list.
    pub(crate) fn has_failed_start(&self) -> bool {
        self.start_patience != StartPatience::Once && self.desk().supervisor.has_failed_start()
    }

    /// Whether a session is up or on its way.
    pub(crate) fn is_active(&self) -> bool {
        matches!(self.desk().supervisor.phase(), Phase::Ready { .. } | Phase::Starting { .. })
    }

    /// Whether the live session will tell when a list changes.
    pub(crate) fn is_announced(&self, kind: Kind) -> bool {
        self.live().is_some_and(|live| {
            live.session.hello().has_capability(kind.announcement()) && live.session.hears_changes(kind)
        })
    }

    /// The session in use.
    pub(crate) fn live(&self) -> Option<Arc<Live>> {
        self.desk().live.clone()
    }

    /// Takes what the server says without being asked: what is known of its
    /// lists and what is remembered is not what it was.
    pub(crate) fn hear(&self, event: Event) {
        self.forget_answers(&event);
        for kind in Kind::ALL.into_iter().filter(|kind| kind.change() == event) {
            // Before anybody hears of it: a list that is asked for from now on is newer.
            self.shelf(kind).changes.fetch_add(1, Ordering::AcqRel);
            self.shelf(kind).all().iter().for_each(|known| known.outdate());
        }
        self.tell(event);
    }

    /// A list as this very session gives it to a caller, if it is known.
    pub(crate) fn list_of_session(
        &self,
        caller: &Caller,
        (kind, generation): (Kind, u64),
    ) -> Option<Arc<Known>> {
        let changes = self.shelf(kind).changes.load(Ordering::Acquire);
        self.known_to(caller, kind).filter(|known| known.is_of(generation, changes))
    }

    /// The server has forgotten the session, so that the one that goes on under
    /// its number is another server's for all that is known.
    pub(crate) fn doubt_lists(&self) {
        for kind in Kind::ALL {
            self.shelf(kind).changes.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// A list is judged otherwise from now on.
    pub(crate) fn tell_repinned(&self, kind: Kind) {
        self.forget_answers(&kind.change());
        self.tell(kind.change());
    }

    /// Forgets the answers that an event makes doubtful.
    fn forget_answers(&self, event: &Event) {
        let methods: &[&str] = match event {
            Event::ToolsChanged => &["tools/list", "tools/call", "server/discover"],
            Event::ResourcesChanged => &["resources/list", "resources/templates/list", "resources/read"],
            Event::ResourceUpdated(_) => &["resources/read"],
            Event::PromptsChanged => &["prompts/list"],
            Event::Log(_) | Event::Other { .. } => return,
        };
        self.raise_epoch();
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        for method in methods {
            cache.purge_method(&self.key.server, method);
        }
    }

    /// Waits until a session that failed a call is no longer handed out. The
    /// session's own watcher sees its end within moments; this only keeps the
    /// caller from meeting it again before that.
    pub(crate) async fn outlive(&self, generation: u64, fault: &Fault, until: Instant) {
        let is_over = weigh(&Outcome::Fault(&fault.kind)).effect == Effect::Restart;
        if !is_over && fault.kind != FaultKind::Retired {
            return;
        }
        loop {
            let moved = self.moved.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            if self.desk().supervisor.entry(Instant::now().into_std()) != Entry::Open(generation) {
                return;
            }
            if timeout_at(until, moved).await.is_err() {
                return;
            }
        }
    }

    /// Waits until what there is at the desk is of interest.
    pub(crate) async fn until<T>(&self, look: impl Fn(&Desk) -> Option<T>) -> T {
        loop {
            let moved = self.moved.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            if let Some(found) = look(&self.desk()) {
                return found;
            }
            moved.await;
        }
    }

    /// Waits for a start that is due or under way, whatever comes of it. The start has a limit of its own; a place in the
    /// process pool is waited for no longer than a call may take.
    pub(crate) async fn until_started(&self) {
        let is_over = |desk: &Desk| {
            (!matches!(desk.supervisor.phase(), Phase::Idle | Phase::Starting { .. })).then_some(())
        };
        while timeout(self.spec.call_timeout, self.until(is_over)).await.is_err() && self.is_coming_up() {}
    }

    /// Waits until a start has failed and the next one is not due yet, and tells why. A session that was lost is no
    /// failed start: the next one may be moments away.
    pub(crate) async fn until_start_failed(&self) -> CallError {
        self.until(|desk| match desk.supervisor.phase() {
            Phase::Backoff { soonest, is_start_failure: true, .. }
                if *soonest > Instant::now().into_std() =>
            {
                Some(self.failed(desk))
            }
            _ => None,
        })
        .await
    }

    /// Waits until nothing of a removed slot is left.
    pub(crate) async fn until_gone(&self) {
        loop {
            let moved = self.moved.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            if self.gone.load(Ordering::Acquire) {
                return;
            }
            moved.await;
        }
    }

    /// The error for a list that was not there in time.
    pub(crate) fn list_timed_out(&self, after: Duration) -> CallError {
        match self.live() {
            // A session that began meanwhile has taken part of the time for its start.
            Some(live) if live.since.elapsed() >= after => {
                CallError::TimedOut { server: self.key.server.clone(), after, delivery: Delivery::Unknown }
            }
            _ => self.late(),
        }
    }

    /// The error for a session that refuses more requests.
    pub(crate) fn congested(&self) -> CallError {
        let what = format!("server `{}` does not read its requests", self.key.server);
        CallError::Overloaded { what, retry_after: Duration::from_secs(1) }
    }

    /// The error for a read or an unsent call that can't be repeated any more.
    pub(crate) fn lost(&self, fault: &Fault) -> CallError {
        let state = match fault.delivery {
            Delivery::Unknown | Delivery::Answered => UnavailableState::Lost,
            Delivery::NotSent | Delivery::Rejected => UnavailableState::Backoff,
        };
        self.unavailable(state, fault.to_string(), None)
    }

    /// The error for a request that a server has turned down for now.
    pub(crate) fn held_back(
        &self,
        state: UnavailableState,
        fault: &Fault,
        retry_after: Option<Duration>,
    ) -> CallError {
        self.unavailable(state, fault.to_string(), retry_after)
    }

    /// The error for a shared read that ended without a word.
    pub(crate) fn vanished(&self) -> CallError {
        shutting_down(self.key.server.clone())
    }
}

/// The error of a host that comes to its end.
pub(crate) fn shutting_down(server: ServerName) -> CallError {
    let (state, cause) = (UnavailableState::Stopped, "the host is shutting down".into());
    CallError::Unavailable(Unavailable::new(server, state, cause, None))
}

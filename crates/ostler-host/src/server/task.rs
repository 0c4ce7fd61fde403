//! Slot task: carries out the supervisor's decisions.
//!
//! The task alone starts and ends sessions. Everything that it waits for is one `select!`; it reports each event to
//! the slot's state and asks the supervisor for the next action.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ostler_core::fault::FaultKind;
use ostler_core::liveness::{MAX_MISSES, MissOutcome};
use ostler_core::status::StartStage;
use ostler_core::supervisor::{Action, Phase, RetireMode, ServerFailure};
use ostler_wire::Era;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::cleanup_guard::CleanupGuard;
use super::liveness_probe::LivenessProbe;
use super::session_setup::{resync_session, set_up_session};
use super::slot::{LiveSession, Slot, SlotState, StartDuration};
use super::start_record::StartRecord;
use super::startup::Startup;
use super::transitions::{BreakerCheckpoint, SessionLoss};
use crate::lifecycle_event::LifecycleEventKind;
use crate::lists::Kind;
use crate::options::StartRetry;
use crate::start_limiter::StartPermit;
use crate::upstream::{BoxFuture, CloseMode, ConnectContext, ServerSession};

/// A started session and its cleanup guard.
type Made = Result<(Arc<dyn ServerSession>, CleanupGuard), ServerFailure>;

/// A session that is starting.
struct Start {
    generation: u64,
    since: Instant,
    startup: Arc<Startup>,
    outcome: BoxFuture<'static, Made>,
}

/// State of the task, private to it.
struct SlotTask {
    slot: Arc<Slot>,
    start: Option<Start>,
    /// The session in use, if any.
    live: Option<(Arc<LiveSession>, CleanupGuard)>,
    /// Sessions that are being ended, by generation.
    ending: JoinSet<u64>,
    /// The last session that ended by itself.
    lost: u64,
    liveness_probe: LivenessProbe,
}

/// Runs until the slot is removed and nothing of it is left.
pub(crate) async fn run(slot: Arc<Slot>) {
    let mut task = SlotTask {
        slot,
        start: None,
        live: None,
        ending: JoinSet::new(),
        lost: 0,
        liveness_probe: LivenessProbe::default(),
    };
    while task.carry_out() {
        task.wait().await;
    }
    task.slot.is_gone.store(true, Ordering::Release);
    task.slot.phase_changed.notify_waiters();
}

impl SlotTask {
    /// Performs every action that is due. Returns false when the task has ended.
    fn carry_out(&mut self) -> bool {
        let slot = Arc::clone(&self.slot);
        // A start may hold a pool permit, and releasing it takes another lock: dropped values go after the state lock
        // is released.
        let mut unwanted = Vec::new();
        let mut desk = slot.state();
        if desk.is_removed {
            // The slot stays removed, even if it was resumed meanwhile.
            desk.supervisor.on_stop();
        }
        let was_out = matches!(desk.supervisor.phase(), Phase::Ejected { .. });
        while let Some(action) = desk.supervisor.poll(Instant::now().into_std()) {
            match action {
                Action::Start { generation } => unwanted.extend(self.start(generation)),
                Action::Retire { generation, mode: manner } => self.retire(&mut desk, generation, manner),
            }
        }
        unwanted.extend(self.take_unwanted_start(&mut desk));
        desk.needs_wake = desk.supervisor.next_wake().is_none();
        desk.has_remains =
            self.start.is_some() || !self.ending.is_empty() || slot.open_cleanups.load(Ordering::Acquire) > 0;
        let (is_clean, is_removed) = (!desk.has_remains, desk.is_removed);
        let is_readmitted =
            was_out && !matches!(desk.supervisor.phase(), Phase::Ejected { .. } | Phase::Stopped);
        drop(desk);
        drop(unwanted);
        if is_readmitted {
            slot.emit_lifecycle_event(LifecycleEventKind::Readmitted);
        }
        if is_clean || is_removed {
            slot.phase_changed.notify_waiters();
        }
        !(is_clean && is_removed)
    }

    /// Begins a start, and returns the one that it replaces.
    fn start(&mut self, generation: u64) -> Option<Start> {
        let startup = Startup::new(&self.slot.spec, Arc::clone(&self.slot.stderr_log));
        self.slot.startup.store(Some(Arc::clone(&startup)));
        let outcome = Box::pin(make_session(Arc::clone(&self.slot), generation, Arc::clone(&startup)));
        self.start.replace(Start { generation, since: Instant::now(), startup, outcome })
    }

    /// Ends a start without demand; anything left of it holds its [`CleanupGuard`]. A start that only waits for its
    /// turn is cancelled as soon as the last caller that demanded it has left.
    fn take_unwanted_start(&mut self, desk: &mut SlotState) -> Option<Start> {
        let start = self.start.as_ref()?;
        if start.startup.is_queued() && !desk.supervisor.has_demand() {
            desk.supervisor.on_start_abandoned(start.generation);
        }
        let unwanted = self.start.take_if(|start| !desk.supervisor.is_starting(start.generation))?;
        self.slot.startup.store(None);
        Some(unwanted)
    }

    fn retire(&mut self, desk: &mut SlotState, generation: u64, manner: RetireMode) {
        desk.live.take_if(|live| live.generation == generation);
        let Some((live, stay)) = self.live.take_if(|(live, _)| live.generation == generation) else {
            return;
        };
        self.liveness_probe = LivenessProbe::default();
        let is_hung =
            desk.supervisor.failure().is_some_and(|failure| matches!(failure.kind, FaultKind::Hung(_)));
        let force = if manner == RetireMode::Now && is_hung { CloseMode::Kill } else { CloseMode::Graceful };
        let patience = desk.drain;
        self.ending.spawn(async move {
            if manner == RetireMode::Drain {
                // Calls still in flight after that end as unknown.
                let _ = timeout(patience, live.drained()).await;
            }
            live.session.close(force).await;
            drop(stay);
            generation
        });
    }

    async fn wait(&mut self) {
        let Self { slot, start, live, ending, liveness_probe: pulse, .. } = self;
        let current = live.as_ref().map(|(live, _)| live);
        let alarm = {
            let desk = slot.state();
            let look = current.and_then(|live| pulse.next_check(&desk.liveness, live, &slot.spec));
            [desk.supervisor.next_wake().map(Instant::from_std), look].into_iter().flatten().min()
        };
        // Each branch is cancel-safe: the futures live in the task or can be polled again, and only completed results
        // are acted upon. `biased` removes randomness, so that a run can be repeated; `wake_task`, which callers may
        // notify at any rate, comes last.
        tokio::select! {
            biased;
            failure = ended(current) => self.on_ended(failure),
            made = finished(start) => self.on_start_over(made),
            Some(closed) = ending.join_next() => self.on_closed(closed.unwrap_or_default()),
            is_alive = pulse.is_answered() => self.on_probe_finished(is_alive),
            () = sleep_until_alarm(alarm) => pulse.probe_if_silent(slot, current),
            () = slot.wake_task.notified() => {}
        }
    }

    fn on_start_over(&mut self, made: Made) {
        let Some(Start { generation, since, startup, .. }) = self.start.take() else { return };
        match made {
            Ok((session, stay)) => {
                let took = startup.age();
                self.slot.last_good_start.set(StartRecord { era: session.server_info().era, took });
                let start = StartDuration { waited: since.elapsed().saturating_sub(took), took };
                self.on_started(LiveSession::new(generation, session, start), stay, since);
            }
            Err(failure) => {
                tracing::warn!(server = %self.slot.key.server, generation, %failure, "the server did not start");
                let news = self.slot.update(|SlotState { supervisor, rng, .. }| {
                    let (before, now) = (BreakerCheckpoint::take(supervisor), failure.at);
                    let setback =
                        supervisor.is_starting(generation).then_some(SessionLoss::StartFailed(generation));
                    supervisor.on_start_failed(generation, failure, rng);
                    before.transition(supervisor, setback, now)
                });
                self.slot.emit_transition(news);
            }
        }
        self.slot.startup.store(None);
    }

    fn on_started(&mut self, live: Arc<LiveSession>, stay: CleanupGuard, since: Instant) {
        let generation = live.generation;
        self.live = Some((Arc::clone(&live), stay));
        self.liveness_probe = LivenessProbe::default();
        let slot = Arc::clone(&self.slot);
        slot.last_server_info.store(Some(Arc::new(live.session.server_info().clone())));
        let pid = live.session.stats().pid;
        let is_wanted = slot.update(|desk| {
            desk.liveness.on_answer();
            let is_wanted = desk.supervisor.on_started(generation, Instant::now().into_std());
            desk.live = is_wanted.then_some(live);
            is_wanted
        });
        slot.emit_lifecycle_event(LifecycleEventKind::Started { generation, pid, took: since.elapsed() });
        if is_wanted {
            set_up_session(&slot);
        } else {
            self.retire(&mut slot.state(), generation, RetireMode::Now);
        }
    }

    fn on_ended(&mut self, failure: ServerFailure) {
        let Some(generation) = self.live.as_ref().map(|(live, _)| live.generation) else { return };
        tracing::warn!(server = %self.slot.key.server, generation, %failure, "the server ended");
        self.on_session_lost(generation, failure);
    }

    fn on_session_lost(&mut self, generation: u64, failure: ServerFailure) {
        let slot = Arc::clone(&self.slot);
        let now = failure.at;
        let (was_current, news) = slot.update(|desk| {
            desk.live.take_if(|live| live.generation == generation);
            let before = BreakerCheckpoint::take(&desk.supervisor);
            let was_current = desk.supervisor.on_lost(generation, failure, &mut desk.rng);
            let setback = was_current.then_some(SessionLoss::Lost(generation));
            (was_current, before.transition(&desk.supervisor, setback, now))
        });
        if was_current {
            self.lost = generation;
        } else {
            // It was ending already; the rest of it goes now.
            self.retire(&mut slot.state(), generation, RetireMode::Now);
        }
        slot.emit_transition(news);
    }

    fn on_probe_finished(&mut self, is_alive: bool) {
        let Some((live, _)) = &self.live else { return };
        if is_alive {
            self.slot.state().liveness.on_answer();
            return;
        }
        let missed = self.slot.state().liveness.on_miss();
        if missed == MissOutcome::Hung {
            let generation = live.generation;
            let mut failure = ServerFailure::new(FaultKind::Hung(MAX_MISSES), Instant::now().into_std());
            failure.attach_stderr(live.session.stats().stderr);
            tracing::warn!(server = %self.slot.key.server, generation, %failure, "the server hangs");
            self.on_session_lost(generation, failure);
        }
    }

    fn on_closed(&mut self, generation: u64) {
        self.slot.update(|desk| desk.supervisor.on_closed(generation));
        if generation != self.lost {
            self.slot.emit_lifecycle_event(LifecycleEventKind::Ended { generation });
        }
    }
}

/// Waits for the turn of the start, then for the session.
async fn make_session(slot: Arc<Slot>, generation: u64, startup: Arc<Startup>) -> Made {
    let last = slot.last_good_start.get().await;
    startup.set_expected_duration(last.map(|last| last.took));
    let is_awaited = match slot.start_retry {
        StartRetry::Once => false,
        StartRetry::Budget => last.is_some(),
        StartRetry::UntilReached => true,
    };
    if is_awaited {
        slot.state().supervisor.on_started_before();
    }
    let mut permit = StartPermit::default();
    let mut place = None;
    if slot.connector.has_process() {
        let gate = &slot.process_pool.start_limiter;
        // A package that started once is in the package manager's cache.
        let download = slot.spec.downloader().filter(|_| last.is_none());
        if let Some(downloader) = download {
            permit = gate.acquire_download(downloader, &startup).await;
        }
        place = Some(slot.process_pool.acquire(&slot, generation, &startup).await);
        gate.acquire(&mut permit, &startup).await;
        startup.enter_stage(if download.is_some() { StartStage::Fetching } else { StartStage::Starting });
    } else {
        startup.enter_stage(StartStage::Starting);
    }
    let stay = CleanupGuard::new(Arc::clone(&slot), place);
    let plan =
        connect_context(&slot, generation, (stay.clone(), Arc::clone(&startup)), last.map(|last| last.era));
    let mut connect = slot.connector.connect(plan);
    loop {
        tokio::select! {
            biased;
            outcome = &mut connect => return Ok((outcome?, stay)),
            looked = startup.watch() => looked?,
        }
        permit.release_unneeded(&startup);
    }
}

/// Makes the context that a connector gets for a session.
fn connect_context(
    slot: &Arc<Slot>,
    generation: u64,
    (stay, startup): (CleanupGuard, Arc<Startup>),
    era: Option<Era>,
) -> ConnectContext {
    let listener = Arc::downgrade(slot);
    let events = move |event| {
        if let Some(slot) = listener.upgrade() {
            slot.on_notification(event);
        }
    };
    let lists = Arc::downgrade(slot);
    let definitions = move |tool: &str| {
        let lists = lists.upgrade()?.list_cache(Kind::Tools).all();
        lists.iter().rev().find_map(|known| known.definition(tool))
    };
    let forgotten = Arc::downgrade(slot);
    let renewed = move || {
        if let Some(slot) = forgotten.upgrade() {
            resync_session(&slot);
        }
    };
    let listed = Arc::downgrade(slot);
    let doubted = move || {
        if let Some(slot) = listed.upgrade() {
            slot.mark_lists_stale();
        }
    };
    ConnectContext {
        generation,
        notification_sink: Arc::new(events),
        workspace: slot.workspace(),
        cleanup: stay,
        startup,
        era,
        tool_definitions: Arc::new(definitions),
        on_session_reset: Arc::new(renewed),
        on_lists_stale: Arc::new(doubted),
    }
}

async fn sleep_until_alarm(alarm: Option<Instant>) {
    match alarm {
        Some(instant) => sleep_until(instant).await,
        None => pending().await,
    }
}

async fn finished(start: &mut Option<Start>) -> Made {
    match start {
        Some(start) => (&mut start.outcome).await,
        None => pending().await,
    }
}

async fn ended(live: Option<&Arc<LiveSession>>) -> ServerFailure {
    match live {
        Some(live) => live.session.ended().await,
        None => pending().await,
    }
}

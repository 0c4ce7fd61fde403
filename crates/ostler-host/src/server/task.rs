//! A slot's task: carries out what the supervisor decides.
//!
//! It alone starts and ends sessions. Everything it waits for is one
//! `select!`; whatever happens, it reports it to the desk and asks the
//! supervisor what to do next.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ostler_core::fault::FaultKind;
use ostler_core::liveness::{MISSES, Missed};
use ostler_core::status::Stage;
use ostler_core::supervisor::{Action, Failure, Manner, Phase};
use ostler_wire::Era;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::greet::{greet, repeat};
use super::news::{Before, Setback};
use super::pulse::Pulse;
use super::slot::{Desk, Live, Slot};
use super::start_record::StartRecord;
use super::startup::Startup;
use super::stay::Stay;
use crate::happening::What;
use crate::lists::Kind;
use crate::options::StartPatience;
use crate::start_gate::StartPermit;
use crate::upstream::{BoxFuture, Force, Plan, Session};

/// A session that has been made, and the sign that something of it is left.
type Made = Result<(Arc<dyn Session>, Stay), Failure>;

/// A session on its way.
struct Start {
    generation: u64,
    since: Instant,
    startup: Arc<Startup>,
    outcome: BoxFuture<'static, Made>,
}

/// What the task works with; nobody else sees it.
struct Task {
    slot: Arc<Slot>,
    start: Option<Start>,
    /// The session in use, if any.
    live: Option<(Arc<Live>, Stay)>,
    /// Sessions that are being ended, by generation.
    ending: JoinSet<u64>,
    /// The last session that ended by itself.
    lost: u64,
    pulse: Pulse,
}

/// Runs until the slot is removed and nothing of it is left.
pub(crate) async fn run(slot: Arc<Slot>) {
    let mut task =
        Task { slot, start: None, live: None, ending: JoinSet::new(), lost: 0, pulse: Pulse::default() };
    while task.carry_out() {
        task.wait().await;
    }
    task.slot.gone.store(true, Ordering::Release);
    task.slot.moved.notify_waiters();
}

impl Task {
    /// Does everything there is to do now; false when the task is over.
    fn carry_out(&mut self) -> bool {
        let slot = Arc::clone(&self.slot);
        // A start may hold room, and giving room back takes another lock:
        // what is dropped goes after the desk has been left.
        let mut unwanted = Vec::new();
        let mut desk = slot.desk();
        if desk.is_removed {
            // Whoever resumed it meanwhile came too late.
            desk.supervisor.on_stop();
        }
        let was_out = matches!(desk.supervisor.phase(), Phase::Ejected { .. });
        while let Some(action) = desk.supervisor.poll(Instant::now().into_std()) {
            match action {
                Action::Start { generation } => unwanted.extend(self.start(generation)),
                Action::Retire { generation, manner } => self.retire(&mut desk, generation, manner),
            }
        }
        unwanted.extend(self.take_unwanted_start(&mut desk));
        desk.needs_wake = desk.supervisor.next_wake().is_none();
        desk.has_remains =
            self.start.is_some() || !self.ending.is_empty() || slot.stays.load(Ordering::Acquire) > 0;
        let (is_clean, is_removed) = (!desk.has_remains, desk.is_removed);
        let is_readmitted =
            was_out && !matches!(desk.supervisor.phase(), Phase::Ejected { .. } | Phase::Stopped);
        drop(desk);
        drop(unwanted);
        if is_readmitted {
            slot.happened(What::Readmitted);
        }
        if is_clean || is_removed {
            slot.moved.notify_waiters();
        }
        !(is_clean && is_removed)
    }

    /// Begins a start, and returns the one that it replaces.
    fn start(&mut self, generation: u64) -> Option<Start> {
        let startup = Startup::new(&self.slot.spec);
        self.slot.startup.store(Some(Arc::clone(&startup)));
        self.slot.latest_start.store(Some(Arc::clone(&startup)));
        let outcome = Box::pin(make_session(Arc::clone(&self.slot), generation, Arc::clone(&startup)));
        self.start.replace(Start { generation, since: Instant::now(), startup, outcome })
    }

    /// A start that nobody wants any more ends here; what is left of it keeps
    /// its [`Stay`]. One that only waits for its turn is given up as soon as
    /// the last caller that wanted it has left.
    fn take_unwanted_start(&mut self, desk: &mut Desk) -> Option<Start> {
        let start = self.start.as_ref()?;
        if start.startup.is_queued() && !desk.supervisor.has_demand() {
            desk.supervisor.on_start_abandoned(start.generation);
        }
        let unwanted = self.start.take_if(|start| !desk.supervisor.is_starting(start.generation))?;
        self.slot.startup.store(None);
        Some(unwanted)
    }

    fn retire(&mut self, desk: &mut Desk, generation: u64, manner: Manner) {
        desk.live.take_if(|live| live.generation == generation);
        let Some((live, stay)) = self.live.take_if(|(live, _)| live.generation == generation) else {
            return;
        };
        self.pulse = Pulse::default();
        let is_hung =
            desk.supervisor.failure().is_some_and(|failure| matches!(failure.kind, FaultKind::Hung(_)));
        let force = if manner == Manner::Now && is_hung { Force::Kill } else { Force::Gentle };
        let patience = desk.drain;
        self.ending.spawn(async move {
            if manner == Manner::Drain {
                // Calls that are still out after that end as unknown.
                let _ = timeout(patience, live.drained()).await;
            }
            live.session.close(force).await;
            drop(stay);
            generation
        });
    }

    async fn wait(&mut self) {
        let Self { slot, start, live, ending, pulse, .. } = self;
        let current = live.as_ref().map(|(live, _)| live);
        let alarm = {
            let desk = slot.desk();
            let look = current.and_then(|live| pulse.next_look(&desk.liveness, live, &slot.spec));
            [desk.supervisor.next_wake().map(Instant::from_std), look].into_iter().flatten().min()
        };
        // Each branch is cancel-safe: the futures live in the task or can be
        // asked again, and only what has been taken is acted upon. What comes
        // first has no chance in it, so that a run can be repeated; the bell,
        // which callers may ring at any rate, comes last.
        tokio::select! {
            biased;
            failure = ended(current) => self.on_ended(failure),
            made = finished(start) => self.on_start_over(made),
            Some(closed) = ending.join_next() => self.on_closed(closed.unwrap_or_default()),
            is_alive = pulse.answer() => self.on_pulse(is_alive),
            () = at(alarm) => pulse.feel(slot, current),
            () = slot.bell.notified() => {}
        }
    }

    fn on_start_over(&mut self, made: Made) {
        let Some(Start { generation, since, startup, .. }) = self.start.take() else { return };
        match made {
            Ok((session, stay)) => {
                let record = StartRecord { era: session.hello().era, took: startup.age() };
                self.slot.last_start.set(record);
                self.on_started(Live::new(generation, session), stay, since);
            }
            Err(failure) => {
                tracing::warn!(server = %self.slot.key.server, generation, %failure, "the server did not start");
                let news = self.slot.change(|Desk { supervisor, rng, .. }| {
                    let (before, now) = (Before::of(supervisor), failure.at);
                    let setback =
                        supervisor.is_starting(generation).then_some(Setback::StartFailed(generation));
                    supervisor.on_start_failed(generation, failure, rng);
                    before.news(supervisor, setback, now)
                });
                self.slot.announce(news);
            }
        }
        self.slot.startup.store(None);
    }

    fn on_started(&mut self, live: Arc<Live>, stay: Stay, since: Instant) {
        let generation = live.generation;
        self.live = Some((Arc::clone(&live), stay));
        self.pulse = Pulse::default();
        let slot = Arc::clone(&self.slot);
        slot.last_hello.store(Some(Arc::new(live.session.hello().clone())));
        let pid = live.session.vitals().pid;
        let is_wanted = slot.change(|desk| {
            desk.liveness.on_answer();
            let is_wanted = desk.supervisor.on_started(generation, Instant::now().into_std());
            desk.live = is_wanted.then_some(live);
            is_wanted
        });
        slot.happened(What::Started { generation, pid, took: since.elapsed() });
        if is_wanted {
            greet(&slot);
        } else {
            self.retire(&mut slot.desk(), generation, Manner::Now);
        }
    }

    fn on_ended(&mut self, failure: Failure) {
        let Some(generation) = self.live.as_ref().map(|(live, _)| live.generation) else { return };
        tracing::warn!(server = %self.slot.key.server, generation, %failure, "the server ended");
        self.lose(generation, failure);
    }

    fn lose(&mut self, generation: u64, failure: Failure) {
        let slot = Arc::clone(&self.slot);
        let now = failure.at;
        let (was_current, news) = slot.change(|desk| {
            desk.live.take_if(|live| live.generation == generation);
            let before = Before::of(&desk.supervisor);
            let was_current = desk.supervisor.on_lost(generation, failure, &mut desk.rng);
            let setback = was_current.then_some(Setback::Lost(generation));
            (was_current, before.news(&desk.supervisor, setback, now))
        });
        if was_current {
            self.lost = generation;
        } else {
            // It was on its way out already; what is left of it goes now.
            self.retire(&mut slot.desk(), generation, Manner::Now);
        }
        slot.announce(news);
    }

    fn on_pulse(&mut self, is_alive: bool) {
        let Some((live, _)) = &self.live else { return };
        if is_alive {
            self.slot.desk().liveness.on_answer();
            return;
        }
        let missed = self.slot.desk().liveness.on_miss();
        if missed == Missed::Hung {
            let generation = live.generation;
            let mut failure = Failure::new(FaultKind::Hung(MISSES), Instant::now().into_std());
            failure.quote(live.session.vitals().stderr);
            tracing::warn!(server = %self.slot.key.server, generation, %failure, "the server hangs");
            self.lose(generation, failure);
        }
    }

    fn on_closed(&mut self, generation: u64) {
        self.slot.change(|desk| desk.supervisor.on_closed(generation));
        if generation != self.lost {
            self.slot.happened(What::Ended { generation });
        }
    }
}

/// Waits for the turn of the start, then for the session.
async fn make_session(slot: Arc<Slot>, generation: u64, startup: Arc<Startup>) -> Made {
    let last = slot.last_start.get().await;
    startup.expect(last.map(|last| last.took));
    let is_awaited = match slot.start_patience {
        StartPatience::Once => false,
        StartPatience::Budget => last.is_some(),
        StartPatience::UntilReached => true,
    };
    if is_awaited {
        slot.desk().supervisor.on_record();
    }
    let mut permit = StartPermit::default();
    let mut place = None;
    if slot.connector.has_process() {
        let gate = &slot.room.gate;
        // What has started once is in the package manager's cache.
        let download = slot.spec.downloader().filter(|_| last.is_none());
        if let Some(downloader) = download {
            permit = gate.enter_download(downloader, &startup).await;
        }
        place = Some(slot.room.enter(&slot, generation, &startup).await);
        gate.enter(&mut permit, &startup).await;
        startup.enter(if download.is_some() { Stage::Fetching } else { Stage::Starting });
    } else {
        startup.enter(Stage::Starting);
    }
    let stay = Stay::new(Arc::clone(&slot), place);
    let plan = plan(&slot, generation, (stay.clone(), Arc::clone(&startup)), last.map(|last| last.era));
    let mut connect = slot.connector.connect(plan);
    loop {
        tokio::select! {
            biased;
            outcome = &mut connect => return Ok((outcome?, stay)),
            looked = startup.look() => looked?,
        }
        permit.relax(&startup);
    }
}

/// Makes what a connector is told about a session.
fn plan(slot: &Arc<Slot>, generation: u64, (stay, startup): (Stay, Arc<Startup>), era: Option<Era>) -> Plan {
    let listener = Arc::downgrade(slot);
    let events = move |event| {
        if let Some(slot) = listener.upgrade() {
            slot.hear(event);
        }
    };
    let lists = Arc::downgrade(slot);
    let definitions = move |tool: &str| {
        let lists = lists.upgrade()?.shelf(Kind::Tools).all();
        lists.iter().rev().find_map(|known| known.definition(tool))
    };
    let forgotten = Arc::downgrade(slot);
    let renewed = move || {
        if let Some(slot) = forgotten.upgrade() {
            repeat(&slot);
        }
    };
    let listed = Arc::downgrade(slot);
    let doubted = move || {
        if let Some(slot) = listed.upgrade() {
            slot.doubt_lists();
        }
    };
    Plan {
        generation,
        events: Arc::new(events),
        workspace: slot.workspace(),
        stay,
        startup,
        era,
        definitions: Arc::new(definitions),
        renewed: Arc::new(renewed),
        doubted: Arc::new(doubted),
    }
}

async fn at(alarm: Option<Instant>) {
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

async fn ended(live: Option<&Arc<Live>>) -> Failure {
    match live {
        Some(live) => live.session.ended().await,
        None => pending().await,
    }
}

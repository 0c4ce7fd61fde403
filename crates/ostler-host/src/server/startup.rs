//! Startup: one start under way, as limits, callers and operators see it.
//!
//! A start first waits for its turn, which counts against no limit, and then runs. It is over its limit when the limit has
//! passed and the process tree has been idle for a moment, or when five times the limit has passed: a download or an
//! import that makes progress is not a hung server.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ostler_core::downloader::Downloader;
use ostler_core::fault::FaultKind;
use ostler_core::name::ServerName;
use ostler_core::remedy;
use ostler_core::spec::ServerSpec;
use ostler_core::status::{Stage, StartStatus};
use ostler_core::stderr_cause::Complaint;
use ostler_core::supervisor::Failure;
use tokio::time::{Instant, sleep, sleep_until};

use crate::upstream::stdio::{LogLine, StderrTail, Usage, listening_port};

/// Time between two readings of the process tree: short against the time that a start takes, and some hundred system
/// calls each.
const LOOK: Duration = Duration::from_millis(500);

/// Idle time after which a start that is over its limit is hung; a quarter of shorter limits.
const QUIET: Duration = Duration::from_secs(5);

/// The same for a command that may be downloading: what it reads from a socket does not show, and a slow download is
/// written to disk once in a while.
const DOWNLOAD_QUIET: Duration = Duration::from_secs(60);

/// Time between two looks for signs of an HTTP server; an eighth of shorter limits. It is told of when two in a row find
/// one: a server that speaks on stdio as well has answered by then.
const HTTP_LOOK: Duration = Duration::from_secs(5);

/// How much longer a busy start may take than an idle one.
const BUSY_FACTOR: u32 = 5;

/// Longest time for which one start keeps others waiting for a turn: a server that spins must not hold up the rest.
const LONGEST_TURN: Duration = Duration::from_secs(30);

/// The same for downloads: one that never ends must not keep every other server of its package manager away.
const LONGEST_DOWNLOAD_TURN: Duration = Duration::from_secs(90);

/// One start under way.
pub struct Startup {
    server: ServerName,
    /// The package manager that may have to download the server first.
    downloader: Option<Downloader>,
    state: Mutex<State>,
}

struct State {
    stage: Stage,
    /// Time that the start may take while its processes are idle.
    limit: Duration,
    /// When the stage began.
    since: Instant,
    process: Option<StartingProcess>,
    /// The last reading of the process tree, and of the bytes written to stderr.
    seen: (Usage, u64),
    /// When the tree was last seen to have done anything.
    active: Instant,
    /// Whether the tree used no CPU between the last two readings.
    is_cpu_idle: bool,
    /// When signs of an HTTP server were last looked for.
    http_looked: Instant,
    http: HttpSigns,
}

/// Signs of a program that listens for HTTP in place of speaking on stdio.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum HttpSigns {
    #[default]
    None,
    /// Seen at the last look.
    Seen,
    /// Seen twice in a row; the port it listens on, if that is known.
    Certain(Option<u16>),
}

/// The process of a start.
#[derive(Debug, Clone)]
pub(crate) struct StartingProcess {
    pub(crate) pid: u32,
    /// Root of the process tree: the guard, to which orphans of the server fall, or the server itself.
    pub(crate) root: u32,
    pub(crate) stderr: Arc<StderrTail>,
}

impl Startup {
    /// Begins a start that waits for its turn.
    pub(crate) fn new(spec: &ServerSpec) -> Arc<Self> {
        let now = Instant::now();
        let state = State {
            stage: Stage::Queued,
            limit: spec.start_limit(),
            since: now,
            process: None,
            seen: Default::default(),
            active: now,
            is_cpu_idle: false,
            http_looked: now,
            http: HttpSigns::None,
        };
        Arc::new(Self { server: spec.name.clone(), downloader: spec.downloader(), state: Mutex::new(state) })
    }

    /// Takes note how long the last good start took: one that needs about as long again is no reason to give up.
    pub(crate) fn expect(&self, took: Option<Duration>) {
        let mut state = self.lock();
        let (limit, took) = (state.limit, took.unwrap_or_default());
        state.limit = limit.max(took.saturating_mul(2)).min(limit.saturating_mul(BUSY_FACTOR));
    }

    /// Returns for how long the stage has lasted.
    pub(crate) fn age(&self) -> Duration {
        self.lock().since.elapsed()
    }

    /// Moves on to another stage.
    pub(crate) fn enter(&self, stage: Stage) {
        let mut state = self.lock();
        let now = Instant::now();
        (state.stage, state.since, state.active) = (stage, now, now);
    }

    /// Returns whether the start waits for something that is not the server's: it may be given up without harm.
    pub(crate) fn is_queued(&self) -> bool {
        matches!(self.lock().stage, Stage::Queued | Stage::WaitingForRoom | Stage::WaitingForDownload)
    }

    /// Returns whether the start waits for a place in the process pool.
    pub(crate) fn lacks_room(&self) -> bool {
        self.lock().stage == Stage::WaitingForRoom
    }

    /// Names the process to watch.
    pub(crate) fn attach(&self, process: StartingProcess) {
        self.lock().process = Some(process);
    }

    /// Waits until the process tree has been idle for so long, or for a third of the limit if that is shorter.
    pub(crate) async fn idle_for(&self, span: Duration) {
        loop {
            let due = {
                let state = self.lock();
                state.active + span.min(state.limit / 3)
            };
            if due <= Instant::now() {
                return;
            }
            sleep_until(due).await;
        }
    }

    /// Waits a moment, then reads the process tree. Fails when the start is over its limit.
    pub(crate) async fn look(&self) -> Result<(), Failure> {
        let (process, limit, left) = {
            let state = self.lock();
            (state.process.clone(), state.limit, state.limit.saturating_sub(state.since.elapsed()))
        };
        match process {
            Some(process) => {
                sleep(LOOK.min(limit / 8)).await;
                let written = process.stderr.written();
                let is_due = self.is_http_look_due();
                let read = tokio::task::spawn_blocking(move || {
                    let http = is_due.then(|| (listening_port(process.root), is_http_told(&process.stderr)));
                    (Usage::of_tree(process.root), http)
                });
                let (usage, http) = read.await.unwrap_or_default();
                self.note((usage, written));
                if let Some((port, is_told)) = http {
                    self.note_http(port, is_told);
                }
            }
            // A remote server shows nothing of what it does. The process may still come.
            None => sleep(left.min(LOOK)).await,
        }
        self.check()
    }

    fn note(&self, seen: (Usage, u64)) {
        let mut state = self.lock();
        state.is_cpu_idle = state.seen.0.cpu == seen.0.cpu;
        if state.seen != seen {
            (state.seen, state.active) = (seen, Instant::now());
        }
    }

    fn is_http_look_due(&self) -> bool {
        let state = self.lock();
        let is_certain = matches!(state.http, HttpSigns::Certain(_));
        !is_certain && state.http_looked.elapsed() >= HTTP_LOOK.min(state.limit / 8)
    }

    /// Takes note of a port that the process tree listens on, and of words that say that it serves HTTP. A program that
    /// does so is not being downloaded any more.
    fn note_http(&self, port: Option<u16>, is_told: bool) {
        let mut state = self.lock();
        state.http_looked = Instant::now();
        state.http = match state.http {
            _ if port.is_none() && !is_told => HttpSigns::None,
            HttpSigns::None => HttpSigns::Seen,
            HttpSigns::Seen | HttpSigns::Certain(_) => HttpSigns::Certain(port),
        };
        if matches!(state.http, HttpSigns::Certain(_)) && state.stage == Stage::Fetching {
            state.stage = Stage::Starting;
        }
    }

    /// Returns advice for a start that is not likely to come to its end.
    fn hint(&self, state: &State) -> Option<String> {
        let HttpSigns::Certain(port) = state.http else { return None };
        Some(remedy::of_http_server(self.server.as_str(), port))
    }

    fn check(&self) -> Result<(), Failure> {
        let state = self.lock();
        let (age, quiet) = (state.since.elapsed(), state.active.elapsed());
        let idle_time = if self.downloader.is_some() { DOWNLOAD_QUIET } else { QUIET };
        let is_idle = state.process.is_none() || quiet >= idle_time.min(state.limit / 4);
        if age < state.limit || (!is_idle && age < state.limit.saturating_mul(BUSY_FACTOR)) {
            return Ok(());
        }
        let longest = state.limit.saturating_mul(BUSY_FACTOR);
        let limit = if age < longest { state.limit } else { longest };
        let mut failure = Failure::new(FaultKind::StartTimeout(limit), Instant::now().into_std());
        failure.quote(state.process.as_ref().map(|it| it.stderr.end()).unwrap_or_default());
        failure.hint = self.hint(&state).map(Into::into);
        Err(failure)
    }

    /// Returns whether the start no longer needs the machine for itself, so that another may begin.
    pub(crate) fn may_yield_turn(&self) -> bool {
        let state = self.lock();
        (state.process.is_some() && state.is_cpu_idle) || state.since.elapsed() >= LONGEST_TURN
    }

    /// Returns whether the download is over, makes no progress or has had its turn, so that another may begin.
    pub(crate) fn may_yield_download(&self) -> bool {
        let state = self.lock();
        state.active.elapsed() >= DOWNLOAD_QUIET || state.since.elapsed() >= LONGEST_DOWNLOAD_TURN
    }

    /// Returns what the server has written to stderr since a position, and the next one.
    pub(crate) fn words_since(&self, position: u64) -> (Vec<LogLine>, u64) {
        let process = self.lock().process.clone();
        process.map_or_else(|| (Vec::new(), position), |process| process.stderr.since(position))
    }

    /// Returns the start as operators see it.
    pub(crate) fn status(&self) -> StartStatus {
        let state = self.lock();
        StartStatus {
            stage: state.stage,
            downloader: self.downloader.map(|downloader| downloader.as_str().to_owned()),
            pid: state.process.as_ref().map(|process| process.pid),
            age_ms: u64::try_from(state.since.elapsed().as_millis()).unwrap_or(u64::MAX),
            stderr: state.words(),
            serves_http: matches!(state.http, HttpSigns::Certain(_)),
            hint: self.hint(&state),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether a server's output says that it listens for HTTP.
fn is_http_told(stderr: &StderrTail) -> bool {
    stderr.end().iter().any(|line| Complaint::read(line) == Some(Complaint::ServesHttp))
}

impl State {
    fn words(&self) -> Vec<String> {
        self.process.as_ref().map(|process| process.stderr.last_words()).unwrap_or_default()
    }
}

impl std::fmt::Debug for Startup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Startup").field("status", &self.status()).finish_non_exhaustive()
    }
}

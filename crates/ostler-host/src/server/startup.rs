//! Startup: one start in progress, with its limits, its progress for callers and its status for operators.
//!
//! A start first waits for its turn, which counts against no limit, and then runs. It is over its limit when the
//! limit has passed and the process tree has been idle for a moment, or when five times the limit has passed: a
//! download or an import that makes progress is not a hung server.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ostler_core::downloader::Downloader;
use ostler_core::fault::{FaultKind, PermanentCause};
use ostler_core::remedy;
use ostler_core::server_name::ServerName;
use ostler_core::spec::ServerSpec;
use ostler_core::status::{StartStage, StartStatus};
use ostler_core::stderr_cause::{KnownCause, is_http_server};
use ostler_core::supervisor::{FailureHint, ServerFailure};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep, sleep_until};

use crate::upstream::stdio::{ProcessUsage, StderrLine, StderrLog, StderrTail, listening_port};

/// Time between two readings of the process tree: short against the time that a start takes, and some hundred system
/// calls each.
const LOOK: Duration = Duration::from_millis(500);

/// Idle time after which a start that is over its limit is hung; a quarter of shorter limits.
const QUIET: Duration = Duration::from_secs(5);

/// Idle time of a command that may be downloading: its socket reads do not show, and a slow download is written to
/// disk once in a while.
const DOWNLOAD_QUIET: Duration = Duration::from_secs(60);

/// Time between two checks for signs of an HTTP server; an eighth of shorter limits. An HTTP server is reported when
/// two checks in a row find one: a server that speaks on stdio as well has answered by then.
const HTTP_LOOK: Duration = Duration::from_secs(5);

/// Idle time after which a program that was reported as an HTTP server is ended; an eighth of shorter limits.
const HTTP_QUIET: Duration = Duration::from_secs(5);

/// Factor by which a busy start may exceed the limit of an idle one.
const BUSY_FACTOR: u32 = 5;

/// Longest time for which one start keeps others waiting for a turn: a server that spins must not hold up the rest.
const LONGEST_TURN: Duration = Duration::from_secs(30);

/// Longest turn of a download: one that never ends must not block every other server of its package manager.
const LONGEST_DOWNLOAD_TURN: Duration = Duration::from_secs(90);

/// One start in progress.
pub struct Startup {
    server: ServerName,
    /// The package manager that may have to download the server first.
    downloader: Option<Downloader>,
    /// Finds the port that a process tree listens on.
    find_port: fn(u32) -> Option<u16>,
    stderr_log: Arc<StderrLog>,
    state: Mutex<StartupState>,
}

struct StartupState {
    stage: StartStage,
    /// Time that the start may take while its processes are idle.
    limit: Duration,
    /// Start of the stage.
    since: Instant,
    process: Option<StartingProcess>,
    /// The last reading of the process tree, and of the bytes written to stderr.
    last_reading: (ProcessUsage, u64),
    /// Last reading at which the tree had done anything.
    active: Instant,
    /// True if the tree used no CPU between the last two readings.
    is_cpu_idle: bool,
    /// Time of the last check for signs of an HTTP server.
    http_looked: Instant,
    http: HttpSigns,
    /// The readings in progress, at most one of each kind: no limit waits for either.
    usage_reading: Option<JoinHandle<ProcessUsage>>,
    http_reading: Option<JoinHandle<HttpCheck>>,
    /// Position in the output up to which lines of the program itself were looked for.
    read_to: u64,
    /// True once the program itself runs, so that it is not being downloaded any more.
    is_running: bool,
}

/// Signs of a program that listens for HTTP in place of speaking on stdio.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum HttpSigns {
    #[default]
    None,
    /// Found by the last check.
    Seen,
    /// Found by two checks in a row.
    Certain(HttpServer),
}

/// A program that listens for HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct HttpServer {
    /// The port it listens on, if that is known.
    port: Option<u16>,
    /// True if its output leaves no doubt, so that its start may be ended.
    is_final: bool,
    since: Instant,
}

/// Signs found by one check for an HTTP server.
#[derive(Debug, Clone, Copy, Default)]
struct HttpCheck {
    port: Option<u16>,
    is_reported: bool,
    is_final: bool,
    /// True for a check that counts towards two in a row; others only tell a program from its download.
    is_due: bool,
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
    pub(crate) fn new(spec: &ServerSpec, stderr_log: Arc<StderrLog>) -> Arc<Self> {
        let now = Instant::now();
        let state = StartupState {
            stage: StartStage::Queued,
            limit: spec.start_limit(),
            since: now,
            process: None,
            last_reading: Default::default(),
            active: now,
            is_cpu_idle: false,
            http_looked: now,
            http: HttpSigns::None,
            usage_reading: None,
            http_reading: None,
            read_to: 0,
            is_running: false,
        };
        Arc::new(Self {
            server: spec.name.clone(),
            downloader: spec.downloader(),
            find_port: listening_port,
            stderr_log,
            state: Mutex::new(state),
        })
    }

    /// Returns the log that the process of the start writes to.
    pub(crate) fn stderr_log(&self) -> &Arc<StderrLog> {
        &self.stderr_log
    }

    /// Records the duration of the last good start: a start that needs about as long is not hung.
    pub(crate) fn set_expected_duration(&self, took: Option<Duration>) {
        let mut state = self.lock();
        let (limit, took) = (state.limit, took.unwrap_or_default());
        state.limit = limit.max(took.saturating_mul(2)).min(limit.saturating_mul(BUSY_FACTOR));
    }

    /// Returns for how long the stage has lasted.
    pub(crate) fn age(&self) -> Duration {
        self.lock().since.elapsed()
    }

    /// Moves on to another stage.
    pub(crate) fn enter_stage(&self, stage: StartStage) {
        let mut state = self.lock();
        let now = Instant::now();
        (state.stage, state.since, state.active) = (stage, now, now);
    }

    /// Returns whether the start waits for something that is not the server's: it may be cancelled without harm.
    pub(crate) fn is_queued(&self) -> bool {
        matches!(
            self.lock().stage,
            StartStage::Queued | StartStage::WaitingForRoom | StartStage::WaitingForDownload
        )
    }

    /// Returns whether the start waits for a permit of the process pool.
    pub(crate) fn is_waiting_for_process(&self) -> bool {
        self.lock().stage == StartStage::WaitingForRoom
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

    /// Reads the process tree at intervals. Fails when the start is over its limit, however long a reading takes.
    pub(crate) async fn watch(&self) -> Result<(), ServerFailure> {
        let (process, limit, left) = {
            let state = self.lock();
            (state.process.clone(), state.limit, state.limit.saturating_sub(state.since.elapsed()))
        };
        match process {
            Some(process) => {
                self.begin_readings(&process);
                sleep(LOOK.min(limit / 8)).await;
                self.end_readings(&process).await;
            }
            // A remote server shows nothing of what it does. The process may still come.
            None => sleep(left.min(LOOK)).await,
        }
        self.check()
    }

    /// Begins the readings that are due and not in progress, on threads for work that blocks.
    fn begin_readings(&self, process: &StartingProcess) {
        let (root, find_port) = (process.root, self.find_port);
        let mut state = self.lock();
        if state.usage_reading.is_none() {
            state.usage_reading = Some(spawn_blocking(move || ProcessUsage::of_tree(root)));
        }
        let is_due = state.is_http_look_due();
        if state.http_reading.is_none() && (is_due || state.stage == StartStage::Fetching) {
            let stderr = Arc::clone(&process.stderr);
            let read = move || HttpCheck { is_due, ..look_for_http(&stderr, find_port(root)) };
            state.http_reading = Some(spawn_blocking(read));
        }
    }

    /// Handles the readings that have ended.
    async fn end_readings(&self, process: &StartingProcess) {
        let (usage, http) = {
            let mut state = self.lock();
            let usage = state.usage_reading.take_if(|reading| reading.is_finished());
            (usage, state.http_reading.take_if(|reading| reading.is_finished()))
        };
        match usage {
            Some(usage) => self.note((usage.await.unwrap_or_default(), process.stderr.written())),
            // A tree that takes long to read is large or the machine is busy: neither is a hung server.
            None => self.lock().active = Instant::now(),
        }
        let look = match http {
            Some(http) => http.await.unwrap_or_default(),
            None => HttpCheck::default(),
        };
        if self.is_fetching() {
            self.note_program(look.port);
        }
        if look.is_due {
            self.note_http(look);
        }
    }

    fn note(&self, seen: (ProcessUsage, u64)) {
        let mut state = self.lock();
        state.is_cpu_idle = state.last_reading.0.cpu == seen.0.cpu;
        if state.last_reading != seen {
            (state.last_reading, state.active) = (seen, Instant::now());
        }
    }

    fn is_fetching(&self) -> bool {
        self.lock().stage == StartStage::Fetching
    }

    /// Records that the program runs: it listens on a port, or a line of output is its own.
    fn note_program(&self, port: Option<u16>) {
        let read_to = self.lock().read_to;
        let (lines, read_to) = self.stderr_since(read_to);
        let is_own = |line: &StderrLine| self.downloader.is_some_and(|it| it.is_program_output(&line.text));
        let is_running = port.is_some() || lines.iter().any(is_own);
        let mut state = self.lock();
        state.read_to = read_to;
        if is_running {
            state.set_running();
        }
    }

    /// Records signs of an HTTP server. A program that shows them twice is not being downloaded any more.
    fn note_http(&self, look: HttpCheck) {
        let mut state = self.lock();
        let now = Instant::now();
        state.http_looked = now;
        state.http = match state.http {
            _ if look.port.is_none() && !look.is_reported => HttpSigns::None,
            HttpSigns::None => HttpSigns::Seen,
            HttpSigns::Seen => {
                HttpSigns::Certain(HttpServer { port: look.port, is_final: look.is_final, since: now })
            }
            HttpSigns::Certain(server) => {
                HttpSigns::Certain(HttpServer { is_final: look.is_final, ..server })
            }
        };
        if matches!(state.http, HttpSigns::Certain(_)) {
            state.set_running();
        }
    }

    /// Returns advice for a start that is not likely to come to its end.
    fn hint(&self, state: &StartupState) -> Option<String> {
        let HttpSigns::Certain(server) = state.http else { return None };
        Some(remedy::for_http_server(self.server.as_str(), server.port))
    }

    fn check(&self) -> Result<(), ServerFailure> {
        let state = self.lock();
        let (age, quiet) = (state.since.elapsed(), state.active.elapsed());
        if let Some(cause) = state.http_cause() {
            let mut failure = ServerFailure::new(cause.into(), Instant::now().into_std());
            failure
                .attach_stderr(state.process.as_ref().map(|it| it.stderr.final_lines()).unwrap_or_default());
            return Err(failure);
        }
        let idle_time = if self.downloader.is_some() { DOWNLOAD_QUIET } else { QUIET };
        let is_idle = state.process.is_none() || quiet >= idle_time.min(state.limit / 4);
        if age < state.limit || (!is_idle && age < state.limit.saturating_mul(BUSY_FACTOR)) {
            return Ok(());
        }
        let longest = state.limit.saturating_mul(BUSY_FACTOR);
        let limit = if age < longest { state.limit } else { longest };
        let mut failure = ServerFailure::new(FaultKind::StartTimeout(limit), Instant::now().into_std());
        failure.attach_stderr(state.process.as_ref().map(|it| it.stderr.final_lines()).unwrap_or_default());
        failure.hint = self.hint(&state).map(|text| Box::new(FailureHint::Text(text)));
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
        state.is_running
            || state.active.elapsed() >= DOWNLOAD_QUIET
            || state.since.elapsed() >= LONGEST_DOWNLOAD_TURN
    }

    /// Returns what the server has written to stderr since a position, and the next one.
    fn stderr_since(&self, position: u64) -> (Vec<StderrLine>, u64) {
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
            stderr: state.recent_stderr(),
            serves_http: matches!(state.http, HttpSigns::Certain(_)),
            hint: self.hint(&state),
        }
    }

    fn lock(&self) -> MutexGuard<'_, StartupState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Searches the output for signs of an HTTP server.
fn look_for_http(stderr: &StderrTail, port: Option<u16>) -> HttpCheck {
    let lines = stderr.final_lines();
    let is_told = lines.iter().any(|line| KnownCause::parse(line) == Some(KnownCause::ServesHttp));
    HttpCheck { port, is_reported: is_told, is_final: is_http_server(&lines), is_due: false }
}

impl StartupState {
    fn is_http_look_due(&self) -> bool {
        self.http_looked.elapsed() >= HTTP_LOOK.min(self.limit / 8)
    }

    /// Moves on from the download.
    fn set_running(&mut self) {
        self.is_running = true;
        if self.stage == StartStage::Fetching {
            self.stage = StartStage::Starting;
        }
    }

    /// Returns the cause of the end of an HTTP server that does nothing more: it waits for requests.
    fn http_cause(&self) -> Option<PermanentCause> {
        let HttpSigns::Certain(server) = self.http else { return None };
        let quiet = HTTP_QUIET.min(self.limit / 8);
        let is_over = server.is_final && server.since.elapsed() >= quiet && self.active.elapsed() >= quiet;
        is_over.then_some(PermanentCause::ServesHttp(server.port))
    }

    fn recent_stderr(&self) -> Vec<String> {
        self.process.as_ref().map(|process| process.stderr.recent_lines()).unwrap_or_default()
    }
}

impl std::fmt::Debug for Startup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Startup").field("status", &self.status()).finish_non_exhaustive()
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::*;

    static IS_RELEASED: AtomicBool = AtomicBool::new(false);
    static SCANS: AtomicUsize = AtomicUsize::new(0);

    /// Scans a tree without end, until the test is over.
    fn endless_scan(_: u32) -> Option<u16> {
        SCANS.fetch_add(1, Ordering::Relaxed);
        while !IS_RELEASED.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        None
    }

    /// Ends the scans, so that the runtime can end as well.
    struct Release;

    impl Drop for Release {
        fn drop(&mut self) {
            IS_RELEASED.store(true, Ordering::Relaxed);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_scan_for_http_that_does_not_end_keeps_no_start_beyond_its_limit() {
        let _release = Release;
        let mut spec = ServerSpec::stdio(ServerName::new("slow").unwrap(), "true");
        spec.start_timeout = Duration::from_secs(8);
        let mut startup = Startup::new(&spec, Arc::default());
        Arc::get_mut(&mut startup).unwrap().find_port = endless_scan;
        let pid = std::process::id();
        startup.attach(StartingProcess {
            pid,
            root: pid,
            stderr: Arc::new(StderrTail::alone(&Arc::default())),
        });
        startup.enter_stage(StartStage::Starting);
        // The first check is due to scan.
        tokio::time::advance(HTTP_LOOK).await;
        let watched = Arc::clone(&startup);
        let watch = tokio::spawn(async move {
            loop {
                if let Err(failure) = watched.watch().await {
                    return failure;
                }
            }
        });
        tokio::task::yield_now().await;
        tokio::time::advance(LOOK).await;
        while SCANS.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        // Time does not advance by itself while a scan runs. The tree is this very test, which is busy.
        while startup.age() < 6 * spec.start_timeout && !watch.is_finished() {
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        assert!(watch.is_finished(), "still starting after {:?}", startup.age());
        assert!(matches!(watch.await.unwrap().kind, FaultKind::StartTimeout(_)));
        assert_eq!(SCANS.load(Ordering::Relaxed), 1, "one scan at a time");
    }
}

//! Run: sets up the environment, runs callers and nemesis, then checks and reports.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use ostler_chaos::history::{CallRoute, HistoryEvent, Occasion};
use ostler_testkit::{NatsServer, NatsVersion, ReservedPort};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use self::caller::program_pool::ProgramPool;
use self::caller::{CallerContext, ChaosCaller, Focus, abuse};
use self::environment::config::{
    ConfigVariant, SERVERS, SHARED, SICK, SICK_FAILURES, SICK_RESET, hostile_lists,
};
use self::environment::daemon::DaemonProcess;
use self::environment::daemon_processes::DaemonProcesses;
use self::environment::testbed::{Programs, Testbed};
use self::environment::users::{NONE, SOME, TOOLS, TestUser};
use self::history_writer::{HistoryWriter, now};
use self::nemesis::{Act, Nemesis};
use self::proxy::CuttableProxy;
use self::report::{DaemonSamples, RunReport};
use self::run_folder::RunFolder;
use self::web_server::WebServer;

mod caller;
pub(crate) mod cleanup;
mod environment;
mod history_writer;
mod nemesis;
mod proxy;
mod report;
mod run_folder;
pub(crate) mod web_server;

/// Interval between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(10);
/// Interval between two censuses.
const CENSUS: Duration = Duration::from_secs(5);
/// The idle time of callers at the end, and the interval of censuses meanwhile.
const IDLE: Duration = Duration::from_secs(2);
const IDLE_CENSUS: Duration = Duration::from_millis(50);
/// Upper bound of the last calls.
const LAST_CALLS: Duration = Duration::from_secs(30);
/// The history's name in the folder of a run.
const HISTORY: &str = "history.jsonl";

/// The options of a run.
#[derive(Debug)]
pub(crate) struct RunOptions {
    pub(crate) duration: Duration,
    pub(crate) seed: u64,
    pub(crate) callers: usize,
    pub(crate) ostler: Option<PathBuf>,
    pub(crate) keep: Option<PathBuf>,
    pub(crate) only: Vec<String>,
    pub(crate) nemesis: Vec<String>,
    /// The kind of most actions of callers.
    pub(crate) focus: Option<String>,
    /// The time that the last targets of acts have to recover.
    pub(crate) settle: Duration,
    /// The time at the end in which everything must work.
    pub(crate) calm: Duration,
    pub(crate) is_json: bool,
}

impl RunOptions {
    fn ways(&self) -> anyhow::Result<Vec<CallRoute>> {
        let all = [
            CallRoute::HttpLegacy,
            CallRoute::HttpModern,
            CallRoute::HttpFace,
            CallRoute::Stdio,
            CallRoute::Relay,
        ];
        if self.only.is_empty() {
            return Ok(all.to_vec());
        }
        let named = |name: &String| {
            let name = serde_json::Value::String(name.clone());
            serde_json::from_value(name.clone()).with_context(|| format!("there is no way {name}"))
        };
        self.only.iter().map(named).collect()
    }

    /// Returns the command that repeats the run.
    fn repeat_command(&self) -> String {
        let mut line = format!("scripts/chaos --seconds {} --seed {}", self.duration.as_secs(), self.seed);
        if self.callers != 32 {
            line.push_str(&format!(" --callers {}", self.callers));
        }
        for (name, list) in [("--only", &self.only), ("--nemesis", &self.nemesis)] {
            if !list.is_empty() {
                line.push_str(&format!(" {name} {}", list.join(",")));
            }
        }
        if let Some(focus) = &self.focus {
            line.push_str(&format!(" --focus {focus}"));
        }
        line
    }
}

/// Runs, checks and reports. Returns whether all promises were kept.
pub(crate) async fn run(options: RunOptions) -> anyhow::Result<bool> {
    let plan = RunPlan::from_options(&options)?;
    let run_folder = RunFolder::prepare(options.keep.as_deref())?;
    print_progress(&format!("seed {}; again: {}", options.seed, options.repeat_command()));
    let is_good = tokio::select! {
        outcome = run_in(run_folder.folder(), &options, plan) => outcome,
        signal = cleanup::wait_for_signal() => Err(signal?.into()),
    };
    let left = cleanup::kill_all(run_folder.folder()).await;
    if !left.is_empty() {
        let left: Vec<String> = left.iter().map(|proc| format!("{} ({})", proc.pid, proc.name())).collect();
        print_progress(&format!("warning: these processes of the run can't be ended: {}", left.join(", ")));
    }
    let is_broken = matches!(is_good, Ok(false));
    if let Some(kept) = run_folder.finish(is_broken)? {
        print_progress(&format!("the records are kept in {}", kept.display()));
    }
    is_good
}

/// Runs in a folder. Everything started here ends when the future is dropped, or soon after.
async fn run_in(folder: &Path, options: &RunOptions, plan: RunPlan) -> anyhow::Result<bool> {
    let (testbed, nemesis) = set_up(folder, options, &plan).await?;
    let samples = run_callers_and_nemesis(&testbed, nemesis, options, &plan).await?;
    let mut report = RunReport::read(folder)?;
    report.complete(samples, options.seed, options.repeat_command());
    report.print(options.is_json)?;
    Ok(report.is_good())
}

/// Prints a line of progress to stderr.
pub(crate) fn print_progress(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// The parsed options, checked before anything is started.
struct RunPlan {
    ways: Vec<CallRoute>,
    acts: Vec<Act>,
    focus: Option<Focus>,
    programs: Programs,
}

impl RunPlan {
    fn from_options(options: &RunOptions) -> anyhow::Result<Self> {
        Ok(Self {
            ways: options.ways()?,
            acts: Act::parse(&options.nemesis)?,
            focus: options.focus.as_deref().map(Focus::parse).transpose()?,
            programs: Programs::find(options.ostler.as_deref())?,
        })
    }
}

/// Checks the records that a run has kept.
pub(crate) fn check_kept(folder: &Path, is_json: bool) -> anyhow::Result<bool> {
    let report = RunReport::read(folder)?;
    report.print(is_json)?;
    Ok(report.is_good())
}

/// Starts everything: broker, server behind a URL, tokens, daemon.
async fn set_up(
    folder: &Path,
    options: &RunOptions,
    plan: &RunPlan,
) -> anyhow::Result<(Arc<Testbed>, Nemesis)> {
    let mut testbed = Testbed::new(folder, plan.programs.clone())?;
    let (mut broker, mut broker_proxy) = (None, None);
    if plan.ways.contains(&CallRoute::Relay) {
        let server = NatsServer::start_default(NatsVersion::Core).await;
        let proxy = CuttableProxy::start(server.port()).await?;
        testbed.ports.broker = Some(proxy.port);
        (broker, broker_proxy) = (Some(server), Some(proxy));
    }
    let mut acts = plan.acts.clone();
    acts.retain(|act| broker.is_some() || !act.needs_broker());
    // Both are started again at the same address.
    let ports = [ReservedPort::new(), ReservedPort::new()];
    [testbed.ports.web, testbed.ports.daemon] = [ports[0].address().port(), ports[1].address().port()];
    testbed.write_config(ConfigVariant::default())?;
    std::fs::write(testbed.folder.join("hostile.json"), hostile_lists())?;
    testbed.create_tokens().await?;
    let client_proxy = CuttableProxy::start(testbed.ports.daemon).await?;
    testbed.ports.cuttable = client_proxy.port;
    let testbed = Arc::new(testbed);
    let web = WebServer::start(&testbed).await?;
    let daemon = DaemonProcess::start(&testbed).await?;
    let nemesis = Nemesis {
        recorder: Arc::new(HistoryWriter::create(&folder.join(HISTORY))?),
        programs: Arc::new(ProgramPool::new(Arc::clone(&testbed))),
        testbed: Arc::clone(&testbed),
        daemon,
        broker,
        web,
        client_proxy,
        broker_proxy,
        prober: None,
        rng: fastrand::Rng::with_seed(options.seed),
        config_variant: ConfigVariant::default(),
        acts,
        censuses: JoinSet::new(),
        mishaps: Vec::new(),
        is_over: watch::Sender::new(false).subscribe(),
        _ports: ports,
    };
    Ok((testbed, nemesis))
}

/// Returns, for each role, the forbidden tools among those that the run calls.
fn forbidden_tools() -> impl Iterator<Item = HistoryEvent> {
    [SOME, NONE].map(|role| TestUser { name: "", role }).into_iter().map(|user| {
        let names = SERVERS.iter().flat_map(|server| TOOLS.map(|tool| (server.name, tool)));
        let denied = names.filter(|(server, tool)| !user.may_use(server, tool));
        let tools = denied.map(|(server, tool)| format!("{server}__{tool}")).collect();
        HistoryEvent::Forbidden { role: user.role.into(), tools }
    })
}

/// Runs callers and nemesis, then the calm, then ends the daemon.
async fn run_callers_and_nemesis(
    testbed: &Arc<Testbed>,
    mut nemesis: Nemesis,
    options: &RunOptions,
    plan: &RunPlan,
) -> anyhow::Result<DaemonSamples> {
    let is_over = watch::Sender::new(false);
    let recorder = Arc::clone(&nemesis.recorder);
    nemesis.is_over = is_over.subscribe();
    let context = Arc::new(CallerContext {
        testbed: Arc::clone(testbed),
        recorder: Arc::clone(&recorder),
        programs: Arc::clone(&nemesis.programs),
        is_up: nemesis.daemon.subscribe(),
        is_over: is_over.subscribe(),
        focus: plan.focus,
    });
    nemesis.prober = Some(ChaosCaller::prober(&context));
    let wait = u64::try_from(SICK_RESET.as_micros()).unwrap_or(u64::MAX);
    recorder.record(&HistoryEvent::Breaker { server: SICK.into(), failures: SICK_FAILURES, wait });
    recorder.record(&HistoryEvent::Shared { server: SHARED.into() });
    forbidden_tools().for_each(|event| recorder.record(&event));
    let mut callers = JoinSet::new();
    for number in 0..options.callers {
        callers.spawn(ChaosCaller::new(&context, options.seed, number, &plan.ways).run());
    }
    callers.spawn(abuse::run(Arc::clone(&context), options.seed));
    // Ends with the run, also with one that is dropped.
    let mut progress = JoinSet::new();
    progress.spawn(show_progress(Arc::clone(&recorder)));
    let mut samples = DaemonSamples::default();
    let end = Instant::now() + options.duration;
    sleep(CENSUS.min(options.duration / 4)).await;
    samples.sample_begin(&nemesis.daemon.processes()?);
    while Instant::now() < end {
        let slice = (Instant::now() + CENSUS).min(end);
        nemesis.run(slice).await;
        if let Ok(processes) = nemesis.daemon.processes() {
            take_census(&recorder, Occasion::Running, &processes);
        }
    }
    sleep(options.settle).await;
    recorder.record(&HistoryEvent::Calm { at: now() });
    sleep(options.calm).await;
    // Processes that ended since the last act have had time to be reaped.
    take_census(&recorder, Occasion::Running, &nemesis.daemon.processes()?);
    samples.sample_end(&nemesis.daemon.processes()?);
    is_over.send_replace(true);
    let last = timeout(LAST_CALLS, async { while callers.join_next().await.is_some() {} }).await;
    if last.is_err() {
        nemesis.mishaps.push("callers still wait long after the last call".into());
    }
    if last.is_ok() {
        watch_idle(&recorder, &nemesis.daemon).await?;
    }
    if let Err(error) = nemesis.stop_daemon().await {
        nemesis.mishaps.push(format!("{error:#}"));
    }
    nemesis.finish_censuses().await;
    progress.abort_all();
    recorder.finish()?;
    samples.mishaps = nemesis.mishaps;
    Ok(samples)
}

/// Takes censuses while no caller calls. The last calls have some time to end first.
async fn watch_idle(recorder: &HistoryWriter, daemon: &DaemonProcess) -> anyhow::Result<()> {
    sleep(IDLE).await;
    let end = Instant::now() + IDLE;
    while Instant::now() < end {
        take_census(recorder, Occasion::Idle, &daemon.processes()?);
        sleep(IDLE_CENSUS).await;
    }
    Ok(())
}

fn take_census(recorder: &HistoryWriter, occasion: Occasion, processes: &DaemonProcesses) {
    let processes = processes.census();
    recorder.record(&HistoryEvent::Census { at: now(), occasion, processes });
}

async fn show_progress(recorder: Arc<HistoryWriter>) {
    let began = Instant::now();
    loop {
        sleep(PROGRESS).await;
        print_progress(&format!("{:>4} s: {}", began.elapsed().as_secs(), recorder.counts.summary()));
    }
}

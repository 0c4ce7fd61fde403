//! A run from its beginning to its report.

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

/// Between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(10);
/// Between two looks at all processes.
const CENSUS: Duration = Duration::from_secs(5);
/// How long no caller calls at the end, and the time between two looks at that.
const IDLE: Duration = Duration::from_secs(2);
const IDLE_CENSUS: Duration = Duration::from_millis(50);
/// How long the last calls may take.
const LAST_CALLS: Duration = Duration::from_secs(30);
/// The history's name in the folder of a run.
const HISTORY: &str = "history.jsonl";

/// What was asked for.
#[derive(Debug)]
pub(crate) struct RunOptions {
    pub(crate) duration: Duration,
    pub(crate) seed: u64,
    pub(crate) callers: usize,
    pub(crate) ostler: Option<PathBuf>,
    pub(crate) keep: Option<PathBuf>,
    pub(crate) only: Vec<String>,
    pub(crate) nemesis: Vec<String>,
    /// What callers do most of the time.
    pub(crate) focus: Option<String>,
    /// How long what was hurt last may take to work again.
    pub(crate) settle: Duration,
    /// How long everything must work at the end.
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

    /// The command that repeats the run.
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

/// Runs, checks and reports; whether all promises were kept.
pub(crate) async fn run(options: RunOptions) -> anyhow::Result<bool> {
    let plan = RunPlan::from_options(&options)?;
    let keeping = RunFolder::prepare(options.keep.as_deref())?;
    print_progress(&format!("seed {}; again: {}", options.seed, options.repeat_command()));
    let is_good = tokio::select! {
        outcome = run_in(keeping.folder(), &options, plan) => outcome,
        signal = cleanup::wait_for_signal() => Err(signal?.into()),
    };
    let left = cleanup::kill_all(keeping.folder()).await;
    if !left.is_empty() {
        let left: Vec<String> = left.iter().map(|proc| format!("{} ({})", proc.pid, proc.name())).collect();
        print_progress(&format!("warning: these processes of the run can't be ended: {}", left.join(", ")));
    }
    let is_broken = matches!(is_good, Ok(false));
    if let Some(kept) = keeping.finish(is_broken)? {
        print_progress(&format!("the records are kept in {}", kept.display()));
    }
    is_good
}

/// Everything that is started in here ends when it is dropped, or soon after.
async fn run_in(folder: &Path, options: &RunOptions, plan: RunPlan) -> anyhow::Result<bool> {
    let (site, nemesis) = set_up(folder, options, &plan).await?;
    let vitals = run_callers_and_nemesis(&site, nemesis, options, &plan).await?;
    let mut report = RunReport::read(folder)?;
    report.complete(vitals, options.seed, options.repeat_command());
    report.print(options.is_json)?;
    Ok(report.is_good())
}

/// Progress, for whoever still reads it.
pub(crate) fn print_progress(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// What was asked for, understood, before anything is started.
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

/// Checks what a run has kept.
pub(crate) fn check_kept(folder: &Path, is_json: bool) -> anyhow::Result<bool> {
    let report = RunReport::read(folder)?;
    report.print(is_json)?;
    Ok(report.is_good())
}

/// Brings everything up: broker, server behind a URL, tokens, daemon.
async fn set_up(
    folder: &Path,
    options: &RunOptions,
    plan: &RunPlan,
) -> anyhow::Result<(Arc<Testbed>, Nemesis)> {
    let mut site = Testbed::new(folder, plan.programs.clone())?;
    let (mut broker, mut back) = (None, None);
    if plan.ways.contains(&CallRoute::Relay) {
        let server = NatsServer::start_default(NatsVersion::Core).await;
        let proxy = CuttableProxy::start(server.port()).await?;
        site.ports.broker = Some(proxy.port);
        (broker, back) = (Some(server), Some(proxy));
    }
    let mut acts = plan.acts.clone();
    acts.retain(|act| broker.is_some() || !act.needs_broker());
    // Both are started again at the same place.
    let ports = [ReservedPort::new(), ReservedPort::new()];
    [site.ports.web, site.ports.daemon] = [ports[0].address().port(), ports[1].address().port()];
    site.write_config(ConfigVariant::default())?;
    std::fs::write(site.folder.join("hostile.json"), hostile_lists())?;
    site.create_tokens().await?;
    let front = CuttableProxy::start(site.ports.daemon).await?;
    site.ports.cuttable = front.port;
    let site = Arc::new(site);
    let web = WebServer::start(&site).await?;
    let daemon = DaemonProcess::start(&site).await?;
    let nemesis = Nemesis {
        recorder: Arc::new(HistoryWriter::create(&folder.join(HISTORY))?),
        programs: Arc::new(ProgramPool::new(Arc::clone(&site))),
        testbed: Arc::clone(&site),
        daemon,
        broker,
        web,
        client_proxy: front,
        broker_proxy: back,
        prober: None,
        rng: fastrand::Rng::with_seed(options.seed),
        config_variant: ConfigVariant::default(),
        acts,
        censuses: JoinSet::new(),
        mishaps: Vec::new(),
        is_over: watch::Sender::new(false).subscribe(),
        _ports: ports,
    };
    Ok((site, nemesis))
}

/// What each role may not use, of the tools that the run calls.
fn forbidden_tools() -> impl Iterator<Item = HistoryEvent> {
    [SOME, NONE].map(|role| TestUser { name: "", role }).into_iter().map(|person| {
        let names = SERVERS.iter().flat_map(|server| TOOLS.map(|tool| (server.name, tool)));
        let denied = names.filter(|(server, tool)| !person.may_use(server, tool));
        let tools = denied.map(|(server, tool)| format!("{server}__{tool}")).collect();
        HistoryEvent::Forbidden { role: person.role.into(), tools }
    })
}

/// Lets callers and nemesis loose, then calms down and ends.
async fn run_callers_and_nemesis(
    site: &Arc<Testbed>,
    mut nemesis: Nemesis,
    options: &RunOptions,
    plan: &RunPlan,
) -> anyhow::Result<DaemonSamples> {
    let is_over = watch::Sender::new(false);
    let recorder = Arc::clone(&nemesis.recorder);
    nemesis.is_over = is_over.subscribe();
    let stage = Arc::new(CallerContext {
        testbed: Arc::clone(site),
        recorder: Arc::clone(&recorder),
        programs: Arc::clone(&nemesis.programs),
        is_up: nemesis.daemon.subscribe(),
        is_over: is_over.subscribe(),
        focus: plan.focus,
    });
    nemesis.prober = Some(ChaosCaller::prober(&stage));
    let wait = u64::try_from(SICK_RESET.as_micros()).unwrap_or(u64::MAX);
    recorder.record(&HistoryEvent::Breaker { server: SICK.into(), failures: SICK_FAILURES, wait });
    recorder.record(&HistoryEvent::Shared { server: SHARED.into() });
    forbidden_tools().for_each(|event| recorder.record(&event));
    let mut callers = JoinSet::new();
    for number in 0..options.callers {
        callers.spawn(ChaosCaller::new(&stage, options.seed, number, &plan.ways).run());
    }
    callers.spawn(abuse::run(Arc::clone(&stage), options.seed));
    // Ends with the run, also with one that is dropped.
    let mut progress = JoinSet::new();
    progress.spawn(show_progress(Arc::clone(&recorder)));
    let mut vitals = DaemonSamples::default();
    let end = Instant::now() + options.duration;
    sleep(CENSUS.min(options.duration / 4)).await;
    vitals.sample_begin(&nemesis.daemon.processes()?);
    while Instant::now() < end {
        let slice = (Instant::now() + CENSUS).min(end);
        nemesis.run(slice).await;
        if let Ok(family) = nemesis.daemon.processes() {
            take_census(&recorder, Occasion::Running, &family);
        }
    }
    sleep(options.settle).await;
    recorder.record(&HistoryEvent::Calm { at: now() });
    sleep(options.calm).await;
    // What has been dead since the last act has had time to be waited for.
    take_census(&recorder, Occasion::Running, &nemesis.daemon.processes()?);
    vitals.sample_end(&nemesis.daemon.processes()?);
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
    vitals.mishaps = nemesis.mishaps;
    Ok(vitals)
}

/// Looks on while nobody calls. What the last calls have begun has some time to come to its end.
async fn watch_idle(recorder: &HistoryWriter, daemon: &DaemonProcess) -> anyhow::Result<()> {
    sleep(IDLE).await;
    let end = Instant::now() + IDLE;
    while Instant::now() < end {
        take_census(recorder, Occasion::Idle, &daemon.processes()?);
        sleep(IDLE_CENSUS).await;
    }
    Ok(())
}

fn take_census(recorder: &HistoryWriter, occasion: Occasion, family: &DaemonProcesses) {
    let processes = family.census();
    recorder.record(&HistoryEvent::Census { at: now(), occasion, processes });
}

async fn show_progress(recorder: Arc<HistoryWriter>) {
    let began = Instant::now();
    loop {
        sleep(PROGRESS).await;
        print_progress(&format!("{:>4} s: {}", began.elapsed().as_secs(), recorder.counts.summary()));
    }
}

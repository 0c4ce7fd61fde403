//! A run from its beginning to its report.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use ostler_chaos::history::{Event, Occasion, Way};
use ostler_testkit::{HeldPort, NatsServer, NatsVersion};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use self::caller::hub::Hub;
use self::caller::{Caller, Focus, Stage, abuse};
use self::keeping::Keeping;
use self::nemesis::{Act, Nemesis};
use self::proxy::Proxy;
use self::record::{Recorder, now};
use self::report::{Report, Vitals};
use self::web::Web;
use self::world::config::{SERVERS, SHARED, SICK, SICK_FAILURES, SICK_RESET, Shape, hostile_lists};
use self::world::daemon::Daemon;
use self::world::family::Family;
use self::world::people::{NONE, Person, SOME, TOOLS};
use self::world::site::{Programs, Site};

mod caller;
pub(crate) mod ending;
mod keeping;
mod nemesis;
mod proxy;
mod record;
mod report;
pub(crate) mod web;
mod world;

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
pub(crate) struct Options {
    pub(crate) lasts: Duration,
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

impl Options {
    fn ways(&self) -> anyhow::Result<Vec<Way>> {
        let all = [Way::HttpLegacy, Way::HttpModern, Way::HttpFace, Way::Stdio, Way::Relay];
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
    fn again(&self) -> String {
        let mut line = format!("scripts/chaos --seconds {} --seed {}", self.lasts.as_secs(), self.seed);
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
pub(crate) async fn run(options: Options) -> anyhow::Result<bool> {
    let plan = Plan::of(&options)?;
    let keeping = Keeping::prepare(options.keep.as_deref())?;
    tell(&format!("seed {}; again: {}", options.seed, options.again()));
    let is_good = tokio::select! {
        outcome = run_in(keeping.folder(), &options, plan) => outcome,
        signal = ending::interrupted() => Err(signal?.into()),
    };
    let left = ending::end_all(keeping.folder()).await;
    if !left.is_empty() {
        let left: Vec<String> = left.iter().map(|proc| format!("{} ({})", proc.pid, proc.name())).collect();
        tell(&format!("warning: these processes of the run can't be ended: {}", left.join(", ")));
    }
    let is_broken = matches!(is_good, Ok(false));
    if let Some(kept) = keeping.finish(is_broken)? {
        tell(&format!("the records are kept in {}", kept.display()));
    }
    is_good
}

/// Everything that is started in here ends when it is dropped, or soon after.
async fn run_in(folder: &Path, options: &Options, plan: Plan) -> anyhow::Result<bool> {
    let (site, nemesis) = set_up(folder, options, &plan).await?;
    let vitals = play(&site, nemesis, options, &plan).await?;
    let mut report = Report::read(folder)?;
    report.complete(vitals, options.seed, options.again());
    report.print(options.is_json)?;
    Ok(report.is_good())
}

/// Progress, for whoever still reads it.
pub(crate) fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// What was asked for, understood, before anything is started.
struct Plan {
    ways: Vec<Way>,
    acts: Vec<Act>,
    focus: Option<Focus>,
    programs: Programs,
}

impl Plan {
    fn of(options: &Options) -> anyhow::Result<Self> {
        Ok(Self {
            ways: options.ways()?,
            acts: Act::named(&options.nemesis)?,
            focus: options.focus.as_deref().map(Focus::named).transpose()?,
            programs: Programs::find(options.ostler.as_deref())?,
        })
    }
}

/// Checks what a run has kept.
pub(crate) fn check_kept(folder: &Path, is_json: bool) -> anyhow::Result<bool> {
    let report = Report::read(folder)?;
    report.print(is_json)?;
    Ok(report.is_good())
}

/// Brings everything up: broker, server behind a URL, tokens, daemon.
async fn set_up(folder: &Path, options: &Options, plan: &Plan) -> anyhow::Result<(Arc<Site>, Nemesis)> {
    let mut site = Site::new(folder, plan.programs.clone())?;
    let (mut broker, mut back) = (None, None);
    if plan.ways.contains(&Way::Relay) {
        let server = NatsServer::plain(NatsVersion::Core).await;
        let proxy = Proxy::start(server.port()).await?;
        site.ports.broker = Some(proxy.port);
        (broker, back) = (Some(server), Some(proxy));
    }
    let mut acts = plan.acts.clone();
    acts.retain(|act| broker.is_some() || !act.needs_broker());
    // Both are started again at the same place.
    let ports = [HeldPort::new(), HeldPort::new()];
    [site.ports.web, site.ports.daemon] = [ports[0].address().port(), ports[1].address().port()];
    site.configure(Shape::default())?;
    std::fs::write(site.folder.join("hostile.json"), hostile_lists())?;
    site.make_tokens().await?;
    let front = Proxy::start(site.ports.daemon).await?;
    site.ports.cuttable = front.port;
    let site = Arc::new(site);
    let web = Web::start(&site).await?;
    let daemon = Daemon::start(&site).await?;
    let nemesis = Nemesis {
        recorder: Arc::new(Recorder::create(&folder.join(HISTORY))?),
        hub: Arc::new(Hub::new(Arc::clone(&site))),
        site: Arc::clone(&site),
        daemon,
        broker,
        web,
        front,
        back,
        prober: None,
        rng: fastrand::Rng::with_seed(options.seed),
        shape: Shape::default(),
        acts,
        censuses: JoinSet::new(),
        mishaps: Vec::new(),
        is_over: watch::Sender::new(false).subscribe(),
        _ports: ports,
    };
    Ok((site, nemesis))
}

/// What each role may not use, of the tools that the run calls.
fn forbidden() -> impl Iterator<Item = Event> {
    [SOME, NONE].map(|role| Person { name: "", role }).into_iter().map(|person| {
        let names = SERVERS.iter().flat_map(|server| TOOLS.map(|tool| (server.name, tool)));
        let denied = names.filter(|(server, tool)| !person.may(server, tool));
        let tools = denied.map(|(server, tool)| format!("{server}__{tool}")).collect();
        Event::Forbidden { role: person.role.into(), tools }
    })
}

/// Lets callers and nemesis loose, then calms down and ends.
async fn play(
    site: &Arc<Site>,
    mut nemesis: Nemesis,
    options: &Options,
    plan: &Plan,
) -> anyhow::Result<Vitals> {
    let is_over = watch::Sender::new(false);
    let recorder = Arc::clone(&nemesis.recorder);
    nemesis.is_over = is_over.subscribe();
    let stage = Arc::new(Stage {
        site: Arc::clone(site),
        recorder: Arc::clone(&recorder),
        hub: Arc::clone(&nemesis.hub),
        is_up: nemesis.daemon.watch(),
        is_over: is_over.subscribe(),
        focus: plan.focus,
    });
    nemesis.prober = Some(Caller::prober(&stage));
    let wait = u64::try_from(SICK_RESET.as_micros()).unwrap_or(u64::MAX);
    recorder.add(&Event::Breaker { server: SICK.into(), failures: SICK_FAILURES, wait });
    recorder.add(&Event::Shared { server: SHARED.into() });
    forbidden().for_each(|event| recorder.add(&event));
    let mut callers = JoinSet::new();
    for number in 0..options.callers {
        callers.spawn(Caller::new(&stage, options.seed, number, &plan.ways).run());
    }
    callers.spawn(abuse::run(Arc::clone(&stage), options.seed));
    // Ends with the run, also with one that is dropped.
    let mut progress = JoinSet::new();
    progress.spawn(show_progress(Arc::clone(&recorder)));
    let mut vitals = Vitals::default();
    let end = Instant::now() + options.lasts;
    sleep(CENSUS.min(options.lasts / 4)).await;
    vitals.begin(&nemesis.daemon.family()?);
    while Instant::now() < end {
        let slice = (Instant::now() + CENSUS).min(end);
        nemesis.run(slice).await;
        if let Ok(family) = nemesis.daemon.family() {
            take_census(&recorder, Occasion::Running, &family);
        }
    }
    sleep(options.settle).await;
    recorder.add(&Event::Calm { at: now() });
    sleep(options.calm).await;
    // What has been dead since the last act has had time to be waited for.
    take_census(&recorder, Occasion::Running, &nemesis.daemon.family()?);
    vitals.end(&nemesis.daemon.family()?);
    is_over.send_replace(true);
    let last = timeout(LAST_CALLS, async { while callers.join_next().await.is_some() {} }).await;
    if last.is_err() {
        nemesis.mishaps.push("callers still wait long after the last call".into());
    }
    if last.is_ok() {
        watch_idle(&recorder, &nemesis.daemon).await?;
    }
    if let Err(error) = nemesis.end_in_order().await {
        nemesis.mishaps.push(format!("{error:#}"));
    }
    nemesis.finish_censuses().await;
    progress.abort_all();
    recorder.finish()?;
    vitals.mishaps = nemesis.mishaps;
    Ok(vitals)
}

/// Looks on while nobody calls. What the last calls have begun has some time to come to its end.
async fn watch_idle(recorder: &Recorder, daemon: &Daemon) -> anyhow::Result<()> {
    sleep(IDLE).await;
    let end = Instant::now() + IDLE;
    while Instant::now() < end {
        take_census(recorder, Occasion::Idle, &daemon.family()?);
        sleep(IDLE_CENSUS).await;
    }
    Ok(())
}

fn take_census(recorder: &Recorder, occasion: Occasion, family: &Family) {
    let processes = family.census();
    recorder.add(&Event::Census { at: now(), occasion, processes });
}

async fn show_progress(recorder: Arc<Recorder>) {
    let began = Instant::now();
    loop {
        sleep(PROGRESS).await;
        tell(&format!("{:>4} s: {}", began.elapsed().as_secs(), recorder.counts.line()));
    }
}

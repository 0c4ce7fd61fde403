//! Effect of long work in the daemon on a neighbour's small calls, with one runtime thread and with
//! two.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use bench::process::{TreeUsage, first_thread_cpu, machine_load};
use tokio::task::{LocalSet, spawn_blocking};

use super::good_client::{GoodClient, quantile};
use super::http::LoadConnection;
use super::mcp;
use super::options::LoadOptions;
use super::result_rows::LoadRow;
use super::setup::{DaemonSetup, LoadedDaemon};
use crate::spread::Spread;

const PART: &str = "thread";

/// Rounds of daemons with each number of threads.
const ROUNDS: usize = 7;

/// Sizes of the long work: bytes of an answer, tools of a list, properties of a schema.
const ANSWER: usize = 10_000_000;
const TOOLS: usize = 10_000;
const PROPERTIES: usize = 20_000;

/// Long enough for a changed list to be notified and fetched.
const NEWS: Duration = Duration::from_millis(1_500);

/// Callers of an otherwise idle daemon, and how long they call.
const CALLERS: usize = 32;
const CALLING: Duration = Duration::from_secs(2);

/// The figures of one kind of work, one value for each round.
#[derive(Default)]
struct WorkFigures {
    p50: Vec<f64>,
    p99: Vec<f64>,
    longest: Vec<f64>,
    /// Processor time of the daemon's first thread, which with one thread runs the whole runtime.
    on_thread: Vec<f64>,
    took: Vec<f64>,
}

/// Keyed by the order of the work, the number of threads, and the work.
type WorkTable = BTreeMap<(usize, usize, &'static str), WorkFigures>;

pub(crate) async fn run(options: &LoadOptions) -> Vec<LoadRow> {
    let folder = tempfile::tempdir().unwrap();
    let catalog = folder.path().join("catalog.json");
    write_catalog(&catalog, options);
    let mut table = WorkTable::new();
    let mut rates: BTreeMap<usize, (Vec<f64>, Vec<f64>)> = BTreeMap::new();
    let before = machine_load();
    for round in 0..options.scaled(ROUNDS) {
        for threads in [1, 2] {
            eprintln!("  round {round}, {threads} threads, load {}", machine_load());
            let rate = LocalSet::new().run_until(measure(threads, &catalog, &mut table)).await;
            let (per_second, cpu) = rates.entry(threads).or_default();
            per_second.push(rate.0);
            cpu.push(rate.1);
        }
    }
    let (tools, bytes) = (options.scaled(TOOLS), std::fs::metadata(&catalog).unwrap().len());
    let setting = format!(
        "{tools} tools and a large schema, {bytes} bytes; machine load {before}, then {}",
        machine_load()
    );
    let setting = LoadRow::new(PART, "setting", setting);
    let rates = rates.into_iter().map(|(threads, (per_second, cpu))| {
        let found = format!(
            "{} calls/s, {} µs of processor per call",
            format_values(&per_second, 0),
            format_values(&cpu, 1)
        );
        LoadRow::new(PART, format!("{CALLERS} callers of a small tool, --threads {threads}"), found)
    });
    let rows = table.into_iter().map(|((_, threads, what), found)| {
        let WorkFigures { p50, p99, longest, on_thread, took } = found;
        let on_thread = if threads == 1 {
            format!(", on the thread {}", format_values(&on_thread, 1))
        } else {
            String::new()
        };
        let found = format!(
            "p50 {}, p99 {}, max {} ms{on_thread}; took {} ms",
            format_values(&p50, 1),
            format_values(&p99, 1),
            format_values(&longest, 1),
            format_values(&took, 0)
        );
        LoadRow::new(PART, format!("{what}, --threads {threads}: small calls of a neighbour"), found)
    });
    std::iter::once(setting).chain(rates).chain(rows).collect()
}

fn format_values(values: &[f64], digits: usize) -> String {
    Spread::from_values(values.iter().copied()).map_or_else(String::new, |spread| spread.with_digits(digits))
}

/// Measures one daemon. Returns its calls per second, and the processor time of each.
async fn measure(threads: usize, catalog: &Path, table: &mut WorkTable) -> (f64, f64) {
    let many = format!(
        "command = {:?}\nargs = [\"--era\", \"legacy\", \"--catalog\", {catalog:?}]\nlazy = false\nmax_tools = 100000\nmax_line = \"64MiB\"",
        ostler_testkit::fake_mcp()
    );
    let setup = DaemonSetup::new()
        .server("large", &[])
        .server_toml("many", &many)
        .args(&["--threads", &threads.to_string()]);
    let daemon = setup.start().await;
    let rate = measure_call_rate(&daemon).await;
    let good = GoodClient::start(daemon.address);
    let token = daemon.admin_token();
    let list = || vec![mcp::list()];
    let changed = || vec![mcp::call("many", "list_changed", r#"{"count":1}"#), mcp::list()];
    let works: [(&'static str, Vec<Vec<u8>>); 4] = [
        ("nothing else", Vec::new()),
        ("an answer of 10 MB", vec![mcp::call("large", "blob", &format!(r#"{{"size":{ANSWER}}}"#))]),
        ("all tools, changed", changed()),
        ("all tools, kept", list()),
    ];
    // Warms up, so that no first start is measured.
    request_each(daemon.address, list()).await;
    let mut order = 0;
    let mut note = |what: &'static str, found: NeighbourSample| {
        order += 1;
        let NeighbourSample { times, on_thread, took } = found;
        let millis = |time: Duration| time.as_secs_f64() * 1e3;
        let entry = table.entry((order, threads, what)).or_default();
        entry.p50.push(millis(quantile(&times, 0.5)));
        entry.p99.push(millis(quantile(&times, 0.99)));
        entry.longest.push(millis(quantile(&times, 1.0)));
        entry.on_thread.push(millis(on_thread));
        entry.took.push(millis(took));
    };
    for (what, requests) in works {
        note(what, measure_work(&daemon, &good, requests).await);
    }
    let schema = mcp::call("many", "large_schema", r#"{"p1":1}"#);
    note("a large schema, first call", measure_work(&daemon, &good, vec![schema]).await);
    daemon.run(&["lock"]);
    let pinned = [
        ("all tools, pinned, changed", changed()),
        ("all tools, pinned, kept", list()),
        ("all tools, pinned, /api/v1/pins", vec![mcp::admin("/api/v1/pins", &token)]),
        ("all tools, pinned, /api/v1/servers", vec![mcp::admin("/api/v1/servers", &token)]),
    ];
    for (what, requests) in pinned {
        note(what, measure_work(&daemon, &good, requests).await);
    }
    rate
}

/// The times of a neighbour's calls during some requests.
struct NeighbourSample {
    times: Vec<Duration>,
    on_thread: Duration,
    took: Duration,
}

async fn measure_work(daemon: &LoadedDaemon, good: &GoodClient, requests: Vec<Vec<u8>>) -> NeighbourSample {
    tokio::time::sleep(Duration::from_millis(300)).await;
    good.take_stats();
    let cpu = first_thread_cpu(daemon.pid());
    let took = match requests.is_empty() {
        true => {
            tokio::time::sleep(NEWS).await;
            Duration::ZERO
        }
        false => request_each(daemon.address, requests).await,
    };
    let on_thread = first_thread_cpu(daemon.pid()).saturating_sub(cpu);
    let seen = good.take_stats();
    assert_eq!(seen.errors, 0, "{seen}");
    NeighbourSample { times: seen.into_times(), on_thread, took }
}

/// Makes one request after another on a thread of its own, so that reading a large answer delays no
/// other task here. Returns the duration of the last one.
async fn request_each(address: SocketAddr, requests: Vec<Vec<u8>>) -> Duration {
    let asking = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut took = Duration::ZERO;
            for (at, request) in requests.iter().enumerate() {
                if at > 0 {
                    tokio::time::sleep(NEWS).await;
                }
                let began = Instant::now();
                let answer = LoadConnection::open(address).await?.request(request).await?;
                took = began.elapsed();
                let shown = String::from_utf8_lossy(&answer.body[..answer.body.len().min(300)]).into_owned();
                assert!(answer.status == 200 && !shown.contains("\"error\":{"), "{} {shown}", answer.head);
            }
            io::Result::Ok(took)
        })
    };
    spawn_blocking(asking).await.unwrap().unwrap()
}

/// Measures the rate of calls to a small tool.
async fn measure_call_rate(daemon: &LoadedDaemon) -> (f64, f64) {
    let request = mcp::call("good", "echo", r#"{"text":"how do you do"}"#);
    let cpu = || TreeUsage::read(daemon.pid()).gateway.cpu_us as f64;
    let (before, began) = (cpu(), Instant::now());
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let (request, address) = (request.clone(), daemon.address);
            tokio::task::spawn_local(async move {
                let mut connection = LoadConnection::open(address).await.unwrap();
                let mut count = 0_usize;
                while began.elapsed() < CALLING {
                    assert!(connection.request(&request).await.unwrap().is_result());
                    count += 1;
                }
                count
            })
        })
        .collect();
    let mut count = 0;
    for caller in callers {
        count += caller.await.unwrap();
    }
    (count as f64 / began.elapsed().as_secs_f64(), (cpu() - before) / count as f64)
}

/// Writes a list of ordinary tools, with a description and a few arguments each, and one tool with
/// many.
fn write_catalog(file: &Path, options: &LoadOptions) {
    let about = "Finds what was asked for and answers with it, page by page. ".repeat(4);
    let mut text = String::from(r#"{"tools":[{"name":"list_changed","inputSchema":{"type":"object"}}"#);
    for number in 0..options.scaled(TOOLS) {
        write!(
            text,
            r#",{{"name":"tool_{number}","description":"{about}","inputSchema":{{"type":"object","properties":{{"query":{{"type":"string","description":"words to look for"}},"page":{{"type":"integer","minimum":0}},"exact":{{"type":"boolean"}},"kinds":{{"type":"array","items":{{"enum":["a","b","c"]}}}}}},"required":["query"]}}}}"#
        )
        .unwrap();
    }
    let properties: Vec<String> = (0..options.scaled(PROPERTIES))
        .map(|number| format!(r#""p{number}":{{"type":"integer","minimum":0,"title":"number"}}"#))
        .collect();
    write!(
        text,
        r#",{{"name":"large_schema","inputSchema":{{"type":"object","properties":{{{}}}}}}}]}}"#,
        properties.join(",")
    )
    .unwrap();
    std::fs::write(file, text).unwrap();
}

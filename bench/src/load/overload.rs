//! Overload: ten times the capacity is offered; measures what is still done, and how fast the rest
//! is refused.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::task::LocalSet;

use super::good_client::{GoodClient, ms, quantile};
use super::http::{LoadAnswer, LoadConnection};
use super::mcp;
use super::options::LoadOptions;
use super::result_rows::LoadRow;
use super::setup::DaemonSetup;

const PART: &str = "overload";

/// Calls that one server takes at once.
const AT_ONCE: usize = 64;

/// The duration of each load, and the warm-up before it.
const LOAD: Duration = Duration::from_secs(5);
const WARM: Duration = Duration::from_secs(1);

/// The outcomes of callers.
#[derive(Default)]
struct OverloadCounts {
    requests: usize,
    results: usize,
    rejects: Vec<Duration>,
    other: usize,
    example: Option<String>,
}

impl OverloadCounts {
    fn record(&mut self, answer: std::io::Result<LoadAnswer>, took: Duration) {
        self.requests += 1;
        match answer {
            Ok(answer) if answer.is_result() => self.results += 1,
            Ok(answer) if answer.is_overloaded() => self.rejects.push(took),
            other => {
                self.other += 1;
                self.example.get_or_insert_with(|| match other {
                    Ok(answer) => String::from_utf8_lossy(&answer.body).into_owned(),
                    Err(error) => error.to_string(),
                });
            }
        }
    }
}

pub(crate) async fn run(_options: &LoadOptions) -> Vec<LoadRow> {
    let mut rows = Vec::new();
    // The service time makes the capacity a number: 64 calls at once.
    for (what, tool, arguments) in
        [("a tool of 50 ms", "sleep", r#"{"ms":50}"#), ("a tool of no time", "echo", r#"{"text":"x"}"#)]
    {
        rows.extend(LocalSet::new().run_until(compare(what, tool, arguments)).await);
    }
    rows
}

async fn compare(what: &str, tool: &str, arguments: &str) -> Vec<LoadRow> {
    let setup = DaemonSetup::new().config("[gateway]\nmax_connections = 8192").server("busy", &[]);
    let daemon = setup.start().await;
    let good = GoodClient::start(daemon.address);
    let request = mcp::call("busy", tool, arguments);
    let quiet = {
        tokio::time::sleep(WARM).await;
        good.take_stats()
    };
    let peak = offer_load(&OfferedLoad {
        address: daemon.address,
        request: request.clone(),
        callers: AT_ONCE,
        pace: None,
    })
    .await;
    let per_second = |counts: &OverloadCounts| counts.results as f64 / LOAD.as_secs_f64();
    let capacity = per_second(&peak);
    good.take_stats();
    // Paced so that together they offer ten times the capacity, if this machine can offer that
    // much.
    let callers = AT_ONCE * 20;
    let pace = Duration::from_secs_f64(callers as f64 / (capacity * 10.0));
    let paced = offer_load(&OfferedLoad {
        address: daemon.address,
        request: request.clone(),
        callers,
        pace: Some(pace),
    })
    .await;
    let seen_paced = good.take_stats();
    let unpaced =
        offer_load(&OfferedLoad { address: daemon.address, request, callers: AT_ONCE * 10, pace: None })
            .await;
    let seen_unpaced = good.take_stats();
    let row = |figure: String, found: String| LoadRow::new(PART, figure, found);
    let mut rows = vec![row(format!("{what}: capacity, 64 callers"), format!("{capacity:.0}/s"))];
    for (load, counts, seen) in [
        ("asked for ten times as much, paced", &paced, seen_paced),
        ("640 callers that come back at once", &unpaced, seen_unpaced),
    ] {
        let share = per_second(counts) / capacity;
        let offered = counts.requests as f64 / LOAD.as_secs_f64() / capacity;
        rows.push(
            row(
                format!("{what}, {load}: done, of capacity"),
                format!("{:.0} % ({offered:.1} × offered)", share * 100.0),
            )
            // Without that much offered load, the aim is not shown.
            .aim("at least 90 % with 10 × offered", share >= 0.9 && offered >= 9.0),
        );
        let (p99, max) = (quantile(&counts.rejects, 0.99), quantile(&counts.rejects, 1.0));
        rows.push(
            row(
                format!("{what}, {load}: time of a reject"),
                format!(
                    "p50 {}, p99 {}, max {} of {}",
                    ms(quantile(&counts.rejects, 0.5)),
                    ms(p99),
                    ms(max),
                    counts.rejects.len()
                ),
            )
            .aim("at most 10 ms", !counts.rejects.is_empty() && max <= Duration::from_millis(10)),
        );
        let other = format!(
            "{}{}",
            counts.other,
            counts.example.as_ref().map_or(String::new(), |it| format!(": {it}"))
        );
        rows.push(
            row(format!("{what}, {load}: answers that are neither a result nor `overloaded`"), other)
                .aim("0", counts.other == 0),
        );
        rows.push(
            row(format!("{what}, {load}: good client of another server"), format!("{seen}; before: {quiet}"))
                .aim("no error", seen.errors == 0),
        );
    }
    rows
}

struct OfferedLoad {
    address: SocketAddr,
    request: Vec<u8>,
    callers: usize,
    /// Time between two requests of one caller; none if it repeats at once.
    pace: Option<Duration>,
}

async fn offer_load(load: &OfferedLoad) -> OverloadCounts {
    let counts = Rc::new(RefCell::new(OverloadCounts::default()));
    let begin = Instant::now() + WARM + Duration::from_micros(200) * load.callers as u32;
    let end = begin + LOAD;
    let callers: Vec<_> = (0..load.callers)
        .map(|number| {
            let (address, request, counts) = (load.address, load.request.clone(), Rc::clone(&counts));
            // Callers do not start at the same moment.
            let offset = load.pace.map(|pace| pace * number as u32 / load.callers as u32).unwrap_or_default();
            let pace = load.pace;
            tokio::task::spawn_local(async move {
                let mut connection = LoadConnection::open(address).await.expect("the daemon can be reached");
                let mut next = begin - WARM + offset;
                loop {
                    if let Some(pace) = pace {
                        tokio::time::sleep_until(next.into()).await;
                        // A late caller does not catch up: it was waiting for an answer.
                        next = (next + pace).max(Instant::now());
                    }
                    let began = Instant::now();
                    if began >= end {
                        return;
                    }
                    let answer = connection.request(&request).await;
                    let took = began.elapsed();
                    let is_broken = answer.is_err();
                    if (begin..end).contains(&Instant::now()) {
                        counts.borrow_mut().record(answer, took);
                    }
                    if is_broken {
                        connection = LoadConnection::open(address).await.expect("reached again");
                    }
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
    counts.take()
}

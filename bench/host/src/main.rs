//! What a call through the host costs, beside a raw pipe to the same server.
//!
//!   cargo run --release -p bench-host [-- --seconds N --rounds N]
//!
//! Three ways, in turn, several rounds, in one process and on one runtime
//! thread: `raw` pushes requests through the pipe and counts newlines; `client`
//! is the least that a client with callers can do; `host` is `Host::call`. The
//! table holds the medians of the rounds; differences and ratios are taken
//! within a round. Compare within a run only.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a benchmark prints, and stops when something is wrong"
)]

mod host;
mod minimal;
mod raw;
mod table;

use std::time::Duration;

/// One measurement of one way.
#[derive(Debug, Clone, Copy)]
struct Figures {
    p50: Duration,
    p99: Duration,
    per_second: f64,
    /// Processor time of this process, which does not hold the server's.
    cpu_per_call: Duration,
}

impl Figures {
    fn of(mut times: Vec<Duration>, took: Duration, since: Cpu) -> Self {
        times.sort_unstable();
        let calls = times.len();
        let at = |part: f64| times[((calls - 1) as f64 * part) as usize];
        let cpu_per_call = (Cpu::now().0 - since.0) / u32::try_from(calls).unwrap();
        Self { p50: at(0.5), p99: at(0.99), per_second: calls as f64 / took.as_secs_f64(), cpu_per_call }
    }
}

/// Processor time used by this process.
#[derive(Debug, Clone, Copy)]
struct Cpu(Duration);

impl Cpu {
    fn now() -> Self {
        let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF).unwrap();
        let spent = |time: nix::sys::time::TimeVal| {
            Duration::from_micros((time.tv_sec() * 1_000_000 + time.tv_usec()) as u64)
        };
        Self(spent(usage.user_time()) + spent(usage.system_time()))
    }
}

/// One cell of the table.
#[derive(Debug, Clone, Copy)]
struct Cell {
    in_flight: usize,
    payload: usize,
    time: Duration,
}

fn arguments(payload: usize) -> String {
    let frame = r#"{"text":""}"#.len();
    format!(r#"{{"text":"{}"}}"#, "x".repeat(payload.saturating_sub(frame)))
}

fn main() {
    let options: Vec<String> = std::env::args().skip(1).collect();
    let number = |name: &str, default: f64| {
        let at = options.iter().position(|option| option == name);
        at.and_then(|at| options.get(at + 1)?.parse().ok()).unwrap_or(default)
    };
    let (seconds, rounds) = (number("--seconds", 2.0), number("--rounds", 5.0) as usize);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        table::head();
        let only = number("--in-flight", 0.0) as usize;
        let cells = [(1, 100), (1, 10_240), (64, 100), (64, 10_240)];
        let payload = number("--payload", 0.0) as usize;
        let is_wanted =
            |cell: &(usize, usize)| (only == 0 || cell.0 == only) && (payload == 0 || cell.1 == payload);
        for (in_flight, payload) in cells.into_iter().filter(is_wanted) {
            let cell = Cell { in_flight, payload, time: Duration::from_secs_f64(seconds) };
            let mut figures = Vec::new();
            for _ in 0..rounds {
                if options.iter().any(|option| option == "--profile") {
                    host::measure(cell).await;
                    continue;
                }
                figures.push([
                    raw::measure(cell).await,
                    minimal::measure(cell).await,
                    host::measure(cell).await,
                ]);
            }
            if !figures.is_empty() {
                table::row(cell, &figures);
            }
        }
    });
}

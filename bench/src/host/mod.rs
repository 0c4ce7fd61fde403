//! Cost of a call through the host, beside a raw pipe to the same server.
//!
//! Three variants run in turn, in several rounds, in one process and on one runtime thread: `raw`
//! pushes requests through the pipe and counts newlines; `client` is a minimal client with callers;
//! `host` is `Host::call`. The table holds the medians of the rounds; differences and ratios are
//! taken within a round. Compare within a run only.

mod host_call;
mod minimal_client;
mod raw_pipe;
mod table;

use std::time::Duration;

use crate::closed_loop::{Figures, LoadCell};

/// The measurement of one variant.
#[derive(Debug, Clone, Copy)]
struct HostMeasurement {
    figures: Figures,
    /// Processor time of this process, without the server's.
    cpu_per_call: f64,
}

/// Processor time used by this process, in microseconds.
#[derive(Debug, Clone, Copy)]
struct Cpu(f64);

impl Cpu {
    fn now() -> Self {
        let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF).unwrap();
        let spent = |time: nix::sys::time::TimeVal| (time.tv_sec() * 1_000_000 + time.tv_usec()) as f64;
        Self(spent(usage.user_time()) + spent(usage.system_time()))
    }
}

impl HostMeasurement {
    fn from_times(times: Vec<Duration>, took: Duration, since: Cpu) -> Self {
        let spent = Cpu::now().0 - since.0;
        let figures = Figures::from_times(times, took);
        Self { figures, cpu_per_call: spent / figures.calls as f64 }
    }
}

pub(crate) async fn run(options: &[String]) {
    let number = |name: &str, default: f64| {
        let at = options.iter().position(|option| option == name);
        at.and_then(|at| options.get(at + 1)?.parse().ok()).unwrap_or(default)
    };
    let (time, rounds) =
        (Duration::from_secs_f64(number("--seconds", 2.0)), number("--rounds", 5.0) as usize);
    let (callers, payload) = (number("--in-flight", 0.0) as usize, number("--payload", 0.0) as usize);
    let is_wanted = |load: &LoadCell| {
        (callers == 0 || load.callers == callers) && (payload == 0 || load.payload == payload)
    };
    let cells = [(1, 100), (1, 10_240), (64, 100), (64, 10_240)];
    let loads = cells.map(|(callers, payload)| LoadCell { callers, payload, time });
    let is_profile = options.iter().any(|option| option == "--profile");
    table::head();
    for load in loads.into_iter().filter(is_wanted) {
        let mut measured = Vec::new();
        for _ in 0..rounds {
            if is_profile {
                host_call::measure(load).await;
                continue;
            }
            measured.push([
                raw_pipe::measure(load).await,
                minimal_client::measure(load).await,
                host_call::measure(load).await,
            ]);
        }
        if !is_profile {
            table::row(load, &measured);
        }
    }
}

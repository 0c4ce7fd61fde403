//! Closed-loop load: a number of callers, each with one call at a time, for some time.

use std::time::{Duration, Instant};

/// A cell of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LoadCell {
    pub(crate) callers: usize,
    pub(crate) payload: usize,
    pub(crate) time: Duration,
}

/// The figures of one measurement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Figures {
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
    pub(crate) per_second: f64,
    pub(crate) calls: usize,
}

impl Figures {
    /// Sums up the times of all calls of a cell.
    pub(crate) fn from_times(mut times: Vec<Duration>, took: Duration) -> Self {
        times.sort_unstable();
        let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
        let per_second = times.len() as f64 / took.as_secs_f64();
        Self { p50: at(0.5), p99: at(0.99), per_second, calls: times.len() }
    }
}

/// Returns the arguments of a call, `payload` bytes long.
pub(crate) fn arguments(payload: usize) -> String {
    let frame = r#"{"text":""}"#.len();
    format!(r#"{{"text":"{}"}}"#, "x".repeat(payload.saturating_sub(frame)))
}

pub(crate) fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// Runs callers in a closed loop. Every caller has made one call before the time begins.
pub(crate) async fn run_closed_loop<C, F>(load: LoadCell, call: C) -> Figures
where
    C: Fn() -> F + Clone + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let warming: Vec<_> = (0..load.callers).map(|_| tokio::spawn(call_once(call.clone()))).collect();
    for caller in warming {
        caller.await.expect("a caller ends");
    }
    let began = Instant::now();
    let end = began + load.time;
    let callers: Vec<_> = (0..load.callers).map(|_| tokio::spawn(call_until(end, call.clone()))).collect();
    let mut times = Vec::new();
    for caller in callers {
        times.extend(caller.await.expect("a caller ends"));
    }
    Figures::from_times(times, began.elapsed())
}

async fn call_once<C: Fn() -> F, F: Future<Output = ()>>(call: C) {
    call().await;
}

async fn call_until<C: Fn() -> F, F: Future<Output = ()>>(end: Instant, call: C) -> Vec<Duration> {
    let mut times = Vec::new();
    while Instant::now() < end {
        let began = Instant::now();
        call().await;
        times.push(began.elapsed());
    }
    times
}

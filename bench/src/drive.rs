//! Closed-loop load: so many callers, each with one call at a time, for so long.

use std::time::{Duration, Instant};

/// One cell of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) callers: usize,
    pub(crate) payload: usize,
    pub(crate) time: Duration,
}

/// One measurement of one way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Figures {
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
    pub(crate) per_second: f64,
    pub(crate) calls: usize,
}

impl Figures {
    /// Sums up the times of all calls of a cell.
    pub(crate) fn of(mut times: Vec<Duration>, took: Duration) -> Self {
        times.sort_unstable();
        let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
        let per_second = times.len() as f64 / took.as_secs_f64();
        Self { p50: at(0.5), p99: at(0.99), per_second, calls: times.len() }
    }
}

/// The arguments of a call, this long altogether.
pub(crate) fn arguments(payload: usize) -> String {
    let frame = r#"{"text":""}"#.len();
    format!(r#"{{"text":"{}"}}"#, "x".repeat(payload.saturating_sub(frame)))
}

pub(crate) fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// Calls again and again. Every caller has made one call before the time begins.
pub(crate) async fn drive<C, F>(load: Load, call: C) -> Figures
where
    C: Fn() -> F + Clone + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let warming: Vec<_> = (0..load.callers).map(|_| tokio::spawn(once(call.clone()))).collect();
    for caller in warming {
        caller.await.expect("a caller ends");
    }
    let began = Instant::now();
    let end = began + load.time;
    let callers: Vec<_> = (0..load.callers).map(|_| tokio::spawn(until(end, call.clone()))).collect();
    let mut times = Vec::new();
    for caller in callers {
        times.extend(caller.await.expect("a caller ends"));
    }
    Figures::of(times, began.elapsed())
}

async fn once<C: Fn() -> F, F: Future<Output = ()>>(call: C) {
    call().await;
}

async fn until<C: Fn() -> F, F: Future<Output = ()>>(end: Instant, call: C) -> Vec<Duration> {
    let mut times = Vec::new();
    while Instant::now() < end {
        let began = Instant::now();
        call().await;
        times.push(began.elapsed());
    }
    times
}

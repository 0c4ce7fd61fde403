//! Processor time of processes, as `/proc` counts it.

use std::time::Duration;

/// What processes have used so far. One that has ended has used nothing.
pub(crate) fn used<const N: usize>(pids: [u32; N]) -> [Duration; N] {
    pids.map(|pid| of(pid).unwrap_or_default())
}

fn of(pid: u32) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in brackets, and may hold anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    // A tick is a hundredth of a second on every Linux that we know.
    Some(Duration::from_millis((ticks()? + ticks()?) * 10))
}

/// What was used since, for each of so many calls, in microseconds.
pub(crate) fn per_call<const N: usize>(since: [Duration; N], now: [Duration; N], calls: usize) -> [f64; N] {
    std::array::from_fn(|at| now[at].saturating_sub(since[at]).as_secs_f64() * 1e6 / calls as f64)
}

/// The load of the machine in the last minute.
pub(crate) fn machine_load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}

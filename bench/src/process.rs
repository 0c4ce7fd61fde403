//! Memory, descriptors and processor time of processes, read from `/proc`.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

/// Process names of test servers, which are counted apart from the gateway.
const STUBS: [&str; 2] = ["mcp-stub", "fake-mcp"];

/// A clock tick; Linux reports 100 of them in a second to every program.
const TICK_US: i64 = 10_000;

/// The resources of processes. Signed, for differences are taken.
#[derive(Default, Clone, Copy, Debug)]
pub struct MeasuredUsage {
    pub procs: i64,
    pub threads: i64,
    pub fds: i64,
    pub rss_kib: i64,
    /// The peak of resident memory since [`reset_peak`].
    pub hwm_kib: i64,
    /// Shared pages count in part.
    pub pss_kib: i64,
    /// `Private_Dirty`: written to, and shared with no other process.
    pub private_kib: i64,
    pub cpu_us: i64,
}

impl MeasuredUsage {
    /// Reads the resources of one process; zero once it has ended.
    pub fn read(pid: u32) -> Self {
        let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let (status, rollup) = (read("status"), read("smaps_rollup"));
        if status.is_empty() {
            return Self::default();
        }
        let fds = fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
        Self {
            procs: 1,
            threads: field(&status, "Threads:"),
            fds: fds as i64,
            rss_kib: field(&rollup, "Rss:"),
            hwm_kib: field(&status, "VmHWM:"),
            pss_kib: field(&rollup, "Pss:"),
            private_kib: field(&rollup, "Private_Dirty:"),
            cpu_us: cpu_us(pid),
        }
    }

    /// Formats memory before and after, and descriptors before and after.
    pub fn compare(self, after: Self) -> String {
        format!("{}, {}; {}, {}", mib(self.rss_kib), mib(after.rss_kib), self.fds, after.fds)
    }
}

impl std::ops::AddAssign for MeasuredUsage {
    fn add_assign(&mut self, other: Self) {
        self.procs += other.procs;
        self.threads += other.threads;
        self.fds += other.fds;
        self.rss_kib += other.rss_kib;
        self.hwm_kib += other.hwm_kib;
        self.pss_kib += other.pss_kib;
        self.private_kib += other.private_kib;
        self.cpu_us += other.cpu_us;
    }
}

/// Resources of a process and its descendants, the test servers apart from the rest.
#[derive(Default, Clone, Copy, Debug)]
pub struct TreeUsage {
    pub gateway: MeasuredUsage,
    pub stubs: MeasuredUsage,
}

impl TreeUsage {
    /// Sums up a process and all its descendants.
    pub fn read(root: u32) -> Self {
        let children = children();
        let mut tree = Self::default();
        let mut todo = vec![root];
        while let Some(pid) = todo.pop() {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            match STUBS.contains(&name.trim()) {
                true => tree.stubs += MeasuredUsage::read(pid),
                false => tree.gateway += MeasuredUsage::read(pid),
            }
            todo.extend(children.get(&pid).into_iter().flatten());
        }
        tree
    }
}

/// Returns the processor time of a process; zero once it has ended.
pub fn cpu_us(pid: u32) -> i64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let ticks = |at| fields_of_stat(&stat).nth(at).and_then(|text| text.parse().ok()).unwrap_or(0);
    (ticks(11) + ticks(12)) * TICK_US
}

/// Returns the processor time of the first thread of a process, to the nanosecond; zero once it has
/// ended.
pub fn first_thread_cpu(pid: u32) -> Duration {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/schedstat")).unwrap_or_default();
    let nanos = text.split(' ').next().and_then(|text| text.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

/// Resets the peak of a process's resident memory.
pub fn reset_peak(pid: u32) {
    fs::write(format!("/proc/{pid}/clear_refs"), "5").unwrap();
}

/// Formats KiB as MiB.
pub fn mib(kib: i64) -> String {
    format!("{:.1} MiB", kib as f64 / 1024.0)
}

/// Returns the load of the machine in the last minute.
pub fn machine_load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}

fn children() -> HashMap<u32, Vec<u32>> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        if let Some(parent) = fields_of_stat(&stat).nth(1).and_then(|text| text.parse().ok()) {
            children.entry(parent).or_default().push(pid);
        }
    }
    children
}

/// Returns the fields after the name, which stands in brackets and may hold anything.
fn fields_of_stat(stat: &str) -> impl Iterator<Item = &str> {
    stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace()
}

fn field(text: &str, name: &str) -> i64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

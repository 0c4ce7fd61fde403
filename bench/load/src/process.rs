//! What a daemon and the processes that guard its servers take, as `/proc` tells it.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use ostler_testkit::Proc;

/// What processes take.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Weight {
    pub(crate) rss_kib: i64,
    /// Shared pages count in part.
    pub(crate) pss_kib: i64,
    /// Written to and shared with no other process.
    pub(crate) own_kib: i64,
    pub(crate) descriptors: i64,
    pub(crate) threads: i64,
}

impl Weight {
    /// Of one process.
    pub(crate) fn of(pid: u32) -> Self {
        let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
        Self {
            rss_kib: field(pid, "smaps_rollup", "Rss:"),
            pss_kib: field(pid, "smaps_rollup", "Pss:"),
            own_kib: field(pid, "smaps_rollup", "Private_Dirty:"),
            descriptors: i64::try_from(descriptors).unwrap(),
            threads: field(pid, "status", "Threads:"),
        }
    }

    /// Memory before and after, and descriptors before and after.
    pub(crate) fn beside(self, after: Self) -> String {
        let (before_kib, after_kib) = (mib(self.rss_kib), mib(after.rss_kib));
        format!("{before_kib}, {after_kib}; {}, {}", self.descriptors, after.descriptors)
    }

    /// Of a daemon with its guards and their warden, without the servers.
    pub(crate) fn with_guards(pid: u32) -> Self {
        let mut sum = Self::of(pid);
        for process in Proc::of(pid).expect("the daemon lives").descendants() {
            if process.name() == "fake-mcp" {
                continue;
            }
            let more = Self::of(process.pid);
            sum.rss_kib += more.rss_kib;
            sum.pss_kib += more.pss_kib;
            sum.own_kib += more.own_kib;
            sum.descriptors += more.descriptors;
            sum.threads += more.threads;
        }
        sum
    }
}

/// The most that was resident since [`forget_peak`], in KiB.
pub(crate) fn peak_kib(pid: u32) -> i64 {
    field(pid, "status", "VmHWM:")
}

/// Begins the peak anew.
pub(crate) fn forget_peak(pid: u32) {
    std::fs::write(format!("/proc/{pid}/clear_refs"), "5").unwrap();
}

/// So many KiB as MiB.
pub(crate) fn mib(kib: i64) -> String {
    format!("{:.1} MiB", kib as f64 / 1024.0)
}

fn field(pid: u32, file: &str, name: &str) -> i64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// As many descriptors for this process as it may have.
pub(crate) fn raise_descriptors() {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
}

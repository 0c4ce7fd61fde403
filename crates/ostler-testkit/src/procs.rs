//! Real processes, read from `/proc`.
//!
//! Tests with real processes wait for conditions and not for time: [`eventually`] polls until its
//! limit.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::time::{Instant, sleep};

/// Often enough that a test loses little time, and rarely enough to leave the CPU to the processes.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A process, told apart by its start time from a later one with the same pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Proc {
    /// The pid.
    pub pid: u32,
    /// The start time, in clock ticks since boot.
    start_time: u64,
}

/// The fields of `/proc/PID/stat` that tests need.
struct Stat {
    name: String,
    state: char,
    parent: u32,
    start_time: u64,
}

impl Proc {
    /// Returns the living process with a pid.
    pub fn find(pid: u32) -> Option<Self> {
        let stat = Stat::read(pid)?;
        stat.is_alive().then_some(Self { pid, start_time: stat.start_time })
    }

    /// Returns the test's own process.
    pub fn current() -> Self {
        Self::find(std::process::id()).expect("whoever asks is alive")
    }

    /// Returns whether the process still runs. A zombie does not, and neither does a later process
    /// with the same pid.
    pub fn is_alive(self) -> bool {
        Stat::read(self.pid).is_some_and(|stat| stat.start_time == self.start_time && stat.is_alive())
    }

    /// Returns whether its parent has reaped it, so that even its zombie is gone.
    pub fn is_reaped(self) -> bool {
        Stat::read(self.pid).is_none_or(|stat| stat.start_time != self.start_time)
    }

    /// Returns the short name, as `ps` shows it; empty when the process is gone.
    pub fn name(self) -> String {
        Stat::read(self.pid).map(|stat| stat.name).unwrap_or_default()
    }

    /// Returns the parent: the process that started it, or the one that adopted it.
    pub fn parent(self) -> Option<Self> {
        Self::find(Stat::read(self.pid)?.parent)
    }

    /// Returns every living descendant, parents before children.
    pub fn descendants(self) -> Vec<Self> {
        self.descendants_where(Stat::is_alive)
    }

    /// Returns descendants that have ended and are not reaped.
    pub fn zombies(self) -> Vec<Self> {
        self.descendants_where(|stat| stat.state == 'Z')
    }

    fn descendants_where(self, is_wanted: impl Fn(&Stat) -> bool) -> Vec<Self> {
        let mut children: HashMap<u32, Vec<(u32, Stat)>> = HashMap::new();
        for pid in all_pids() {
            if let Some(stat) = Stat::read(pid) {
                children.entry(stat.parent).or_default().push((pid, stat));
            }
        }
        let mut found = Vec::new();
        let mut parents = vec![self.pid];
        while let Some(parent) = parents.pop() {
            for (pid, stat) in children.remove(&parent).unwrap_or_default() {
                parents.push(pid);
                if is_wanted(&stat) {
                    found.push(Self { pid, start_time: stat.start_time });
                }
            }
        }
        found
    }

    /// Kills the process with SIGKILL.
    pub fn kill(self) {
        self.signal(Signal::SIGKILL);
    }

    /// Sends a signal, unless the process is gone.
    pub fn signal(self, signal: Signal) {
        if !self.is_reaped() {
            let _ = kill(Pid::from_raw(self.pid.cast_signed()), signal);
        }
    }

    /// Returns whether a signal has stopped the process with all its threads.
    pub fn is_frozen(self) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.pid)).into_iter().flatten().flatten();
        let mut states =
            threads.map(|thread| Stat::read_file(&thread.path().join("stat")).map(|stat| stat.state));
        states.all(|state| state == Some('T'))
    }

    /// Returns the resident memory in KiB; 0 when the process is gone.
    pub fn rss_kib(self) -> u64 {
        self.status_kib("VmRSS:")
    }

    /// Returns the anonymous memory in KiB; 0 when the process is gone. Leaves out pages of files,
    /// which the kernel drops and reads again as the machine's load has it.
    pub fn anonymous_kib(self) -> u64 {
        self.status_kib("RssAnon:")
    }

    /// Returns the memory that the process has written to and shares with no other, in KiB; 0 when
    /// the process is gone.
    pub fn private_kib(self) -> u64 {
        // Pages of a freshly linked program are dirty too, until they are on the disk.
        let (mut sum, mut dirty) = (0, 0);
        for line in self.read("smaps").lines() {
            if line.starts_with("Private_Dirty:") {
                dirty = field_kib(line, "Private_Dirty:");
            } else if line.starts_with("Anonymous:") {
                sum += dirty.min(field_kib(line, "Anonymous:"));
            }
        }
        sum
    }

    /// Returns the pages of files that the kernel may drop, in KiB; 0 when the process is gone.
    pub fn unlocked_file_kib(self) -> u64 {
        let smaps = self.read("smaps");
        let (mut sum, mut rss, mut is_of_file) = (0, 0, false);
        for line in smaps.lines() {
            if let Some(flags) = line.strip_prefix("VmFlags:") {
                let is_locked = flags.split_whitespace().any(|flag| flag == "lo");
                sum += if is_of_file && !is_locked { rss } else { 0 };
            } else if line.starts_with("Rss:") {
                rss = field_kib(line, "Rss:");
            } else if line.starts_with(|c: char| c.is_ascii_digit() || c.is_ascii_lowercase()) {
                is_of_file = line.contains(" /");
            }
        }
        sum
    }

    fn status_kib(self, field: &str) -> u64 {
        field_kib(&self.read("status"), field)
    }

    fn read(self, file: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{file}", self.pid)).unwrap_or_default()
    }

    /// Returns the number of open descriptors.
    pub fn descriptors(self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid)).map_or(0, Iterator::count)
    }
}

impl Stat {
    fn read(pid: u32) -> Option<Self> {
        Self::read_file(Path::new(&format!("/proc/{pid}/stat")))
    }

    /// Reads a `stat` file. The second field, the program's name, may hold spaces and parentheses,
    /// so counting starts behind the last `)`.
    fn read_file(file: &Path) -> Option<Self> {
        let text = std::fs::read_to_string(file).ok()?;
        let (head, tail) = text.rsplit_once(')')?;
        let fields: Vec<&str> = tail.split_ascii_whitespace().collect();
        Some(Self {
            name: head.split_once('(')?.1.to_owned(),
            state: fields.first()?.chars().next()?,
            parent: fields.get(1)?.parse().ok()?,
            start_time: fields.get(19)?.parse().ok()?,
        })
    }

    fn is_alive(&self) -> bool {
        !matches!(self.state, 'Z' | 'X')
    }
}

fn field_kib(text: &str, field: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn all_pids() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Returns the living processes whose pids stand in a file, one per line.
pub fn read_processes(file: &Path) -> Vec<Proc> {
    read_lines(file).iter().filter_map(|line| Proc::find(line.parse().ok()?)).collect()
}

/// Returns the lines of a file, which need not exist yet.
pub fn read_lines(file: &Path) -> Vec<String> {
    std::fs::read_to_string(file).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// Makes this process the parent of every orphan below it, so that no orphan of a killed child
/// escapes [`Proc::descendants`].
pub fn become_subreaper() {
    nix::sys::prctl::set_child_subreaper(true).expect("Linux has subreapers");
}

/// Peak of a process's anonymous memory beyond its memory at the start.
///
/// The kernel keeps the peak of all resident memory only. Pages of files, which it drops and reads
/// again as the machine's load has it, are subtracted.
#[derive(Debug, Clone, Copy)]
pub struct MemoryGrowth {
    process: Proc,
    anonymous_kib: u64,
    file_kib: u64,
}

impl MemoryGrowth {
    /// Resets the peak and starts measuring.
    pub fn begin(process: Proc) -> Self {
        std::fs::write(format!("/proc/{}/clear_refs", process.pid), "5").expect("the process is ours");
        let file_kib = process.status_kib("RssFile:");
        Self { process, anonymous_kib: process.anonymous_kib(), file_kib }
    }

    /// Returns the growth at its peak, in KiB.
    pub fn kib(self) -> u64 {
        let file_kib = self.file_kib.max(self.process.status_kib("RssFile:"));
        self.process.status_kib("VmHWM:").saturating_sub(file_kib + self.anonymous_kib)
    }
}

/// Waits until a condition holds; panics with `what` at the limit.
pub async fn eventually(what: &str, limit: Duration, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + limit;
    while !is_so() {
        assert!(Instant::now() < end, "not within {limit:?}: {what}");
        sleep(POLL_INTERVAL).await;
    }
}

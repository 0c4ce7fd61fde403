//! Resource usage of a process tree from `/proc`: enough to distinguish a server that works from one that hangs.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::PathBuf;

/// CPU time and IO of a process and all its descendants. Only a comparison with a later reading means anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ProcessUsage {
    /// In clock ticks, those of reaped children included.
    pub(crate) cpu: u64,
    /// Bytes read and written, to anything.
    pub(crate) io: u64,
    /// Processes in the tree.
    processes: usize,
}

/// Upper bound on the processes that are read; a larger tree is busy enough.
const MAX_PROCESSES: usize = 1_024;

/// Upper bound on the threads of a process whose children are read: nearly always the first has all of them.
const MAX_THREADS: usize = 256;

/// Upper bound on the processes whose sockets are read: a server is behind some shells and package managers at most.
const MAX_SCANNED: usize = 32;

/// Upper bound on the file descriptors that one scan reads, of all processes together.
const MAX_DESCRIPTORS: usize = 1_024;

/// Upper bound on the bytes read of a table of sockets: some 7,000 lines, listening sockets first.
const MAX_TABLE: u64 = 1 << 20;

impl ProcessUsage {
    /// Reads the usage of a tree. Processes that can't be read count as idle.
    pub(crate) fn of_tree(root: u32) -> Self {
        let tree = tree_of(root, MAX_PROCESSES);
        Self {
            cpu: tree.iter().filter_map(|pid| cpu_of(*pid)).sum(),
            io: tree.iter().filter_map(|pid| io_of(*pid)).sum(),
            processes: tree.len(),
        }
    }
}

/// Returns the processes of a tree, the root first, up to a number.
fn tree_of(root: u32, most: usize) -> Vec<u32> {
    let mut tree = vec![root];
    let mut read = 0;
    while read < tree.len() && tree.len() < most {
        tree.extend(children_of(tree[read]));
        tree.truncate(most);
        read += 1;
    }
    tree
}

/// Returns the lowest TCP port that a process of a tree listens on.
pub(crate) fn listening_port(root: u32) -> Option<u16> {
    let mut scan = PortScan::new(MAX_DESCRIPTORS);
    tree_of(root, MAX_SCANNED).into_iter().filter_map(|pid| scan.port_of(pid)).min()
}

/// A scan of processes for listening sockets. Its cost is bounded for any number of descriptors.
#[derive(Debug)]
struct PortScan {
    /// File descriptors that may still be read.
    descriptors: usize,
    /// Ports of the listening sockets, by inode, for each network namespace.
    tables: HashMap<PathBuf, HashMap<String, u16>>,
}

impl PortScan {
    fn new(descriptors: usize) -> Self {
        Self { descriptors, tables: HashMap::new() }
    }

    /// Returns the lowest TCP port that a process listens on.
    fn port_of(&mut self, pid: u32) -> Option<u16> {
        let sockets = self.sockets_of(pid);
        if sockets.is_empty() {
            return None;
        }
        let namespace = fs::read_link(format!("/proc/{pid}/ns/net")).ok()?;
        let listening = self.tables.entry(namespace).or_insert_with(|| listening_sockets(pid));
        sockets.iter().filter_map(|inode| listening.get(inode)).min().copied()
    }

    /// Returns the inodes of a process's sockets.
    fn sockets_of(&mut self, pid: u32) -> Vec<String> {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        let files = files.take(self.descriptors).inspect(|_| self.descriptors -= 1);
        let targets =
            files.filter_map(|file| fs::read_link(file.path()).ok()?.into_os_string().into_string().ok());
        let inode = |target: String| Some(target.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned());
        targets.filter_map(inode).collect()
    }
}

/// Returns the ports of the listening sockets in a process's network namespace, by inode.
fn listening_sockets(pid: u32) -> HashMap<String, u16> {
    let table = |name| {
        let mut table = String::new();
        let file = File::open(format!("/proc/{pid}/net/{name}")).ok()?;
        file.take(MAX_TABLE).read_to_string(&mut table).ok()?;
        // A line that was cut off could name another socket.
        table.truncate(table.rfind('\n')? + 1);
        Some(table)
    };
    let tables = ["tcp", "tcp6"].map(table);
    let listening = tables.iter().flatten().flat_map(|table| table.lines().filter_map(listening_socket));
    listening.map(|(inode, port)| (inode.to_owned(), port)).collect()
}

/// Parses a line of `/proc/PID/net/tcp`: inode and port of a listening socket.
fn listening_socket(line: &str) -> Option<(&str, u16)> {
    const LISTEN: &str = "0A";
    let mut fields = line.split_ascii_whitespace().skip(1);
    let (local, state) = (fields.next()?, fields.nth(1)?);
    let port = u16::from_str_radix(local.rsplit(':').next()?, 16).ok()?;
    Some((fields.nth(5)?, port)).filter(|_| state == LISTEN)
}

/// Returns the root of the tree that a process belongs to: its guard, which adopts its orphans, if there is one that
/// can be read.
pub(crate) fn root_of(pid: u32, has_guard: bool) -> u32 {
    let parent = stat(pid).and_then(|stat| stat_field(&stat, 4)).filter(|_| has_guard);
    parent.filter(|parent| children_of(*parent).contains(&pid)).unwrap_or(pid)
}

fn stat(pid: u32) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/stat")).ok()
}

/// Reads a field of `/proc/PID/stat` by its number in proc(5). The second, the program's name, may hold spaces and
/// parentheses, so counting starts behind the last `)`.
fn stat_field<T: std::str::FromStr>(stat: &str, number: usize) -> Option<T> {
    let behind_name = &stat[stat.rfind(')')? + 1..];
    behind_name.split_ascii_whitespace().nth(number - 3)?.parse().ok()
}

/// Sums utime, stime, cutime and cstime.
fn cpu_of(pid: u32) -> Option<u64> {
    let stat = stat(pid)?;
    Some((14..=17).filter_map(|number| stat_field::<u64>(&stat, number)).sum())
}

fn io_of(pid: u32) -> Option<u64> {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    let counters = io.lines().filter(|line| line.starts_with("rchar") || line.starts_with("wchar"));
    Some(counters.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum())
}

fn children_of(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = threads
        .take(MAX_THREADS)
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    struct ShellTree(Child);

    impl Drop for ShellTree {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn shell(script: &str) -> std::io::Result<ShellTree> {
        Command::new("sh").args(["-c", script]).spawn().map(ShellTree)
    }

    fn until(is_so: impl Fn() -> bool) {
        while !is_so() {
            std::thread::yield_now();
        }
    }

    fn port_of(pid: u32) -> Option<u16> {
        PortScan::new(MAX_DESCRIPTORS).port_of(pid)
    }

    #[test]
    fn a_scan_looks_at_a_bounded_number_of_descriptors() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut scan = PortScan::new(2);
        // The first two are stdin and stdout.
        assert_eq!((scan.port_of(std::process::id()), scan.descriptors), (None, 0));
        assert_eq!(scan.port_of(std::process::id()), None);
        assert_eq!(port_of(std::process::id()), Some(port));
    }

    #[test]
    fn tables_of_sockets_are_read_once_for_each_network_namespace() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut scan = PortScan::new(MAX_DESCRIPTORS);
        let port = scan.port_of(std::process::id());
        assert!(port.is_some());
        drop(listener);
        let later = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(scan.port_of(std::process::id()), None, "the table is that of before");
        assert_eq!(scan.tables.len(), 1);
        assert_eq!(port_of(std::process::id()), Some(later.local_addr().unwrap().port()));
    }

    #[test]
    fn a_tree_has_no_more_processes_than_asked_for() {
        let crowd = shell("for n in 1 2 3 4 5 6 7 8; do sleep 1000 & done; wait").unwrap();
        until(|| children_of(crowd.0.id()).len() == 8);
        assert_eq!(tree_of(crowd.0.id(), 5).len(), 5);
        for pid in children_of(crowd.0.id()) {
            Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
        }
    }

    #[test]
    fn the_port_that_a_tree_listens_on_is_found_and_no_other() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let _connection = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        assert_eq!(port_of(std::process::id()), Some(port));
        let idle = shell("exec sleep 1000").unwrap();
        assert_eq!(listening_port(idle.0.id()), None, "sockets of others do not count");
        drop(listener);
        assert_eq!(port_of(std::process::id()), None);
    }

    #[test]
    fn a_tree_that_works_is_told_from_one_that_sleeps() {
        // A busy grandchild behind a shell that waits for it.
        let busy = shell("(while :; do :; done) & wait").unwrap();
        let before = ProcessUsage::of_tree(busy.0.id());
        until(|| ProcessUsage::of_tree(busy.0.id()).cpu > before.cpu);
        let tree = ProcessUsage::of_tree(busy.0.id());
        assert!(tree.processes >= 2, "{tree:?}");
        let pids = children_of(busy.0.id());
        assert_eq!(pids.iter().map(|pid| root_of(*pid, true)).collect::<Vec<_>>(), [busy.0.id()]);
        assert_eq!(root_of(pids[0], false), pids[0]);
        pids.iter().for_each(|pid| {
            Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
        });
        let idle = shell("exec sleep 1000").unwrap();
        let name = || fs::read_to_string(format!("/proc/{}/comm", idle.0.id())).unwrap_or_default();
        until(|| name().trim() == "sleep");
        let is_quiet = || {
            let before = ProcessUsage::of_tree(idle.0.id());
            std::thread::yield_now();
            ProcessUsage::of_tree(idle.0.id()) == before
        };
        until(is_quiet);
        assert_eq!(ProcessUsage::of_tree(u32::MAX).cpu, 0);
    }
}

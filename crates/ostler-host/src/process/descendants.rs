//! Process tree: the descendants of this process, as `/proc` lists them.

use std::collections::HashMap;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Parents and children of all processes at one moment.
#[derive(Debug)]
pub(crate) struct ProcessTree {
    children: HashMap<i32, Vec<i32>>,
}

impl ProcessTree {
    /// Reads `/proc` once. Processes that end meanwhile are missing.
    pub(crate) fn read() -> Self {
        let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            if let Some(parent) = parent_of(pid) {
                children.entry(parent).or_default().push(pid);
            }
        }
        Self { children }
    }

    /// Returns the direct children of a process.
    pub(crate) fn children_of(&self, pid: i32) -> &[i32] {
        self.children.get(&pid).map_or(&[], Vec::as_slice)
    }

    /// Returns all descendants of a process, parents before children.
    pub(crate) fn descendants_of(&self, pid: i32) -> Vec<i32> {
        let mut found: Vec<i32> = self.children_of(pid).to_vec();
        let mut next = 0;
        while next < found.len() {
            found.extend_from_slice(self.children_of(found[next]));
            next += 1;
        }
        found
    }
}

/// Returns the fourth field of `/proc/PID/stat`. The second, the program's name, may hold spaces and parentheses, so
/// counting starts behind the last `)`.
fn parent_of(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let behind_name = &stat[stat.rfind(')')? + 1..];
    behind_name.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Sends a signal to every process of the list; ended ones are ignored.
pub(crate) fn signal_all(pids: &[i32], signal: Signal) {
    for pid in pids {
        let _ = kill(Pid::from_raw(*pid), signal);
    }
}

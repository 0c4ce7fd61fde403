//! Processes of a daemon, including those that it has lost track of.

use std::collections::HashSet;
use std::path::Path;

use ostler_chaos::history::SeenProcess;
use ostler_testkit::Proc;

/// The variable in the environment of the daemon and of its servers that names the daemon and the
/// run. The daemon's allowlist of the environment passes this prefix on.
pub(crate) const MARK: &str = "XDG_CHAOS_LIFE";

/// The processes of one daemon's life.
#[derive(Debug)]
pub(crate) struct DaemonProcesses {
    daemon: Proc,
    mark: String,
}

impl DaemonProcesses {
    pub(crate) fn find(daemon: u32, mark: String) -> Option<Self> {
        Some(Self { daemon: Proc::find(daemon)?, mark })
    }

    /// Returns the daemon itself.
    pub(crate) fn daemon(&self) -> Proc {
        self.daemon
    }

    /// Returns every descendant of the daemon, and every process with its mark.
    pub(crate) fn members(&self) -> HashSet<Proc> {
        let mark = format!("{MARK}={}", self.mark);
        let marked = marked(&mark).filter(|proc| *proc != self.daemon);
        self.daemon.descendants().into_iter().chain(marked).collect()
    }

    /// Returns a census of the running daemon, zombies included.
    pub(crate) fn census(&self) -> Vec<SeenProcess> {
        let seen = |proc: Proc, is_zombie| SeenProcess { pid: proc.pid, name: proc.name(), is_zombie };
        let alive = self.members().into_iter().map(|proc| seen(proc, false));
        alive.chain(self.daemon.zombies().into_iter().map(|proc| seen(proc, true))).collect()
    }

    /// Returns the processes of a server that speak MCP, without helpers.
    pub(crate) fn servers(&self, name: &str) -> Vec<Proc> {
        let is_it = |proc: &Proc| proc.name() == "fake-mcp" && has_name(*proc, name);
        // The helpers of a wrapped server have the command line of the process that forked them.
        let speaks = |proc: &Proc| proc.parent().is_some_and(|parent| parent.name() != "fake-mcp");
        let mut found: Vec<Proc> =
            self.daemon.descendants().into_iter().filter(is_it).filter(speaks).collect();
        found.sort_by_key(|proc| proc.pid);
        found
    }
}

/// Returns the processes that are left when the daemon is gone.
pub(crate) fn survivors(members: &HashSet<Proc>, mark: &str) -> Vec<SeenProcess> {
    let mark = format!("{MARK}={mark}");
    let late = marked(&mark).filter(|proc| !members.contains(proc));
    let alive: Vec<Proc> = members.iter().copied().filter(|proc| proc.is_alive()).chain(late).collect();
    alive.iter().map(|proc| SeenProcess { pid: proc.pid, name: proc.name(), is_zombie: false }).collect()
}

fn marked(mark: &str) -> impl Iterator<Item = Proc> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(move |entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        has_variable(&entry.path(), mark).then(|| Proc::find(pid))?
    })
}

fn has_variable(folder: &Path, variable: &str) -> bool {
    let environ = std::fs::read(folder.join("environ")).unwrap_or_default();
    environ.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes())
}

fn has_name(proc: Proc, name: &str) -> bool {
    let line = std::fs::read(format!("/proc/{}/cmdline", proc.pid)).unwrap_or_default();
    let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
    words.windows(2).any(|pair| pair[0] == b"--name" && pair[1] == name.as_bytes())
}

//! Guard of one server: starts it, and exits when no descendant is left.
//!
//! ```text
//! started ──▶ watching ──stop, lifeline closed──▶ stdin closed ────▶ SIGTERM ──▶ SIGKILL ──▶ all exited
//!                │                                     │                ▲
//!                └──────────server exits───────────────┴────────────────┘
//! ```

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpid, getppid};
use ostler_core::fault::Exit;
use ostler_core::sabotage;

use super::descendants::{ProcessTree, signal_all};
use super::memory_lock::StopPath;
use super::protocol::{GuardReport, KILL, MAX_REQUEST, STOP, SpawnRequest, StopTimeouts, no_command};
use super::signals::Signals;
use super::sys;

/// First delay between two rounds of SIGKILL, each over the descendants born during the last. The delay doubles up to
/// [`MAX_KILL_INTERVAL`]: a process that the kernel can't end must not cost a core.
const KILL_INTERVAL: Duration = Duration::from_millis(10);
/// Upper bound on [`KILL_INTERVAL`]'s growth.
const MAX_KILL_INTERVAL: Duration = Duration::from_secs(1);

/// Phase of the stop sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StopPhase {
    /// The server runs and no stop was requested.
    Watching,
    /// The server's stdin was closed, which asks it to exit.
    StdinClosed { until: Instant },
    /// SIGTERM was sent.
    Terminating { until: Instant },
    /// SIGKILL is sent to everything, again and again until nothing is left.
    Killing,
}

/// A guard and its server.
#[derive(Debug)]
pub(crate) struct Guard {
    /// The server's own process; its group has the same number.
    server: Pid,
    /// True until the server's own process has been reaped: its pid can't be reused before.
    is_running: bool,
    timeouts: StopTimeouts,
    phase: StopPhase,
    /// Delay after the next round of SIGKILL.
    kill_interval: Duration,
    lifeline: Option<File>,
    signals: Signals,
}

impl Guard {
    /// Starts the server. The guard must be a subreaper already.
    fn start(mut command: Command, pace: StopTimeouts, lifeline: Option<File>) -> io::Result<Self> {
        let signals = Signals::block()?;
        command.process_group(0);
        sys::kill_with_parent(&mut command);
        let server = Pid::from_raw(command.spawn()?.id().cast_signed());
        Ok(Self {
            server,
            is_running: true,
            timeouts: pace,
            phase: StopPhase::Watching,
            kill_interval: KILL_INTERVAL,
            lifeline,
            signals,
        })
    }

    /// Watches until no descendant is left; returns the server's exit.
    fn watch(mut self) -> Exit {
        let mut exit = Exit::Untold;
        self.report(&GuardReport::Started(self.server.as_raw()));
        loop {
            while let Some(reaped) = reap() {
                let Reaped::Child(pid, how) = reaped else {
                    self.report(&GuardReport::AllExited);
                    return exit;
                };
                if pid == self.server {
                    exit = how;
                    self.is_running = false;
                    self.report(&GuardReport::Exited(how));
                    self.end_leftovers();
                }
            }
            self.advance();
            self.wait();
        }
    }

    /// Begins to stop the descendants of a server that has exited.
    fn end_leftovers(&mut self) {
        if matches!(self.phase, StopPhase::Watching | StopPhase::StdinClosed { .. }) {
            self.signal_everyone(Signal::SIGTERM);
            self.phase = StopPhase::Terminating { until: Instant::now() + self.timeouts.leftovers };
        }
    }

    /// Advances to the next phase when the present one has timed out.
    fn advance(&mut self) {
        let now = Instant::now();
        match self.phase {
            StopPhase::StdinClosed { until } if now >= until => {
                self.signal_everyone(Signal::SIGTERM);
                self.phase = StopPhase::Terminating { until: now + self.timeouts.before_kill };
            }
            StopPhase::Terminating { until } if now >= until => self.phase = StopPhase::Killing,
            _ => {}
        }
        if self.phase == StopPhase::Killing {
            self.signal_everyone(Signal::SIGKILL);
            self.kill_interval = (self.kill_interval * 2).min(MAX_KILL_INTERVAL);
        }
    }

    /// Signals the server's group and every descendant, in any group or session.
    fn signal_everyone(&self, signal: Signal) {
        if self.is_running {
            let _ = killpg(self.server, signal);
        }
        sabotage!(StrayDescendant, return);
        let everyone = ProcessTree::read().descendants_of(getpid().as_raw());
        signal_all(&everyone, signal);
        if signal == Signal::SIGTERM {
            // A stopped process acts on SIGTERM only when it continues.
            signal_all(&everyone, Signal::SIGCONT);
        }
    }

    /// Sleeps until a child ends, the lifeline is readable or closed, or a phase has timed out.
    fn wait(&mut self) {
        let pause = match self.phase {
            StopPhase::Watching => None,
            StopPhase::StdinClosed { until } | StopPhase::Terminating { until } => {
                Some(until.saturating_duration_since(Instant::now()))
            }
            StopPhase::Killing => Some(self.kill_interval),
        };
        let has_word = self.signals.wait(self.lifeline.as_ref(), pause).unwrap_or(false);
        if self.signals.take().is_stop_requested {
            self.begin_stop();
        }
        if has_word {
            self.read_command();
        }
    }

    /// Reads a command of the host. The end of the lifeline is the end of the host.
    fn read_command(&mut self) {
        let mut word = [0u8; 16];
        let heard = self.lifeline.as_mut().map_or(Ok(0), |lifeline| lifeline.read(&mut word));
        match heard {
            Ok(0) => {
                self.lifeline = None;
                self.begin_stop();
            }
            Ok(n) if word[..n].contains(&KILL[0]) => self.phase = StopPhase::Killing,
            Ok(_) => self.begin_stop(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => {
                self.lifeline = None;
                self.begin_stop();
            }
        }
    }

    /// Begins the stop sequence, once. The host has closed stdin by now.
    fn begin_stop(&mut self) {
        if self.phase == StopPhase::Watching {
            self.phase = StopPhase::StdinClosed { until: Instant::now() + self.timeouts.before_term };
        }
    }

    /// Sends a report to the host. A host that has ended needs none.
    fn report(&mut self, report: &GuardReport) {
        // Formatted without a host too: the dry run, which loses its host early, must execute this code.
        let line = format!("{report}\n");
        if let Some(lifeline) = &mut self.lifeline {
            let _ = lifeline.write_all(line.as_bytes());
        }
    }
}

/// Result of one reaping step.
enum Reaped {
    /// This child ended.
    Child(Pid, Exit),
    /// There is no child; since this process is a subreaper, there is no descendant either.
    NoChildren,
}

/// Reaps one ended child; `None` when all that remain still run.
fn reap() -> Option<Reaped> {
    loop {
        return match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) => Some(Reaped::Child(pid, Exit::Code(code))),
            Ok(WaitStatus::Signaled(pid, signal, _)) => Some(Reaped::Child(pid, Exit::Signal(signal as i32))),
            Ok(WaitStatus::StillAlive) => None,
            Ok(_) => continue,
            Err(Errno::ECHILD) => Some(Reaped::NoChildren),
            Err(_) => None,
        };
    }
}

/// Runs a forked guard: reads the spawn request from the lifeline, starts the server, watches, and never returns to
/// the spawner's loop.
pub(crate) fn run_forked_guard(
    descriptors: [OwnedFd; sys::DESCRIPTORS],
    stop_path: &StopPath,
) -> io::Result<()> {
    let [stdin, stdout, stderr, lifeline] = descriptors;
    let mut lifeline = File::from(lifeline);
    let _ = nix::sys::prctl::set_name(c"ostler-guard");
    let started = nix::sys::prctl::set_child_subreaper(true)
        .map_err(io::Error::from)
        .and_then(|()| read_spawn_request(&mut lifeline))
        .and_then(|order| {
            let mut command = order.command()?;
            command.stdin(stdin).stdout(stdout).stderr(stderr);
            Guard::start(command, order.pace, Some(lifeline.try_clone()?))
        });
    match started {
        Ok(mut post) => {
            drop(lifeline);
            if let Err(error) = stop_path.lock() {
                post.report(&GuardReport::Unlocked(error));
            }
            post.watch();
            Ok(())
        }
        Err(error) => {
            let report = GuardReport::Failed(error.raw_os_error(), error.to_string());
            lifeline.write_all(format!("{report}\n").as_bytes())
        }
    }
}

/// Runs the whole stop sequence over a child that does nothing. Must be called
/// by a process that has one thread and no other child.
pub(super) fn dry_run() -> io::Result<()> {
    nix::sys::prctl::set_child_subreaper(true)?;
    let signals = Signals::block()?;
    let (lifeline, mut host) = UnixStream::pair()?;
    host.write_all(STOP)?;
    drop(host);
    let server = fork_idle()?;
    nix::unistd::setpgid(server, server)?;
    let at_once =
        StopTimeouts { before_term: Duration::ZERO, before_kill: Duration::ZERO, leftovers: Duration::ZERO };
    let lifeline = Some(File::from(OwnedFd::from(lifeline)));
    Guard {
        server,
        is_running: true,
        timeouts: at_once,
        phase: StopPhase::Watching,
        kill_interval: KILL_INTERVAL,
        lifeline,
        signals,
    }
    .watch();
    Ok(())
}

/// Forks a child that does nothing until SIGKILL, which comes at the latest
/// with the end of this process.
pub(super) fn fork_idle() -> io::Result<Pid> {
    let parent = getpid();
    if let Some(child) = sys::fork()? {
        return Ok(child);
    }
    let is_bound = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).is_ok();
    while is_bound && getppid() == parent {
        nix::unistd::pause();
    }
    std::process::exit(0)
}

/// Reads the spawn request: one line of JSON.
fn read_spawn_request(lifeline: &mut File) -> io::Result<SpawnRequest> {
    let mut text = Vec::new();
    let mut chunk = [0u8; 4096];
    while text.last() != Some(&b'\n') {
        let n = lifeline.read(&mut chunk)?;
        if n == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the host left before it gave an order"));
        }
        if text.len() + n > MAX_REQUEST {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the order is too long"));
        }
        text.extend_from_slice(&chunk[..n]);
    }
    Ok(serde_json::from_slice(&text)?)
}

/// Runs `ostler guard -- CMD ARGS…`: one command under a guard of its own, with this process's stdio and environment.
/// The command and all its descendants are stopped when this process gets a stop signal or when the process that
/// started it ends.
pub fn run_command(argv: Vec<impl AsRef<OsStr>>) -> io::Result<Exit> {
    let (program, args) = argv.split_first().ok_or_else(no_command)?;
    nix::sys::prctl::set_child_subreaper(true)?;
    sys::close_others_on_exec()?;
    let _ = nix::sys::prctl::set_name(c"ostler-guard");
    // The output is the command's alone, so a refusal is not reported.
    let _ = StopPath::from_dry_run().lock();
    let mut command = Command::new(program);
    command.args(args);
    // A descriptor of the parent process stands in for the lifeline: it turns
    // readable when the parent ends, and reading it then fails, which is the
    // end of any lifeline.
    let parent = sys::open_parent().ok().map(File::from);
    Ok(Guard::start(command, StopTimeouts::default(), parent)?.watch())
}

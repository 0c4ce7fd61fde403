//! Spawner: forks guards, and kills the orphans of a guard that was killed.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpid};
use ostler_core::sabotage;

use super::descendants::{ProcessTree, signal_all};
use super::guard;
use super::memory_lock::StopPath;
use super::signals::Signals;
use super::sys::{self, SpawnerMessage};

/// Runs the spawner on its control socket, which is its stdin, until the host has ended and every guard has finished.
/// Must be called before any thread is started.
pub fn run() -> io::Result<()> {
    let control = io::stdin().as_fd().try_clone_to_owned()?;
    // Guards inherit descriptor 0; it must not keep the control socket open.
    replace_stdin()?;
    sys::close_others_on_exec()?;
    nix::sys::prctl::set_child_subreaper(true)?;
    let _ = nix::sys::prctl::set_name(c"ostler-warden");
    let mut warden = Spawner {
        control: Some(control),
        guards: HashSet::new(),
        signals: Signals::block()?,
        stop_path: StopPath::from_dry_run(),
    };
    // Guards inherit this too: servers run as the same user and could read their memory.
    nix::sys::prctl::set_dumpable(false)?;
    // Guards report a refusal: they have a host to report to.
    let _ = warden.stop_path.lock();
    while warden.step()? {}
    Ok(())
}

/// Executes the end of a host once: a guard ends, and its orphans are killed. Must be called by a subreaper that has
/// one thread and no other child.
pub(super) fn dry_run() -> io::Result<()> {
    let signals = Signals::block()?;
    let (control, host) = UnixStream::pair()?;
    drop(host);
    guard::fork_idle()?;
    let guard = guard::fork_idle()?;
    let mut warden = Spawner {
        control: Some(control.into()),
        guards: HashSet::from([guard]),
        signals,
        stop_path: StopPath::empty(),
    };
    signal_all(&[guard.as_raw()], Signal::SIGKILL);
    while warden.step()? {}
    Ok(())
}

struct Spawner {
    /// `None` once the host has ended.
    control: Option<OwnedFd>,
    /// Guards that have not been reaped; every other child is an orphan of a killed guard.
    guards: HashSet<Pid>,
    signals: Signals,
    stop_path: StopPath,
}

impl Spawner {
    /// Runs one round; returns `false` when there is nothing left to do.
    fn step(&mut self) -> io::Result<bool> {
        let is_childless = self.reap();
        if is_childless && self.control.is_none() {
            return Ok(false);
        }
        let has_message = self.signals.wait(self.control.as_ref(), None)?;
        // The spawner ignores SIGTERM to be there for its guards; it exits after the host has ended.
        let _ = self.signals.take();
        if has_message {
            self.handle_message();
        }
        Ok(true)
    }

    /// Handles one message of the host.
    fn handle_message(&mut self) {
        let Some(control) = &self.control else { return };
        match sys::receive(control) {
            Ok(SpawnerMessage::Start(descriptors)) => match sys::fork() {
                Ok(Some(guard)) => {
                    self.guards.insert(guard);
                }
                Ok(None) => {
                    self.control = None;
                    let stood = guard::run_forked_guard(descriptors, &self.stop_path);
                    std::process::exit(i32::from(stood.is_err()));
                }
                // The lifeline closes, which notifies the host; the other guards still need their spawner.
                Err(_) => {}
            },
            Ok(SpawnerMessage::Invalid) | Err(Errno::EINTR | Errno::EAGAIN) => {}
            Ok(SpawnerMessage::Closed) | Err(_) => self.control = None,
        }
    }

    /// Reaps ended children; returns `true` when no child is left.
    fn reap(&mut self) -> bool {
        sabotage!(
            UnreapedChild,
            if self.control.is_some() {
                return false;
            }
        );
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) => return false,
                Ok(status) => {
                    if let Some(pid) = status.pid() {
                        self.guards.remove(&pid);
                    }
                    self.kill_orphans();
                }
                Err(Errno::EINTR) => {}
                Err(_) => return true,
            }
        }
    }

    /// Kills the orphans of killed guards: children that aren't guards, and their descendants. Each death brings a
    /// SIGCHLD and so another round.
    fn kill_orphans(&self) {
        let family = ProcessTree::read();
        let orphans = family.children_of(getpid().as_raw()).iter();
        for orphan in orphans.filter(|pid| !self.guards.contains(&Pid::from_raw(**pid))) {
            signal_all(&family.descendants_of(*orphan), Signal::SIGKILL);
            signal_all(&[*orphan], Signal::SIGKILL);
        }
    }
}

fn replace_stdin() -> io::Result<()> {
    let null = std::fs::File::open("/dev/null")?;
    nix::unistd::dup2_stdin(null)?;
    Ok(())
}

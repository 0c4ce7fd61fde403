//! Spawner client: requests guards and keeps their lifelines.

use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::process::Command;

/// The command that becomes the spawner: this binary's own `guard --warden`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardCommand {
    /// The program to execute.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
}

impl GuardCommand {
    /// Returns the running program itself, called as `guard --warden`. Only for programs that pass that call to
    /// [`run_warden`](super::run_warden).
    pub fn this_program() -> Self {
        Self { program: PathBuf::from("/proc/self/exe"), args: vec!["guard".into(), "--warden".into()] }
    }
}

/// A guarded process before its spawn request is sent: its pipes and its lifeline.
#[derive(Debug)]
pub(crate) struct GuardedPipes {
    pub(crate) stdin: pipe::Sender,
    pub(crate) stdout: pipe::Receiver,
    pub(crate) stderr: pipe::Receiver,
    pub(crate) lifeline: UnixStream,
}

/// The spawner of one host, started at first need and again after it has ended.
#[derive(Debug)]
pub(crate) struct SpawnerClient {
    command: GuardCommand,
    running: Mutex<Option<RunningSpawner>>,
    /// True once the warning about unlocked guards was logged: all guards of a host have the same limit.
    has_warned: AtomicBool,
}

#[derive(Debug)]
struct RunningSpawner {
    control: StdUnixStream,
}

impl SpawnerClient {
    pub(crate) fn new(command: GuardCommand) -> Self {
        Self { command, running: Mutex::new(None), has_warned: AtomicBool::new(false) }
    }

    /// Requests one guard. Must be called inside a tokio runtime.
    pub(crate) fn request_guard(&self) -> io::Result<GuardedPipes> {
        let (guarded, descriptors) = open_pipes()?;
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(warden) = running.as_ref()
            && send_descriptors(&warden.control, &descriptors).is_ok()
        {
            return Ok(guarded);
        }
        // There is no spawner, or it has been killed. Its guards hold their own lifelines and are not affected.
        let warden = running.insert(self.start()?);
        send_descriptors(&warden.control, &descriptors)?;
        Ok(guarded)
    }

    /// Warns once that guards could not lock their stop path into memory.
    pub(crate) fn warn_unlocked(&self, why: &str) {
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                why,
                "guards can't lock their program into memory; if its disk or network fails, helpers of servers may be \
                 left running (raise `ulimit -l` to 8 MiB, or LimitMEMLOCK= of a systemd service)"
            );
        }
    }

    fn start(&self) -> io::Result<RunningSpawner> {
        check_proc()?;
        let (ours, theirs) = StdUnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let mut command = Command::new(&self.command.program);
        // A server can read its parents' environment; theirs is empty.
        command.args(&self.command.args).env_clear();
        #[cfg(ostler_sabotage)]
        command.envs(ostler_core::sabotage::inherited());
        let mut child = command
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(|error| {
                io::Error::new(error.kind(), format!("the guard could not be started: {error}"))
            })?;
        // An unreaped child would stay a zombie.
        tokio::spawn(async move { child.wait().await });
        Ok(RunningSpawner { control: ours })
    }
}

/// Checks that `/proc` shows the host's own processes. Guards look there for the descendants of servers. A `/proc`
/// that belongs to other processes, as in a namespace of its own without a mount of its own, would have them find
/// nothing.
fn check_proc() -> io::Result<()> {
    let shown = std::fs::read_link("/proc/self").unwrap_or_default();
    if cfg!(target_os = "linux") && !shows(&shown, std::process::id()) {
        let why = "the guard could not be started: /proc does not show this process, so nothing that a server \
                   leaves could be found (a pid namespace needs a /proc of its own, as `unshare --mount-proc` mounts)";
        return Err(io::Error::new(io::ErrorKind::Unsupported, why));
    }
    Ok(())
}

fn shows(link: &Path, pid: u32) -> bool {
    link.to_str().is_some_and(|text| text == pid.to_string())
}

/// Makes the three pipes and the lifeline of one process.
fn open_pipes() -> io::Result<(GuardedPipes, [OwnedFd; 4])> {
    let (stdin_read, stdin_write) = io::pipe()?;
    let (stdout_read, stdout_write) = io::pipe()?;
    let (stderr_read, stderr_write) = io::pipe()?;
    let (ours, theirs) = StdUnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let guarded = GuardedPipes {
        stdin: pipe::Sender::from_owned_fd(stdin_write.into())?,
        stdout: pipe::Receiver::from_owned_fd(stdout_read.into())?,
        stderr: pipe::Receiver::from_owned_fd(stderr_read.into())?,
        lifeline: UnixStream::from_std(ours)?,
    };
    Ok((guarded, [stdin_read.into(), stdout_write.into(), stderr_write.into(), theirs.into()]))
}

/// Sends the server's ends to the spawner. The socket does not block: a spawner that does not read counts as dead.
fn send_descriptors(control: &StdUnixStream, descriptors: &[OwnedFd; 4]) -> io::Result<()> {
    let numbers = descriptors.each_ref().map(AsRawFd::as_raw_fd);
    let rights = [ControlMessage::ScmRights(&numbers)];
    sendmsg::<()>(control.as_raw_fd(), &[IoSlice::new(b"g")], &rights, MsgFlags::MSG_NOSIGNAL, None)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guards_need_a_proc_that_shows_their_own_host() {
        assert!(check_proc().is_ok());
        assert!(shows("7".as_ref(), 7));
        // The link is empty if nothing is mounted, or if the process has no number in that namespace.
        for other in ["", "70", "8"] {
            assert!(!shows(other.as_ref(), 7), "{other}");
        }
    }
}

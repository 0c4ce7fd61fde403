//! Stray processes and ignored signals.
//!
//! `fork` and `signal` are unsafe because of what other threads may hold at that moment. Everything
//! here runs first in `main`, when there is one thread, so a child may do whatever a fresh process
//! may.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use nix::sys::signal::{SigHandler, Signal, signal};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{self, ForkResult, Pid, fork};

use crate::executions::AppendFile;
use crate::options::StrayKind;

/// Starts a stray process and waits until it is in its final state. Returns the pid for the caller
/// to record, except for a double fork: its middle process alone knows the pid and records it in
/// `file` itself.
pub(crate) fn spawn_stray(kind: StrayKind, file: &Path) -> io::Result<Option<Pid>> {
    match kind {
        StrayKind::Setsid => fork_off(linger).map(Some),
        StrayKind::HoldingStdio => fork_off(sleep_forever).map(Some),
        StrayKind::ClearEnv => spawn_without_environment().map(Some),
        StrayKind::DoubleFork => {
            let middle = fork_off(|ready| fork_again(ready, file))?;
            match waitpid(middle, None)? {
                WaitStatus::Exited(_, 0) => Ok(None),
                status => Err(io::Error::other(format!("the second fork failed: {status:?}"))),
            }
        }
    }
}

/// Ignores SIGTERM from now on.
pub(crate) fn ignore_sigterm() -> io::Result<()> {
    ignore(Signal::SIGTERM)
}

/// Runs a `--linger` process, whose stdout is its readiness pipe.
pub(crate) fn linger_detached() -> ExitCode {
    if detach().is_err() {
        return ExitCode::FAILURE;
    }
    loop {
        unistd::pause();
    }
}

/// Forks; the child runs `live`, which returns its exit code. Returns once the child has dropped
/// its end of the pipe.
fn fork_off(live: impl FnOnce(OwnedFd) -> i32) -> io::Result<Pid> {
    let (reader, ready) = unistd::pipe()?;
    // SAFETY: the process has one thread, see above.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => {
            drop(ready);
            File::from(reader).read_to_end(&mut Vec::new())?;
            Ok(child)
        }
        ForkResult::Child => {
            drop(reader);
            std::process::exit(live(ready))
        }
    }
}

fn fork_again(ready: OwnedFd, file: &Path) -> i32 {
    // The second child must not inherit this end, or the first parent would wait for its death.
    drop(ready);
    let recorded = fork_off(linger).and_then(|pid| {
        AppendFile::open(file)?.append(&pid.to_string());
        Ok(())
    });
    i32::from(recorded.is_err())
}

fn linger(ready: OwnedFd) -> i32 {
    if detach().is_err() {
        return 1;
    }
    sleep_forever(ready)
}

fn sleep_forever(ready: OwnedFd) -> i32 {
    drop(ready);
    loop {
        unistd::pause();
    }
}

/// Detaches the process: a session of its own, SIGTERM and SIGHUP ignored, no stdio. Stdout is
/// closed last because it may be a readiness pipe.
fn detach() -> io::Result<()> {
    unistd::setsid()?;
    ignore(Signal::SIGTERM)?;
    ignore(Signal::SIGHUP)?;
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    unistd::dup2_stdin(&null)?;
    unistd::dup2_stderr(&null)?;
    unistd::dup2_stdout(&null)?;
    Ok(())
}

fn ignore(which: Signal) -> io::Result<()> {
    // SAFETY: ignoring a signal installs no handler that could run at a bad moment.
    unsafe { signal(which, SigHandler::SigIgn) }?;
    Ok(())
}

/// Starts a stray as a new program, because a fork shows its initial environment in `/proc`.
fn spawn_without_environment() -> io::Result<Pid> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg("--linger")
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    if let Some(mut ready) = child.stdout.take() {
        ready.read_to_end(&mut Vec::new())?;
    }
    let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
    Ok(Pid::from_raw(pid))
}

//! Process monitor without a guard: for embedders whose program can't be one.
//!
//! The stop sequence runs over the process group. A process that leaves the group survives, and if the host is killed
//! all of them do; status says `process-group`.

use std::io;
use std::process::{ExitStatus, Stdio};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use ostler_core::fault::Exit;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use super::process::{ProcessLife, ProcessMonitor, StartedProcess};
use crate::process::protocol::{SpawnRequest, StopTimeouts};
use crate::upstream::CloseMode;

/// Starts a process in a group of its own and a task that monitors it.
pub(crate) fn start(order: &SpawnRequest, keeper: ProcessMonitor) -> io::Result<StartedProcess> {
    let (stdin_read, stdin_write) = io::pipe()?;
    let (stdout_read, stdout_write) = io::pipe()?;
    let (stderr_read, stderr_write) = io::pipe()?;
    let mut command = order.command()?;
    command.stdin(Stdio::from(OwnedFd::from(stdin_read)));
    command.stdout(Stdio::from(OwnedFd::from(stdout_write)));
    command.stderr(Stdio::from(OwnedFd::from(stderr_write)));
    crate::process::close_others_in_child(&mut command);
    let mut command = Command::from(command);
    let child = command.process_group(0).kill_on_drop(true).spawn()?;
    let pid = child.id().ok_or_else(|| io::Error::other("the process has no pid"))?;
    tokio::spawn(monitor(child, Pid::from_raw(pid.cast_signed()), order.pace, keeper));
    Ok(StartedProcess {
        pid,
        stdin: pipe::Sender::from_owned_fd(stdin_write.into())?,
        stdout: pipe::Receiver::from_owned_fd(stdout_read.into())?,
        stderr: pipe::Receiver::from_owned_fd(stderr_read.into())?,
    })
}

/// Waits for the end of the process, and ends it on request.
async fn monitor(mut child: Child, group: Pid, pace: StopTimeouts, keeper: ProcessMonitor) {
    let ProcessMonitor { life, mut requests, cleanup: stay } = keeper;
    let by_itself = tokio::select! {
        status = child.wait() => Some(status),
        request = requests.recv() => {
            if request == Some(CloseMode::Graceful) {
                stop_gracefully(&mut child, group, pace, &mut requests).await;
            }
            None
        }
    };
    // Also after an exit: processes that are still in the group end with the server.
    let _ = killpg(group, Signal::SIGKILL);
    let status = match by_itself {
        Some(status) => status,
        None => child.wait().await,
    };
    let exit = status.map_or(Exit::Untold, exit_from_status);
    life.send_replace(ProcessLife::Exited(exit));
    life.send_replace(ProcessLife::Gone(exit));
    drop(stay);
}

/// Runs the stop sequence up to SIGKILL; ends early with the process, or on a forced request.
async fn stop_gracefully(
    child: &mut Child,
    group: Pid,
    pace: StopTimeouts,
    requests: &mut mpsc::Receiver<CloseMode>,
) {
    let sequence = async {
        if tokio::time::timeout(pace.before_term, child.wait()).await.is_ok() {
            return;
        }
        let _ = killpg(group, Signal::SIGTERM);
        let _ = killpg(group, Signal::SIGCONT);
        let _ = tokio::time::timeout(pace.before_kill, child.wait()).await;
    };
    tokio::select! {
        () = sequence => {}
        _ = requests.recv() => {}
    }
}

fn exit_from_status(status: ExitStatus) -> Exit {
    match (status.code(), status.signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => Exit::Untold,
    }
}

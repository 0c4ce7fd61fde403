//! Process monitor through a guard.

use std::io;
use std::time::Duration;

use ostler_core::fault::Exit;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};

use super::process::{ProcessLife, ProcessMonitor, StartedProcess};
use crate::process::client::{GuardedPipes, SpawnerClient};
use crate::process::protocol::{GuardReport, KILL, STOP, SpawnRequest};
use crate::upstream::CloseMode;

/// Timeout for a guard to begin once its server is no longer wanted. Forking and executing takes moments; only a
/// spawner that does not run at all takes longer, and it would start nothing once the lifeline is closed.
const ABANDON_TIMEOUT: Duration = Duration::from_secs(5);

/// Starts a process under a guard and a task that keeps the lifeline. The task goes on when this future is dropped:
/// it ends the process that the guard has started.
pub(crate) async fn start(
    order: &SpawnRequest,
    warden: &SpawnerClient,
    keeper: ProcessMonitor,
) -> io::Result<StartedProcess> {
    let mut line = serde_json::to_vec(order)?;
    line.push(b'\n');
    let GuardedPipes { stdin, stdout, stderr, lifeline } = warden.request_guard()?;
    let (tell, started) = oneshot::channel();
    tokio::spawn(monitor(Lifeline::new(lifeline), line, tell, keeper));
    let SpawnedServer { pid, unlocked } = started.await.map_err(io::Error::other)??;
    if let Some(why) = unlocked {
        warden.warn_unlocked(&why);
    }
    Ok(StartedProcess { pid, stdin, stdout, stderr })
}

/// A server that a guard has started.
#[derive(Debug)]
struct SpawnedServer {
    pid: u32,
    /// The reason for which the guard's stop path is not locked into memory; `None` if it is.
    unlocked: Option<String>,
}

/// The host's end of the socket to a guard.
struct Lifeline {
    reports: Lines<BufReader<OwnedReadHalf>>,
    write: OwnedWriteHalf,
}

impl Lifeline {
    fn new(socket: UnixStream) -> Self {
        let (read, write) = socket.into_split();
        Self { reports: BufReader::new(read).lines(), write }
    }

    /// Sends the spawn request, and waits for the pid of the server.
    async fn send_spawn_request(&mut self, order: &[u8]) -> io::Result<SpawnedServer> {
        self.write.write_all(order).await?;
        let mut unlocked = None;
        loop {
            match self.next_report().await? {
                Some(GuardReport::Unlocked(why)) => unlocked = Some(why),
                Some(GuardReport::Started(pid)) => {
                    return Ok(SpawnedServer { pid: pid.cast_unsigned(), unlocked });
                }
                Some(GuardReport::Failed(Some(errno), _)) => return Err(io::Error::from_raw_os_error(errno)),
                Some(GuardReport::Failed(None, why)) => return Err(io::Error::other(why)),
                Some(_) | None => {
                    return Err(io::Error::other("the guard ended before the server was started"));
                }
            }
        }
    }

    /// Reads the guard's next report. Cancel-safe: a half-read line stays in the buffer.
    async fn next_report(&mut self) -> io::Result<Option<GuardReport>> {
        Ok(self.reports.next_line().await?.and_then(|line| GuardReport::parse(&line)))
    }
}

/// Starts a process, carries close requests to the guard and its reports back, until nothing is left.
async fn monitor(
    mut lifeline: Lifeline,
    order: Vec<u8>,
    tell: oneshot::Sender<io::Result<SpawnedServer>>,
    mut keeper: ProcessMonitor,
) {
    let started = tokio::select! {
        started = lifeline.send_spawn_request(&order) => started,
        () = given_up(&mut keeper.requests) => Err(io::ErrorKind::TimedOut.into()),
    };
    let is_started = started.is_ok();
    let _ = tell.send(started);
    if is_started {
        forward_reports(lifeline, &mut keeper).await;
    }
    // The cleanup guard is released here; the host then counts the process as ended.
}

/// Waits until the process has been unwanted for a while.
async fn given_up(requests: &mut mpsc::Receiver<CloseMode>) {
    while requests.recv().await.is_some() {}
    tokio::time::sleep(ABANDON_TIMEOUT).await;
}

async fn forward_reports(mut lifeline: Lifeline, keeper: &mut ProcessMonitor) {
    let ProcessMonitor { life, requests, .. } = keeper;
    let mut exit = Exit::Untold;
    let mut is_listening = true;
    loop {
        tokio::select! {
            report = lifeline.next_report() => match report {
                Ok(Some(GuardReport::Exited(how))) => {
                    exit = how;
                    life.send_replace(ProcessLife::Exited(how));
                }
                Ok(Some(GuardReport::Started(_) | GuardReport::Failed(..) | GuardReport::Unlocked(_))) => {}
                // A killed guard reports nothing more; the spawner adopts its orphans.
                Ok(Some(GuardReport::AllExited) | None) | Err(_) => break,
            },
            request = requests.recv(), if is_listening => {
                is_listening = request.is_some();
                let word = if request == Some(CloseMode::Graceful) { STOP } else { KILL };
                let _ = lifeline.write.write_all(word).await;
            }
        }
    }
    life.send_replace(ProcessLife::Gone(exit));
}

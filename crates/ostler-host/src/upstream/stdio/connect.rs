//! Stdio connector: starts sessions with a child process.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use ostler_core::fault::{ExecFault, Exit, FaultKind, PermanentCause};
use ostler_core::spec::{ProcessSpec, ServerSpec, ServerTransport};
use ostler_core::status::Containment;
use ostler_core::supervisor::{FailureHint, ServerFailure};
use ostler_wire::{
    ClientInfo, Era, Frame, Handshake, HandshakeError, HandshakeStep, LineSplitter, Message, PROBE_TIMEOUT,
    ServerInfo,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

use super::environment::{self, StartEnvironment};
use super::login_path::LoginPath;
use super::process::ServerProcess;
use super::process_usage::root_of;
use super::session::{StdioSession, StdioSessionParts};
use crate::loop_detection::{LoopDetector, VIA_VARIABLE};
use crate::process::client::SpawnerClient;
use crate::process::protocol::{SpawnRequest, StopTimeouts};
use crate::redact::Redactor;
use crate::server::startup::StartingProcess;
use crate::upstream::{BoxFuture, CloseMode, ConnectContext, Connector, ServerSession, Startup};

/// Timeout for the exit status of a failed start, which the error names.
const EXIT_TIMEOUT: Duration = Duration::from_millis(200);
/// Timeout for the end of a killed process, before the failure is reported.
const KILL_TIMEOUT: Duration = Duration::from_secs(1);

/// Starts sessions with one child process after the other.
#[derive(Debug)]
pub struct StdioConnector {
    process: ProcessSpec,
    identity: ClientInfo,
    spawner: Option<Arc<SpawnerClient>>,
    redactor: Arc<Redactor>,
    login_path: Arc<LoginPath>,
    loop_detector: Arc<LoopDetector>,
    /// Upper bound on one line, in bytes.
    cap: usize,
    /// Time that a call gets from a progress notification on.
    progress_extension: Duration,
    /// The era of the last session, which saves the next one a probe.
    era: Mutex<Option<Era>>,
    /// True once a server request could not be attributed in any session.
    has_ambiguous_requests: Arc<AtomicBool>,
}

/// Client capabilities declared to a legacy server. The capabilities of the present caller are checked when the
/// server sends a request.
const LEGACY_CAPABILITIES: &str =
    r#"{"roots":{"listChanged":true},"sampling":{},"elicitation":{"form":{},"url":{}}}"#;

impl StdioConnector {
    /// Makes a connector for the process of a spec; one with another transport can't be started.
    pub(crate) fn new(
        spec: &ServerSpec,
        identity: ClientInfo,
        spawner: Option<Arc<SpawnerClient>>,
        redactor: Arc<Redactor>,
        login_path: Arc<LoginPath>,
        loop_detector: Arc<LoopDetector>,
    ) -> Self {
        let process = match &spec.transport {
            ServerTransport::Stdio(process) => process.clone(),
            ServerTransport::Http(_) => ProcessSpec {
                command: String::new(),
                args: Vec::new(),
                env: Default::default(),
                env_pass: Vec::new(),
                cwd: None,
            },
        };
        Self {
            process,
            identity,
            spawner,
            redactor,
            login_path,
            loop_detector,
            cap: spec.max_line,
            progress_extension: spec.call_timeout,
            era: Mutex::new(None),
            has_ambiguous_requests: Arc::default(),
        }
    }

    async fn open(&self, plan: ConnectContext) -> Result<Arc<dyn ServerSession>, ServerFailure> {
        let around =
            StartEnvironment { path: self.login_path.get().await, workspace: plan.workspace.as_deref() };
        let mut order =
            environment::spawn_request(&self.process, around, StopTimeouts::default(), &self.redactor)
                .await
                .map_err(|cause| cannot_start(cause.into()))?;
        if runs_ostler(&order) {
            order.env.push((VIA_VARIABLE.into(), self.loop_detector.header_value()));
        }
        let output = (plan.startup.stderr_log(), &self.redactor);
        let mut process = ServerProcess::start(&order, self.spawner.as_deref(), plan.cleanup.clone(), output)
            .await
            .map_err(|error| cannot_start(not_started(&self.process, &order, &error)))?;
        let (pid, has_guard) = (process.handle.pid, self.spawner.is_some());
        let root = tokio::task::spawn_blocking(move || root_of(pid, has_guard)).await.unwrap_or(pid);
        plan.startup.attach(StartingProcess { pid, root, stderr: Arc::clone(&process.handle.stderr) });
        let mut handshake = Handshake::new(self.identity.clone(), self.remembered().or(plan.era), "{}")
            .with_legacy_capabilities(LEGACY_CAPABILITIES);
        let mut splitter = LineSplitter::new(self.cap);
        let mut progress = HandshakeProgress::default();
        match run_handshake(&mut process, &mut handshake, (&mut splitter, &mut progress), &plan.startup).await
        {
            StdioHandshake::Open(hello) => {
                self.remember(Some(hello.era));
                let beginning = StdioSessionParts {
                    server_info: hello,
                    notification_sink: plan.notification_sink,
                    splitter,
                    cap: self.cap,
                    progress_extension: self.progress_extension,
                    has_ambiguous_requests: Arc::clone(&self.has_ambiguous_requests),
                };
                Ok(StdioSession::start(process, beginning))
            }
            // Strict legacy servers exit at a request before `initialize`, which the next start sends first. One that
            // ended without reading the probe has said nothing about its era.
            StdioHandshake::ClosedAtProbe => {
                progress.has_read_probe &= is_read(&process);
                self.remember(progress.has_read_probe.then_some(Era::Legacy));
                let kind = FaultKind::Handshake(HandshakeError::Closed.to_string());
                Err(self.with_hint(failure_report(process, kind, progress).await))
            }
            StdioHandshake::Failed(kind) => {
                self.remember(None);
                progress.has_read_probe = false;
                Err(self.with_hint(failure_report(process, kind, progress).await))
            }
        }
    }

    fn with_hint(&self, mut failure: ServerFailure) -> ServerFailure {
        let names = environment::withheld(&self.process, &failure.stderr);
        failure.hint = (!names.is_empty()).then(|| Box::new(FailureHint::Withheld(names)));
        failure
    }

    fn remembered(&self) -> Option<Era> {
        *self.era.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers the era of a start. If a start ended at the probe, the server may not accept it; a failure of the
    /// next start does not change that.
    fn remember(&self, era: Option<Era>) {
        let mut known = self.era.lock().unwrap_or_else(PoisonError::into_inner);
        *known = match (era, *known) {
            (None, Some(Era::Legacy)) => Some(Era::Legacy),
            (era, _) => era,
        };
    }
}

impl Connector for StdioConnector {
    fn connect(&self, plan: ConnectContext) -> BoxFuture<'_, Result<Arc<dyn ServerSession>, ServerFailure>> {
        Box::pin(async move {
            let opened = self.open(plan).await;
            opened
                .map_err(|failure| ServerFailure { kind: self.redactor.redact_kind(failure.kind), ..failure })
        })
    }

    fn needs_exclusive_calls(&self) -> bool {
        self.has_ambiguous_requests.load(Ordering::Acquire)
    }

    fn containment(&self) -> Containment {
        if self.spawner.is_some() { Containment::Guard } else { Containment::ProcessGroup }
    }
}

/// Outcome of a handshake.
enum StdioHandshake {
    Open(ServerInfo),
    /// The server ended with an unanswered probe.
    ClosedAtProbe,
    Failed(FaultKind),
}

/// Performs the handshake over the process's pipes. `startup` sets the limit.
async fn run_handshake(
    process: &mut ServerProcess,
    handshake: &mut Handshake,
    (splitter, progress): (&mut LineSplitter, &mut HandshakeProgress),
    startup: &Startup,
) -> StdioHandshake {
    let mut step = handshake.begin();
    loop {
        match step {
            HandshakeStep::Send(bytes) => {
                // A server that has gone away shows in the read that follows.
                progress.has_read_probe = process.stdin.write_all(&bytes).await.is_ok();
            }
            HandshakeStep::Wait => {}
            HandshakeStep::Done(hello) => return StdioHandshake::Open(hello),
            HandshakeStep::SendThenDone(hello, bytes) => {
                return match process.stdin.write_all(&bytes).await {
                    Ok(()) => StdioHandshake::Open(hello),
                    Err(error) => StdioHandshake::Failed(FaultKind::Write(error.to_string())),
                };
            }
            HandshakeStep::Fail(error) => {
                return StdioHandshake::Failed(FaultKind::Handshake(error.to_string()));
            }
        }
        let is_probing = handshake.is_awaiting_probe();
        // Both branches are cancel-safe.
        let message = tokio::select! {
            message = next_message(process, splitter) => message,
            () = startup.idle_for(PROBE_TIMEOUT), if is_probing => {
                step = handshake.on_probe_timeout();
                continue;
            }
        };
        progress.has_spoken |= message.is_some();
        step = match message {
            Some(message) => handshake.on_message(&message),
            None => match handshake.on_closed() {
                HandshakeStep::Fail(HandshakeError::Closed) if is_probing => {
                    return StdioHandshake::ClosedAtProbe;
                }
                step => step,
            },
        };
    }
}

/// Prefix of a stdout line among those of stderr.
const STDOUT: &str = "stdout: ";
/// Upper bound on the bytes shown of a stdout line that is no message.
const LONGEST_REMARK: usize = 500;

/// Reads until there is a message and skips other lines. `None` at the end of the output.
async fn next_message(process: &mut ServerProcess, splitter: &mut LineSplitter) -> Option<Message> {
    loop {
        while let Some(frame) = splitter.next_frame() {
            let Frame::Line(line) = frame else { continue };
            let beginning = line.slice(..line.len().min(LONGEST_REMARK));
            match Message::parse(line) {
                Ok(message) => return Some(message),
                // A server in the wrong mode prints its address for people, and that is the cause to show.
                Err(_) => process.handle.stderr.push(&[STDOUT.as_bytes(), &beginning[..], b"\n"].concat()),
            }
        }
        // Reading into the splitter's buffer is cancel-safe.
        let read = process.stdout.read_buf(splitter.buffer()).await;
        if !matches!(read, Ok(n) if n > 0) {
            return None;
        }
    }
}

/// Returns whether a command may run Ostler, itself or by a wrapper that names it.
fn runs_ostler(order: &SpawnRequest) -> bool {
    let program = order.argv.first().map(Path::new).and_then(|program| program.canonicalize().ok());
    order.argv.iter().any(|word| word.contains("ostler"))
        || program.is_some_and(|program| program.ends_with("ostler"))
}

fn cannot_start(kind: FaultKind) -> ServerFailure {
    ServerFailure::new(kind, Instant::now().into_std())
}

/// Classifies a program that could not be executed by the system's error.
fn not_started(process: &ProcessSpec, order: &SpawnRequest, error: &io::Error) -> FaultKind {
    // The error is the same as for a program that is missing.
    if let Some(cwd) = order.cwd.as_ref().filter(|cwd| !cwd.is_dir()) {
        return FaultKind::from(PermanentCause::NoFolder(cwd.display().to_string()));
    }
    let program = process.command.clone();
    let is_path = order.argv.first().is_some_and(|program| program.contains('/'));
    let has_file = is_path && order.argv.first().is_some_and(|program| Path::new(program).exists());
    let is_folder = order.argv.first().is_some_and(|program| Path::new(program).is_dir());
    let cause = match error.kind() {
        io::ErrorKind::NotFound if has_file => {
            PermanentCause::NotExecutable { program, why: ExecFault::NoInterpreter }
        }
        io::ErrorKind::NotFound => {
            let path = order.env.iter().find(|(key, _)| key == "PATH").map(|(_, path)| path.clone());
            PermanentCause::ProgramMissing { program, path: path.filter(|_| !is_path) }
        }
        // The kernel refuses to execute a directory with the same error.
        io::ErrorKind::PermissionDenied if !is_folder => {
            PermanentCause::NotExecutable { program, why: ExecFault::Permission }
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory => {
            PermanentCause::NotExecutable { program, why: ExecFault::NotAFile }
        }
        _ if error.raw_os_error() == Some(Errno::ENOEXEC as i32) => {
            PermanentCause::NotExecutable { program, why: ExecFault::Format }
        }
        // The machine may have free memory or processes later.
        _ => return FaultKind::Start(format!("program `{program}` could not be executed: {error}")),
    };
    cause.into()
}

/// Progress of a process that ended during the handshake.
#[derive(Debug, Clone, Copy, Default)]
struct HandshakeProgress {
    /// True once it sent a message.
    has_spoken: bool,
    /// True once it read the probe from its stdin; during the handshake, once the probe could be written.
    has_read_probe: bool,
}

/// Returns whether the process has read all that was written to its stdin.
fn is_read(process: &ServerProcess) -> bool {
    rustix::io::ioctl_fionread(&process.stdin).is_ok_and(|unread| unread == 0)
}

/// Kills and reaps a process that never became a session, and returns the failure.
async fn failure_report(
    process: ServerProcess,
    kind: FaultKind,
    progress: HandshakeProgress,
) -> ServerFailure {
    let exit = process.handle.exited_within(EXIT_TIMEOUT).await;
    let words = process.handle.final_stderr(exit).await;
    let kind = match exit {
        Some(exit) if !progress.has_spoken && is_usage(exit, &words) => {
            FaultKind::from(PermanentCause::Usage(exit))
        }
        Some(exit) if progress.has_read_probe => FaultKind::EndedAtProbe(exit),
        Some(exit) => FaultKind::Exited(exit),
        None => kind,
    };
    let mut failure = ServerFailure::new(kind, Instant::now().into_std());
    failure.exit = exit;
    failure.attach_stderr(words);
    kill_and_reap(process).await;
    failure
}

/// Returns whether a process that ended at its start has complained about its arguments: by the exit code of
/// `sysexits.h`, by the one that argument parsers use together with a usage text, or by a usage text and nothing
/// before it. A usage text behind an error is no sign: some parsers print it after every failure.
fn is_usage(exit: Exit, stderr: &[String]) -> bool {
    let is_usage = |line: &String| {
        let line = line.strip_prefix(STDOUT).unwrap_or(line).trim_start().as_bytes();
        line.len() >= 5
            && line[..5].eq_ignore_ascii_case(b"usage")
            && !line.get(5).is_some_and(u8::is_ascii_alphanumeric)
    };
    let first = stderr.iter().find(|line| !line.trim().is_empty());
    match exit {
        Exit::Code(64) => true,
        Exit::Code(2) => stderr.iter().any(is_usage),
        Exit::Code(0..) => first.is_some_and(is_usage),
        Exit::Code(_) | Exit::Signal(_) | Exit::Untold => false,
    }
}

async fn kill_and_reap(process: ServerProcess) {
    let ServerProcess { stdin, stdout, handle } = process;
    drop((stdin, stdout));
    let _ = tokio::time::timeout(KILL_TIMEOUT, handle.end(CloseMode::Kill)).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_about_arguments_is_told_from_other_failures() {
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let table = [
            (64, "", true),
            (2, "usage: server [-h] --db DB\nserver: error: --db is missing", true),
            (2, "error: unexpected argument\n\nUsage: server [OPTIONS]", true),
            (1, "Usage: server <directory>", true),
            (1, "Error: connection refused\nUsage:\n  server [flags]", false),
            (1, "usages are counted", false),
            (2, "panic: no database", false),
            (1, "", false),
            (0, "usage: server", true),
            (0, "stdout: Usage: server --stdio", true),
            (0, "listening\nusage: server", false),
        ];
        for (code, stderr, expected) in table {
            assert_eq!(is_usage(Exit::Code(code), &lines(stderr)), expected, "{code} {stderr:?}");
        }
        assert!(!is_usage(Exit::Signal(9), &lines("usage: server")));
    }
}

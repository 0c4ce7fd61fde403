//! Making a session with a child process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ostler_core::fault::FaultKind;
use ostler_core::spec::{Process as ProcessSpec, ServerSpec, Transport};
use ostler_core::status::Containment;
use ostler_core::supervisor::Failure;
use ostler_wire::{
    ClientIdentity, Era, Frame, Handshake, HandshakeError, Hello, LineSplitter, Message, PROBE_SILENCE, Step,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

use super::environment;
use super::login_path::LoginPath;
use super::process::Process;
use super::session::{Beginning, StdioSession};
use super::usage::root_of;
use crate::guard::client::Warden;
use crate::guard::order::Pace;
use crate::secrets::Veil;
use crate::server::startup::StartingProcess;
use crate::upstream::{BoxFuture, Connector, Force, Plan, Session, Startup};

/// How long the exit status of a failed start is waited for, for its words.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// How long a killed process may take to be gone before the failure is told.
const BURIAL: Duration = Duration::from_secs(1);

/// Makes sessions with one child process after the other.
#[derive(Debug)]
pub struct StdioConnector {
    process: ProcessSpec,
    identity: ClientIdentity,
    warden: Option<Arc<Warden>>,
    veil: Arc<Veil>,
    login_path: Arc<LoginPath>,
    /// The longest line.
    cap: usize,
    /// How much time a progress notification gives a call.
    patience: Duration,
    /// The era of the last session, which saves the next one a probe.
    era: Mutex<Option<Era>>,
    /// Some session has asked a question that could have been anybody's.
    is_confused: Arc<AtomicBool>,
}

/// What a legacy server is told that its client can do. Whether the caller of
/// the moment can is seen when the server asks.
const LEGACY_CAPABILITIES: &str =
    r#"{"roots":{"listChanged":true},"sampling":{},"elicitation":{"form":{},"url":{}}}"#;

impl StdioConnector {
    /// For the process of a spec; one with another transport can't be started.
    pub(crate) fn new(
        spec: &ServerSpec,
        identity: ClientIdentity,
        warden: Option<Arc<Warden>>,
        veil: Arc<Veil>,
        login_path: Arc<LoginPath>,
    ) -> Self {
        let process = match &spec.transport {
            Transport::Stdio(process) => process.clone(),
            Transport::Http(_) => ProcessSpec {
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
            warden,
            veil,
            login_path,
            cap: spec.max_line,
            patience: spec.call_timeout,
            era: Mutex::new(None),
            is_confused: Arc::default(),
        }
    }

    async fn open(&self, plan: Plan) -> Result<Arc<dyn Session>, Failure> {
        let path = self.login_path.get().await;
        let order = environment::order(&self.process, path, Pace::default(), &self.veil)
            .await
            .map_err(cannot_start)?;
        let mut process = Process::start(&order, self.warden.as_deref(), plan.stay.clone(), &self.veil)
            .await
            .map_err(|error| self.not_started(&error))?;
        let (pid, has_guard) = (process.handle.pid, self.warden.is_some());
        let root = tokio::task::spawn_blocking(move || root_of(pid, has_guard)).await.unwrap_or(pid);
        plan.startup.attach(StartingProcess { pid, root, stderr: Arc::clone(&process.handle.stderr) });
        let mut handshake = Handshake::new(self.identity.clone(), self.remembered().or(plan.era), "{}")
            .declaring_to_legacy(LEGACY_CAPABILITIES);
        let mut splitter = LineSplitter::new(self.cap);
        match shake_hands(&mut process, &mut handshake, &mut splitter, &plan.startup).await {
            Shaken::Open(hello) => {
                self.remember(Some(hello.era));
                let beginning = Beginning {
                    hello,
                    events: plan.events,
                    splitter,
                    cap: self.cap,
                    patience: self.patience,
                    is_confused: Arc::clone(&self.is_confused),
                };
                Ok(StdioSession::begin(process, beginning))
            }
            // Strict legacy servers exit at a request before `initialize`, which the next start sends first.
            Shaken::ClosedAtProbe => {
                self.remember(Some(Era::Legacy));
                let kind = FaultKind::Handshake(HandshakeError::Closed.to_string());
                Err(self.with_hint(post_mortem(process, kind).await))
            }
            Shaken::Failed(kind) => {
                self.remember(None);
                Err(self.with_hint(post_mortem(process, kind).await))
            }
        }
    }

    fn not_started(&self, error: &std::io::Error) -> Failure {
        match &self.process.cwd {
            // The kernel's error is the same as for a program that is missing.
            Some(cwd) if !cwd.is_dir() => {
                cannot_start(format!("the working directory `{}` does not exist", cwd.display()))
            }
            _ => cannot_start(format!("`{}`: {error}", self.process.command)),
        }
    }

    fn with_hint(&self, mut failure: Failure) -> Failure {
        failure.hint = environment::withheld(&self.process, &failure.stderr).map(Into::into);
        failure
    }

    fn remembered(&self) -> Option<Era> {
        *self.era.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A start that ended at the probe has found that the server may not take it; a failure of the next start does not
    /// unlearn that.
    fn remember(&self, era: Option<Era>) {
        let mut known = self.era.lock().unwrap_or_else(PoisonError::into_inner);
        *known = match (era, *known) {
            (None, Some(Era::Legacy)) => Some(Era::Legacy),
            (era, _) => era,
        };
    }
}

impl Connector for StdioConnector {
    fn connect(&self, plan: Plan) -> BoxFuture<'_, Result<Arc<dyn Session>, Failure>> {
        Box::pin(async move {
            let opened = self.open(plan).await;
            opened.map_err(|failure| Failure { kind: self.veil.over(failure.kind), ..failure })
        })
    }

    fn takes_turns(&self) -> bool {
        self.is_confused.load(Ordering::Acquire)
    }

    fn containment(&self) -> Containment {
        if self.warden.is_some() { Containment::Guard } else { Containment::ProcessGroup }
    }
}

/// How a handshake went.
enum Shaken {
    Open(Hello),
    /// The server ended with an unanswered probe.
    ClosedAtProbe,
    Failed(FaultKind),
}

/// Drives the handshake over the process's pipes. `startup` bounds it in time.
async fn shake_hands(
    process: &mut Process,
    handshake: &mut Handshake,
    splitter: &mut LineSplitter,
    startup: &Startup,
) -> Shaken {
    let mut step = handshake.begin();
    loop {
        match step {
            Step::Send(bytes) => {
                // A server that has gone away shows in the read that follows.
                let _ = process.stdin.write_all(&bytes).await;
            }
            Step::Wait => {}
            Step::Done(hello) => return Shaken::Open(hello),
            Step::DoneAfter(hello, bytes) => {
                return match process.stdin.write_all(&bytes).await {
                    Ok(()) => Shaken::Open(hello),
                    Err(error) => Shaken::Failed(FaultKind::Write(error.to_string())),
                };
            }
            Step::Fail(error) => return Shaken::Failed(FaultKind::Handshake(error.to_string())),
        }
        let is_probing = handshake.awaits_probe();
        // Both branches are cancel-safe.
        let message = tokio::select! {
            message = next_message(process, splitter) => message,
            () = startup.idle_for(PROBE_SILENCE), if is_probing => {
                step = handshake.on_silence();
                continue;
            }
        };
        step = match message {
            Some(message) => handshake.on_message(&message),
            None => match handshake.on_closed() {
                Step::Fail(HandshakeError::Closed) if is_probing => return Shaken::ClosedAtProbe,
                step => step,
            },
        };
    }
}

/// Reads on until there is a message; other lines are passed over. `None` at the end of the output.
async fn next_message(process: &mut Process, splitter: &mut LineSplitter) -> Option<Message> {
    loop {
        while let Some(frame) = splitter.next_frame() {
            if let Frame::Line(line) = frame
                && let Ok(message) = Message::parse(line)
            {
                return Some(message);
            }
        }
        // Reading into the splitter's buffer is cancel-safe.
        let read = process.stdout.read_buf(splitter.buffer()).await;
        if !matches!(read, Ok(n) if n > 0) {
            return None;
        }
    }
}

fn cannot_start(why: String) -> Failure {
    Failure::new(FaultKind::Start(why), Instant::now().into_std())
}

/// Ends a process that never became a session, and tells what is known of it.
async fn post_mortem(process: Process, kind: FaultKind) -> Failure {
    let exit = process.handle.exited_within(LAST_WORDS).await;
    let mut failure = match exit {
        Some(exit) => Failure::new(FaultKind::Exited(exit), Instant::now().into_std()),
        None => Failure::new(kind, Instant::now().into_std()),
    };
    failure.quote(process.handle.last_words(exit).await);
    bury(process).await;
    failure
}

async fn bury(process: Process) {
    let Process { stdin, stdout, handle } = process;
    drop((stdin, stdout));
    let _ = tokio::time::timeout(BURIAL, handle.end(Force::Kill)).await;
}

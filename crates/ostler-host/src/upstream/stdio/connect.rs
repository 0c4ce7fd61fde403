//! Making a session with a child process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ostler_core::fault::FaultKind;
use ostler_core::spec::{Process as ProcessSpec, ServerSpec, Transport};
use ostler_core::status::Containment;
use ostler_core::supervisor::Failure;
use ostler_wire::{ClientIdentity, Era, Frame, Handshake, Hello, LineSplitter, Message, PROBE_WAIT, Step};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep_until};

use super::environment;
use super::process::Process;
use super::session::{Beginning, StdioSession};
use crate::guard::client::Warden;
use crate::guard::order::Pace;
use crate::secrets::Veil;
use crate::upstream::{BoxFuture, Connector, Force, Plan, Session};

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
    ) -> Self {
        let process = match &spec.transport {
            Transport::Stdio(process) => process.clone(),
            Transport::Http(_) => {
                ProcessSpec { command: String::new(), args: Vec::new(), env: Default::default(), cwd: None }
            }
        };
        Self {
            process,
            identity,
            warden,
            veil,
            cap: spec.max_line,
            patience: spec.call_timeout,
            era: Mutex::new(None),
            is_confused: Arc::default(),
        }
    }

    async fn open(&self, plan: Plan) -> Result<Arc<dyn Session>, Failure> {
        let order =
            environment::order(&self.process, Pace::default(), &self.veil).await.map_err(cannot_start)?;
        let mut handshake = Handshake::new(self.identity.clone(), self.remembered(), "{}")
            .declaring_to_legacy(LEGACY_CAPABILITIES);
        loop {
            let mut process = Process::start(&order, self.warden.as_deref(), plan.stay.clone(), &self.veil)
                .await
                .map_err(|error| self.not_started(&error))?;
            let mut splitter = LineSplitter::new(self.cap);
            match shake_hands(&mut process, &mut handshake, &mut splitter).await {
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
                    return Ok(StdioSession::begin(process, beginning));
                }
                Shaken::Restart => {
                    self.remember(Some(Era::Legacy));
                    bury(process).await;
                }
                Shaken::Failed(kind) => {
                    self.remember(None);
                    return Err(post_mortem(process, kind).await);
                }
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

    fn remembered(&self) -> Option<Era> {
        *self.era.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A restart during the handshake has found that the server does not take
    /// the probe; a failure later in the same start does not unlearn that.
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
    Restart,
    Failed(FaultKind),
}

/// Drives the handshake over the process's pipes.
async fn shake_hands(
    process: &mut Process,
    handshake: &mut Handshake,
    splitter: &mut LineSplitter,
) -> Shaken {
    let mut step = handshake.begin();
    let mut silence = Instant::now() + PROBE_WAIT;
    loop {
        let bytes = match step {
            Step::Send(bytes) => {
                silence = Instant::now() + PROBE_WAIT;
                Some(bytes)
            }
            Step::Wait => None,
            Step::Restart => return Shaken::Restart,
            Step::Done(hello) => return Shaken::Open(hello),
            Step::DoneAfter(hello, bytes) => {
                return match process.stdin.write_all(&bytes).await {
                    Ok(()) => Shaken::Open(hello),
                    Err(error) => Shaken::Failed(FaultKind::Write(error.to_string())),
                };
            }
            Step::Fail(error) => return Shaken::Failed(FaultKind::Handshake(error.to_string())),
        };
        if let Some(bytes) = bytes {
            // A server that has gone away shows in the read that follows.
            let _ = process.stdin.write_all(&bytes).await;
        }
        step = match next_message(process, splitter, handshake.awaits_probe().then_some(silence)).await {
            Heard::Message(message) => handshake.on_message(&message),
            Heard::Silence => handshake.on_silence(),
            Heard::Closed => handshake.on_closed(),
        };
    }
}

enum Heard {
    Message(Message),
    Silence,
    Closed,
}

/// Reads on until there is a message; other lines are passed over.
async fn next_message(process: &mut Process, splitter: &mut LineSplitter, silence: Option<Instant>) -> Heard {
    loop {
        while let Some(frame) = splitter.next_frame() {
            if let Frame::Line(line) = frame
                && let Ok(message) = Message::parse(line)
            {
                return Heard::Message(message);
            }
        }
        // Reading into the splitter's buffer is cancel-safe.
        let read = process.stdout.read_buf(splitter.buffer());
        let read = match silence {
            Some(silence) => tokio::select! {
                read = read => read,
                () = sleep_until(silence) => return Heard::Silence,
            },
            None => read.await,
        };
        if !matches!(read, Ok(n) if n > 0) {
            return Heard::Closed;
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
    failure.stderr = process.handle.last_words(exit).await;
    bury(process).await;
    failure
}

async fn bury(process: Process) {
    let Process { stdin, stdout, handle } = process;
    drop((stdin, stdout));
    let _ = tokio::time::timeout(BURIAL, handle.end(Force::Kill)).await;
}

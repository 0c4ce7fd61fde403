//! Client on the pipes of a program: `ostler stdio`, or a worker.

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use ostler_chaos::history::{CallEnd, CallRoute, Ran};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::answer::end_of;
use super::next_action::{Abandon, PlannedCall};

/// Long enough for the handshake while the broker may be away.
const INITIALIZE_TIMEOUT: Duration = Duration::from_secs(12);
/// An answer may still arrive this long after a cancellation.
const CANCELLED: Duration = Duration::from_secs(1);
/// Messages queued for the pipe: more than there can be callers.
const QUEUE: usize = 1024;

type PendingAnswers = Mutex<HashMap<u64, oneshot::Sender<Value>>>;

/// A running program, and the requests that wait for its answers.
#[derive(Debug)]
pub(crate) struct StdioProgram {
    pub(crate) pid: u32,
    lines: mpsc::Sender<Vec<u8>>,
    shared: Arc<ProgramState>,
}

#[derive(Debug, Default)]
struct ProgramState {
    /// None once the program is gone.
    pending: PendingAnswers,
    is_gone: std::sync::atomic::AtomicBool,
    next_id: AtomicU64,
}

impl StdioProgram {
    /// Starts the program and initializes a session.
    pub(crate) async fn start(mut command: Command) -> anyhow::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let pid = child.id().context("it ended at once")?;
        let pipes = child.stdin.take().zip(child.stdout.take()).context("it has no pipes")?;
        let shared = Arc::<ProgramState>::default();
        let (lines, queue) = mpsc::channel(QUEUE);
        tokio::spawn(write(pipes.0, queue));
        tokio::spawn(read(child, pipes.1, Arc::clone(&shared)));
        let program = Self { pid, lines, shared };
        timeout(INITIALIZE_TIMEOUT, program.initialize()).await.context("it does not greet")??;
        Ok(program)
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.shared.is_gone.load(Ordering::Acquire)
    }

    async fn initialize(&self) -> anyhow::Result<()> {
        let client = json!({"name": "chaos", "version": "1"});
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client});
        let answer = self.request("initialize", params).await.context("it hung up")?;
        anyhow::ensure!(answer.get("result").is_some(), "it does not let us in: {answer}");
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        Ok(())
    }

    pub(crate) async fn request(&self, method: &str, params: Value) -> Option<Value> {
        self.send_request(method, params).await.1.await.ok()
    }

    /// Sends a request. Its receiver ends with an error if the program ends.
    async fn send_request(&self, method: &str, params: Value) -> (u64, oneshot::Receiver<Value>) {
        let id = self.shared.next_id.fetch_add(1, Ordering::Relaxed) + 1;
        let (sender, receiver) = oneshot::channel();
        self.shared.pending.lock().unwrap_or_else(PoisonError::into_inner).insert(id, sender);
        if self.is_gone() {
            self.shared.clear();
        }
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
        (id, receiver)
    }

    async fn send(&self, message: &Value) {
        let mut line = message.to_string().into_bytes();
        line.push(b'\n');
        // If the channel is closed, the program is gone, and so are the senders of pending answers.
        let _ = self.lines.send(line).await;
    }

    /// Makes a call. Returns None if the program was gone before.
    pub(crate) async fn call(&self, call: &PlannedCall, deadline: Instant) -> Option<CallEnd> {
        if self.is_gone() {
            return None;
        }
        let params = json!({"name": format!("{}__{}", call.server, call.tool), "arguments": call.arguments});
        let (id, mut receiver) = self.send_request("tools/call", params).await;
        let left = match call.abandon {
            Abandon::Never => deadline,
            Abandon::After(wait) | Abandon::Cancel(wait) => (Instant::now() + wait).min(deadline),
        };
        let answer = tokio::select! {
            answer = &mut receiver => Some(answer),
            () = sleep_until(left) => {
                let params = json!({"requestId": id, "reason": "enough"});
                self.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})).await;
                let end = (Instant::now() + CANCELLED).min(deadline);
                timeout_at(end, receiver).await.ok()
            }
        };
        let unknown = |why: &str| CallEnd::Unknown { why: why.to_owned() };
        Some(match answer {
            Some(Ok(answer)) => end_of(&answer),
            Some(Err(_)) => unknown("the program is gone"),
            None => {
                self.shared.pending.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
                unknown(if left < deadline { "left" } else { "no answer by the deadline" })
            }
        })
    }

    /// Returns the names of all tools.
    pub(crate) async fn list(&self, deadline: Instant) -> Option<Vec<String>> {
        let (mut names, mut cursor) = (Vec::new(), None::<String>);
        loop {
            let params = cursor.as_ref().map_or(json!({}), |cursor| json!({"cursor": cursor}));
            let answer = timeout_at(deadline, self.request("tools/list", params)).await.ok()??;
            let result = answer.get("result")?;
            let tools = result["tools"].as_array()?.iter().filter_map(|tool| tool["name"].as_str());
            names.extend(tools.map(str::to_owned));
            cursor = result["nextCursor"].as_str().map(str::to_owned);
            if cursor.is_none() {
                return Some(names);
            }
        }
    }
}

impl ProgramState {
    fn clear(&self) {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

async fn write(mut input: ChildStdin, mut queue: mpsc::Receiver<Vec<u8>>) {
    while let Some(line) = queue.recv().await {
        if input.write_all(&line).await.is_err() {
            return;
        }
    }
}

async fn read(mut child: Child, output: ChildStdout, shared: Arc<ProgramState>) {
    let mut lines = BufReader::new(output).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
        let id = message["id"].as_u64().filter(|_| message.get("method").is_none());
        let pending =
            id.and_then(|id| shared.pending.lock().unwrap_or_else(PoisonError::into_inner).remove(&id));
        if let Some(sender) = pending {
            let _ = sender.send(message);
        }
    }
    shared.is_gone.store(true, Ordering::Release);
    shared.clear();
    let _ = child.kill().await;
}

/// Returns the end of a call whose program could not be started in time.
pub(crate) fn not_started(way: CallRoute) -> CallEnd {
    let kind = if way == CallRoute::Relay { "no-worker" } else { "no-bridge" };
    CallEnd::Fail { kind: kind.into(), code: 0, ran: Ran::No }
}

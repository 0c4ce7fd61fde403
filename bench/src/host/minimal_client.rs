//! Minimal client with callers over a pipe: an id per request, a table of pending requests, a
//! writer that batches, and a reader that parses the envelope. It has no supervision, limits,
//! deadlines or policy.

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use ostler_wire::{Message, RpcOutcome};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{mpsc, oneshot};

use super::{Cpu, HostMeasurement};
use crate::closed_loop::{LoadCell, arguments};

struct MinimalClient {
    out: mpsc::Sender<Vec<u8>>,
    waiting: Mutex<HashMap<u64, oneshot::Sender<Bytes>>>,
    next: AtomicU64,
}

pub(crate) async fn measure(load: LoadCell) -> HostMeasurement {
    let (_server, client) = start(load).await;
    let arguments: Arc<str> = arguments(load.payload).into();
    let (began, cpu) = (Instant::now(), Cpu::now());
    let callers: Vec<_> = (0..load.callers)
        .map(|_| tokio::spawn(call_until(Arc::clone(&client), Arc::clone(&arguments), began + load.time)))
        .collect();
    let mut times = Vec::new();
    for caller in callers {
        times.extend(caller.await.expect("a caller ends"));
    }
    HostMeasurement::from_times(times, began.elapsed(), cpu)
}

async fn start(load: LoadCell) -> (Child, Arc<MinimalClient>) {
    let mut server = Command::new(ostler_testkit::fake_mcp())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("fake-mcp starts");
    let (stdin, stdout) = (server.stdin.take().unwrap(), server.stdout.take().unwrap());
    let (out, frames) = mpsc::channel(load.callers + 2);
    let client = Arc::new(MinimalClient { out, waiting: Mutex::default(), next: AtomicU64::new(1) });
    tokio::spawn(write(stdin, frames));
    tokio::spawn(read(stdout, Arc::clone(&client)));
    client.request("initialize", r#"{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"0"}}"#).await;
    client
        .out
        .send(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n".to_vec())
        .await
        .unwrap();
    (server, client)
}

impl MinimalClient {
    async fn request(&self, method: &str, params: &str) -> Bytes {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (tell, answer) = oneshot::channel();
        self.waiting.lock().unwrap().insert(id, tell);
        let frame = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#) + "\n";
        self.out.send(frame.into_bytes()).await.unwrap();
        answer.await.expect("an answer")
    }
}

async fn write(mut stdin: ChildStdin, mut frames: mpsc::Receiver<Vec<u8>>) {
    while let Some(mut batch) = frames.recv().await {
        while let Ok(frame) = frames.try_recv() {
            batch.extend_from_slice(&frame);
        }
        if stdin.write_all(&batch).await.is_err() {
            return;
        }
    }
}

async fn read(stdout: ChildStdout, client: Arc<MinimalClient>) {
    let mut stdout = BufReader::with_capacity(64 << 10, stdout);
    let mut line = Vec::new();
    while stdout.read_until(b'\n', &mut line).await.is_ok_and(|n| n > 0) {
        let message = Message::parse(Bytes::from(std::mem::take(&mut line))).expect("a message");
        if let Message::Response { id: Some(id), outcome: RpcOutcome::Result(result) } = message {
            let waiting = client.waiting.lock().unwrap().remove(&id.number().unwrap());
            let _ = waiting.unwrap().send(result);
        }
    }
}

async fn call_until(client: Arc<MinimalClient>, arguments: Arc<str>, end: Instant) -> Vec<Duration> {
    let mut times = Vec::new();
    while Instant::now() < end {
        let began = Instant::now();
        let params = format!(r#"{{"name":"echo","arguments":{arguments}}}"#);
        let answer = client.request("tools/call", &params).await;
        assert!(answer.len() > arguments.len());
        times.push(began.elapsed());
    }
    times
}

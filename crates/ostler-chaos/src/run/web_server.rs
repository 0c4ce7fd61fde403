//! Server behind a URL: a program on stdio, served over HTTP by a process of its own that can be
//! killed.

use std::collections::HashMap;
use std::convert::Infallible;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep};

use super::environment::testbed::Testbed;

/// Longer than any start on a busy machine.
const WEB_START_TIMEOUT: Duration = Duration::from_secs(10);
/// Messages queued for the program.
const QUEUE: usize = 1024;

/// Handle on the process of the server behind a URL.
#[derive(Debug)]
pub(crate) struct WebServer {
    testbed: Arc<Testbed>,
    child: Child,
}

impl WebServer {
    pub(crate) async fn start(testbed: &Arc<Testbed>) -> anyhow::Result<Self> {
        let child = spawn(testbed)?;
        wait_until_listening(testbed.ports.web).await?;
        Ok(Self { testbed: Arc::clone(testbed), child })
    }

    pub(crate) async fn kill(&mut self) -> anyhow::Result<()> {
        Ok(self.child.kill().await?)
    }

    pub(crate) async fn restart(&mut self) -> anyhow::Result<()> {
        self.child = spawn(&self.testbed)?;
        wait_until_listening(self.testbed.ports.web).await
    }
}

fn spawn(testbed: &Testbed) -> anyhow::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["web", "--port", &testbed.ports.web.to_string(), "--"]).arg(&testbed.programs.fake);
    command.args(["--name", "web", "--executions"]).arg(testbed.ledger("web"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
    Ok(command.spawn()?)
}

async fn wait_until_listening(port: u16) -> anyhow::Result<()> {
    let end = Instant::now() + WEB_START_TIMEOUT;
    while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
        anyhow::ensure!(Instant::now() < end, "the server behind a URL does not come up");
        sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// Serves a program over HTTP, in a process of its own.
pub(crate) async fn serve(port: u16, command: &[String]) -> anyhow::Result<()> {
    let (program, args) = command.split_first().context("no program is named")?;
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut input = child.stdin.take().context("it has no input")?;
    let output = child.stdout.take().context("it has no output")?;
    let (lines, mut queue) = mpsc::channel::<String>(QUEUE);
    tokio::spawn(async move {
        while let Some(line) = queue.recv().await {
            if input.write_all(line.as_bytes()).await.is_err() {
                return;
            }
        }
    });
    let bridge = Arc::new(HttpBridge { lines, pending: Mutex::default(), next_id: AtomicU64::new(1) });
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    tokio::spawn(accept(listener, Arc::clone(&bridge)));
    let mut answers = BufReader::new(output).lines();
    while let Some(line) = answers.next_line().await? {
        bridge.deliver(&line);
    }
    Ok(())
}

async fn accept(listener: TcpListener, bridge: Arc<HttpBridge>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let _ = stream.set_nodelay(true);
        let bridge = Arc::clone(&bridge);
        let service = service_fn(move |request| {
            let bridge = Arc::clone(&bridge);
            async move { Ok::<_, Infallible>(bridge.forward(request).await) }
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

/// Bridge from HTTP to the program: renumbers requests and matches answers.
struct HttpBridge {
    lines: mpsc::Sender<String>,
    pending: Mutex<HashMap<u64, oneshot::Sender<Value>>>,
    next_id: AtomicU64,
}

impl HttpBridge {
    async fn forward(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        if request.method() != Method::POST {
            return empty(StatusCode::METHOD_NOT_ALLOWED);
        }
        let Ok(body) = request.into_body().collect().await else { return empty(StatusCode::BAD_REQUEST) };
        let Ok(mut message) = serde_json::from_slice::<Value>(&body.to_bytes()) else {
            return empty(StatusCode::BAD_REQUEST);
        };
        let Some(id) = message.get("id").cloned() else { return empty(StatusCode::ACCEPTED) };
        let own = self.next_id.fetch_add(1, Ordering::Relaxed);
        message["id"] = json!(own);
        let (sender, receiver) = oneshot::channel();
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).insert(own, sender);
        // Dropped with the request when the host hangs up, which cancels it.
        let cancel_on_drop = CancelOnDrop { bridge: self, request_id: own };
        if self.lines.send(format!("{message}\n")).await.is_err() {
            return empty(StatusCode::BAD_GATEWAY);
        }
        let answer = receiver.await;
        drop(cancel_on_drop);
        let Ok(mut answer) = answer else { return empty(StatusCode::BAD_GATEWAY) };
        answer["id"] = id;
        let response = Response::builder().header("content-type", "application/json");
        response.body(Full::from(answer.to_string())).unwrap_or_default()
    }

    fn deliver(&self, line: &str) {
        let Ok(message) = serde_json::from_str::<Value>(line) else { return };
        let id = message["id"].as_u64().filter(|_| message.get("method").is_none());
        let pending =
            id.and_then(|id| self.pending.lock().unwrap_or_else(PoisonError::into_inner).remove(&id));
        if let Some(sender) = pending {
            let _ = sender.send(message);
        }
    }
}

struct CancelOnDrop<'a> {
    bridge: &'a HttpBridge,
    request_id: u64,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        let mut pending = self.bridge.pending.lock().unwrap_or_else(PoisonError::into_inner);
        if pending.remove(&self.request_id).is_some() {
            let params = json!({"requestId": self.request_id});
            let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
            let _ = self.bridge.lines.try_send(format!("{cancel}\n"));
        }
    }
}

fn empty(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}

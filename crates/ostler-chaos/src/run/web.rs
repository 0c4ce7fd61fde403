//! A server behind a URL: a program on stdio, served over HTTP by a process of
//! its own that can be killed.

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

use super::world::site::Site;

/// How long it may take to listen.
const COMING_UP: Duration = Duration::from_secs(10);
/// Messages on their way to the program.
const QUEUE: usize = 1024;

/// The process, as the run sees it.
#[derive(Debug)]
pub(crate) struct Web {
    site: Arc<Site>,
    child: Child,
}

impl Web {
    pub(crate) async fn start(site: &Arc<Site>) -> anyhow::Result<Self> {
        let child = spawn(site)?;
        until_listening(site.ports.web).await?;
        Ok(Self { site: Arc::clone(site), child })
    }

    pub(crate) async fn kill(&mut self) -> anyhow::Result<()> {
        Ok(self.child.kill().await?)
    }

    pub(crate) async fn start_again(&mut self) -> anyhow::Result<()> {
        self.child = spawn(&self.site)?;
        until_listening(self.site.ports.web).await
    }
}

fn spawn(site: &Site) -> anyhow::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["web", "--port", &site.ports.web.to_string(), "--"]).arg(&site.programs.fake);
    command.args(["--name", "web", "--executions"]).arg(site.ledger("web"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
    Ok(command.spawn()?)
}

async fn until_listening(port: u16) -> anyhow::Result<()> {
    let end = Instant::now() + COMING_UP;
    while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
        anyhow::ensure!(Instant::now() < end, "the server behind a URL does not come up");
        sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// The process itself.
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
    let desk = Arc::new(Desk { lines, pending: Mutex::default(), next_id: AtomicU64::new(1) });
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    tokio::spawn(accept(listener, Arc::clone(&desk)));
    let mut answers = BufReader::new(output).lines();
    while let Some(line) = answers.next_line().await? {
        desk.answered(&line);
    }
    Ok(())
}

async fn accept(listener: TcpListener, desk: Arc<Desk>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let _ = stream.set_nodelay(true);
        let desk = Arc::clone(&desk);
        let service = service_fn(move |request| {
            let desk = Arc::clone(&desk);
            async move { Ok::<_, Infallible>(desk.take(request).await) }
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

/// Gives requests numbers of its own and finds their answers.
struct Desk {
    lines: mpsc::Sender<String>,
    pending: Mutex<HashMap<u64, oneshot::Sender<Value>>>,
    next_id: AtomicU64,
}

impl Desk {
    async fn take(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
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
        let (answer, waiting) = oneshot::channel();
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).insert(own, answer);
        // Dropped with the request when the host hangs up, which cancels it.
        let visit = Visit { desk: self, own };
        if self.lines.send(format!("{message}\n")).await.is_err() {
            return empty(StatusCode::BAD_GATEWAY);
        }
        let answer = waiting.await;
        drop(visit);
        let Ok(mut answer) = answer else { return empty(StatusCode::BAD_GATEWAY) };
        answer["id"] = id;
        let response = Response::builder().header("content-type", "application/json");
        response.body(Full::from(answer.to_string())).unwrap_or_default()
    }

    fn answered(&self, line: &str) {
        let Ok(message) = serde_json::from_str::<Value>(line) else { return };
        let id = message["id"].as_u64().filter(|_| message.get("method").is_none());
        let pending =
            id.and_then(|id| self.pending.lock().unwrap_or_else(PoisonError::into_inner).remove(&id));
        if let Some(waiting) = pending {
            let _ = waiting.send(message);
        }
    }
}

struct Visit<'a> {
    desk: &'a Desk,
    own: u64,
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        let mut pending = self.desk.pending.lock().unwrap_or_else(PoisonError::into_inner);
        if pending.remove(&self.own).is_some() {
            let params = json!({"requestId": self.own});
            let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
            let _ = self.desk.lines.try_send(format!("{cancel}\n"));
        }
    }
}

fn empty(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}

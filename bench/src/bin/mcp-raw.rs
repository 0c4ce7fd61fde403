//! Minimal gateway, as the yardstick of the physical limit: Streamable HTTP in, N upstreams out,
//! tool names prefixed per upstream, ids remapped, payloads never decoded. It has no supervision,
//! limits or notifications.
//!
//!   mcp-raw --port N [--threads T] [--count K] -- stub stdio       (K stdio children)
//!   mcp-raw --port N [--threads T] --upstream http://host:port/mcp (HTTP upstream)
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::large_enum_variant,
    reason = "a benchmark prints, and stops when something is wrong"
)]

use bench::Args;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};

#[derive(Deserialize)]
struct RawMessage<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct RawCall<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "_meta")]
    meta: Option<&'a RawValue>,
}

/// The tail of a response after its id: `,"result":…}` or `,"error":…}`.
type ResponseTail = Vec<u8>;

enum Upstream {
    Stdio {
        tx: mpsc::UnboundedSender<Vec<u8>>,
        waiting: Arc<Mutex<HashMap<u64, oneshot::Sender<ResponseTail>>>>,
        next: AtomicU64,
    },
    Http {
        client: Client<HttpConnector, Full<Bytes>>,
        uri: hyper::Uri,
        session: Mutex<Option<String>>,
        next: AtomicU64,
    },
}

fn response_tail(m: &RawMessage) -> Option<ResponseTail> {
    let (k, v) = match (m.result, m.error) {
        (Some(r), _) => (&b",\"result\":"[..], r),
        (_, Some(e)) => (&b",\"error\":"[..], e),
        _ => return None,
    };
    let mut t = Vec::with_capacity(k.len() + v.get().len() + 1);
    t.extend_from_slice(k);
    t.extend_from_slice(v.get().as_bytes());
    t.push(b'}');
    Some(t)
}

impl Upstream {
    fn stdio(cmd: &[String]) -> Upstream {
        let mut child = tokio::process::Command::new(&cmd[0])
            .args(&cmd[1..])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("spawn upstream");
        let (mut wr, mut rd) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (tx, mut rx) = mpsc::unbounded_channel::<Vec<u8>>();
        let waiting: Arc<Mutex<HashMap<u64, oneshot::Sender<ResponseTail>>>> = Arc::default();
        tokio::spawn(async move {
            let mut batch = Vec::new();
            while let Some(m) = rx.recv().await {
                batch.extend_from_slice(&m);
                while let Ok(m) = rx.try_recv() {
                    batch.extend_from_slice(&m);
                }
                if wr.write_all(&batch).await.is_err() {
                    return;
                }
                batch.clear();
            }
        });
        let w = waiting.clone();
        tokio::spawn(async move {
            let _child = child;
            let (mut buf, mut scanned) = (Vec::with_capacity(64 << 10), 0);
            loop {
                buf.reserve(64 << 10);
                if rd.read_buf(&mut buf).await.unwrap_or(0) == 0 {
                    w.lock().unwrap().clear();
                    return;
                }
                let mut at = 0;
                while let Some(n) = buf[scanned..].iter().position(|b| *b == b'\n') {
                    let end = scanned + n;
                    if let Ok(m) = serde_json::from_slice::<RawMessage>(&buf[at..end])
                        && let (Some(id), Some(t)) =
                            (m.id.and_then(|i| i.get().parse().ok()), response_tail(&m))
                        && let Some(s) = w.lock().unwrap().remove(&id)
                    {
                        let _ = s.send(t);
                    }
                    at = end + 1;
                    scanned = at;
                }
                buf.drain(..at);
                scanned = buf.len();
            }
        });
        Upstream::Stdio { tx, waiting, next: AtomicU64::new(1) }
    }

    async fn request(&self, method: &str, params: &str) -> Option<ResponseTail> {
        let frame = |id: u64| {
            let mut f = Vec::with_capacity(params.len() + method.len() + 64);
            f.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
            f.extend_from_slice(id.to_string().as_bytes());
            f.extend_from_slice(b",\"method\":\"");
            f.extend_from_slice(method.as_bytes());
            f.extend_from_slice(b"\",\"params\":");
            f.extend_from_slice(params.as_bytes());
            f.extend_from_slice(b"}");
            f
        };
        match self {
            Upstream::Stdio { tx, waiting, next } => {
                let id = next.fetch_add(1, Ordering::Relaxed);
                let (s, r) = oneshot::channel();
                waiting.lock().unwrap().insert(id, s);
                let mut f = frame(id);
                f.push(b'\n');
                tx.send(f).ok()?;
                r.await.ok()
            }
            Upstream::Http { client, uri, session, next } => {
                let mut b = Request::post(uri.clone())
                    .header("content-type", "application/json")
                    .header("accept", "application/json, text/event-stream")
                    .header("mcp-protocol-version", "2025-06-18");
                if let Some(s) = session.lock().unwrap().as_ref() {
                    b = b.header("mcp-session-id", s);
                }
                let f = frame(next.fetch_add(1, Ordering::Relaxed));
                let rep = client.request(b.body(Full::from(f)).ok()?).await.ok()?;
                if method == "initialize" {
                    *session.lock().unwrap() =
                        rep.headers().get("mcp-session-id").and_then(|v| v.to_str().ok()).map(String::from);
                }
                let body = rep.into_body().collect().await.ok()?.to_bytes();
                response_tail(&serde_json::from_slice::<RawMessage>(&body).ok()?)
            }
        }
    }
}

struct RawGateway {
    ups: Vec<Upstream>,
    tools: String,
    sessions: AtomicU64,
}

fn json_reply(id: &RawValue, tail: &[u8]) -> Response<Full<Bytes>> {
    let mut v = Vec::with_capacity(tail.len() + id.get().len() + 24);
    v.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    v.extend_from_slice(id.get().as_bytes());
    v.extend_from_slice(tail);
    Response::builder().header("content-type", "application/json").body(Full::from(v)).unwrap()
}

async fn serve(gw: Arc<RawGateway>, req: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let empty = |s: StatusCode| Ok(Response::builder().status(s).body(Full::default()).unwrap());
    match *req.method() {
        Method::POST => {}
        Method::DELETE => return empty(StatusCode::OK),
        _ => return empty(StatusCode::METHOD_NOT_ALLOWED),
    }
    let body = req.into_body().collect().await?.to_bytes();
    let Ok(m) = serde_json::from_slice::<RawMessage>(&body) else { return empty(StatusCode::BAD_REQUEST) };
    let (Some(id), Some(method)) = (m.id, m.method.as_deref()) else { return empty(StatusCode::ACCEPTED) };
    let params = m.params.map(|p| p.get()).unwrap_or("{}");
    Ok(match method {
        "initialize" => {
            let mut r = json_reply(id, br#","result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"mcp-raw","version":"0.1.0"}}}"#);
            let n = gw.sessions.fetch_add(1, Ordering::Relaxed);
            r.headers_mut().insert(
                "mcp-session-id",
                format!("{:016x}{n:016x}", n.wrapping_mul(0x9E37_79B9_7F4A_7C15)).parse().unwrap(),
            );
            r
        }
        "tools/list" => json_reply(id, format!(",\"result\":{{\"tools\":{}}}}}", gw.tools).as_bytes()),
        "tools/call" => {
            let routed = serde_json::from_str::<RawCall>(params).ok().and_then(|c| {
                let (p, n) = c.name.split_once("__")?;
                let up = gw.ups.get(p.strip_prefix('s')?.parse::<usize>().ok()?)?;
                let meta = c.meta.map(|m| format!(",\"_meta\":{}", m.get())).unwrap_or_default();
                let args = c.arguments.map(|a| a.get()).unwrap_or("{}");
                Some((
                    up,
                    format!("{{\"name\":{},\"arguments\":{args}{meta}}}", serde_json::to_string(n).ok()?),
                ))
            });
            match routed {
                None => json_reply(id, br#","error":{"code":-32602,"message":"unknown tool"}}"#),
                Some((up, p)) => match up.request("tools/call", &p).await {
                    Some(t) => json_reply(id, &t),
                    None => json_reply(id, br#","error":{"code":-32603,"message":"upstream gone"}}"#),
                },
            }
        }
        _ => json_reply(id, br#","error":{"code":-32601,"message":"method not found"}}"#),
    })
}

async fn run(a: Args) {
    let mut ups = Vec::new();
    match a.get("upstream") {
        Some(u) => ups.push(Upstream::Http {
            client: Client::builder(TokioExecutor::new()).build({
                let mut c = HttpConnector::new();
                c.set_nodelay(true);
                c
            }),
            uri: u.parse().expect("--upstream"),
            session: Mutex::default(),
            next: AtomicU64::new(1),
        }),
        None => {
            for _ in 0..a.num("count", 1usize) {
                ups.push(Upstream::stdio(&a.rest));
            }
        }
    }
    let mut all = Vec::new();
    for (i, u) in ups.iter().enumerate() {
        let init = r#"{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"mcp-raw","version":"0.1.0"}}"#;
        u.request("initialize", init).await.expect("initialize");
        let t = u.request("tools/list", "{}").await.expect("tools/list");
        let v: serde_json::Value =
            serde_json::from_slice(&[b"{\"x\":0", &t[..]].concat()).expect("tools json");
        for mut t in v["result"]["tools"].as_array().cloned().unwrap_or_default() {
            t["name"] = format!("s{i}__{}", t["name"].as_str().unwrap_or("")).into();
            all.push(t);
        }
    }
    let gw = Arc::new(RawGateway {
        ups,
        tools: serde_json::to_string(&all).unwrap(),
        sessions: AtomicU64::new(1),
    });
    let l = tokio::net::TcpListener::bind(("127.0.0.1", a.num("port", 9200u16))).await.expect("bind");
    eprintln!("listening on {}", l.local_addr().unwrap());
    loop {
        let Ok((s, _)) = l.accept().await else { continue };
        let _ = s.set_nodelay(true);
        let gw = gw.clone();
        tokio::spawn(async move {
            let svc = hyper::service::service_fn(move |r| serve(gw.clone(), r));
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(s), svc).await;
        });
    }
}

fn main() {
    let a = Args::parse();
    let mut b = match a.num("threads", 1usize) {
        1 => tokio::runtime::Builder::new_current_thread(),
        n => {
            let mut b = tokio::runtime::Builder::new_multi_thread();
            b.worker_threads(n);
            b
        }
    };
    b.enable_all().build().unwrap().block_on(run(a));
}

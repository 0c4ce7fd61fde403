//! Thin MCP server: the fastest reasonable upstream, so that the gateway in front of it is measured.
//!
//!   mcp-stub stdio [--start-delay-ms N] [--tools N] [--page N]
//!   mcp-stub http --port N [--sse] [--stateless]
//!
//! Tools: echo(args), blob(size), sleep(ms), fail, crash, hint(ttl_ms); with `--tools N` also
//! t0_echo, t1_echo, … until there are N. `--page N` lists so many at a time.
//! Legacy (`initialize`) and 2026-07-28 (per-request `_meta`) are both served.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a benchmark prints, and stops when something is wrong"
)]

use bench::Args;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::io::{BufRead, BufReader, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

const MODERN: &str = "2026-07-28";
const LEGACY: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

#[derive(Deserialize)]
struct StubRequest<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct StubCall<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
struct NumericArguments {
    #[serde(default)]
    size: usize,
    #[serde(default)]
    ms: u64,
    #[serde(default)]
    ttl_ms: u64,
}

#[derive(Deserialize)]
struct StubListParams<'a> {
    #[serde(borrow, default)]
    cursor: Option<Cow<'a, str>>,
}

enum StubAnswer {
    None,
    Now(Vec<u8>),
    After(Duration, Vec<u8>),
    Crash,
}

const TOOLS: &str = r#"[{"name":"echo","description":"Return the arguments","inputSchema":{"type":"object","additionalProperties":true}},{"name":"blob","description":"Return size bytes of text","inputSchema":{"type":"object","properties":{"size":{"type":"integer"}},"required":["size"]}},{"name":"sleep","description":"Answer after ms","inputSchema":{"type":"object","properties":{"ms":{"type":"integer"}},"required":["ms"]}},{"name":"fail","description":"Return a tool error","inputSchema":{"type":"object"}},{"name":"crash","description":"Exit without answering","inputSchema":{"type":"object"}},{"name":"hint","description":"Return caching hints","inputSchema":{"type":"object","properties":{"ttl_ms":{"type":"integer"}}}}]"#;

/// Returns the pages of the list of tools, as the command line sets them.
fn pages() -> &'static [String] {
    static PAGES: OnceLock<Vec<String>> = OnceLock::new();
    PAGES.get_or_init(|| {
        let args = Args::parse();
        let mut tools: Vec<Cow<str>> = serde_json::from_str::<Vec<&RawValue>>(TOOLS)
            .expect("TOOLS is JSON")
            .into_iter()
            .map(|tool| Cow::Borrowed(tool.get()))
            .collect();
        tools.extend((tools.len()..args.num("tools", tools.len())).map(|n| {
            Cow::Owned(format!(
                "{{\"name\":\"t{}_echo\",\"description\":\"Return the arguments\",\"inputSchema\":{{\"type\":\"object\"}}}}",
                n - 6
            ))
        }));
        let size = args.num("page", usize::MAX).min(tools.len()).max(1);
        tools.chunks(size).map(|page| format!("[{}]", page.join(","))).collect()
    })
}

/// Returns one page; its number is the cursor.
fn list(params: &str, rt: &str, cache: &str) -> Option<String> {
    let at: usize = match serde_json::from_str::<StubListParams>(params).ok()?.cursor {
        Some(cursor) => cursor.parse().ok()?,
        None => 0,
    };
    let page = pages().get(at)?;
    let next = match at + 1 < pages().len() {
        true => format!(",\"nextCursor\":\"{}\"", at + 1),
        false => String::new(),
    };
    Some(format!("{{{rt}\"tools\":{page}{next}{cache}}}"))
}

fn reply(id: &RawValue, key: &str, body: &str) -> Vec<u8> {
    let mut v = Vec::with_capacity(body.len() + id.get().len() + 40);
    v.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    v.extend_from_slice(id.get().as_bytes());
    v.extend_from_slice(b",\"");
    v.extend_from_slice(key.as_bytes());
    v.extend_from_slice(b"\":");
    v.extend_from_slice(body.as_bytes());
    v.push(b'}');
    v
}

fn text_result(text: &str, modern: bool, is_error: bool, extra: &str) -> String {
    let rt = if modern { "\"resultType\":\"complete\"," } else { "" };
    let t = serde_json::to_string(text).unwrap();
    format!("{{{rt}\"content\":[{{\"type\":\"text\",\"text\":{t}}}],\"isError\":{is_error}{extra}}}")
}

fn handle(line: &[u8]) -> StubAnswer {
    let Ok(r) = serde_json::from_slice::<StubRequest>(line) else {
        return StubAnswer::Now(
            br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"parse error"}}"#.to_vec(),
        );
    };
    let (Some(id), Some(method)) = (r.id, r.method.as_deref()) else { return StubAnswer::None };
    let params = r.params.map(|p| p.get()).unwrap_or("{}");
    // A substring test is enough for a stub: the key occurs only in `_meta`.
    let modern = params.contains("io.modelcontextprotocol/protocolVersion");
    let cache = |ttl: u64| format!(",\"ttlMs\":{ttl},\"cacheScope\":\"public\"");
    let rt = if modern { "\"resultType\":\"complete\"," } else { "" };
    let body = match method {
        "initialize" => {
            let want = serde_json::from_str::<serde_json::Value>(params)
                .ok()
                .and_then(|v| v.get("protocolVersion").and_then(|p| p.as_str().map(String::from)))
                .unwrap_or_default();
            let v = if LEGACY.contains(&want.as_str()) { want.as_str() } else { LEGACY[0] };
            format!(
                "{{\"protocolVersion\":\"{v}\",\"capabilities\":{{\"tools\":{{}}}},\"serverInfo\":{{\"name\":\"mcp-stub\",\"version\":\"0.1.0\"}}}}"
            )
        }
        "server/discover" => format!(
            "{{\"resultType\":\"complete\",\"supportedVersions\":[\"{MODERN}\"],\"capabilities\":{{\"tools\":{{}}}},\"_meta\":{{\"io.modelcontextprotocol/serverInfo\":{{\"name\":\"mcp-stub\",\"version\":\"0.1.0\"}}}}{}}}",
            cache(60_000)
        ),
        "ping" => "{}".to_string(),
        "tools/list" => {
            let c = if modern { cache(60_000) } else { String::new() };
            match list(params, rt, &c) {
                Some(page) => page,
                None => {
                    return StubAnswer::Now(reply(id, "error", r#"{"code":-32602,"message":"bad cursor"}"#));
                }
            }
        }
        "tools/call" => {
            let Ok(c) = serde_json::from_str::<StubCall>(params) else {
                return StubAnswer::Now(reply(id, "error", r#"{"code":-32602,"message":"bad params"}"#));
            };
            let args = c.arguments.map(|a| a.get()).unwrap_or("{}");
            let nums = || serde_json::from_str::<NumericArguments>(args).unwrap_or_default();
            match c.name.as_ref() {
                name if name == "echo" || name.ends_with("_echo") => text_result(args, modern, false, ""),
                "blob" => text_result(&"x".repeat(nums().size.min(64 << 20)), modern, false, ""),
                "sleep" => {
                    let ms = nums().ms.min(600_000);
                    return StubAnswer::After(
                        Duration::from_millis(ms),
                        reply(id, "result", &text_result("slept", modern, false, "")),
                    );
                }
                "fail" => text_result("failed on request", modern, true, ""),
                "crash" => return StubAnswer::Crash,
                "hint" => text_result("hinted", modern, false, &cache(nums().ttl_ms)),
                _ => {
                    return StubAnswer::Now(reply(
                        id,
                        "error",
                        r#"{"code":-32602,"message":"unknown tool"}"#,
                    ));
                }
            }
        }
        "resources/list" => format!("{{{rt}\"resources\":[]}}"),
        "resources/templates/list" => format!("{{{rt}\"resourceTemplates\":[]}}"),
        "prompts/list" => format!("{{{rt}\"prompts\":[]}}"),
        _ => return StubAnswer::Now(reply(id, "error", r#"{"code":-32601,"message":"method not found"}"#)),
    };
    StubAnswer::Now(reply(id, "result", &body))
}

fn stdio() {
    let out = Arc::new(Mutex::new(std::io::stdout()));
    let mut rd = BufReader::with_capacity(256 << 10, std::io::stdin().lock());
    let (mut line, mut pending) = (Vec::with_capacity(64 << 10), Vec::<u8>::new());
    let flush = |pending: &mut Vec<u8>| {
        if !pending.is_empty() {
            let mut o = out.lock().unwrap();
            if o.write_all(pending).and_then(|_| o.flush()).is_err() {
                std::process::exit(0);
            }
            pending.clear();
        }
    };
    loop {
        line.clear();
        if rd.read_until(b'\n', &mut line).unwrap_or(0) == 0 {
            flush(&mut pending);
            return;
        }
        match handle(&line) {
            StubAnswer::None => {}
            StubAnswer::Now(mut v) => {
                v.push(b'\n');
                pending.extend_from_slice(&v);
            }
            StubAnswer::After(d, mut v) => {
                let out = out.clone();
                std::thread::spawn(move || {
                    std::thread::sleep(d);
                    v.push(b'\n');
                    let mut o = out.lock().unwrap();
                    let _ = o.write_all(&v).and_then(|_| o.flush());
                });
            }
            StubAnswer::Crash => std::process::exit(134),
        }
        // Batch answers only while another whole request is already buffered.
        if !rd.buffer().contains(&b'\n') || pending.len() > 256 << 10 {
            flush(&mut pending);
        }
    }
}

mod http {
    use super::*;
    use bytes::Bytes;
    use http_body_util::{BodyExt, Full};
    use hyper::body::Incoming;
    use hyper::{Method, Request, Response, StatusCode};

    static SESSION: AtomicU64 = AtomicU64::new(1);

    async fn serve_one(
        req: Request<Incoming>,
        sse: bool,
        stateless: bool,
    ) -> Result<Response<Full<Bytes>>, hyper::Error> {
        let empty = |s: StatusCode| Response::builder().status(s).body(Full::default()).unwrap();
        match *req.method() {
            Method::POST => {}
            Method::DELETE => return Ok(empty(StatusCode::OK)),
            _ => return Ok(empty(StatusCode::METHOD_NOT_ALLOWED)),
        }
        let body = req.into_body().collect().await?.to_bytes();
        let v = match handle(&body) {
            StubAnswer::None => return Ok(empty(StatusCode::ACCEPTED)),
            StubAnswer::Now(v) => v,
            StubAnswer::After(d, v) => {
                tokio::time::sleep(d).await;
                v
            }
            StubAnswer::Crash => std::process::exit(134),
        };
        let mut b = Response::builder();
        // The stub's own initialize answer is recognisable without re-parsing.
        if !stateless && v.windows(17).take(80).any(|w| w == b"\"protocolVersion\"") {
            let n = SESSION.fetch_add(1, Ordering::Relaxed);
            b = b.header("Mcp-Session-Id", format!("{:016x}{n:016x}", n.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
        }
        Ok(if sse {
            let mut o = Vec::with_capacity(v.len() + 32);
            o.extend_from_slice(b"event: message\ndata: ");
            o.extend_from_slice(&v);
            o.extend_from_slice(b"\n\n");
            b.header("content-type", "text/event-stream").body(Full::from(o)).unwrap()
        } else {
            b.header("content-type", "application/json").body(Full::from(v)).unwrap()
        })
    }

    pub(crate) async fn run(port: u16, sse: bool, stateless: bool) {
        let l = tokio::net::TcpListener::bind(("127.0.0.1", port)).await.expect("bind");
        eprintln!("listening on {}", l.local_addr().unwrap());
        loop {
            let Ok((s, _)) = l.accept().await else { continue };
            let _ = s.set_nodelay(true);
            tokio::spawn(async move {
                let _ = hyper::server::conn::http1::Builder::new()
                    .serve_connection(
                        hyper_util::rt::TokioIo::new(s),
                        hyper::service::service_fn(move |r| serve_one(r, sse, stateless)),
                    )
                    .await;
            });
        }
    }
}

fn main() {
    let a = Args::parse();
    std::thread::sleep(Duration::from_millis(a.num("start-delay-ms", 0)));
    match a.pos.first().map(|s| s.as_str()) {
        Some("stdio") => stdio(),
        Some("http") => tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
            .block_on(http::run(a.num("port", 9100), a.flag("sse"), a.flag("stateless"))),
        _ => {
            eprintln!("usage: mcp-stub stdio | http --port N [--sse] [--stateless]");
            std::process::exit(2);
        }
    }
}

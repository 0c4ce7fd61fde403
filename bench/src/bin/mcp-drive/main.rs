//! Load driver for MCP endpoints. Every command prints one JSON object.
//!
//!   mcp-drive http  --url U --tool echo [--payload N | --args JSON] [--concurrency C]
//!                   [--sessions N] [--seconds D] [--warmup W] [--proto P] [--pid PID] [--spread]
//!   mcp-drive stdio [same options] -- command args...
//!   mcp-drive ready --url U [--min-tools N] [--timeout S]
//!   mcp-drive start --url U [--min-tools N] [--timeout S] -- command args...
//!   mcp-drive crash --url U [--timeout S]
//!   mcp-drive sessions --url U --count N [--pid PID] [--no-delete]
//!   mcp-drive rss --pid PID
//!
//! `--header "Name: value"` (repeatable) adds request headers.
//! The tool is matched exactly, else by suffix, since aggregators prefix names. `--exact` takes
//! its name as it is and lists no tools, which saves time with very many tools.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a benchmark prints, and stops when something is wrong"
)]

mod client;

use bench::Args;
use bench::process::{MeasuredUsage, TreeUsage};
use client::{Conn, DriveReply, DriveSession, META, MODERN, Url, check_message, check_reply};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn usage_json(s: &MeasuredUsage) -> Value {
    json!({"procs": s.procs, "threads": s.threads, "fds": s.fds, "rss_mib": mib(s.rss_kib), "hwm_mib": mib(s.hwm_kib), "pss_mib": mib(s.pss_kib)})
}
fn mib(kib: i64) -> f64 {
    (kib as f64 / 102.4).round() / 10.0
}
fn tree_json(t: &TreeUsage) -> Value {
    json!({"gateway": usage_json(&t.gateway), "stubs": usage_json(&t.stubs)})
}
fn us(ns: u64) -> f64 {
    (ns as f64 / 100.0).round() / 10.0
}
fn ms(d: Duration) -> f64 {
    (d.as_secs_f64() * 10_000.0).round() / 10.0
}

#[derive(Default)]
struct LatencyTally {
    ns: Vec<u64>,
    errors: u64,
    samples: Vec<String>,
}
impl LatencyTally {
    fn err(&mut self, e: String) {
        self.errors += 1;
        if self.samples.len() < 3 && !self.samples.contains(&e) {
            self.samples.push(e);
        }
    }
    fn report(&mut self, secs: f64) -> Value {
        self.ns.sort_unstable();
        let q = |p: f64| match self.ns.len() {
            0 => 0.0,
            n => us(self.ns[((n as f64 * p) as usize).min(n - 1)]),
        };
        json!({
            "calls": self.ns.len(), "errors": self.errors, "error_samples": self.samples,
            "seconds": (secs * 1000.0).round() / 1000.0, "rps": (self.ns.len() as f64 / secs).round(),
            "p50_us": q(0.50), "p90_us": q(0.90), "p99_us": q(0.99), "max_us": q(1.0),
        })
    }
}

struct Opts {
    proto: String,
    tool: String,
    args: String,
    payload: usize,
    conc: usize,
    secs: f64,
    warm: f64,
    pid: Option<u32>,
    headers: String,
}
impl Opts {
    fn new(a: &Args) -> Opts {
        let payload: usize = a.num("payload", 0);
        let tool = a.get("tool").unwrap_or("echo").to_string();
        let args = match a.get("args") {
            Some(s) => s.to_string(),
            None => json!({"data": "x".repeat(payload)}).to_string(),
        };
        Opts {
            proto: a.get("proto").unwrap_or("2025-06-18").into(),
            tool,
            args,
            payload,
            conc: a.num("concurrency", 1),
            secs: a.num("seconds", 5.0),
            warm: a.num("warmup", 1.0),
            pid: a.get("pid").and_then(|p| p.parse().ok()),
            headers: a.all("header").iter().map(|h| format!("{h}\r\n")).collect(),
        }
    }
}

fn pick(tools: &[String], want: &str) -> Vec<String> {
    if tools.iter().any(|t| t == want) {
        return vec![want.to_string()];
    }
    tools
        .iter()
        .filter(|t| t.strip_suffix(want).is_some_and(|p| p.ends_with(|c: char| !c.is_alphanumeric())))
        .cloned()
        .collect()
}

fn cpu(pid: Option<u32>) -> i64 {
    pid.map(|p| TreeUsage::read(p).gateway.cpu_us).unwrap_or(0)
}

async fn http_load(a: &Args) -> Value {
    let o = Opts::new(a);
    let url = Url::parse(a.get("url").expect("--url"));
    let mut c0 = Conn::new(&url);
    let mut sessions = Vec::new();
    let t_open = Instant::now();
    for _ in 0..a.num("sessions", 1usize) {
        match DriveSession::open(&mut c0, &o.proto, &o.headers).await {
            Ok(s) => sessions.push(s),
            Err(e) => return json!({"error": format!("open: {e}")}),
        }
    }
    let open_ms = ms(t_open.elapsed());
    let tools = match a.flag("exact") {
        true => vec![o.tool.clone()],
        false => match sessions[0].tools(&mut c0).await {
            Ok(t) => t,
            Err(e) => return json!({"error": format!("tools/list: {e}")}),
        },
    };
    let mut names = pick(&tools, &o.tool);
    if names.is_empty() {
        return json!({"error": format!("no tool {:?} among {} tools: {:?}", o.tool, tools.len(), &tools[..tools.len().min(8)])});
    }
    if !a.flag("spread") {
        names.truncate(1);
    }
    let tally = Rc::new(RefCell::new(LatencyTally::default()));
    let start = Instant::now() + Duration::from_secs_f64(o.warm);
    let end = start + Duration::from_secs_f64(o.secs);
    let local = tokio::task::LocalSet::new();
    let mut hs = Vec::new();
    for w in 0..o.conc {
        let s = sessions[w % sessions.len()].clone();
        let (tally, url, names, args, min) =
            (tally.clone(), url.clone(), names.clone(), o.args.clone(), o.payload);
        hs.push(local.spawn_local(async move {
            let mut c = Conn::new(&url);
            let heads: Vec<String> = names.iter().map(|n| s.headers("tools/call", Some(n))).collect();
            let mut n = 0u64;
            loop {
                let t0 = Instant::now();
                if t0 >= end {
                    break;
                }
                let k = (w + n as usize) % names.len();
                let id = 1000 + (w as u64) * 100_000_000 + n;
                n += 1;
                let body = s.call_body(id, &names[k], &args);
                let r = tokio::time::timeout(
                    Duration::from_secs(30),
                    c.request("POST", &heads[k], body.as_bytes()),
                )
                .await;
                let bad = match r {
                    Ok(Ok(rep)) => match check_reply(&rep, min) {
                        Ok(()) => {
                            if t0 >= start {
                                tally
                                    .borrow_mut()
                                    .ns
                                    .push(rep.done.unwrap().duration_since(t0).as_nanos() as u64);
                            }
                            None
                        }
                        Err(e) => Some(e),
                    },
                    Ok(Err(e)) => Some(e.to_string()),
                    Err(_) => {
                        c.close();
                        Some("timeout".into())
                    }
                };
                if let Some(e) = bad {
                    tally.borrow_mut().err(e);
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
            (c.reconnects, c.unclosed_streams)
        }));
    }
    let pid = o.pid;
    let (cpu0, cpu1) = local
        .run_until(async move {
            tokio::time::sleep_until(start.into()).await;
            let c0 = cpu(pid);
            tokio::time::sleep_until(end.into()).await;
            (c0, cpu(pid))
        })
        .await;
    let (mut rec, mut unc) = (0, 0);
    local
        .run_until(async {
            for h in hs {
                if let Ok((r, u)) = h.await {
                    rec += r;
                    unc += u;
                }
            }
        })
        .await;
    let mut v = tally.borrow_mut().report(o.secs);
    v["tools"] = json!(tools.len());
    v["tool"] = json!(names[0]);
    v["proto"] = json!(sessions[0].proto);
    v["open_ms"] = json!(open_ms);
    v["connections"] = json!(rec);
    v["unclosed_streams"] = json!(unc);
    if let Some(p) = o.pid {
        let n = v["calls"].as_u64().unwrap_or(0).max(1);
        v["cpu_us_per_call"] = json!(((cpu1 - cpu0) as f64 / n as f64 * 10.0).round() / 10.0);
        v["rss"] = tree_json(&TreeUsage::read(p));
    }
    if !a.flag("keep-sessions") {
        for s in &sessions {
            if s.id.is_some() {
                let _ = tokio::time::timeout(Duration::from_secs(2), s.delete(&mut c0)).await;
            }
        }
    }
    v
}

async fn stdio_load(a: &Args) -> Value {
    let o = Opts::new(a);
    let mut child = tokio::process::Command::new(&a.rest[0])
        .args(&a.rest[1..])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("spawn");
    let pid = child.id();
    let (mut pipe, mut rd) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    // Writing has its own task: a peer that blocks on its stdout stops reading its stdin, so a
    // driver that waits in a write would never drain it.
    let (wr, mut queue) = tokio::sync::mpsc::unbounded_channel::<Vec<u8>>();
    tokio::spawn(async move {
        while let Some(b) = queue.recv().await {
            if pipe.write_all(&b).await.is_err() {
                return;
            }
        }
    });
    let mut buf: Vec<u8> = Vec::with_capacity(256 << 10);
    async fn line(rd: &mut tokio::process::ChildStdout, buf: &mut Vec<u8>) -> Option<Vec<u8>> {
        loop {
            if let Some(i) = buf.iter().position(|b| *b == b'\n') {
                return Some(buf.drain(..=i).collect());
            }
            if rd.read_buf(buf).await.ok()? == 0 {
                return None;
            }
        }
    }
    async fn answer(rd: &mut tokio::process::ChildStdout, buf: &mut Vec<u8>, id: u64) -> Option<Value> {
        loop {
            let l = line(rd, buf).await?;
            if let Ok(v) = serde_json::from_slice::<Value>(&l)
                && v["id"].as_u64() == Some(id)
            {
                return Some(v);
            }
        }
    }
    let mut s = DriveSession { proto: o.proto.clone(), id: None, extra: String::new() };
    let t0 = Instant::now();
    if !s.modern() {
        let b = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{{\"protocolVersion\":\"{}\",\"capabilities\":{{}},\"clientInfo\":{{\"name\":\"mcp-drive\",\"version\":\"0.1.0\"}}}}}}\n",
            o.proto
        );
        wr.send(b.into_bytes()).unwrap();
        let Some(v) = answer(&mut rd, &mut buf, 1).await else {
            return json!({"error": "no initialize answer"});
        };
        s.proto = v["result"]["protocolVersion"].as_str().unwrap_or(&o.proto).into();
        wr.send(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n".to_vec()).unwrap();
    }
    let meta = if s.modern() { META } else { "" };
    wr.send(
        format!("{{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"tools/list\",\"params\":{{{meta}}}}}\n")
            .into_bytes(),
    )
    .unwrap();
    let Some(v) = answer(&mut rd, &mut buf, 2).await else { return json!({"error": "no tools/list answer"}) };
    let ready = ms(t0.elapsed());
    let tools: Vec<String> = v["result"]["tools"]
        .as_array()
        .map(|t| t.iter().filter_map(|t| t["name"].as_str().map(String::from)).collect())
        .unwrap_or_default();
    let Some(name) = pick(&tools, &o.tool).first().cloned() else {
        return json!({"error": format!("no tool: {v}")});
    };

    let mut tally = LatencyTally::default();
    let start = Instant::now() + Duration::from_secs_f64(o.warm);
    let end = start + Duration::from_secs_f64(o.secs);
    // Slot i owns the ids congruent to i modulo the concurrency.
    let conc = o.conc as u64;
    let mut sent = vec![Instant::now(); o.conc];
    let mut next = vec![0u64; o.conc];
    let mut out = Vec::new();
    let mut cpu0 = None;
    let base = 1000 * conc;
    let push = |slot: usize, next: &mut Vec<u64>, out: &mut Vec<u8>, sent: &mut Vec<Instant>| {
        out.extend_from_slice(s.call_body(base + next[slot] * conc + slot as u64, &name, &o.args).as_bytes());
        out.push(b'\n');
        next[slot] += 1;
        sent[slot] = Instant::now();
    };
    for i in 0..o.conc {
        push(i, &mut next, &mut out, &mut sent);
    }
    let mut live = o.conc;
    while live > 0 {
        if !out.is_empty() && wr.send(std::mem::take(&mut out)).is_err() {
            break;
        }
        let now = Instant::now();
        if cpu0.is_none() && now >= start {
            cpu0 = Some(cpu(pid));
        }
        match tokio::time::timeout(Duration::from_secs(30), rd.read_buf(&mut buf)).await {
            Ok(Ok(n)) if n > 0 => {}
            _ => {
                tally.err("stdout closed or silent".into());
                break;
            }
        }
        let mut at = 0;
        while let Some(n) = buf[at..].iter().position(|b| *b == b'\n') {
            let msg = &buf[at..at + n];
            at += n + 1;
            let Ok(r) = serde_json::from_slice::<client::Rpc>(msg) else { continue };
            let Some(id) = r.id.and_then(|i| i.get().parse::<u64>().ok()) else { continue };
            let slot = (id % conc) as usize;
            let now = Instant::now();
            match check_message(msg, o.payload) {
                Ok(()) if sent[slot] >= start => {
                    tally.ns.push(now.duration_since(sent[slot]).as_nanos() as u64)
                }
                Ok(()) => {}
                Err(e) => tally.err(e),
            }
            if now < end {
                push(slot, &mut next, &mut out, &mut sent);
            } else {
                live -= 1;
            }
        }
        buf.drain(..at);
    }
    let mut v = tally.report(o.secs);
    v["ready_ms"] = json!(ready);
    v["proto"] = json!(s.proto);
    if let Some(p) = pid {
        let n = v["calls"].as_u64().unwrap_or(0).max(1);
        v["cpu_us_per_call"] =
            json!(((cpu(pid) - cpu0.unwrap_or(0)) as f64 / n as f64 * 10.0).round() / 10.0);
        v["rss"] = tree_json(&TreeUsage::read(p));
    }
    v
}

/// Polls until the endpoint lists at least `min` tools.
async fn ready(url: &Url, o: &Opts, min: usize, limit: Duration) -> Value {
    let t0 = Instant::now();
    let (mut first, mut last) = (None, String::from("never answered"));
    while t0.elapsed() < limit {
        let mut c = Conn::new(url);
        let r = tokio::time::timeout(limit.saturating_sub(t0.elapsed()), async {
            let s = DriveSession::open(&mut c, &o.proto, &o.headers).await?;
            let t = s.tools(&mut c).await?;
            if s.id.is_some() {
                let _ = tokio::time::timeout(Duration::from_secs(1), s.delete(&mut c)).await;
            }
            Ok::<_, std::io::Error>(t)
        })
        .await;
        match r {
            Ok(Ok(t)) => {
                first.get_or_insert(ms(t0.elapsed()));
                if t.len() >= min {
                    return json!({"first_list_ms": first, "full_list_ms": ms(t0.elapsed()), "tools": t.len()});
                }
                last = format!("{} tools", t.len());
            }
            Ok(Err(e)) => last = e.to_string(),
            Err(_) => last = "timeout".into(),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    json!({"error": last, "first_list_ms": first})
}

async fn start(a: &Args) -> Value {
    let o = Opts::new(a);
    let url = Url::parse(a.get("url").expect("--url"));
    let mut cmd = tokio::process::Command::new(&a.rest[0]);
    cmd.args(&a.rest[1..])
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    let mut child = cmd.process_group(0).kill_on_drop(true).spawn().expect("spawn");
    let pid = child.id().unwrap();
    let mut v = ready(&url, &o, a.num("min-tools", 1), Duration::from_secs_f64(a.num("timeout", 60.0))).await;
    tokio::time::sleep(Duration::from_secs_f64(a.num("settle", 1.0))).await;
    v["rss"] = tree_json(&TreeUsage::read(pid));
    // End the whole group that this command started, and nothing else.
    let _ = std::process::Command::new("kill").args(["-TERM", "--", &format!("-{pid}")]).status();
    if tokio::time::timeout(Duration::from_secs(5), child.wait()).await.is_err() {
        let _ = std::process::Command::new("kill").args(["-KILL", "--", &format!("-{pid}")]).status();
        let _ = child.wait().await;
    }
    v
}

fn outcome(r: Result<std::io::Result<DriveReply>, tokio::time::error::Elapsed>) -> String {
    match r {
        Err(_) => "TIMEOUT".into(),
        Ok(Err(e)) => format!("connection: {e}"),
        Ok(Ok(rep)) => match check_reply(&rep, 0) {
            Ok(()) => "ok".into(),
            Err(e) => e,
        },
    }
}

async fn crash(a: &Args) -> Value {
    let o = Opts::new(a);
    let url = Url::parse(a.get("url").expect("--url"));
    let limit = Duration::from_secs_f64(a.num("timeout", 20.0));
    let (mut ca, mut cb, mut cs) = (Conn::new(&url), Conn::new(&url), Conn::new(&url));
    let sa = match DriveSession::open(&mut ca, &o.proto, &o.headers).await {
        Ok(s) => s,
        Err(e) => return json!({"error": e.to_string()}),
    };
    let sb = match DriveSession::open(&mut cb, &o.proto, &o.headers).await {
        Ok(s) => s,
        Err(e) => return json!({"error": e.to_string()}),
    };
    let tools = sa.tools(&mut ca).await.unwrap_or_default();
    let name = |n: &str| pick(&tools, n).first().cloned().unwrap_or(n.into());
    let (echo, sleep, boom) = (name("echo"), name("sleep"), name("crash"));
    let before = outcome(Ok(sa.call(&mut ca, 1, &echo, "{}").await));
    let before_b = outcome(Ok(sb.call(&mut cb, 1, &echo, "{}").await));
    // A call that is already running when the upstream dies.
    let (ss, sl) = (sa.clone(), sleep.clone());
    let inflight = tokio::task::spawn_local(async move {
        let t = Instant::now();
        let r = outcome(tokio::time::timeout(limit, ss.call(&mut cs, 2, &sl, "{\"ms\":60000}")).await);
        json!({"outcome": r, "ms": ms(t.elapsed())})
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    let t0 = Instant::now();
    let b = outcome(tokio::time::timeout(limit, sa.call(&mut ca, 3, &boom, "{}")).await);
    let crash_ms = ms(t0.elapsed());
    let end = Instant::now() + limit;
    let probe = |label: &'static str, fixed: Option<DriveSession>| {
        let (url, o_proto, hdr, echo) = (url.clone(), o.proto.clone(), o.headers.clone(), echo.clone());
        async move {
            let (mut n, mut last, mut c) = (0u32, String::new(), Conn::new(&url));
            while Instant::now() < end {
                n += 1;
                let r = tokio::time::timeout(Duration::from_secs(5), async {
                    let s = match &fixed {
                        Some(s) => s.clone(),
                        None => DriveSession::open(&mut c, &o_proto, &hdr).await?,
                    };
                    s.call(&mut c, 10 + n as u64, &echo, "{}").await
                })
                .await;
                last = outcome(r);
                if last == "ok" {
                    return (label, json!({"recovered_ms": ms(t0.elapsed()), "attempts": n}));
                }
                c.close();
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            (label, json!({"recovered_ms": null, "attempts": n, "last": last}))
        }
    };
    let (x, y, z) = tokio::join!(
        probe("same_session", Some(sa.clone())),
        probe("other_session", Some(sb.clone())),
        probe("new_session", None)
    );
    let inflight = inflight.await.unwrap();
    let mut v = json!({"before": [before, before_b], "crash_call": {"outcome": b, "ms": crash_ms}, "inflight_call": inflight});
    for (k, r) in [x, y, z] {
        v[k] = r;
    }
    v
}

async fn sessions(a: &Args) -> Value {
    let o = Opts::new(a);
    let url = Url::parse(a.get("url").expect("--url"));
    let count: u64 = a.num("count", 1000);
    let limit = Instant::now() + Duration::from_secs_f64(a.num("timeout", 120.0));
    let mut c = Conn::new(&url);
    let (mut tally, mut marks, mut tool) = (LatencyTally::default(), Vec::new(), None::<String>);
    let t0 = Instant::now();
    let mut done = 0;
    let mut mark = |n: u64| {
        if let Some(p) = o.pid {
            let t = TreeUsage::read(p);
            marks.push(json!({"sessions": n, "rss_mib": mib(t.gateway.rss_kib), "fds": t.gateway.fds, "stub_procs": t.stubs.procs}));
        }
    };
    mark(0);
    for i in 0..count {
        if Instant::now() > limit {
            break;
        }
        let t = Instant::now();
        let r = tokio::time::timeout(Duration::from_secs(20), async {
            let s = DriveSession::open(&mut c, &o.proto, &o.headers).await?;
            if tool.is_none() {
                let tools = s.tools(&mut c).await?;
                tool = Some(pick(&tools, &o.tool).first().cloned().unwrap_or(o.tool.clone()));
            }
            let rep = s.call(&mut c, 5, tool.as_ref().unwrap(), &o.args).await?;
            if s.id.is_some() && !a.flag("no-delete") {
                s.delete(&mut c).await?;
            }
            Ok::<_, std::io::Error>(rep)
        })
        .await;
        match outcome(r) {
            e if e != "ok" => {
                c.close();
                tally.err(e);
            }
            _ => tally.ns.push(t.elapsed().as_nanos() as u64),
        }
        done = i + 1;
        if done % (count / 5).max(1) == 0 {
            mark(done);
        }
    }
    let secs = t0.elapsed().as_secs_f64();
    tokio::time::sleep(Duration::from_secs(2)).await;
    mark(done);
    let mut v = tally.report(secs);
    v["sessions"] = json!(done);
    v["marks"] = json!(marks);
    v
}

fn main() {
    let a = Args::parse();
    let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let local = tokio::task::LocalSet::new();
    let v = match a.pos.first().map(|s| s.as_str()) {
        Some("http") => rt.block_on(http_load(&a)),
        Some("stdio") => rt.block_on(stdio_load(&a)),
        Some("ready") => {
            let (o, u) = (Opts::new(&a), Url::parse(a.get("url").expect("--url")));
            rt.block_on(ready(&u, &o, a.num("min-tools", 1), Duration::from_secs_f64(a.num("timeout", 60.0))))
        }
        Some("start") => rt.block_on(start(&a)),
        Some("crash") => local.block_on(&rt, crash(&a)),
        Some("sessions") => rt.block_on(sessions(&a)),
        Some("rss") => tree_json(&TreeUsage::read(a.num("pid", 0))),
        _ => {
            eprintln!(
                "usage: mcp-drive http|stdio|ready|start|crash|sessions|rss ... (modern protocol: --proto {MODERN})"
            );
            std::process::exit(2);
        }
    };
    println!("{v}");
    if v.get("error").is_some() {
        std::process::exit(1);
    }
}

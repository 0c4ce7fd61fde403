//! Small keep-alive HTTP/1.1 MCP client, written by hand so that the driver takes little CPU beside
//! the gateway that it measures.

use serde::Deserialize;
use serde_json::value::RawValue;
use std::io::{Error, ErrorKind, Result};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[derive(Clone, Debug)]
pub(crate) struct Url {
    pub(crate) authority: String,
    pub(crate) path: String,
}

impl Url {
    pub(crate) fn parse(s: &str) -> Url {
        let rest = s.strip_prefix("http://").expect("only http:// URLs");
        let (authority, path) = match rest.find('/') {
            Some(i) => (&rest[..i], &rest[i..]),
            None => (rest, "/"),
        };
        Url { authority: authority.into(), path: path.into() }
    }
}

#[derive(Deserialize)]
pub(crate) struct Rpc<'a> {
    #[serde(borrow, default)]
    pub(crate) id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) error: Option<&'a RawValue>,
}

#[derive(Debug, Default)]
pub(crate) struct DriveReply {
    pub(crate) status: u16,
    pub(crate) session: Option<String>,
    pub(crate) sse: bool,
    /// The JSON-RPC response, or the whole body when there is none.
    pub(crate) msg: Vec<u8>,
    pub(crate) done: Option<Instant>,
}

pub(crate) struct Conn {
    url: Url,
    s: Option<TcpStream>,
    buf: Vec<u8>,
    at: usize,
    pub(crate) reconnects: u64,
    pub(crate) unclosed_streams: u64,
}

fn bad(m: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidData, m.into())
}

/// Returns the response message inside the complete events of `buf`, if there is one.
fn sse_response(buf: &[u8]) -> Option<Vec<u8>> {
    let (mut start, mut data) = (0, Vec::new());
    while let Some(n) = buf[start..].iter().position(|b| *b == b'\n') {
        let line = &buf[start..start + n];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        start += n + 1;
        if line.is_empty() {
            if !data.is_empty() {
                if let Ok(r) = serde_json::from_slice::<Rpc>(&data)
                    && r.id.is_some()
                    && (r.result.is_some() || r.error.is_some())
                {
                    return Some(data);
                }
                data.clear();
            }
        } else if let Some(d) = line.strip_prefix(b"data:") {
            data.extend_from_slice(d.strip_prefix(b" ").unwrap_or(d));
        }
    }
    None
}

impl Conn {
    pub(crate) fn new(url: &Url) -> Conn {
        Conn {
            url: url.clone(),
            s: None,
            buf: Vec::with_capacity(64 << 10),
            at: 0,
            reconnects: 0,
            unclosed_streams: 0,
        }
    }
    pub(crate) fn close(&mut self) {
        self.s = None;
        self.buf.clear();
        self.at = 0;
    }
    async fn fill(&mut self) -> Result<usize> {
        if self.at == self.buf.len() {
            self.buf.clear();
            self.at = 0;
        } else if self.at > 256 << 10 {
            self.buf.drain(..self.at);
            self.at = 0;
        }
        self.buf.reserve(32 << 10);
        self.s.as_mut().ok_or_else(|| bad("no connection"))?.read_buf(&mut self.buf).await
    }
    async fn fill_some(&mut self) -> Result<()> {
        if self.fill().await? == 0 {
            return Err(Error::new(ErrorKind::UnexpectedEof, "connection closed"));
        }
        Ok(())
    }
    async fn line(&mut self) -> Result<String> {
        loop {
            if let Some(n) = self.buf[self.at..].iter().position(|b| *b == b'\n') {
                let l = String::from_utf8_lossy(&self.buf[self.at..self.at + n]).trim().to_string();
                self.at += n + 1;
                return Ok(l);
            }
            self.fill_some().await?;
        }
    }
    async fn take(&mut self, mut n: usize, out: &mut Vec<u8>) -> Result<()> {
        while n > 0 {
            if self.at == self.buf.len() {
                self.fill_some().await?;
            }
            let k = n.min(self.buf.len() - self.at);
            out.extend_from_slice(&self.buf[self.at..self.at + k]);
            self.at += k;
            n -= k;
        }
        Ok(())
    }

    pub(crate) async fn request(&mut self, method: &str, headers: &str, body: &[u8]) -> Result<DriveReply> {
        let r = self.request_inner(method, headers, body).await;
        if r.is_err() {
            self.close();
        }
        r
    }

    async fn request_inner(&mut self, method: &str, headers: &str, body: &[u8]) -> Result<DriveReply> {
        if self.s.is_none() {
            let s = TcpStream::connect(&self.url.authority).await?;
            s.set_nodelay(true)?;
            self.s = Some(s);
            self.reconnects += 1;
        }
        let mut out = Vec::with_capacity(512 + body.len());
        out.extend_from_slice(
            format!(
                "{method} {} HTTP/1.1\r\nHost: {}\r\nAccept: application/json, text/event-stream\r\nContent-Type: application/json\r\n{headers}Content-Length: {}\r\n\r\n",
                self.url.path, self.url.authority, body.len()
            )
            .as_bytes(),
        );
        out.extend_from_slice(body);
        self.s.as_mut().unwrap().write_all(&out).await?;

        let mut rep = DriveReply::default();
        let (mut len, mut chunked, mut close) = (None, false, false);
        loop {
            if self.at < self.buf.len() {
                let mut hs = [httparse::EMPTY_HEADER; 48];
                let mut p = httparse::Response::new(&mut hs);
                match p.parse(&self.buf[self.at..]).map_err(|e| bad(e.to_string()))? {
                    httparse::Status::Complete(n) => {
                        rep.status = p.code.unwrap_or(0);
                        for h in p.headers.iter() {
                            let v = || String::from_utf8_lossy(h.value).trim().to_string();
                            if h.name.eq_ignore_ascii_case("content-length") {
                                len = v().parse::<usize>().ok();
                            } else if h.name.eq_ignore_ascii_case("transfer-encoding") {
                                chunked = v().eq_ignore_ascii_case("chunked");
                            } else if h.name.eq_ignore_ascii_case("content-type") {
                                rep.sse = v().starts_with("text/event-stream");
                            } else if h.name.eq_ignore_ascii_case("mcp-session-id") {
                                rep.session = Some(v());
                            } else if h.name.eq_ignore_ascii_case("connection") {
                                close = v().eq_ignore_ascii_case("close");
                            }
                        }
                        self.at += n;
                        if rep.status / 100 == 1 {
                            continue;
                        }
                        break;
                    }
                    httparse::Status::Partial => {}
                }
            }
            self.fill_some().await?;
        }
        let mut body = Vec::new();
        if chunked {
            loop {
                let l = match rep.done {
                    None => self.line().await?,
                    // The answer is complete; the stream gets a moment to end.
                    Some(_) => match tokio::time::timeout(Duration::from_millis(250), self.line()).await {
                        Ok(l) => l?,
                        Err(_) => {
                            self.unclosed_streams += 1;
                            self.close();
                            return Ok(rep);
                        }
                    },
                };
                let n = usize::from_str_radix(l.split(';').next().unwrap_or(""), 16)
                    .map_err(|_| bad("bad chunk"))?;
                self.take(n, &mut body).await?;
                self.line().await?;
                if n == 0 {
                    break;
                }
                if rep.sse
                    && rep.done.is_none()
                    && body.ends_with(b"\n")
                    && let Some(m) = sse_response(&body)
                {
                    rep.msg = m;
                    rep.done = Some(Instant::now());
                }
            }
        } else if let Some(n) = len {
            self.take(n, &mut body).await?;
        } else if rep.status != 202 && rep.status != 204 {
            close = true;
            loop {
                body.extend_from_slice(&self.buf[self.at..]);
                self.at = self.buf.len();
                if self.fill().await? == 0 {
                    break;
                }
            }
        }
        if rep.done.is_none() {
            rep.done = Some(Instant::now());
            rep.msg = if rep.sse { sse_response(&body).unwrap_or(body) } else { body };
        }
        if close {
            self.close();
        }
        Ok(rep)
    }
}

/// One MCP session (legacy) or one stateless client (2026-07-28).
#[derive(Clone, Debug)]
pub(crate) struct DriveSession {
    pub(crate) proto: String,
    pub(crate) id: Option<String>,
    pub(crate) extra: String,
}

pub(crate) const MODERN: &str = "2026-07-28";
pub(crate) const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"mcp-drive","version":"0.1.0"},"io.modelcontextprotocol/clientCapabilities":{}}"#;

impl DriveSession {
    pub(crate) fn modern(&self) -> bool {
        self.proto == MODERN
    }
    pub(crate) fn headers(&self, method: &str, name: Option<&str>) -> String {
        let mut h = self.extra.clone();
        h.push_str(&format!("MCP-Protocol-Version: {}\r\n", self.proto));
        if let Some(s) = &self.id {
            h.push_str(&format!("Mcp-Session-Id: {s}\r\n"));
        }
        if self.modern() {
            h.push_str(&format!("Mcp-Method: {method}\r\n"));
            if let Some(n) = name {
                h.push_str(&format!("Mcp-Name: {n}\r\n"));
            }
        }
        h
    }
    pub(crate) fn call_body(&self, id: u64, tool: &str, args: &str) -> String {
        let meta = if self.modern() { format!(",{META}") } else { String::new() };
        let tool = serde_json::to_string(tool).unwrap();
        format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/call\",\"params\":{{\"name\":{tool},\"arguments\":{args}{meta}}}}}"
        )
    }
    pub(crate) async fn open(c: &mut Conn, proto: &str, extra: &str) -> Result<DriveSession> {
        let mut s = DriveSession { proto: proto.into(), id: None, extra: extra.into() };
        if s.modern() {
            let b = format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"server/discover\",\"params\":{{{META}}}}}"
            );
            let r = c.request("POST", &s.headers("server/discover", None), b.as_bytes()).await?;
            if r.status != 200 {
                return Err(bad(format!("discover: HTTP {} {}", r.status, String::from_utf8_lossy(&r.msg))));
            }
            return Ok(s);
        }
        let b = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{{\"protocolVersion\":\"{proto}\",\"capabilities\":{{}},\"clientInfo\":{{\"name\":\"mcp-drive\",\"version\":\"0.1.0\"}}}}}}"
        );
        let r = c.request("POST", extra, b.as_bytes()).await?;
        let msg = String::from_utf8_lossy(&r.msg).to_string();
        let v: serde_json::Value = serde_json::from_str(&msg).unwrap_or_default();
        match v["result"]["protocolVersion"].as_str() {
            Some(p) if r.status == 200 => s.proto = p.into(),
            _ => return Err(bad(format!("initialize: HTTP {} {msg}", r.status))),
        }
        s.id = r.session;
        let n = br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        let r = c.request("POST", &s.headers("notifications/initialized", None), n).await?;
        if r.status / 100 != 2 {
            return Err(bad(format!("initialized: HTTP {}", r.status)));
        }
        Ok(s)
    }
    pub(crate) async fn tools(&self, c: &mut Conn) -> Result<Vec<String>> {
        let (mut names, mut cursor) = (Vec::new(), None::<String>);
        for page in 0..2000 {
            let mut p: Vec<String> = Vec::new();
            if let Some(k) = &cursor {
                p.push(format!("\"cursor\":{}", serde_json::to_string(k)?));
            }
            if self.modern() {
                p.push(META.into());
            }
            let b = format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"tools/list\",\"params\":{{{}}}}}",
                100 + page,
                p.join(",")
            );
            let r = c.request("POST", &self.headers("tools/list", None), b.as_bytes()).await?;
            let v: serde_json::Value = serde_json::from_slice(&r.msg).map_err(|_| {
                bad(format!("tools/list: HTTP {} {}", r.status, String::from_utf8_lossy(&r.msg)))
            })?;
            let Some(t) = v["result"]["tools"].as_array() else {
                return Err(bad(format!("tools/list: {v}")));
            };
            names.extend(t.iter().filter_map(|t| t["name"].as_str().map(String::from)));
            cursor = v["result"]["nextCursor"].as_str().map(String::from);
            if cursor.is_none() {
                break;
            }
        }
        Ok(names)
    }
    pub(crate) async fn call(&self, c: &mut Conn, id: u64, tool: &str, args: &str) -> Result<DriveReply> {
        c.request("POST", &self.headers("tools/call", Some(tool)), self.call_body(id, tool, args).as_bytes())
            .await
    }
    pub(crate) async fn delete(&self, c: &mut Conn) -> Result<u16> {
        Ok(c.request("DELETE", &self.headers("", None), b"").await?.status)
    }
}

/// Returns `Ok` when the reply is a successful tool result of at least `min` bytes.
pub(crate) fn check_reply(r: &DriveReply, min: usize) -> std::result::Result<(), String> {
    let short = |m: &[u8]| String::from_utf8_lossy(&m[..m.len().min(200)]).to_string();
    if r.status != 200 {
        return Err(format!("HTTP {}: {}", r.status, short(&r.msg)));
    }
    check_message(&r.msg, min)
}

pub(crate) fn check_message(msg: &[u8], min: usize) -> std::result::Result<(), String> {
    let short = |m: &[u8]| String::from_utf8_lossy(&m[..m.len().min(200)]).to_string();
    match serde_json::from_slice::<Rpc>(msg) {
        Ok(Rpc { error: Some(e), .. }) => Err(format!("rpc error: {}", short(e.get().as_bytes()))),
        Ok(Rpc { result: Some(x), .. }) => {
            if x.get().contains("\"isError\":true") || x.get().contains("\"isError\": true") {
                Err(format!("tool error: {}", short(x.get().as_bytes())))
            } else if x.get().len() < min {
                Err(format!("short result: {}", short(x.get().as_bytes())))
            } else {
                Ok(())
            }
        }
        _ => Err(format!("not a response: {}", short(msg))),
    }
}

//! Gateway on a port of its own, and a plain HTTP client.

use std::net::SocketAddr;
use std::time::Duration;

use ostler_gateway::{ConnectionLimits, Gateway, GatewayOptions, HttpService, serve};
use ostler_host::{Host, HostOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Longer than any step that works takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct World {
    pub(crate) gateway: Gateway,
    pub(crate) host: Host,
    pub(crate) address: SocketAddr,
    pub(crate) stop: Option<oneshot::Sender<()>>,
    pub(crate) serving: JoinHandle<()>,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(GatewayOptions::default(), ConnectionLimits::default()).await
    }

    pub(crate) async fn with(options: GatewayOptions, limits: ConnectionLimits) -> Self {
        Self::serving(options, limits, |gateway| HttpService::new(gateway.clone())).await
    }

    pub(crate) async fn serving(
        options: GatewayOptions,
        limits: ConnectionLimits,
        service: impl FnOnce(&Gateway) -> HttpService,
    ) -> Self {
        let host = Host::new(HostOptions::default());
        let gateway = Gateway::new(host.clone(), options);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(serve(listener, service(&gateway), limits, async {
            let _ = stopped.await;
        }));
        Self { gateway, host, address, stop: Some(stop), serving }
    }

    pub(crate) async fn connect(&self) -> Client {
        let stream = TcpStream::connect(self.address).await.unwrap();
        Client { stream, buffer: Vec::new(), address: self.address }
    }

    /// Sends one request on a connection of its own.
    pub(crate) async fn send(&self, request: Request) -> Response {
        self.connect().await.send(request).await
    }
}

#[derive(Clone)]
pub(crate) struct Request {
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: String,
}

impl Request {
    pub(crate) fn new(method: &str, path: &str) -> Self {
        let headers = vec![("Accept".into(), "application/json, text/event-stream".into())];
        Self { method: method.into(), path: path.into(), headers, body: String::new() }
    }

    pub(crate) fn post(body: impl Into<String>) -> Self {
        let mut request = Self::new("POST", "/mcp").with("Content-Type", "application/json");
        request.body = body.into();
        request
    }

    /// Returns a modern request with the headers it needs.
    pub(crate) fn modern(method: &str, id: &str) -> Self {
        let meta = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
        Self::post(format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{"_meta":{meta}}}}}"#
        ))
        .with("MCP-Protocol-Version", "2026-07-28")
        .with("Mcp-Method", method)
    }

    pub(crate) fn initialize(version: &str) -> Self {
        Self::post(format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":"{version}","capabilities":{{}},"clientInfo":{{"name":"test","version":"1"}}}}}}"#
        ))
    }

    pub(crate) fn to(mut self, path: &str) -> Self {
        self.path = path.into();
        self
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self.headers.push((name.into(), value.into()));
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self
    }

    pub(crate) fn in_session(self, id: &str) -> Self {
        self.with("Mcp-Session-Id", id)
    }

    pub(crate) fn text(&self, address: SocketAddr) -> String {
        use std::fmt::Write;
        let mut text = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        if !self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            write!(text, "Host: {address}\r\n").unwrap();
        }
        for (name, value) in &self.headers {
            // A header without a value is left out, so that a test can leave out `Host`.
            if !value.is_empty() {
                write!(text, "{name}: {value}\r\n").unwrap();
            }
        }
        write!(text, "Content-Length: {}\r\n\r\n{}", self.body.len(), self.body).unwrap();
        text
    }
}

/// Client connection.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    buffer: Vec<u8>,
    address: SocketAddr,
}

#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// Returns the answer, which is the last event of a stream if the answer was slow.
    pub(crate) fn json(&self) -> serde_json::Value {
        let text = match self.header("content-type") {
            Some("text/event-stream") => self.body.lines().rev().find_map(|line| line.strip_prefix("data: ")),
            _ => None,
        };
        let text = text.unwrap_or(&self.body);
        serde_json::from_str(text).unwrap_or_else(|why| panic!("{why}: {self:?}"))
    }

    pub(crate) fn code(&self) -> i64 {
        self.json()["error"]["code"].as_i64().unwrap_or_else(|| panic!("no error: {self:?}"))
    }

    pub(crate) fn session(&self) -> String {
        self.header("mcp-session-id").unwrap_or_else(|| panic!("no session: {self:?}")).to_owned()
    }
}

impl Client {
    pub(crate) async fn send(&mut self, request: Request) -> Response {
        self.start(request).await;
        self.head_and_body().await
    }

    pub(crate) async fn start(&mut self, request: Request) {
        let text = request.text(self.address);
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }

    pub(crate) async fn head_and_body(&mut self) -> Response {
        let mut response = self.head().await;
        if let Some(length) = response.header("content-length") {
            let length = length.parse().unwrap();
            while self.buffer.len() < length {
                assert!(self.fill().await, "the body broke off: {response:?}");
            }
            response.body = String::from_utf8(self.buffer.drain(..length).collect()).unwrap();
        } else if response.header("transfer-encoding").is_some() {
            while let Some(chunk) = self.chunk().await {
                response.body.push_str(&chunk);
            }
        }
        response
    }

    /// Reads the head of a response.
    pub(crate) async fn head(&mut self) -> Response {
        let end = loop {
            if let Some(at) = self.buffer.windows(4).position(|window| window == b"\r\n\r\n") {
                break at;
            }
            assert!(self.fill().await, "no response: {:?}", String::from_utf8_lossy(&self.buffer));
        };
        let head = String::from_utf8(self.buffer.drain(..end + 4).collect()).unwrap();
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()))
            .collect();
        Response { status, headers, body: String::new() }
    }

    /// Returns the next chunk of a streaming body; `None` at its end.
    pub(crate) async fn chunk(&mut self) -> Option<String> {
        let at = loop {
            if let Some(at) = self.buffer.windows(2).position(|window| window == b"\r\n") {
                break at;
            }
            assert!(self.fill().await, "the stream broke off");
        };
        let line = String::from_utf8(self.buffer.drain(..at + 2).collect()).unwrap();
        let length = usize::from_str_radix(line.trim(), 16).unwrap();
        while self.buffer.len() < length + 2 {
            assert!(self.fill().await, "the stream broke off");
        }
        let chunk = String::from_utf8(self.buffer.drain(..length).collect()).unwrap();
        self.buffer.drain(..2);
        (length > 0).then_some(chunk)
    }

    /// Reads more; false at the end of the connection.
    pub(crate) async fn fill(&mut self) -> bool {
        let read = tokio::time::timeout(PATIENCE, self.stream.read_buf(&mut self.buffer)).await;
        matches!(read.expect("something arrives"), Ok(read) if read > 0)
    }
}

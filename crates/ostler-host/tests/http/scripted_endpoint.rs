//! Scripted endpoint on a socket and in a runtime of its own: stopping it breaks every connection.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, Request};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::Response;
use http_body::Frame;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use crate::fixture::LONG;

/// A request as the endpoint received it.
#[derive(Clone, Debug)]
pub(crate) struct RecordedRequest {
    pub(crate) verb: Method,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
    /// The connection that it came on, by its remote address.
    pub(crate) peer: SocketAddr,
}

impl RecordedRequest {
    pub(crate) fn method(&self) -> &str {
        self.body["method"].as_str().unwrap_or_default()
    }

    pub(crate) fn tool(&self) -> &str {
        self.body["params"]["name"].as_str().unwrap_or_default()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    pub(crate) fn is_call(&self) -> bool {
        self.method() == "tools/call"
    }

    /// Makes a response to it.
    pub(crate) fn result(&self, result: Value) -> Response {
        respond(200, &[], json!({"jsonrpc": "2.0", "id": self.body["id"], "result": result}))
    }

    /// Makes the text result of a tool.
    pub(crate) fn text(&self, text: &str) -> Response {
        self.result(content(text))
    }

    pub(crate) fn error(&self, status: u16, code: i64) -> Response {
        let error = json!({"code": code, "message": "no"});
        respond(status, &[], json!({"jsonrpc": "2.0", "id": self.body["id"], "error": error}))
    }

    /// Makes the message with a tool's result for a stream.
    pub(crate) fn message(&self, text: &str) -> Value {
        json!({"jsonrpc": "2.0", "id": self.body["id"], "result": content(text)})
    }
}

pub(crate) fn content(text: &str) -> Value {
    json!({"resultType": "complete", "content": [{"type": "text", "text": text}]})
}

pub(crate) fn respond(status: u16, headers: &[(&str, &str)], body: Value) -> Response {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let mut response = raw(status, "application/json", body);
    for (name, value) in headers {
        let name: axum::http::HeaderName = name.parse().unwrap();
        response.headers_mut().insert(name, value.parse().unwrap());
    }
    response
}

pub(crate) fn raw(status: u16, kind: &str, body: impl Into<Body>) -> Response {
    let response = Response::builder().status(StatusCode::from_u16(status).unwrap());
    response.header("content-type", kind).body(body.into()).unwrap()
}

/// Makes a stream of events that a test feeds; dropping the sender ends it.
pub(crate) fn stream() -> (EventFeed, Response) {
    let (feed, pieces) = mpsc::unbounded_channel();
    (EventFeed(feed), raw(200, "text/event-stream", Body::new(FeedBody(pieces))))
}

#[derive(Clone)]
pub(crate) struct EventFeed(mpsc::UnboundedSender<Result<Bytes, std::io::Error>>);

impl EventFeed {
    pub(crate) fn write(&self, text: impl Into<String>) -> bool {
        self.0.send(Ok(Bytes::from(text.into()))).is_ok()
    }

    pub(crate) fn write_bytes(&self, bytes: Vec<u8>) -> bool {
        self.0.send(Ok(Bytes::from(bytes))).is_ok()
    }

    pub(crate) fn send(&self, message: &Value) -> bool {
        self.write(format!("data: {message}\n\n"))
    }

    /// Cuts the connection in the middle of the body.
    pub(crate) fn cut(self) {
        let _ = self.0.send(Err(std::io::Error::other("cut")));
    }

    /// Waits until the client has stopped reading.
    pub(crate) async fn unread(&self) {
        self.0.closed().await;
    }
}

struct FeedBody(mpsc::UnboundedReceiver<Result<Bytes, std::io::Error>>);

impl http_body::Body for FeedBody {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        self.0.poll_recv(context).map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}

type EndpointScript = dyn Fn(&RecordedRequest) -> Response + Send + Sync;

/// A running endpoint.
pub(crate) struct ScriptedEndpoint {
    pub(crate) address: SocketAddr,
    pub(crate) log: Arc<Mutex<Vec<RecordedRequest>>>,
    runtime: Option<Runtime>,
}

impl ScriptedEndpoint {
    pub(crate) fn start(script: impl Fn(&RecordedRequest) -> Response + Send + Sync + 'static) -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap(), Arc::default(), script)
    }

    fn start_at(
        address: SocketAddr,
        log: Arc<Mutex<Vec<RecordedRequest>>>,
        script: impl Fn(&RecordedRequest) -> Response + Send + Sync + 'static,
    ) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let script: Arc<EndpointScript> = Arc::new(script);
        let _inside = runtime.enter();
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(address).unwrap();
        let listener = socket.listen(64).unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::clone(&log);
        let app = Router::new()
            .fallback(move |request: Request| record_and_answer(request, Arc::clone(&seen), script.clone()));
        let app = app.into_make_service_with_connect_info::<SocketAddr>();
        runtime.spawn(async move { axum::serve(listener, app).await });
        Self { address, log, runtime: Some(runtime) }
    }

    /// Breaks every connection; the address refuses from then on.
    pub(crate) fn stop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Waits until its sockets are closed, which is not possible in an async context.
            std::thread::spawn(move || runtime.shutdown_timeout(LONG)).join().unwrap();
        }
    }

    /// Starts another endpoint at the same address, with the same log.
    pub(crate) fn restart(&mut self, script: impl Fn(&RecordedRequest) -> Response + Send + Sync + 'static) {
        self.stop();
        *self = Self::start_at(self.address, Arc::clone(&self.log), script);
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    pub(crate) fn requests(&self) -> Vec<RecordedRequest> {
        self.log.lock().unwrap().clone()
    }

    /// Returns the requests with this method, in order of arrival.
    pub(crate) fn requests_of(&self, method: &str) -> Vec<RecordedRequest> {
        self.requests().into_iter().filter(|got| got.method() == method).collect()
    }

    pub(crate) fn calls(&self) -> usize {
        self.requests_of("tools/call").len()
    }
}

impl Drop for ScriptedEndpoint {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn record_and_answer(
    request: Request,
    log: Arc<Mutex<Vec<RecordedRequest>>>,
    script: Arc<EndpointScript>,
) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 64 << 20).await.unwrap_or_default();
    let got = RecordedRequest {
        verb: parts.method,
        path: parts.uri.path().to_owned(),
        headers: parts.headers,
        body: serde_json::from_slice(&body).unwrap_or(Value::Null),
        peer: parts.extensions.get::<ConnectInfo<SocketAddr>>().unwrap().0,
    };
    log.lock().unwrap().push(got.clone());
    script(&got)
}

/// Makes a modern server with some tools; `answer` may handle their calls.
pub(crate) fn modern(
    answer: impl Fn(&RecordedRequest) -> Option<Response> + Send + Sync + 'static,
) -> impl Fn(&RecordedRequest) -> Response + Send + Sync + 'static {
    move |got| {
        if let Some(response) = answer(got) {
            return response;
        }
        match got.method() {
            "server/discover" => got.result(json!({
                "resultType": "complete", "supportedVersions": ["2026-07-28"],
                "capabilities": {"tools": {}}, "serverInfo": {"name": "remote", "version": "1"},
            })),
            "tools/list" => got.result(json!({"resultType": "complete", "tools": tools()})),
            "tools/call" => got.text(got.tool()),
            _ => got.error(404, -32601),
        }
    }
}

/// Makes a legacy server whose sessions are `s1`, `s2`, …
pub(crate) fn legacy(
    answer: impl Fn(&RecordedRequest) -> Option<Response> + Send + Sync + 'static,
) -> impl Fn(&RecordedRequest) -> Response + Send + Sync + 'static {
    let sessions = Mutex::new(0);
    move |got| {
        if let Some(response) = answer(got) {
            return response;
        }
        match got.method() {
            "initialize" => {
                let mut sessions = sessions.lock().unwrap();
                *sessions += 1;
                let mut response = got.result(json!({
                    "protocolVersion": "2025-11-25", "capabilities": {"tools": {"listChanged": true}},
                    "serverInfo": {"name": "remote", "version": "1"},
                }));
                let id = format!("s{sessions}").parse().unwrap();
                response.headers_mut().insert("mcp-session-id", id);
                response
            }
            "server/discover" => {
                let error = json!({"code": -32000, "message": "Bad Request: Server not initialized"});
                respond(400, &[], json!({"jsonrpc": "2.0", "id": null, "error": error}))
            }
            "tools/list" => got.result(json!({"tools": tools()})),
            "tools/call" => got.text(got.tool()),
            "ping" => got.result(json!({})),
            _ if got.verb == Method::GET => respond(405, &[], Value::Null),
            _ => respond(202, &[], Value::Null),
        }
    }
}

fn tools() -> Value {
    let tool = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
    ["echo", "slow", "ask", "größe"].map(tool).into()
}

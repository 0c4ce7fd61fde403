//! Memory of legacy sessions: abandoned ones, and those with many server notifications.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a step that fails fails the test that took it")]
#![allow(clippy::print_stderr, reason = "the figure is for whoever runs the test to see it")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, Ordering};

use axum::body::Body;
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use ostler_gateway::{Gateway, GatewayOptions};
use ostler_host::upstream::ServerNotification;
use ostler_host::{Host, HostOptions};
use ostler_testkit::{Script, TestHost, run_until_stalled};
use tokio::sync::Mutex;

/// Counts the bytes that are allocated now.
struct CountingAllocator;

static ALLOCATED_BYTES: AtomicIsize = AtomicIsize::new(0);

#[allow(unsafe_code, reason = "only an allocator can count allocations")]
// SAFETY: every call is forwarded to the system's allocator.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED_BYTES.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        ALLOCATED_BYTES.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: CountingAllocator = CountingAllocator;

/// Held by the test that counts: the count covers the whole process.
static COUNT_LOCK: Mutex<()> = Mutex::const_new(());

const SESSIONS: usize = 10_000;

/// `initialize` of a common client.
const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{"roots":{"listChanged":true},"sampling":{},"elicitation":{}},"clientInfo":{"name":"claude-code","version":"1.0.72","title":"Claude Code"}}}"#;

#[tokio::test]
async fn ten_thousand_abandoned_sessions_cost_less_than_a_kibibyte_each() {
    let _counted = COUNT_LOCK.lock().await;
    let gateway = Gateway::new(Host::new(HostOptions::default()), GatewayOptions::default());
    let app = TowerToHyperService::new(gateway.router());
    let open = async || {
        let request = Request::post("/mcp")
            .header("Host", "localhost")
            .header("Content-Type", "application/json")
            .body(Body::from(INITIALIZE))
            .unwrap();
        let response = app.call(request).await.unwrap();
        assert_eq!(response.status(), 200);
    };
    open().await;
    let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = ALLOCATED_BYTES.load(Ordering::Relaxed);
    for _ in 1..SESSIONS {
        open().await;
    }
    let each = (ALLOCATED_BYTES.load(Ordering::Relaxed) - before) / SESSIONS as isize;
    eprintln!("{each} bytes per session");
    assert_eq!(gateway.session_count(), SESSIONS);
    assert!(each <= 600, "{each} bytes per session");
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), tasks, "no task per session");
    open().await;
    assert_eq!(gateway.session_count(), SESSIONS, "bounded");
}

/// Bytes of a notification: three of them fill the bounds of one stream.
const LONG: usize = 60_000;

/// Gateway before one server, and clients of that server.
struct ServerClients {
    world: TestHost,
    gateway: Gateway,
    app: TowerToHyperService<axum::Router>,
}

impl ServerClients {
    async fn new() -> Self {
        let world = TestHost::new().server_with("a", Script::echo(), |spec| spec.lazy = false).start().await;
        let gateway = Gateway::new(world.host.clone(), GatewayOptions::default());
        let app = TowerToHyperService::new(gateway.router());
        // The task that distributes events is subscribed now.
        run_until_stalled().await;
        Self { world, gateway, app }
    }

    async fn send(&self, request: http::request::Builder, body: &'static str) -> Response<axum::body::Body> {
        let request = request.header("Host", "localhost").header("Content-Type", "application/json");
        let request = request.header("Accept", "application/json, text/event-stream").body(Body::from(body));
        let response = self.app.call(request.unwrap()).await.unwrap();
        assert_eq!(response.status(), 200);
        response
    }

    async fn open(&self) -> String {
        let response = self.send(Request::post("/servers/a/mcp"), INITIALIZE).await;
        response.headers()["mcp-session-id"].to_str().unwrap().to_owned()
    }

    /// Opens the stream of a session for frames that belong to no request.
    async fn listen(&self, session: &str) -> axum::body::Body {
        let request = Request::get("/servers/a/mcp").header("Mcp-Session-Id", session);
        self.send(request, "").await.into_body()
    }

    /// Has the server send that many long notifications, and returns the bytes that are held for them.
    async fn announce(&self, count: u8) -> isize {
        let before = ALLOCATED_BYTES.load(Ordering::Relaxed);
        for nth in 0..count {
            let params = format!(r#"{{"nth":{nth},"text":"{}"}}"#, "x".repeat(LONG));
            let event =
                ServerNotification::Other { method: "notifications/x".into(), params: Some(params.into()) };
            self.world.server("a").emit(event);
            run_until_stalled().await;
        }
        ALLOCATED_BYTES.load(Ordering::Relaxed) - before
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_kept_for_sessions_that_never_opened_a_stream() {
    let _counted = COUNT_LOCK.lock().await;
    let crowd = ServerClients::new().await;
    for _ in 0..500 {
        crowd.open().await;
    }
    let held = crowd.announce(3).await;
    eprintln!("{held} bytes held");
    assert!(held < 16 * LONG as isize, "{held} bytes held for {} sessions", crowd.gateway.session_count());
}

#[tokio::test(start_paused = true)]
async fn what_many_streams_are_told_is_held_once() {
    let _counted = COUNT_LOCK.lock().await;
    let crowd = ServerClients::new().await;
    let mut streams = Vec::new();
    for _ in 0..200 {
        let session = crowd.open().await;
        streams.push((crowd.listen(&session).await, session));
    }
    let held = crowd.announce(1).await;
    eprintln!("{held} bytes held");
    assert!(held < 16 * LONG as isize, "{held} bytes held for {} streams", streams.len());
    for (mut body, session) in streams {
        let said = loop {
            let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
            if frame.len() > LONG {
                break frame;
            }
        };
        assert!(said.ends_with(b"\n\n"), "{session}");
    }
}

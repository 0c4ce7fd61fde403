//! What an abandoned legacy session costs.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a step that fails fails the test that took it")]
#![allow(clippy::print_stderr, reason = "the figure is for whoever runs the test to see it")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, Ordering};

use axum::body::Body;
use http::Request;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use ostler_gateway::{Gateway, GatewayOptions};
use ostler_host::{Host, HostOptions};

/// Counts the bytes that are allocated now.
struct Counting;

static HELD: AtomicIsize = AtomicIsize::new(0);

#[allow(unsafe_code, reason = "only an allocator can count allocations")]
// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const SESSIONS: usize = 10_000;

/// What a common client says of itself.
const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{"roots":{"listChanged":true},"sampling":{},"elicitation":{}},"clientInfo":{"name":"claude-code","version":"1.0.72","title":"Claude Code"}}}"#;

#[tokio::test]
async fn ten_thousand_abandoned_sessions_cost_less_than_a_kibibyte_each() {
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
    let before = HELD.load(Ordering::Relaxed);
    for _ in 1..SESSIONS {
        open().await;
    }
    let each = (HELD.load(Ordering::Relaxed) - before) / SESSIONS as isize;
    eprintln!("{each} bytes per session");
    assert_eq!(gateway.sessions(), SESSIONS);
    assert!(each <= 600, "{each} bytes per session");
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), tasks, "no task per session");
    open().await;
    assert_eq!(gateway.sessions(), SESSIONS, "bounded");
}

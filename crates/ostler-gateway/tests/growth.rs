//! Growth: the cost of a call is independent of the number of servers, tools, roles and sessions.
//!
//! A call with one server, tool, role or session and one with thousands must allocate the same and take about the same
//! time. Allocations are counted on the thread of the test, which is the runtime's only thread.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a step that fails fails the test that took it")]
#![allow(clippy::print_stderr, reason = "the figures are for whoever runs the test to see them")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use ostler_core::config::Role;
use ostler_gateway::{Gateway, GatewayOptions};
use ostler_host::{Caller, Host, HostOptions, Rules, ServerName, ServerSpec};
use ostler_testkit::{Reconfigure, StaticServer};

/// Counts the allocations of this thread.
struct ThreadCountingAllocator;

thread_local! {
    static ALLOCATED: Cell<Allocated> = const { Cell::new(Allocated { times: 0, bytes: 0 }) };
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Allocated {
    times: usize,
    bytes: usize,
}

#[allow(unsafe_code, reason = "only an allocator can count allocations")]
// SAFETY: every call is forwarded to the system's allocator.
unsafe impl GlobalAlloc for ThreadCountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.with(|so_far| {
            let Allocated { times, bytes } = so_far.get();
            so_far.set(Allocated { times: times + 1, bytes: bytes + layout.size() });
        });
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: ThreadCountingAllocator = ThreadCountingAllocator;

/// Numbers of servers, tools, roles and sessions.
#[derive(Debug, Clone, Copy)]
struct HostSize {
    servers: usize,
    tools: usize,
    roles: usize,
    sessions: usize,
}

const LEAST: HostSize = HostSize { servers: 1, tools: 2, roles: 1, sessions: 1 };
/// Number of items in the large case.
const MANY: usize = 1_000;
/// Number of items that are quick to make: the more, the better the test detects a linear search.
const SEVERAL_THOUSAND: usize = 3_000;
const VERY_MANY: usize = 10_000;
/// Calls that are counted, after as many that are not.
const CALLS: usize = 100;

struct GrowthEndpoint {
    app: TowerToHyperService<axum::Router>,
    session: String,
    tool: String,
}

impl GrowthEndpoint {
    async fn open(size: HostSize) -> Self {
        let host = Host::new(HostOptions::default());
        let me = Caller::local();
        for n in 0..size.servers {
            let name = ServerName::new(&format!("s{n}")).unwrap();
            let (tools, mut spec) = match n {
                0 => (size.tools, ServerSpec::stdio(name, "none")),
                _ => (2, ServerSpec::stdio(name, "none").lazy()),
            };
            spec.lists.tools = size.tools.max(2);
            host.spawn_with(&me, spec, Arc::new(StaticServer { tools })).await.unwrap();
        }
        let rule = || Role { allow: vec!["*".into()], deny: Vec::new(), budget: None, max_in_flight: None };
        let others = (1..size.roles).map(|n| (format!("r{n}"), rule()));
        let roles: BTreeMap<String, Role> = others.chain([("local".into(), rule())]).collect();
        host.set_rules(Rules::from_roles(&roles)).await;
        let app = TowerToHyperService::new(Gateway::new(host, GatewayOptions::default()).router());
        // The last tool and the last session are the slowest to find by a linear search.
        let mut it = Self { app, session: String::new(), tool: format!("s0__t{}", size.tools - 1) };
        for _ in 0..size.sessions {
            let response = it.post(INITIALIZE).await;
            it.session = response.headers()["Mcp-Session-Id"].to_str().unwrap().to_owned();
        }
        it
    }

    async fn post(&self, body: &str) -> Response<Body> {
        let mut request = Request::post("/mcp").header("Host", "localhost");
        request = request.header("Content-Type", "application/json");
        if !self.session.is_empty() && body != INITIALIZE {
            request = request.header("Mcp-Session-Id", &self.session);
        }
        self.app.call(request.body(Body::from(body.to_owned())).unwrap()).await.unwrap()
    }

    /// Makes one call; returns its allocations and its duration.
    async fn call(&self) -> (Allocated, Duration) {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{}","arguments":{{}}}}}}"#,
            self.tool
        );
        let (before, began) = (ALLOCATED.get(), Instant::now());
        let response = self.post(&body).await;
        let answer = response.into_body().collect().await.unwrap().to_bytes();
        let (after, took) = (ALLOCATED.get(), began.elapsed());
        assert!(answer.windows(5).any(|part| part == b"hello"), "{}", String::from_utf8_lossy(&answer));
        (Allocated { times: after.times - before.times, bytes: after.bytes - before.bytes }, took)
    }
}

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}"#;

/// Measures the calls of two endpoints in turn: the usual allocations and the least time of each. A buffer that grows
/// now and then is not the usual.
async fn measure_in_turn(few: &GrowthEndpoint, many: &GrowthEndpoint) -> [(Allocated, Duration); 2] {
    let mut found = [Vec::new(), Vec::new()];
    for turn in 0..CALLS * 2 {
        for (endpoint, found) in [few, many].into_iter().zip(&mut found) {
            let call = endpoint.call().await;
            if turn >= CALLS {
                found.push(call);
            }
        }
    }
    found.map(|calls| {
        let mut allocated: Vec<Allocated> = calls.iter().map(|call| call.0).collect();
        allocated.sort_unstable();
        (allocated[CALLS / 2], calls.iter().map(|call| call.1).min().unwrap())
    })
}

async fn costs_the_same(size: HostSize) {
    let (few, many) = (GrowthEndpoint::open(LEAST).await, GrowthEndpoint::open(size).await);
    let [few, many] = measure_in_turn(&few, &many).await;
    eprintln!("{few:?} with {LEAST:?}, {many:?} with {size:?}");
    let longer = size.tools.ilog10() as usize;
    assert_eq!(few.0.times, many.0.times, "allocations with {size:?}");
    // The name of the tool is longer, and copied a few times; nothing else may grow.
    assert!(many.0.bytes.abs_diff(few.0.bytes) <= longer * 16, "{few:?}, with {size:?} {many:?}");
    // The least of many calls, taken in turn, hardly depends on the load of the machine. A linear search through a
    // thousand sessions takes a quarter more.
    assert!(many.1 <= few.1 * 12 / 10, "the least time of a call: {few:?}, with {size:?} {many:?}");
}

#[tokio::test]
async fn a_call_costs_the_same_with_a_thousand_servers() {
    costs_the_same(HostSize { servers: MANY, ..LEAST }).await;
}

#[tokio::test]
async fn a_call_costs_the_same_with_ten_thousand_tools() {
    costs_the_same(HostSize { tools: VERY_MANY, ..LEAST }).await;
}

#[tokio::test]
async fn a_call_costs_the_same_with_ten_thousand_roles() {
    costs_the_same(HostSize { roles: VERY_MANY, ..LEAST }).await;
}

#[tokio::test]
async fn a_call_costs_the_same_with_three_thousand_sessions() {
    costs_the_same(HostSize { sessions: SEVERAL_THOUSAND, ..LEAST }).await;
}

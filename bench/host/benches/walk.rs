//! The walk of a call without IO: a session in memory that answers at once.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a benchmark stops when something is wrong")]

use std::sync::Arc;

use bytes::Bytes;
use ostler_core::fault::Fault;
use ostler_core::status::Containment;
use ostler_core::supervisor::Failure;
use ostler_host::upstream::{Ask, BoxFuture, Connector, Force, Plan, Session, Vitals};
use ostler_host::{Caller, Host, HostOptions, ServerName, ServerSpec};
use ostler_wire::{Era, Hello, Outcome};
use serde_json::value::RawValue;
use tokio::time::Instant;

fn main() {
    divan::main();
}

struct Instantly;

impl Connector for Instantly {
    fn connect(&self, _: Plan) -> BoxFuture<'_, Result<Arc<dyn Session>, Failure>> {
        let hello = Hello {
            era: Era::Legacy,
            version: "2025-11-25".into(),
            capabilities: Bytes::from_static(b"{}"),
            server: None,
            instructions: None,
            session_meta: None,
        };
        Box::pin(async move { Ok(Arc::new(Parrot { hello }) as Arc<dyn Session>) })
    }

    fn containment(&self) -> Containment {
        Containment::None
    }
}

struct Parrot {
    hello: Hello,
}

impl Session for Parrot {
    fn hello(&self) -> &Hello {
        &self.hello
    }

    fn request<'a>(&'a self, ask: Ask<'a>) -> BoxFuture<'a, Result<Outcome, Fault>> {
        let answer = match ask.method {
            "tools/list" => {
                Bytes::from_static(br#"{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}"#)
            }
            _ => Bytes::from_static(br#"{"content":[{"type":"text","text":"hello"}]}"#),
        };
        Box::pin(async move { Ok(Outcome::Result(answer)) })
    }

    fn ended(&self) -> BoxFuture<'_, Failure> {
        Box::pin(std::future::pending())
    }

    fn close(&self, _: Force) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    fn vitals(&self) -> Vitals {
        Vitals::default()
    }

    fn signs(&self) -> (Option<Instant>, Option<Instant>) {
        (None, None)
    }
}

#[divan::bench(args = [100, 10_240])]
fn call(bencher: divan::Bencher<'_, '_>, payload: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _inside = runtime.enter();
    let host = Host::new(HostOptions::default());
    let caller = Caller::local();
    let spec = ServerSpec::stdio(ServerName::new("parrot").unwrap(), "none");
    runtime.block_on(host.spawn_with(&caller, spec, Arc::new(Instantly))).unwrap();
    let text = format!(r#"{{"text":"{}"}}"#, "x".repeat(payload));
    let arguments: Arc<RawValue> = RawValue::from_string(text).unwrap().into();
    let call = || async { host.call(&caller, "parrot", "echo", Arc::clone(&arguments)).await.unwrap() };
    runtime.block_on(call());
    bencher.bench_local(|| runtime.block_on(call()));
}

/// What entering the runtime costs, to be taken off the figures above.
#[divan::bench]
fn nothing(bencher: divan::Bencher<'_, '_>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    bencher.bench_local(|| runtime.block_on(async {}));
}

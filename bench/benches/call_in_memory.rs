//! Cost of a call without IO: the session is in memory and answers at once.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a benchmark stops when something is wrong")]

use std::sync::Arc;

use ostler_host::{Caller, Host, HostOptions, ServerName, ServerSpec};
use ostler_testkit::StaticServer;
use serde_json::value::RawValue;

fn main() {
    divan::main();
}

#[divan::bench(args = [100, 10_240])]
fn call(bencher: divan::Bencher<'_, '_>, payload: usize) {
    measure(bencher, payload, true);
}

/// Measures the same call without the check of arguments.
#[divan::bench(args = [100, 10_240])]
fn call_unchecked(bencher: divan::Bencher<'_, '_>, payload: usize) {
    measure(bencher, payload, false);
}

fn measure(bencher: divan::Bencher<'_, '_>, payload: usize, validate: bool) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _inside = runtime.enter();
    let host = Host::new(HostOptions::default());
    let caller = Caller::local();
    let spec = ServerSpec::stdio(ServerName::new("parrot").unwrap(), "none").validate(validate);
    runtime.block_on(host.spawn_with(&caller, spec, Arc::new(StaticServer { tools: 1 }))).unwrap();
    let text = format!(r#"{{"text":"{}"}}"#, "x".repeat(payload));
    let arguments: Arc<RawValue> = RawValue::from_string(text).unwrap().into();
    let call = || async { host.call(&caller, "parrot", "t0", Arc::clone(&arguments)).await.unwrap() };
    runtime.block_on(call());
    bencher.bench_local(|| runtime.block_on(call()));
}

/// Measures the cost of entering the runtime, to be subtracted from the figures above.
#[divan::bench]
fn nothing(bencher: divan::Bencher<'_, '_>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    bencher.bench_local(|| runtime.block_on(async {}));
}

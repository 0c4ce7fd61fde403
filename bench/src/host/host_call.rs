//! Calls through the host, from as many callers as calls in flight.

use std::sync::Arc;
use std::time::Instant;

use ostler_host::{Caller, Host, HostOptions};
use serde_json::value::RawValue;

use super::{Cpu, HostMeasurement};
use crate::closed_loop::{LoadCell, arguments};

pub(crate) async fn measure(load: LoadCell) -> HostMeasurement {
    let host =
        Host::new(HostOptions { guard: Some(ostler_testkit::guard_command()), ..HostOptions::default() });
    let caller = Caller::local();
    host.spawn(&caller, ostler_testkit::fake_mcp_spec("fake", &[])).await.expect("fake-mcp starts");
    // Raw JSON, as an agent has it after parsing its model's answer.
    let arguments: Arc<RawValue> = RawValue::from_string(arguments(load.payload)).unwrap().into();
    let (began, cpu) = (Instant::now(), Cpu::now());
    let callers: Vec<_> = (0..load.callers)
        .map(|_| {
            tokio::spawn(call_until(host.clone(), caller.clone(), Arc::clone(&arguments), began + load.time))
        })
        .collect();
    let mut times = Vec::new();
    for caller in callers {
        times.extend(caller.await.expect("a caller ends"));
    }
    let figures = HostMeasurement::from_times(times, began.elapsed(), cpu);
    assert!(host.shutdown().await, "everything ends");
    figures
}

async fn call_until(
    host: Host,
    caller: Caller,
    arguments: Arc<RawValue>,
    end: Instant,
) -> Vec<std::time::Duration> {
    let mut times = Vec::new();
    while Instant::now() < end {
        let began = Instant::now();
        let answer = host.call(&caller, "fake", "echo", Arc::clone(&arguments)).await.expect("an answer");
        assert!(answer.body.len() > arguments.get().len());
        times.push(began.elapsed());
    }
    times
}

//! An agent that uses the tools of a remote host from within one process.
//!
//! ```sh
//! cargo run -p ostler-relay --example agent -- nats://127.0.0.1:4222 acme dev w1 demo echo '{"text":"hello"}'
//! ```
//!
//! A worker's credentials determine address, tenant, role and name. This example uses none, so it needs a broker
//! without authentication: for trials only.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use ostler_host::{CallArguments, Caller, Host, HostOptions, Request};
use ostler_relay::RelayName;
use ostler_relay::broker::nats::{NatsBroker, NatsOptions};
use ostler_relay::worker::{Worker, WorkerOptions};

#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stdout, reason = "an example shows what it does")]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [address, tenant, role, name, server, tool, arguments] = words.as_slice() else {
        return Err("usage: agent ADDRESS TENANT ROLE NAME SERVER TOOL ARGUMENTS".into());
    };
    let broker = Arc::new(NatsBroker::new(NatsOptions::new(vec![address.clone()])));
    let options = WorkerOptions::new(RelayName::new(tenant)?, RelayName::new(role)?, RelayName::new(name)?);
    let worker = Worker::start(broker, options);

    // The remote host caches answers, so this one does not.
    let host = Host::new(HostOptions { cache_bytes: 0, ..HostOptions::default() });
    let mirror = worker.mirror(host.clone());
    if let Some(ready) = mirror.readiness()() {
        ready.await?;
    }

    let caller = Caller::local();
    for server in host.servers(&caller) {
        println!("{server}: {} tools", host.tools(&caller, server.as_str()).await?.len());
    }
    let request = Request::tool_call(&caller, tool, CallArguments::raw(arguments.clone()))?;
    match host.send_to(server, request.with_timeout(Duration::from_secs(30))).await {
        Ok(answer) => println!("{}", answer.text()),
        // An unknown outcome is an error that says so: see `delivery`.
        Err(error) => println!("{}", error.render()),
    }
    worker.shutdown().await;
    Ok(())
}

//! An agent elsewhere that uses the tools of a host, without a process beside it.
//!
//! ```sh
//! cargo run -p ostler-relay --example agent -- nats://127.0.0.1:4222 acme dev w1 demo echo '{"text":"hello"}'
//! ```
//!
//! Address, tenant, role and name are what the credentials of the worker say;
//! this example has none, which suits a broker for trying things out only.

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

    // Answers are remembered where the server is, and so not here.
    let host = Host::new(HostOptions { cache_bytes: 0, ..HostOptions::default() });
    let mirror = worker.mirror(host.clone());
    if let Some(ready) = mirror.readiness()() {
        ready.await?;
    }

    let me = Caller::local();
    for server in host.servers(&me) {
        println!("{server}: {} tools", host.tools(&me, server.as_str()).await?.len());
    }
    let request = Request::tool_call(&me, tool, CallArguments::raw(arguments.clone()))?;
    match host.send_to(server, request.with_timeout(Duration::from_secs(30))).await {
        Ok(answer) => println!("{}", answer.text()),
        // Also what could not be found out is said exactly: see `delivery`.
        Err(error) => println!("{}", error.render()),
    }
    worker.shutdown().await;
    Ok(())
}

//! `ostler worker`: the tools of a remote host, for an agent on this machine.
//!
//! ```text
//! agent ─ stdin, stdout (stdio_stream.rs) or loopback HTTP ─ gateway ─ host ─┬─ url_host.rs: the URL of the host
//!                  agent_transport.rs                       (local)          └─ relay_host.rs: the relay
//! ```
//!
//! The local host supervises the connection to the remote one. It has no rules and no cache: the remote host
//! authorizes, limits and records calls.

mod agent_transport;
mod relay_host;
mod stdio_stream;
mod url_host;

use std::sync::Arc;
use std::time::Duration;

use ostler_gateway::{Gateway, GatewayOptions, Scope};
use ostler_host::{Host, HostOptions, LoopDetector, StartRetry, VIA_VARIABLE};
use tokio::runtime::Builder;

pub(crate) use self::agent_transport::AgentTransport;
pub(crate) use self::relay_host::run_relay;
pub(crate) use self::url_host::UrlHost;
use crate::failure::CommandFailure;
use crate::output::print_stderr;
use crate::signals::SignalListener;

/// Timeout of closing the sessions with the remote host.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(500);

/// Timeout of the runtime's remaining tasks at the end.
const RUNTIME_TIMEOUT: Duration = Duration::from_millis(100);

/// Prints a status message, or drops it.
pub(crate) type StatusPrinter = Arc<dyn Fn(&str) + Send + Sync>;

/// Returns a printer to stderr, or one that drops messages.
pub(crate) fn status_printer(is_quiet: bool) -> StatusPrinter {
    if is_quiet { Arc::new(|_| {}) } else { Arc::new(print_stderr) }
}

/// Serves the tools behind a URL until the agent leaves or a signal comes.
pub(crate) fn run_url(
    bridge: UrlHost,
    door: AgentTransport,
    voice: StatusPrinter,
) -> Result<(), CommandFailure> {
    run(async move {
        let host = build_host()?;
        let server = bridge.register(&host, &voice).await?;
        let options = GatewayOptions {
            initialize_patience: url_host::INITIALIZE_TIMEOUT,
            only_server: Some(server.clone()),
            ..GatewayOptions::default()
        };
        let gateway = Gateway::new(host.clone(), options);
        let served = serve(&gateway, Scope::Server(server), &door, &voice).await;
        // The observer holds the host, which holds the observer.
        host.set_observer(None);
        let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, host.shutdown()).await;
        served
    })
}

/// Returns a host that only forwards.
fn build_host() -> Result<Host, CommandFailure> {
    let start_patience = StartRetry::UntilReached;
    // This process may be a server of another host.
    let via = match std::env::var(VIA_VARIABLE) {
        Ok(value) => LoopDetector::random().with_client_hosts(&value),
        Err(_) => LoopDetector::random(),
    };
    let via = Arc::new(via);
    Ok(Host::try_new(HostOptions {
        cache_bytes: 0,
        start_retry: start_patience,
        loop_detector: via,
        ..HostOptions::default()
    })?)
}

/// Serves until the agent leaves. A signal is a regular end.
async fn serve(
    gateway: &Gateway,
    face: Scope,
    door: &AgentTransport,
    voice: &StatusPrinter,
) -> Result<(), CommandFailure> {
    let mut interrupts = SignalListener::listen().map_err(CommandFailure::Machine)?;
    let served = interrupts.run_until_signal(door.serve(gateway, face, voice)).await;
    gateway.drain();
    match served {
        Err(CommandFailure::Interrupted { .. }) => Ok(()),
        served => served,
    }
}

fn run(work: impl Future<Output = Result<(), CommandFailure>>) -> Result<(), CommandFailure> {
    let runtime = Builder::new_current_thread().enable_all().build().map_err(CommandFailure::Machine)?;
    let result = runtime.block_on(work);
    runtime.shutdown_timeout(RUNTIME_TIMEOUT);
    result
}

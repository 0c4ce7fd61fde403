//! `ostler worker`: the tools of a host elsewhere, for an agent here.
//!
//! ```text
//! agent ─ stdin, stdout (pipes.rs) or loopback HTTP ─ gateway ─ host ─┬─ bridge.rs: the URL of the host
//!                        door.rs                      (in here)       └─ broker.rs: the relay
//! ```
//!
//! The host in here supervises the way to the one elsewhere. It has no rules
//! and remembers no answers: who may call what, and how often, is decided and
//! written down there.

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

/// How long the end of sessions with the host elsewhere may take.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(500);

/// How long what the runtime still does may take at the end.
const RUNTIME_TIMEOUT: Duration = Duration::from_millis(100);

/// Says something to people, or does not.
pub(crate) type StatusPrinter = Arc<dyn Fn(&str) + Send + Sync>;

/// What is said goes to stderr, unless somebody wants quiet.
pub(crate) fn status_printer(is_quiet: bool) -> StatusPrinter {
    if is_quiet { Arc::new(|_| {}) } else { Arc::new(print_stderr) }
}

/// Serves the tools behind a URL until the agent has gone or a signal comes.
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
        // The observer knows the host, which knows the observer.
        host.set_observer(None);
        let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, host.shutdown()).await;
        served
    })
}

/// A host that only carries.
fn build_host() -> Result<Host, CommandFailure> {
    let start_patience = StartRetry::UntilReached;
    // It may be a server of another host.
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

/// Serves until the agent has gone. A signal is a way to end like any other.
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

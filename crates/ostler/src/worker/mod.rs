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

mod bridge;
mod broker;
mod door;
mod pipes;

use std::sync::Arc;
use std::time::Duration;

use ostler_gateway::{Gateway, GatewayOptions, Scope};
use ostler_host::{Host, HostOptions, StartPatience, VIA_VARIABLE, Via};
use tokio::runtime::Builder;

pub(crate) use self::bridge::Bridge;
pub(crate) use self::broker::run_relay;
pub(crate) use self::door::Door;
use crate::failure::Failure;
use crate::interrupt::Interrupts;
use crate::output::tell;

/// How long the end of sessions with the host elsewhere may take.
const PARTING: Duration = Duration::from_millis(500);

/// How long what the runtime still does may take at the end.
const LAST_WRITES: Duration = Duration::from_millis(100);

/// Says something to people, or does not.
pub(crate) type Voice = Arc<dyn Fn(&str) + Send + Sync>;

/// What is said goes to stderr, unless somebody wants quiet.
pub(crate) fn voice(is_quiet: bool) -> Voice {
    if is_quiet { Arc::new(|_| {}) } else { Arc::new(tell) }
}

/// Serves the tools behind a URL until the agent has gone or a signal comes.
pub(crate) fn run_bridge(bridge: Bridge, door: Door, voice: Voice) -> Result<(), Failure> {
    run(async move {
        let host = bare_host()?;
        let server = bridge.attach(&host, &voice).await?;
        let options = GatewayOptions {
            hello_patience: bridge::HELLO,
            only: Some(server.clone()),
            ..GatewayOptions::default()
        };
        let gateway = Gateway::new(host.clone(), options);
        let served = serve(&gateway, Scope::Server(server), &door, &voice).await;
        // The observer knows the host, which knows the observer.
        host.set_observer(None);
        let _ = tokio::time::timeout(PARTING, host.shutdown()).await;
        served
    })
}

/// A host that only carries.
fn bare_host() -> Result<Host, Failure> {
    let start_patience = StartPatience::UntilReached;
    // It may be a server of another host.
    let via = match std::env::var(VIA_VARIABLE) {
        Ok(value) => Via::random().behind(&value),
        Err(_) => Via::random(),
    };
    let via = Arc::new(via);
    Ok(Host::try_new(HostOptions { cache_bytes: 0, start_patience, via, ..HostOptions::default() })?)
}

/// Serves until the agent has gone. A signal is a way to end like any other.
async fn serve(gateway: &Gateway, face: Scope, door: &Door, voice: &Voice) -> Result<(), Failure> {
    let mut interrupts = Interrupts::listen().map_err(Failure::Machine)?;
    let served = interrupts.until(door.serve(gateway, face, voice)).await;
    gateway.drain();
    match served {
        Err(Failure::Interrupted { .. }) => Ok(()),
        served => served,
    }
}

fn run(work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = Builder::new_current_thread().enable_all().build().map_err(Failure::Machine)?;
    let result = runtime.block_on(work);
    runtime.shutdown_timeout(LAST_WRITES);
    result
}

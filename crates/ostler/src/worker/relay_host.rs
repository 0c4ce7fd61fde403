//! Remote host behind the relay.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ostler_gateway::{Gateway, GatewayOptions, Scope};
use ostler_relay::broker::nats::{NatsBroker, NatsOptions};
use ostler_relay::worker::{Worker, WorkerOptions};
use ostler_relay::{LinkReport, Manifest};

use super::{AgentTransport, SHUTDOWN_TIMEOUT, StatusPrinter, build_host, run, serve};
use crate::failure::CommandFailure;
use crate::output::count;

/// Time without a manifest after which people are told that no host has sent one.
const NO_TOOLS_AFTER: Duration = Duration::from_secs(5);

/// Serves the tools of the hosts behind a broker until the agent leaves or a signal comes.
pub(crate) fn run_relay(
    nats: NatsOptions,
    mut options: WorkerOptions,
    door: AgentTransport,
    voice: StatusPrinter,
) -> Result<(), CommandFailure> {
    run(async move {
        let is_connected = Arc::new(AtomicBool::new(false));
        let (speak, connected) = (Arc::clone(&voice), Arc::clone(&is_connected));
        options.status_sink = Arc::new(move |report: &LinkReport| {
            connected.store(matches!(report, LinkReport::Connected { .. }), Ordering::Relaxed);
            speak(&report.to_string());
        });
        let host = build_host()?;
        let worker = Worker::start(Arc::new(NatsBroker::new(nats)), options);
        let mirror = worker.mirror(host.clone());
        let telling = tokio::spawn(report_tools(worker.clone(), Arc::clone(&voice), is_connected));
        let readiness = Some(mirror.readiness());
        let gateway = Gateway::new(host.clone(), GatewayOptions { readiness, ..GatewayOptions::default() });
        let served = serve(&gateway, Scope::All, &door, &voice).await;
        telling.abort();
        drop(mirror);
        // Calls in flight are cancelled while the broker can still be reached.
        let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, worker.shutdown()).await;
        let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, host.shutdown()).await;
        served
    })
}

/// Reports the tools once, and before that the reason why there are none.
async fn report_tools(worker: Worker, voice: StatusPrinter, is_connected: Arc<AtomicBool>) {
    let mut manifest = worker.manifest();
    let mut said = None;
    loop {
        let known = tokio::time::timeout(NO_TOOLS_AFTER, manifest.wait_for(Option::is_some)).await;
        match known {
            Ok(Ok(known)) => {
                if let Some(manifest) = &*known {
                    voice(&describe(manifest));
                }
                return;
            }
            Ok(Err(_)) => return,
            // Without a connection the cause has been printed.
            Err(_) if !is_connected.load(Ordering::Relaxed) => {}
            Err(_) => {
                let trouble = worker.problem();
                if let Some(trouble) = trouble.as_ref().filter(|_| trouble != said) {
                    voice(&format!("there are no tools yet: {trouble}"));
                }
                said = trouble;
            }
        }
    }
}

/// `3 tools of 2 servers of the host mill`
fn describe(manifest: &Manifest) -> String {
    let tools = manifest.servers.iter().map(|server| server.tools.len()).sum();
    let servers = manifest.servers.len();
    format!("{} of {} of the host {}", count(tools, "tool"), count(servers, "server"), manifest.host)
}

//! Server mirror: registers the servers of the manifest at a host and keeps them in step.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ostler_core::error::{CallError, Unavailable, UnavailableState};
use ostler_core::server_name::ServerName;
use ostler_core::spec::{BreakerSettings, EndpointSpec, RestartSettings, ServerSpec, ServerTransport};
use ostler_host::upstream::BoxFuture;
use ostler_host::{Caller, Host};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::session::SLACK;
use super::{Worker, in_flight};
use crate::manifest::ManifestServer;

/// Wait of a request for the first manifest.
const PATIENCE: Duration = Duration::from_secs(10);

/// Readiness check of the gateway: `None` if the manifest is known, otherwise a future that waits
/// for it.
pub type MirrorReadiness = Arc<dyn Fn() -> Option<BoxFuture<'static, Result<(), CallError>>> + Send + Sync>;

/// Registers the servers of the manifest at a host. Dropping it stops the updates; the servers
/// stay.
pub struct ServerMirror {
    worker: Worker,
    is_ready: watch::Receiver<bool>,
    task: JoinHandle<()>,
}

impl ServerMirror {
    pub(super) fn start(worker: Worker, host: Host) -> Self {
        let (ready_sender, is_ready) = watch::channel(false);
        let mut manifest = worker.manifest();
        let task_worker = worker.clone();
        let task = tokio::spawn(async move {
            let mut mirrored = BTreeMap::new();
            loop {
                let known = manifest.borrow_and_update().clone();
                if known.is_none() {
                    ready_sender.send_replace(false);
                }
                let servers = known.as_deref().map_or(&[][..], |manifest| &manifest.servers);
                apply_servers(&task_worker, &host, servers, &mut mirrored).await;
                if known.is_some() {
                    ready_sender.send_replace(true);
                }
                if manifest.changed().await.is_err() {
                    return;
                }
            }
        });
        Self { worker, is_ready, task }
    }

    /// Returns a check that waits up to ten seconds for a manifest and returns the reason if none
    /// arrives; it fails at once if waiting does not help.
    pub fn readiness(&self) -> MirrorReadiness {
        let (worker, is_ready) = (self.worker.clone(), self.is_ready.clone());
        Arc::new(move || {
            if *is_ready.borrow() {
                return None;
            }
            let (worker, mut is_ready) = (worker.clone(), is_ready.clone());
            Some(Box::pin(async move {
                let known = async { is_ready.wait_for(|is_ready| *is_ready).await.is_ok() };
                let known = tokio::select! {
                    biased;
                    known = timeout(PATIENCE, known) => known,
                    why = worker.core().wait_refused() => return Err(unreachable_error(why)),
                };
                if known == Ok(true) { Ok(()) } else { Err(no_manifest_error(&worker)) }
            }))
        })
    }
}

impl Drop for ServerMirror {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl fmt::Debug for ServerMirror {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerMirror").field("is_ready", &*self.is_ready.borrow()).finish_non_exhaustive()
    }
}

/// Returns the error for a manifest that is not known.
fn no_manifest_error(worker: &Worker) -> CallError {
    unreachable_error(worker.problem().unwrap_or_else(|| "no host has said what there is".into()))
}

fn unreachable_error(cause: String) -> CallError {
    match ServerName::new("relay") {
        Ok(server) => {
            let state = UnavailableState::OutOfReach;
            CallError::Unavailable(Unavailable::new(server, state, cause, None))
        }
        Err(_) => CallError::Overloaded { what: cause, retry_after: Duration::from_secs(1) },
    }
}

/// Limits of a mirrored server; a change of them replaces the server.
type MirroredLimits = (u64, u64);

/// Registers and removes servers until the host matches the manifest. Keeps a server of the same
/// name that was registered elsewhere.
async fn apply_servers(
    worker: &Worker,
    host: &Host,
    servers: &[ManifestServer],
    mirrored: &mut BTreeMap<String, MirroredLimits>,
) {
    let is_gone = |name: &str| !servers.iter().any(|listed| listed.name == name);
    let gone: Vec<String> = mirrored.keys().filter(|name| is_gone(name)).cloned().collect();
    for name in gone {
        mirrored.remove(&name);
        if let Err(error) = host.remove_without_waiting(&name).await {
            tracing::debug!(name, %error, "a server that is not offered any more was not there");
        }
    }
    let mut servers: Vec<&ManifestServer> = servers.iter().collect();
    servers.sort_by_key(|listed| listed.rank);
    for listed in servers {
        let limits = (listed.call_timeout, listed.max_call_time);
        if mirrored.get(&listed.name) == Some(&limits) {
            continue;
        }
        if !mirrored.contains_key(&listed.name) && host.status_of(&listed.name).is_ok() {
            tracing::warn!(name = listed.name, "a server of a host is not offered: there is one of its name");
            continue;
        }
        let Ok(name) = ServerName::new(&listed.name) else {
            tracing::warn!(name = listed.name, "a host has a server of a name that can't be one here");
            continue;
        };
        let (spec, connector) = (server_spec(worker, name.clone(), listed), worker.connector(name));
        match host.spawn_with(&Caller::operator(), spec, connector).await {
            Ok(_) => drop(mirrored.insert(listed.name.clone(), limits)),
            Err(error) => tracing::warn!(name = listed.name, %error, "a server can't be offered here"),
        }
    }
}

/// Returns the spec of a remote server. Breaker and validation are off here: the remote host
/// applies them.
fn server_spec(worker: &Worker, name: ServerName, listed: &ManifestServer) -> ServerSpec {
    let url = format!("relay://{}/{name}", worker.core().subjects.tenant());
    let transport = ServerTransport::Http(EndpointSpec { url, headers: BTreeMap::new() });
    let millis = Duration::from_millis;
    // Calls in flight may finish when the limits change.
    let drain = millis(listed.max_call_time).saturating_add(SLACK);
    ServerSpec {
        call_timeout: millis(listed.call_timeout).saturating_add(SLACK),
        max_call_time: drain,
        max_in_flight: in_flight::MOST,
        drain,
        validate: false,
        breaker: BreakerSettings { failures: 0, ..BreakerSettings::default() },
        restart: RestartSettings {
            max: 1_000,
            window: Duration::from_secs(1),
            first_delay: Duration::ZERO,
            max_delay: Duration::ZERO,
            readmit_after: Some(Duration::from_secs(1)),
        },
        ..ServerSpec::with_transport(name, transport)
    }
}

//! Manifests on the host: answers manifest requests and pushes changes.

use std::collections::{BTreeSet, HashMap};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ostler_core::error::CallError;
use ostler_host::upstream::ServerNotification;
use ostler_host::{Caller, HostNotification, Kind, Scope, ServerListing, ServerName, UnresolvedRequest};
use ostler_wire::{Message, RequestId};
use serde_json::value::RawValue;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::answer::AnswerBody;
use super::call_registry::ReplyAddress;
use super::presence::WorkerInstance;
use super::request::worker_caller;
use super::{ServiceCore, answer};
use crate::broker::BrokerMessage;
use crate::envelope::{ManifestHead, RelayProgress};
use crate::manifest::{Manifest, ManifestServer};
use crate::name::RelayName;

/// Wait for servers that have never listed their tools. Shorter than a worker's timeout of ten
/// seconds: one slow server must not hide all others.
const PATIENCE: Duration = Duration::from_secs(8);

/// Delay before a slow request is acknowledged: a worker without any message gives up after two
/// seconds.
const ACCEPT_AFTER: Duration = Duration::from_millis(500);

/// Attempts to build a manifest while lists change; further changes are pushed.
const ATTEMPTS: usize = 3;

/// Interval between checks for changes, and between pushes.
const PUSH_INTERVAL: Duration = Duration::from_secs(1);

/// Manifest request of a worker with a parsed envelope.
pub(super) struct ManifestRequest {
    pub(super) worker_instance: WorkerInstance,
    pub(super) role: RelayName,
    pub(super) reply_address: ReplyAddress,
    body: Bytes,
}

impl ManifestRequest {
    /// Parses the envelope. The error is text for the log.
    pub(super) fn read(
        role: RelayName,
        worker: RelayName,
        message: BrokerMessage,
        epoch: u64,
    ) -> Result<Self, String> {
        let head = ManifestHead::read(&message.headers).map_err(|error| error.to_string())?;
        let worker_instance = WorkerInstance { worker, instance: head.instance };
        let reply_address = ReplyAddress::new(&worker_instance, head.call, message.reply_to, epoch)?;
        Ok(Self { worker_instance, role, reply_address, body: message.body })
    }

    /// Returns the id of the request; a request without a body gets id 0.
    fn id(&self) -> RequestId {
        match Message::parse(self.body.clone()) {
            Ok(Message::Request { id, .. }) => id,
            _ => RequestId::from(0),
        }
    }
}

/// Answers a manifest request.
pub(super) async fn answer(service: Arc<ServiceCore>, request: ManifestRequest) {
    let caller = worker_caller(&request.worker_instance.worker, &request.role);
    let mut building = pin!(async {
        let permit = service.manifest_builds.acquire(&request.worker_instance.worker).await;
        (permit, build_and_record(&service, &request.worker_instance, &caller).await)
    });
    let (_permit, manifest) = match timeout(ACCEPT_AFTER, &mut building).await {
        Ok(built) => built,
        Err(_) => {
            service.send_accepted(&request.reply_address.key).await;
            building.await
        }
    };
    let answer_body = match manifest.as_ref().map(serde_json::to_vec) {
        Ok(Ok(text)) => AnswerBody::Result(text.into()),
        Ok(Err(error)) => AnswerBody::from(&serialize_error(&error)),
        Err(error) => {
            let unknown =
                UnresolvedRequest { server: "", method: "manifest", subject: "", outcome: error.code() };
            service.host.record_unresolved(&caller, unknown);
            service.count_refusal();
            AnswerBody::from(error)
        }
    };
    let text = answer_body.to_response(Some(&request.id()));
    answer::send(&service, &request.reply_address, text).await;
}

/// Builds a manifest and records its version. Rebuilds it if a list changed meanwhile: the version
/// was not recorded yet, so no push would cover that change.
async fn build_and_record(
    service: &Arc<ServiceCore>,
    worker_instance: &WorkerInstance,
    caller: &Caller,
) -> Result<Manifest, CallError> {
    let by = Instant::now() + PATIENCE;
    let mut attempt = 1;
    loop {
        let seen = service.host.lists_version();
        let left = by.saturating_duration_since(Instant::now());
        let manifest = build_manifest(service, caller, left).await;
        let version = manifest.as_ref().ok().map(|manifest| manifest.version.clone());
        service.registry.record_manifest_version(worker_instance, caller, version);
        if service.host.lists_version() == seen || attempt == ATTEMPTS {
            return manifest;
        }
        attempt += 1;
    }
}

/// Builds the manifest of a caller.
async fn build_manifest(
    service: &Arc<ServiceCore>,
    caller: &Caller,
    patience: Duration,
) -> Result<Manifest, CallError> {
    if !service.host.has_role(caller.role()) {
        return Err(CallError::Invalid {
            what: format!("the host has no role `{}`", caller.role()),
            hint: "add it to the host's config, or give the worker a credential of another role".into(),
        });
    }
    let made_by = Arc::clone(service);
    let make = move |listings: Vec<ServerListing>, _permit| {
        let service = &made_by;
        let ranks: HashMap<ServerName, usize> = service
            .host
            .servers_in_registration_order()
            .into_iter()
            .enumerate()
            .map(|(rank, server)| (server, rank))
            .collect();
        // A server without a rank was removed since it was listed, or is disabled.
        let ranked = listings.iter().filter_map(|listing| Some((listing, *ranks.get(&listing.server)?)));
        let servers =
            ranked.map(|(listing, rank)| manifest_server(service, listing, rank)).collect::<Result<_, _>>();
        let servers = servers.map_err(|error| serialize_error(&error))?;
        Ok(Manifest::new(service.name.to_string(), service.clock.now(), servers))
    };
    service.host.list_with(caller, &Scope::All, (Kind::Tools, patience), make).await
}

fn manifest_server(
    service: &ServiceCore,
    listing: &ServerListing,
    rank: usize,
) -> Result<ManifestServer, serde_json::Error> {
    let raw = |text: &[u8]| serde_json::from_slice::<&RawValue>(text).map(ToOwned::to_owned);
    let tools = listing.items.iter().map(|listed| raw(&listed.item.definition)).collect::<Result<_, _>>()?;
    let error = listing.error.as_ref().map(|error| raw(&error.rpc_object())).transpose()?;
    // A server removed since it was listed is absent from the next manifest.
    let times = service.host.call_timeouts(listing.server.as_str()).unwrap_or_default();
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let (call_timeout, max_call_time) = (millis(times.0), millis(times.1));
    Ok(ManifestServer { name: listing.server.to_string(), tools, error, call_timeout, max_call_time, rank })
}

/// Returns the error for a bug: every definition was parsed as JSON before.
fn serialize_error(error: &serde_json::Error) -> CallError {
    let what = format!("the manifest can't be written: {error}");
    CallError::Overloaded { what, retry_after: Duration::from_secs(1) }
}

/// Servers whose prompts or resources changed; a manifest contains neither.
type ChangedServers = BTreeSet<ServerName>;

/// Pushes manifest changes to workers until it is cancelled.
pub(super) async fn watch_changes(service: Arc<ServiceCore>) {
    let mut events = service.host.notifications();
    let mut seen = service.host.lists_version();
    let (mut is_due, mut other_lists) = (false, ChangedServers::new());
    let mut last = Instant::now();
    loop {
        match timeout(PUSH_INTERVAL, events.recv()).await {
            Ok(Ok(event)) => is_due |= collect_changes(event, &mut events, &mut other_lists),
            Ok(Err(RecvError::Lagged(_))) => is_due = true,
            Ok(Err(RecvError::Closed)) => return,
            Err(_) => {}
        }
        let version = service.host.lists_version();
        is_due |= version != seen;
        // Changes in quick succession are pushed together.
        if is_due && last.elapsed() >= PUSH_INTERVAL {
            (seen, is_due, last) = (version, false, Instant::now());
            push_changes(&service, &Arc::new(std::mem::take(&mut other_lists))).await;
        }
    }
}

/// Collects queued notifications. Returns whether a list changed.
fn collect_changes(
    first: HostNotification,
    events: &mut Receiver<HostNotification>,
    other_lists: &mut ChangedServers,
) -> bool {
    let (mut tools, mut changed) = (ChangedServers::new(), ChangedServers::new());
    let more = std::iter::from_fn(|| events.try_recv().ok());
    for HostNotification { server, notification: event, .. } in std::iter::once(first).chain(more) {
        match event {
            ServerNotification::ToolsChanged => {
                tools.insert(server);
            }
            ServerNotification::PromptsChanged | ServerNotification::ResourcesChanged => {
                changed.insert(server);
            }
            _ => {}
        }
    }
    let is_due = !tools.is_empty() || !changed.is_empty();
    // A change of rules is reported as a change of all lists of all servers. The comparison of
    // tools then shows which workers it concerns.
    other_lists.extend(changed.into_iter().filter(|server| !tools.contains(server)));
    is_due
}

/// Rebuilds the manifest of every informed worker, concurrently: one slow server must not delay all
/// of them.
async fn push_changes(service: &Arc<ServiceCore>, other_lists: &Arc<ChangedServers>) {
    let mut pushes = JoinSet::new();
    for (worker_instance, caller, sent_version) in service.registry.manifest_versions() {
        pushes.spawn(push_change(
            Arc::clone(service),
            worker_instance,
            (caller, sent_version),
            Arc::clone(other_lists),
        ));
    }
    while pushes.join_next().await.is_some() {}
}

async fn push_change(
    service: Arc<ServiceCore>,
    worker_instance: WorkerInstance,
    (caller, sent_version): (Caller, String),
    other_lists: Arc<ChangedServers>,
) {
    let Some(_permit) = service.manifest_builds.acquire(&worker_instance.worker).await else { return };
    // A push only announces a change. It must not wait for a slow server, whose own list will be
    // another change.
    let manifest = build_manifest(&service, &caller, PUSH_INTERVAL).await.ok();
    let version = manifest.as_ref().map(|manifest| manifest.version.clone());
    let is_same = version.as_deref().unwrap_or_default() == sent_version;
    let has_other = |listed: &ManifestServer| other_lists.iter().any(|server| server.as_str() == listed.name);
    if is_same && !manifest.is_some_and(|manifest| manifest.servers.iter().any(has_other)) {
        return;
    }
    let Some(connection) = service.reconnector.connection() else { return };
    let subject = service.subjects.manifest_changed(&worker_instance.worker);
    let message = BrokerMessage::new(subject, RelayProgress::ManifestChanged.headers(), Bytes::new());
    if service.publish(&connection, message).await.is_ok() {
        service.registry.record_manifest_version(&worker_instance, &caller, version);
    }
}

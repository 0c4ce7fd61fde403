//! What workers may use: told when they ask, and pushed when it changes.

use std::collections::{BTreeSet, HashMap};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ostler_core::error::CallError;
use ostler_host::upstream::ServerNotification;
use ostler_host::{Caller, HostNotification, Kind, Scope, ServerListing, ServerName, UnresolvedRequest};
use ostler_wire::{Message as Rpc, RequestId};
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

/// How long servers are waited for that have never said what they have. A
/// worker waits for ten seconds, and one server must not hide all others.
const PATIENCE: Duration = Duration::from_secs(8);

/// A worker that has heard nothing by then is told that it is being answered:
/// after two seconds it would not believe that.
const ACCEPT_AFTER: Duration = Duration::from_millis(500);

/// A manifest is made anew so often if something changes meanwhile. What goes
/// on changing is pushed.
const ATTEMPTS: usize = 3;

/// Changes are looked for, and told, this often.
const PUSH_INTERVAL: Duration = Duration::from_secs(1);

/// A worker's question, its envelope read.
pub(super) struct ManifestRequest {
    pub(super) worker_instance: WorkerInstance,
    pub(super) role: RelayName,
    pub(super) reply_address: ReplyAddress,
    body: Bytes,
}

impl ManifestRequest {
    /// Reads the envelope. The error is for people.
    pub(super) fn read(
        role: RelayName,
        worker: RelayName,
        message: BrokerMessage,
        epoch: u64,
    ) -> Result<Self, String> {
        let head = ManifestHead::read(&message.headers).map_err(|error| error.to_string())?;
        let life = WorkerInstance { worker, instance: head.instance };
        let to = ReplyAddress::new(&life, head.call, message.reply_to, epoch)?;
        Ok(Self { worker_instance: life, role, reply_address: to, body: message.body })
    }

    /// The id of the request; a question without a body has one all the same.
    fn id(&self) -> RequestId {
        match Rpc::parse(self.body.clone()) {
            Ok(Rpc::Request { id, .. }) => id,
            _ => RequestId::from(0),
        }
    }
}

/// Answers a worker's question.
pub(super) async fn answer(service: Arc<ServiceCore>, question: ManifestRequest) {
    let caller = worker_caller(&question.worker_instance.worker, &question.role);
    let mut building = pin!(async {
        let turn = service.manifest_builds.acquire(&question.worker_instance.worker).await;
        (turn, build_and_record(&service, &question.worker_instance, &caller).await)
    });
    let (_turn, manifest) = match timeout(ACCEPT_AFTER, &mut building).await {
        Ok(built) => built,
        Err(_) => {
            service.send_accepted(&question.reply_address.key).await;
            building.await
        }
    };
    let said = match manifest.as_ref().map(serde_json::to_vec) {
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
    let text = said.to_response(Some(&question.id()));
    answer::send(&service, &question.reply_address, text).await;
}

/// What a worker may use now, noted as what it was told. Making it takes time,
/// and what has changed meanwhile nobody would push: it was not told yet.
async fn build_and_record(
    service: &Arc<ServiceCore>,
    life: &WorkerInstance,
    caller: &Caller,
) -> Result<Manifest, CallError> {
    let by = Instant::now() + PATIENCE;
    let mut attempt = 1;
    loop {
        let seen = service.host.lists_version();
        let left = by.saturating_duration_since(Instant::now());
        let manifest = build_manifest(service, caller, left).await;
        let version = manifest.as_ref().ok().map(|manifest| manifest.version.clone());
        service.registry.record_manifest_version(life, caller, version);
        if service.host.lists_version() == seen || attempt == ATTEMPTS {
            return manifest;
        }
        attempt += 1;
    }
}

/// What a caller may use now.
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
    let make = move |listings: Vec<ServerListing>, _turn| {
        let service = &made_by;
        let ranks: HashMap<ServerName, usize> = service
            .host
            .servers_in_registration_order()
            .into_iter()
            .enumerate()
            .map(|(rank, server)| (server, rank))
            .collect();
        // One without a rank is gone since it was listed, or can't be used here at all.
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
    // Gone since it was listed: the next manifest is without it.
    let times = service.host.call_timeouts(listing.server.as_str()).unwrap_or_default();
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let (call_timeout, max_call_time) = (millis(times.0), millis(times.1));
    Ok(ManifestServer { name: listing.server.to_string(), tools, error, call_timeout, max_call_time, rank })
}

/// Definitions were JSON when they came, so this is a fault of ours.
fn serialize_error(error: &serde_json::Error) -> CallError {
    let what = format!("the manifest can't be written: {error}");
    CallError::Overloaded { what, retry_after: Duration::from_secs(1) }
}

/// Servers whose prompts or resources have changed, which no manifest has in it.
type ChangedServers = BTreeSet<ServerName>;

/// Tells workers that what they may use has changed, for ever.
pub(super) async fn watch_changes(service: Arc<ServiceCore>) {
    let mut events = service.host.notifications();
    let mut seen = service.host.lists_version();
    let (mut is_due, mut others) = (false, ChangedServers::new());
    let mut last = Instant::now();
    loop {
        match timeout(PUSH_INTERVAL, events.recv()).await {
            Ok(Ok(event)) => is_due |= collect_changes(event, &mut events, &mut others),
            Ok(Err(RecvError::Lagged(_))) => is_due = true,
            Ok(Err(RecvError::Closed)) => return,
            Err(_) => {}
        }
        let version = service.host.lists_version();
        is_due |= version != seen;
        // What changes in quick succession is looked at together.
        if is_due && last.elapsed() >= PUSH_INTERVAL {
            (seen, is_due, last) = (version, false, Instant::now());
            push_changes(&service, &Arc::new(std::mem::take(&mut others))).await;
        }
    }
}

/// Takes what is said in one go. True if it is about lists.
fn collect_changes(
    first: HostNotification,
    events: &mut Receiver<HostNotification>,
    others: &mut ChangedServers,
) -> bool {
    let (mut tools, mut batch) = (ChangedServers::new(), ChangedServers::new());
    let more = std::iter::from_fn(|| events.try_recv().ok());
    for HostNotification { server, notification: event, .. } in std::iter::once(first).chain(more) {
        match event {
            ServerNotification::ToolsChanged => {
                tools.insert(server);
            }
            ServerNotification::PromptsChanged | ServerNotification::ResourcesChanged => {
                batch.insert(server);
            }
            _ => {}
        }
    }
    let is_due = !tools.is_empty() || !batch.is_empty();
    // Other rules are said to change everything, also to whom they change
    // nothing: what tools there are then says for whom they do.
    others.extend(batch.into_iter().filter(|server| !tools.contains(server)));
    is_due
}

/// Looks at what each of those may use who were told, many at once: a server
/// that is waited for must not hold up everybody.
async fn push_changes(service: &Arc<ServiceCore>, others: &Arc<ChangedServers>) {
    let mut looks = JoinSet::new();
    for (life, caller, told) in service.registry.manifest_versions() {
        looks.spawn(push_change(Arc::clone(service), life, (caller, told), Arc::clone(others)));
    }
    while looks.join_next().await.is_some() {}
}

async fn push_change(
    service: Arc<ServiceCore>,
    life: WorkerInstance,
    (caller, told): (Caller, String),
    others: Arc<ChangedServers>,
) {
    let Some(_turn) = service.manifest_builds.acquire(&life.worker).await else { return };
    // A push only says that something has changed: a server that is slow with its list must not delay the news of
    // the others, and its own list is another change.
    let manifest = build_manifest(&service, &caller, PUSH_INTERVAL).await.ok();
    let version = manifest.as_ref().map(|manifest| manifest.version.clone());
    let is_same = version.as_deref().unwrap_or_default() == told;
    let has_other = |listed: &ManifestServer| others.iter().any(|server| server.as_str() == listed.name);
    if is_same && !manifest.is_some_and(|manifest| manifest.servers.iter().any(has_other)) {
        return;
    }
    let Some(up) = service.reconnector.connection() else { return };
    let subject = service.subjects.manifest_changed(&life.worker);
    let message = BrokerMessage::new(subject, RelayProgress::ManifestChanged.headers(), Bytes::new());
    if service.publish(&up, message).await.is_ok() {
        service.registry.record_manifest_version(&life, &caller, version);
    }
}

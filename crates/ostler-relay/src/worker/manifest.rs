//! What the worker may use: asked for, kept, and asked for again.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use ostler_core::fault::{Fault, FaultKind};
use ostler_host::upstream::ServerNotification;
use ostler_wire::{Message, RpcOutcome};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::WorkerCore;
use super::hosts::clock_difference;
use super::in_flight::RelayedCallInfo;
use super::pending::CallTimes;
use super::request::{OutgoingCall, SendTimes};
use crate::envelope::ManifestHead;
use crate::manifest::{Manifest, ManifestServer};

/// How long one question may take. Until then it waits for a host, too.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often it is asked without a reason.
const EVERY: Duration = Duration::from_secs(60);

/// The first and the longest wait after a failure.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));

/// Least time between two questions of which a push causes the second: hosts that push without end are not asked at the
/// speed of the network.
const PUSH_INTERVAL: Duration = Duration::from_millis(500);

/// Code of the JSON-RPC error `overloaded`.
const OVERLOADED: i64 = -31005;

/// What is known about asking.
#[derive(Default)]
pub(super) struct ManifestRefresh {
    state: Mutex<ManifestRefreshState>,
    wake: Notify,
    /// Whether a host has said that something has changed.
    is_changed: AtomicBool,
    /// How far the clock of the host that answered is ahead of ours.
    pub(super) clock_offset: AtomicI64,
    /// Why waiting does not help: the broker does not let us ask or hear, or
    /// the host has no such role. It is tried again all the same.
    refused: watch::Sender<Option<String>>,
}

#[derive(Default)]
struct ManifestRefreshState {
    /// Why the last question brought nothing.
    problem: Option<String>,
    /// What the broker does not let us hear.
    subscribe_denial: Option<String>,
}

impl ManifestRefresh {
    fn state(&self) -> MutexGuard<'_, ManifestRefreshState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A host says that something has changed.
    pub(super) fn mark_changed(&self) {
        self.is_changed.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    /// Waits for a push that the question at `asked` has not covered, and until the next question may be asked. Pushes
    /// that come meanwhile are covered by that one.
    async fn wait_for_push(&self, asked: Instant) {
        // A permit may be left of a push that was covered.
        while !self.is_changed.load(Ordering::Acquire) {
            self.wake.notified().await;
        }
        sleep_until(asked + PUSH_INTERVAL).await;
    }

    /// The broker does not let us hear something, on this connection.
    pub(super) fn set_subscribe_denial(&self, why: String) {
        self.refused.send_replace(Some(why.clone()));
        self.state().subscribe_denial = Some(why);
    }

    /// Why waiting for an answer does not help, if it does not.
    pub(super) fn watch_refused(&self) -> watch::Receiver<Option<String>> {
        self.refused.subscribe()
    }

    /// What keeps the worker from knowing what it may use.
    pub(super) fn problem(&self) -> Option<String> {
        let state = self.state();
        state.subscribe_denial.clone().or_else(|| state.problem.clone())
    }
}

/// Why a question brought no manifest.
enum ManifestError {
    /// Another time it may.
    Failed(String),
    /// It was understood and turned down: what was allowed before is not any more.
    Refused(String),
}

impl ManifestError {
    fn failed(why: impl std::fmt::Display) -> Self {
        Self::Failed(why.to_string())
    }
}

/// Asks whenever there is a new connection, something has changed or a host has begun another life, and every minute.
pub(super) async fn run(core: Arc<WorkerCore>) {
    let mut ready = core.ready_connection.subscribe();
    let (mut asked, mut pause) = (0, PAUSE.0);
    // Whether sessions are owed the word that anything may have changed.
    let mut is_owed = false;
    loop {
        let epoch = match ready.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(up)) => up.epoch,
            _ => return,
        };
        if epoch != asked {
            core.manifest_refresh.state().subscribe_denial = None;
            core.manifest_refresh.refused.send_replace(None);
            pause = PAUSE.0;
        }
        let may_have_missed = std::mem::replace(&mut asked, epoch) != epoch && epoch > 1;
        is_owed |= core.manifest_refresh.is_changed.swap(false, Ordering::AcqRel) || may_have_missed;
        let asked_at = Instant::now();
        let lost = ready.wait_for(|now| now.as_ref().is_none_or(|now| now.epoch != epoch));
        let brought = tokio::select! {
            brought = core.request_manifest() => brought,
            _ = lost => continue,
        };
        let is_final = match brought {
            Ok(manifest) => {
                let is_final = !manifest.servers.iter().any(is_overloaded);
                core.apply_manifest(manifest, std::mem::take(&mut is_owed));
                is_final
            }
            Err(missing) => {
                core.record_manifest_error(missing);
                false
            }
        };
        let again = if is_final {
            pause = PAUSE.0;
            Instant::now() + EVERY
        } else {
            let wait = core.jitter(pause);
            pause = (pause * 2).min(PAUSE.1);
            Instant::now() + wait
        };
        let mut ready = core.ready_connection.subscribe();
        tokio::select! {
            () = sleep_until(again) => {}
            () = core.manifest_refresh.wait_for_push(asked_at) => {}
            _ = ready.wait_for(|now| now.as_ref().is_none_or(|now| now.epoch != epoch)) => {}
        }
    }
}

impl WorkerCore {
    async fn request_manifest(&self) -> Result<Manifest, ManifestError> {
        let subject = self.subjects.manifest(&self.role, &self.name);
        let call = self.call_id(None);
        let began = Instant::now();
        let until = began + PATIENCE;
        let times = CallTimes { began, deadline: until, hard_deadline: until, progress_extension: PATIENCE };
        let entry = RelayedCallInfo { subject: subject.clone(), times, session: None, observer: None };
        let body = ostler_wire::Params::empty();
        let mut request = Vec::new();
        ostler_wire::write_request(
            &mut request,
            self.next_request_id(),
            "manifest",
            &body,
            &Default::default(),
        );
        request.pop();
        let headers = |_: SendTimes| ManifestHead { call, instance: self.instance }.headers();
        let letter = OutgoingCall {
            call,
            subject: &subject,
            body: request.into(),
            headers: &headers,
            deadline: until,
            may_send: None,
        };
        let ticket = self.calls.register(call, entry).map_err(ManifestError::failed)?;
        match self.send_until_answered(&ticket, &letter).await {
            Ok(body) => parse_manifest(body),
            Err(Fault { kind: FaultKind::Unreachable(why), .. }) => Err(ManifestError::Failed(why)),
            Err(Fault { kind: FaultKind::Denied(why), .. }) => {
                self.manifest_refresh.refused.send_replace(Some(why.clone()));
                Err(ManifestError::Failed(why))
            }
            Err(fault) => Err(ManifestError::failed(fault)),
        }
    }

    /// Notes that there is no manifest. One from before stays good unless a
    /// host has taken it back.
    fn record_manifest_error(&self, missing: ManifestError) {
        let why = match missing {
            ManifestError::Failed(why) => why,
            ManifestError::Refused(why) => {
                self.manifest_refresh.refused.send_replace(Some(why.clone()));
                self.manifest.send_replace(None);
                why
            }
        };
        self.manifest_refresh.state().problem = Some(why);
    }

    /// Takes a manifest, and tells the sessions of servers that are not what they were.
    fn apply_manifest(&self, manifest: Manifest, is_changed: bool) {
        self.manifest_refresh
            .clock_offset
            .store(clock_difference(manifest.time, self.clock.now()), Ordering::Relaxed);
        self.manifest_refresh.state().problem = None;
        self.manifest_refresh.refused.send_replace(None);
        let manifest = Arc::new(manifest);
        let before = self.manifest.send_replace(Some(Arc::clone(&manifest)));
        let is_other = |server: &str| match &before {
            Some(before) if before.version == manifest.version => false,
            Some(before) => !has_same_tools(find_server(before, server), find_server(&manifest, server)),
            None => true,
        };
        self.sessions.notify(&ServerNotification::ToolsChanged, is_other);
        // The manifest does not say what else servers have, so that any of
        // them may have other prompts and resources.
        for event in [ServerNotification::PromptsChanged, ServerNotification::ResourcesChanged] {
            self.sessions.notify(&event, |server| is_changed || is_other(server));
        }
    }

    pub(super) fn manifest_version(&self) -> Option<String> {
        self.manifest.borrow().as_ref().map(|manifest| manifest.version.clone())
    }

    /// The tools of a server, as soon as they are known.
    pub(super) async fn listed_tools(&self, server: &str, until: Instant) -> Result<RpcOutcome, Fault> {
        let mut known = self.manifest.subscribe();
        let manifest = tokio::select! {
            biased;
            known = timeout_at(until, known.wait_for(Option::is_some)) => match known {
                Ok(Ok(manifest)) => manifest.clone(),
                _ => None,
            },
            why = self.wait_refused() => return Err(Fault::rejected(FaultKind::Denied(why))),
        };
        let Some(manifest) = manifest else {
            let why = self.problem().unwrap_or_else(|| "no host has said what there is".into());
            return Err(Fault::not_sent(FaultKind::Unreachable(why)));
        };
        match find_server(&manifest, server) {
            Some(listed) => tools_result(listed),
            None => {
                let why = "no host has this server, or lets this worker use it".into();
                Err(Fault::rejected(FaultKind::Denied(why)))
            }
        }
    }
}

/// A server of a manifest, which sorts them by name.
pub(super) fn find_server<'a>(manifest: &'a Manifest, server: &str) -> Option<&'a ManifestServer> {
    let at = manifest.servers.binary_search_by(|listed| listed.name.as_str().cmp(server)).ok()?;
    manifest.servers.get(at)
}

fn has_same_tools(one: Option<&ManifestServer>, other: Option<&ManifestServer>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => {
            let texts =
                |listed: &'_ ManifestServer| listed.tools.iter().map(|tool| tool.get().to_owned()).collect();
            let (one, other): (Vec<String>, Vec<String>) = (texts(one), texts(other));
            one == other
        }
        (None, None) => true,
        _ => false,
    }
}

/// Returns whether the host was too busy to list a server. No host pushes the end of that: no list has changed.
fn is_overloaded(listed: &ManifestServer) -> bool {
    #[derive(serde::Deserialize)]
    struct Code {
        code: i64,
    }
    let code = listed.error.as_ref().and_then(|error| serde_json::from_str::<Code>(error.get()).ok());
    listed.tools.is_empty() && code.is_some_and(|error| error.code == OVERLOADED)
}

/// The answer to `tools/list`. Tools that are the last known ones are better
/// than none; none for a reason is that reason and not an empty list.
fn tools_result(listed: &ManifestServer) -> Result<RpcOutcome, Fault> {
    if let (true, Some(error)) = (listed.tools.is_empty(), &listed.error) {
        let response = format!(r#"{{"jsonrpc":"2.0","id":0,"error":{}}}"#, error.get());
        return match Message::parse(response.into()) {
            Ok(Message::Response { outcome, .. }) => Ok(outcome),
            _ => Err(Fault::unknown(FaultKind::Malformed("the manifest has an error that is none".into()))),
        };
    }
    let mut list = br#"{"resultType":"complete","cacheScope":"public","tools":["#.to_vec();
    for (at, tool) in listed.tools.iter().enumerate() {
        if at > 0 {
            list.push(b',');
        }
        list.extend_from_slice(tool.get().as_bytes());
    }
    list.extend_from_slice(b"]}");
    Ok(RpcOutcome::Result(list.into()))
}

/// The manifest in an answer, or why there is none.
fn parse_manifest(body: Bytes) -> Result<Manifest, ManifestError> {
    let unreadable = "the answer to what this worker may use can't be read";
    match Message::parse(body) {
        Ok(Message::Response { outcome: RpcOutcome::Result(result), .. }) => {
            let read = serde_json::from_slice::<Manifest>(&result);
            let mut manifest =
                read.map_err(|error| ManifestError::Failed(format!("{unreadable}: {error}")))?;
            manifest.servers.sort_by(|one, other| one.name.cmp(&other.name));
            Ok(manifest)
        }
        Ok(Message::Response { outcome: RpcOutcome::Error(error), .. }) => {
            let why = format!("the host does not say what this worker may use: {}", error.message);
            let is_final = error.code == ostler_wire::INVALID_PARAMS;
            Err(if is_final { ManifestError::Refused(why) } else { ManifestError::Failed(why) })
        }
        Ok(_) => Err(ManifestError::Failed(format!("{unreadable}: it is no response"))),
        Err(error) => Err(ManifestError::Failed(format!("{unreadable}: {error}"))),
    }
}

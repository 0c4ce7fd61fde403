//! Manifest on the worker: requested on connect, after pushes and every minute.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use ostler_core::fault::{Fault, FaultKind};
use ostler_host::upstream::ServerNotification;
use ostler_wire::{Message, RpcOutcome};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::hosts::clock_difference;
use super::in_flight::RelayedCallInfo;
use super::pending::CallTimes;
use super::request::{OutgoingCall, SendTimes};
use super::{WorkerCore, wait_for_other_connection};
use crate::envelope::ManifestHead;
use crate::manifest::{Manifest, ManifestServer};

/// Timeout of one manifest request, including the wait for a host.
const PATIENCE: Duration = Duration::from_secs(10);

/// Interval of refreshes without a push.
const EVERY: Duration = Duration::from_secs(60);

/// First and last ceiling of the delay after a failure.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));

/// Minimum interval between two requests if a push causes the second: a host that pushes without
/// end must not make the worker flood it.
const PUSH_INTERVAL: Duration = Duration::from_millis(500);

/// Code of the JSON-RPC error `overloaded`.
const OVERLOADED: i64 = -31005;

/// State of the manifest refresh.
#[derive(Default)]
pub(super) struct ManifestRefresh {
    state: Mutex<ManifestRefreshState>,
    wake: Notify,
    /// `true` after a push that no request has covered yet.
    is_changed: AtomicBool,
    /// Clock offset to the host that sent the manifest, in milliseconds.
    pub(super) clock_offset: AtomicI64,
    /// Refusal that waiting does not resolve: a denied subject or an unknown role. The worker
    /// retries nevertheless.
    refused: watch::Sender<Option<String>>,
}

#[derive(Default)]
struct ManifestRefreshState {
    /// Error of the last request.
    problem: Option<String>,
    /// Subscription that the broker denied.
    subscribe_denial: Option<String>,
}

impl ManifestRefresh {
    fn state(&self) -> MutexGuard<'_, ManifestRefreshState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a push: the manifest has changed.
    pub(super) fn mark_changed(&self) {
        self.is_changed.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    /// Waits for a push that the request at `asked_at` has not covered, and for the minimum
    /// interval. The next request covers pushes that arrive meanwhile.
    async fn wait_for_push(&self, asked_at: Instant) {
        // `wake` may hold a permit of a push that was covered.
        while !self.is_changed.load(Ordering::Acquire) {
            self.wake.notified().await;
        }
        sleep_until(asked_at + PUSH_INTERVAL).await;
    }

    /// Records a subscription that the broker denied on this connection.
    pub(super) fn set_subscribe_denial(&self, why: String) {
        self.refused.send_replace(Some(why.clone()));
        self.state().subscribe_denial = Some(why);
    }

    /// Subscribes to the refusal that waiting does not resolve.
    pub(super) fn watch_refused(&self) -> watch::Receiver<Option<String>> {
        self.refused.subscribe()
    }

    /// Describes the reason for a missing manifest.
    pub(super) fn problem(&self) -> Option<String> {
        let state = self.state();
        state.subscribe_denial.clone().or_else(|| state.problem.clone())
    }
}

/// Error of a manifest request.
enum ManifestError {
    /// Temporary failure; the worker retries.
    Failed(String),
    /// Refusal by the host: it revokes the previous manifest.
    Refused(String),
}

impl ManifestError {
    fn failed(why: impl std::fmt::Display) -> Self {
        Self::Failed(why.to_string())
    }
}

/// Requests the manifest on each new connection, after pushes and host restarts, and every minute.
pub(super) async fn run(core: Arc<WorkerCore>) {
    let mut ready = core.ready_connection.subscribe();
    let (mut last_epoch, mut pause) = (0, PAUSE.0);
    // Sessions must be told that prompts and resources may have changed.
    let mut must_notify = false;
    loop {
        let epoch = match ready.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(connection)) => connection.epoch,
            _ => return,
        };
        if epoch != last_epoch {
            core.manifest_refresh.state().subscribe_denial = None;
            core.manifest_refresh.refused.send_replace(None);
            pause = PAUSE.0;
        }
        let may_have_missed = std::mem::replace(&mut last_epoch, epoch) != epoch && epoch > 1;
        must_notify |= core.manifest_refresh.is_changed.swap(false, Ordering::AcqRel) || may_have_missed;
        let asked_at = Instant::now();
        let lost = wait_for_other_connection(&mut ready, epoch);
        let result = tokio::select! {
            result = core.request_manifest() => result,
            _ = lost => continue,
        };
        let is_final = match result {
            Ok(manifest) => {
                let is_final = !manifest.servers.iter().any(is_overloaded);
                core.apply_manifest(manifest, std::mem::take(&mut must_notify));
                is_final
            }
            Err(error) => {
                core.record_manifest_error(error);
                false
            }
        };
        let next_refresh = if is_final {
            pause = PAUSE.0;
            Instant::now() + EVERY
        } else {
            let wait = core.jitter(pause);
            pause = (pause * 2).min(PAUSE.1);
            Instant::now() + wait
        };
        let mut ready = core.ready_connection.subscribe();
        tokio::select! {
            () = sleep_until(next_refresh) => {}
            () = core.manifest_refresh.wait_for_push(asked_at) => {}
            _ = wait_for_other_connection(&mut ready, epoch) => {}
        }
    }
}

impl WorkerCore {
    async fn request_manifest(&self) -> Result<Manifest, ManifestError> {
        let subject = self.subjects.manifest(&self.role, &self.name);
        let call = self.call_id(None);
        let began = Instant::now();
        let deadline = began + PATIENCE;
        let times = CallTimes { began, deadline, hard_deadline: deadline, progress_extension: PATIENCE };
        let info = RelayedCallInfo { subject: subject.clone(), times, session: None, observer: None };
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
        let outgoing = OutgoingCall {
            call,
            subject: &subject,
            body: request.into(),
            headers: &headers,
            deadline,
            may_send: None,
        };
        let handle = self.calls.register(call, info).map_err(ManifestError::failed)?;
        match self.send_until_answered(&handle, &outgoing).await {
            Ok(body) => parse_manifest(body),
            Err(Fault { kind: FaultKind::Unreachable(why), .. }) => Err(ManifestError::Failed(why)),
            Err(Fault { kind: FaultKind::Denied(why), .. }) => {
                self.manifest_refresh.refused.send_replace(Some(why.clone()));
                Err(ManifestError::Failed(why))
            }
            Err(fault) => Err(ManifestError::failed(fault)),
        }
    }

    /// Records a failed request. The previous manifest stays valid unless a host revoked it.
    fn record_manifest_error(&self, error: ManifestError) {
        let why = match error {
            ManifestError::Failed(why) => why,
            ManifestError::Refused(why) => {
                self.manifest_refresh.refused.send_replace(Some(why.clone()));
                self.manifest.send_replace(None);
                why
            }
        };
        self.manifest_refresh.state().problem = Some(why);
    }

    /// Applies a manifest and notifies the sessions whose server has changed.
    fn apply_manifest(&self, manifest: Manifest, is_changed: bool) {
        self.manifest_refresh
            .clock_offset
            .store(clock_difference(manifest.time, self.clock.now()), Ordering::Relaxed);
        self.manifest_refresh.state().problem = None;
        self.manifest_refresh.refused.send_replace(None);
        let manifest = Arc::new(manifest);
        let previous = self.manifest.send_replace(Some(Arc::clone(&manifest)));
        let has_new_tools = |server: &str| match &previous {
            Some(previous) if previous.version == manifest.version => false,
            Some(previous) => !has_same_tools(find_server(previous, server), find_server(&manifest, server)),
            None => true,
        };
        self.sessions.notify(&ServerNotification::ToolsChanged, has_new_tools);
        // The manifest contains tools only, so prompts and resources may have changed at any
        // server.
        for event in [ServerNotification::PromptsChanged, ServerNotification::ResourcesChanged] {
            self.sessions.notify(&event, |server| is_changed || has_new_tools(server));
        }
    }

    pub(super) fn manifest_version(&self) -> Option<String> {
        self.manifest.borrow().as_ref().map(|manifest| manifest.version.clone())
    }

    /// Waits for the manifest and returns the tools of a server.
    pub(super) async fn listed_tools(&self, server: &str, deadline: Instant) -> Result<RpcOutcome, Fault> {
        let mut known = self.manifest.subscribe();
        let manifest = tokio::select! {
            biased;
            known = timeout_at(deadline, known.wait_for(Option::is_some)) => match known {
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

/// Finds a server in a manifest, which is sorted by name.
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

/// Returns whether the host was too busy to list a server. No push follows when it recovers, since
/// no list has changed.
fn is_overloaded(listed: &ManifestServer) -> bool {
    #[derive(serde::Deserialize)]
    struct Code {
        code: i64,
    }
    let code = listed.error.as_ref().and_then(|error| serde_json::from_str::<Code>(error.get()).ok());
    listed.tools.is_empty() && code.is_some_and(|error| error.code == OVERLOADED)
}

/// Builds the result of `tools/list`. Stale tools are better than none; if there are none the error
/// is returned and not an empty list.
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

/// Parses the manifest in a response.
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

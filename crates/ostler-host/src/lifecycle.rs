//! Lifecycle operations on servers: register, start, stop, reload, remove.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ostler_core::caller::Caller;
use ostler_core::error::CallError;
use ostler_core::server_name::ServerName;
use ostler_core::spec::{Isolation, ServerSpec, ServerTransport};
use ostler_core::supervisor::Phase;
use tokio::time::{Instant, timeout, timeout_at};

use crate::host::Host;
use crate::in_flight::RequestClass;
use crate::lifecycle_event::OperatorAction;
use crate::lists::Kind;
use crate::notifications::HostNotification;
use crate::registry::{RegistrySnapshot, ServerMap};
use crate::server::lease::Demand;
use crate::server::slot::{Slot, SlotDeps, SlotState};
use crate::server::slot_lists::shutting_down;
use crate::server::start_progress::StartProgress;
use crate::server::start_record::LastGoodStart;
use crate::server::{Binding, PartitionOwner, Server, ServerDeps};
use crate::upstream::http::HttpConnector;
use crate::upstream::stdio::StdioConnector;
use crate::upstream::{Connector, ServerNotification, SharedCallObserver};

/// Bounds the drain at shutdown. With the five seconds of the stop sequence every server is gone well within ten.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(3);
/// Bounds a reload's wait for the lists of the new session.
const RELIST_TIMEOUT: Duration = Duration::from_secs(5);
/// Bounds [`Host::shutdown`] after the drain, however slow servers are.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(6_500);

/// Longest accepted duration: a longer one is a mistake and would overflow a clock.
const MAX_DURATION: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// Outcome of a spawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpawnOutcome {
    /// The name was free.
    New,
    /// The name had another spec, which this one has replaced.
    Replaced,
    /// The name already has this spec; nothing was done.
    Unchanged,
}

/// Proof that a server must give before it is registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StartCheck {
    None,
    /// A successful start.
    Required,
}

impl Host {
    /// Registers a server. One that is not lazy is connected first; if that fails, nothing is registered. Another spec
    /// under a known name replaces it: the new server is prepared, then swapped in, then the old one finishes its calls
    /// and ends.
    pub async fn spawn(&self, caller: &Caller, spec: ServerSpec) -> Result<SpawnOutcome, CallError> {
        let connector = self.connector_of(&spec)?;
        self.spawn_with(caller, spec, connector).await
    }

    /// Registers a server without waiting for it. One that is not lazy starts at once. A failed start is supervised
    /// like any other: it is retried, and the status gives the cause.
    pub async fn register(&self, caller: &Caller, spec: ServerSpec) -> Result<SpawnOutcome, CallError> {
        let connector = self.connector_of(&spec)?;
        self.register_checked(caller, spec, connector, StartCheck::None).await
    }

    /// Registers a server that is reached by the embedder's own connector.
    pub async fn spawn_with(
        &self,
        caller: &Caller,
        spec: ServerSpec,
        connector: Arc<dyn Connector>,
    ) -> Result<SpawnOutcome, CallError> {
        let proof = if spec.lazy { StartCheck::None } else { StartCheck::Required };
        self.register_checked(caller, spec, connector, proof).await
    }

    async fn register_checked(
        &self,
        caller: &Caller,
        spec: ServerSpec,
        connector: Arc<dyn Connector>,
        proof: StartCheck,
    ) -> Result<SpawnOutcome, CallError> {
        if !self.current().may_see(caller, &spec.name) {
            return Err(self.unknown_server(Some(caller), spec.name.as_str()));
        }
        validate_spec(&spec)?;
        let _turn = self.inner().registry.server_locks.lock(&spec.name).await;
        let before = self.current().server(spec.name.as_str()).cloned();
        if before.as_ref().is_some_and(|server| server.spec.fingerprint() == spec.fingerprint()) {
            return Ok(SpawnOutcome::Unchanged);
        }
        if before.is_some_and(|server| server.spec.has_same_process(&spec)) {
            let mut changes = Vec::new();
            self.change(|current| changes = current.set_call_settings(std::iter::once(&spec)));
            changes.into_iter().for_each(|change| self.on_call_settings_changed(change));
            self.report_operator_action(spec.name.as_str(), OperatorAction::Replace, Some(caller));
            return Ok(SpawnOutcome::Replaced);
        }
        let server = self.prepare(spec, connector);
        let prepared = PreparedServer::new(&server);
        if proof == StartCheck::Required {
            start_and_wait(&server.slot(caller)?).await?;
        }
        let (before, _) = self.change_servers(|servers| {
            servers.insert(server.spec.name.clone(), Arc::clone(&server));
        });
        let old = before.server(server.spec.name.as_str()).inspect(|old| self.retire(old));
        // Read after registering: a later shutdown finds the server.
        if self.inner().registry.slots.is_closed() {
            self.change_servers(|servers| {
                servers.remove(&server.spec.name);
            });
            return Err(shutting_down(server.spec.name.clone()));
        }
        prepared.keep();
        let (act, spawned) = match old {
            Some(_) => (OperatorAction::Replace, SpawnOutcome::Replaced),
            None => (OperatorAction::Register, SpawnOutcome::New),
        };
        self.report_operator_action(server.spec.name.as_str(), act, Some(caller));
        Ok(spawned)
    }

    /// Drains a server, ends it and waits until nothing of it is left. Calls fail as stopped until it is
    /// [started](Self::start) again.
    pub async fn stop(&self, name: &str) -> Result<(), CallError> {
        let server = self.server(name)?;
        server.stop();
        self.purge(&server);
        self.report_operator_action(name, OperatorAction::Stop, None);
        for slot in server.slots() {
            slot.until_state(|desk| match desk.supervisor.phase() {
                Phase::Draining { .. } => None,
                Phase::Stopped => (!desk.has_remains).then_some(()),
                // Another operation has started it again.
                _ => Some(()),
            })
            .await;
        }
        Ok(())
    }

    /// Starts a stopped or sleeping server. Fails if the start fails.
    pub async fn start(&self, name: &str) -> Result<(), CallError> {
        let server = self.server(name)?;
        server.resume();
        self.report_operator_action(name, OperatorAction::Start, None);
        wait_until_all_started(&server).await
    }

    /// Restarts the session and clears budget, breaker, ejection and cached answers. Calls in flight finish on the old
    /// session.
    pub async fn reload(&self, name: &str) -> Result<(), CallError> {
        let server = self.server(name)?;
        server.reload();
        self.purge(&server);
        self.report_operator_action(name, OperatorAction::Reload, None);
        wait_until_all_started(&server).await?;
        self.refresh_lists(&server).await;
        Ok(())
    }

    /// Refreshes the lists of a server that has just come up, so that a ready server can be listed and called. A list
    /// that fails or is slow does not fail the reload.
    async fn refresh_lists(&self, server: &Server) {
        // Callers that did not find a name look again, even if nothing has changed.
        self.bus().bump_lists_version();
        let operator = Caller::operator();
        let Ok(_in_flight) = self.acquire_in_flight(&operator, RequestClass::Listing) else { return };
        let ask = async {
            for slot in server.slots().iter().filter(|slot| slot.live().is_some()) {
                for kind in Kind::ALL {
                    // A list is fetched again only if a caller has wanted it.
                    if slot.cached_list(kind).is_some() || kind == Kind::Tools {
                        let _ = self.fetch_list(slot, &operator, kind).await;
                    }
                }
            }
        };
        let _ = timeout(RELIST_TIMEOUT, ask).await;
    }

    /// Stops a server and forgets it. Returns when nothing of it is left.
    pub async fn remove(&self, name: &str) -> Result<(), CallError> {
        let server = self.unregister(name).await?;
        for slot in server.slots() {
            slot.until_gone().await;
        }
        Ok(())
    }

    /// Removes a server as [`remove`](Self::remove) does, but returns as soon as the name is free; calls in flight
    /// finish and the server ends in the background.
    pub async fn remove_without_waiting(&self, name: &str) -> Result<(), CallError> {
        self.unregister(name).await.map(drop)
    }

    async fn unregister(&self, name: &str) -> Result<Arc<Server>, CallError> {
        let _turn = self.inner().registry.server_locks.lock(&self.server(name)?.spec.name).await;
        let server = self.server(name)?;
        self.change_servers(|servers| {
            servers.remove(&server.spec.name);
        });
        self.retire(&server);
        self.report_operator_action(name, OperatorAction::Remove, None);
        Ok(server)
    }

    /// Waits while a server that the caller uses is being started, at most for the call timeout. Returns false if it is
    /// not starting, or still is at the timeout. Reports progress to the observer.
    pub(crate) async fn wait_for_start(
        &self,
        caller: &Caller,
        name: &str,
        voice: Option<&SharedCallObserver>,
    ) -> bool {
        let server = self.visible_server(caller, name).ok();
        let Some(server) = server else { return false };
        let Some(slot) = server.existing_slot(caller) else { return false };
        if !slot.is_starting() {
            return false;
        }
        let (mut news, end) =
            (StartProgress::new(&slot, caller, voice), Instant::now() + server.spec.max_call_time);
        let mut started = pin!(slot.until_started());
        while timeout_at(end.min(news.next_at), &mut started).await.is_err() {
            if Instant::now() >= end {
                return false;
            }
            news.notify_if_due(&slot);
        }
        true
    }

    /// Ends the state of an ended client session: the processes of servers with [`Isolation::Session`], after the drain
    /// time of a stop. Nothing is started for the session any more.
    pub fn end_session(&self, caller: &Caller) {
        if caller.session().is_none() {
            return;
        }
        caller.end_session();
        let current = self.current();
        for server in current.servers.values().filter(|server| server.spec.isolation == Isolation::Session) {
            server.end_session(caller);
        }
    }

    /// Ends the state of a caller whose credential has ended: the processes of servers with [`Isolation::Caller`] and
    /// [`Isolation::Session`], after the drain time of a stop, and its private answers and lists. The credential is
    /// marked as ended [before](Caller::end_credential), so that nothing is begun for this caller any more; a later
    /// caller with the same principal finds nothing of it.
    pub fn end_caller(&self, caller: &Caller) {
        let owner = PartitionOwner(caller.principal());
        for server in self.current().servers.values() {
            server.end_caller(owner);
            for slot in server.slots() {
                Kind::ALL.into_iter().for_each(|kind| slot.list_cache(kind).remove_owned(owner));
            }
        }
        self.inner().responses.forget(owner);
        self.remove_persisted_lists(owner);
    }

    /// Keeps a server up until the binding is dropped, starting it if needed.
    pub async fn bind(&self, caller: &Caller, name: &str) -> Result<Binding, CallError> {
        let server = self.visible_server(caller, name)?;
        Binding::acquire(&server.slot(caller)?).await
    }

    /// Ends every server and waits for that, within a bound. Returns whether nothing is left. The host accepts no
    /// servers afterwards.
    pub async fn shutdown(&self) -> bool {
        self.shutdown_within(DRAIN_TIMEOUT).await
    }

    /// Shuts down as [`shutdown`](Self::shutdown) does, with this much time for calls in flight, and at most each
    /// server's `drain`.
    pub async fn shutdown_within(&self, calls: Duration) -> bool {
        let slots = self.inner().registry.slots.close();
        self.change_servers(ServerMap::clear);
        for slot in &slots {
            slot.remove_within(calls);
        }
        let gone = async {
            for slot in slots {
                slot.until_gone().await;
            }
        };
        let is_gone = timeout(calls.saturating_add(SHUTDOWN_TIMEOUT), gone).await.is_ok();
        self.inner().admission.close().await;
        is_gone
    }

    pub(crate) fn server(&self, name: &str) -> Result<Arc<Server>, CallError> {
        self.current().find(None, name).cloned()
    }

    pub(crate) fn connector_of(&self, spec: &ServerSpec) -> Result<Arc<dyn Connector>, CallError> {
        let own = self.options().connector_factory.as_ref().and_then(|connectors| connectors(spec));
        if let Some(connector) = own {
            return Ok(connector);
        }
        match &spec.transport {
            ServerTransport::Stdio(_) => Ok(Arc::new(StdioConnector::new(
                spec,
                self.options().identity.clone(),
                self.inner().launcher.spawner.clone(),
                Arc::clone(&self.inner().telemetry.redactor),
                Arc::clone(&self.inner().launcher.login_path),
                Arc::clone(self.loop_detector()),
            ))),
            ServerTransport::Http(endpoint) => {
                let identity = self.options().identity.clone();
                Ok(Arc::new(HttpConnector::new(
                    spec,
                    endpoint.clone(),
                    identity,
                    Arc::clone(&self.inner().telemetry.redactor),
                    Arc::clone(self.loop_detector()),
                )))
            }
        }
    }

    pub(crate) fn prepare(&self, spec: ServerSpec, connector: Arc<dyn Connector>) -> Arc<Server> {
        let registry = &self.inner().registry;
        let registration = registry.next_registration();
        let spec = Arc::new(spec);
        let (room, ledger) = (Arc::clone(&registry.process_pool), Arc::clone(&registry.slots));
        let (cache, bus) = (self.inner().responses.handle(), Arc::clone(self.bus()));
        // A log level requested of the replaced server still applies.
        let before = self.current().server(spec.name.as_str()).cloned();
        let level = before.as_ref().map(|server| Arc::clone(&server.level)).unwrap_or_default();
        let rank = before.map(|server| server.rank);
        let (slot_level, host) = (Arc::clone(&level), self.downgrade());
        let (slot_spec, slot_connector) = (Arc::clone(&spec), Arc::clone(&connector));
        let chance = Mutex::new(self.fork_rng());
        let last_start = LastGoodStart::new(&spec, self.options().state_dir.as_ref());
        let start_patience = self.options().start_retry;
        let is_started_by_client = self.options().is_started_by_client;
        let furnish = move || SlotDeps {
            spec: Arc::clone(&slot_spec),
            connector: Arc::clone(&slot_connector),
            process_pool: Arc::clone(&room),
            slot_registry: Arc::clone(&ledger),
            cache: Arc::clone(&cache),
            bus: Arc::clone(&bus),
            level: Arc::clone(&slot_level),
            host: host.clone(),
            last_good_start: Arc::clone(&last_start),
            start_retry: start_patience,
            is_started_by_client,
            rng: chance.lock().unwrap_or_else(PoisonError::into_inner).fork(),
        };
        Arc::new(Server::new(
            spec,
            registration,
            ServerDeps { rank, connector, level, make_slot_deps: Arc::new(furnish) },
        ))
    }

    /// Replaces the servers; returns the snapshots before and after.
    fn change_servers(
        &self,
        change: impl FnOnce(&mut ServerMap),
    ) -> (Arc<RegistrySnapshot>, Arc<RegistrySnapshot>) {
        self.change(|current| change(Arc::make_mut(&mut current.servers)))
    }

    /// Replaces the snapshot in force, and notifies listeners of the lists that may have changed: servers have come,
    /// gone or been replaced, or rules or pins have changed.
    pub(crate) fn change(
        &self,
        change: impl FnOnce(&mut RegistrySnapshot),
    ) -> (Arc<RegistrySnapshot>, Arc<RegistrySnapshot>) {
        let (before, after) = self.inner().registry.change(|current| {
            change(current);
            if current.unusable.keys().any(|name| current.servers.contains_key(name)) {
                let servers = Arc::clone(&current.servers);
                Arc::make_mut(&mut current.unusable).retain(|name, _| !servers.contains_key(name));
            }
        });
        if before.has_same_lists(&after) {
            return (before, after);
        }
        self.bus().bump_lists_version();
        let has_other_rules = !before.has_same_policy(&after);
        let is_other = |name: &&ServerName| match (before.servers.get(*name), after.servers.get(*name)) {
            (Some(old), Some(new)) => has_other_rules || !Arc::ptr_eq(old, new),
            _ => true,
        };
        let names = before.servers.keys();
        let added = after.servers.keys().filter(|name| !before.servers.contains_key(*name));
        for name in names.chain(added).filter(is_other) {
            for event in [
                ServerNotification::ToolsChanged,
                ServerNotification::PromptsChanged,
                ServerNotification::ResourcesChanged,
            ] {
                self.bus().publish(HostNotification {
                    server: name.clone(),
                    partition: "".into(),
                    notification: event,
                });
            }
        }
        self.reevaluate_pins(&before, &after);
        (before, after)
    }

    /// Ends a server that was replaced or removed. If no server has its name, nothing of the name is kept.
    pub(crate) fn retire(&self, server: &Arc<Server>) {
        server.remove();
        self.purge(server);
        if self.current().server(server.spec.name.as_str()).is_none() {
            self.cache().remove_server(&server.spec.name);
        }
    }

    pub(crate) fn purge(&self, server: &Server) {
        for slot in server.slots() {
            slot.bump_cache_epoch();
        }
        self.cache().purge_server(&server.spec.name);
    }
}

/// A prepared, unregistered server. Dropping it removes the server, also when the future that prepares it is dropped.
pub(crate) struct PreparedServer(Option<Arc<Server>>);

impl PreparedServer {
    pub(crate) fn new(server: &Arc<Server>) -> Self {
        Self(Some(Arc::clone(server)))
    }

    pub(crate) fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for PreparedServer {
    fn drop(&mut self) {
        if let Some(server) = &self.0 {
            server.remove();
        }
    }
}

/// Refuses a spec that no config file could hold.
pub(crate) fn validate_spec(spec: &ServerSpec) -> Result<(), CallError> {
    let problem = match &spec.transport {
        ServerTransport::Stdio(process) if process.command.is_empty() => Some("`command` must not be empty"),
        _ if spec.max_in_flight == 0 => Some("`max_in_flight` must be at least 1"),
        _ if spec.max_in_flight > tokio::sync::Semaphore::MAX_PERMITS => Some("`max_in_flight` is too large"),
        _ if spec.max_line == 0 => Some("`max_line` must be at least 1 byte"),
        _ if spec.start_timeout.is_zero() || spec.fetch_timeout.is_zero() || spec.call_timeout.is_zero() => {
            Some("`start_timeout`, `fetch_timeout` and `call_timeout` must be above zero")
        }
        _ if spec_durations(spec).into_iter().any(|time| time > MAX_DURATION) => {
            Some("no time may be longer than a century")
        }
        _ => None,
    };
    match problem {
        None => Ok(()),
        Some(problem) => Err(CallError::Invalid {
            what: format!("server `{}`: {problem}", spec.name),
            hint: "correct the spec".into(),
        }),
    }
}

/// Returns every duration in a spec that is added to a clock.
fn spec_durations(spec: &ServerSpec) -> [Duration; 11] {
    let ServerSpec {
        keep_alive,
        start_timeout,
        fetch_timeout,
        call_timeout,
        max_call_time,
        drain,
        restart,
        breaker,
        ..
    } = spec;
    let readmit_after = restart.readmit_after.unwrap_or_default();
    let delays = [restart.window, restart.first_delay, restart.max_delay, readmit_after, breaker.reset];
    let [window, first, longest, readmit, reset] = delays;
    [
        *keep_alive,
        *start_timeout,
        *fetch_timeout,
        *call_timeout,
        *max_call_time,
        *drain,
        window,
        first,
        longest,
        readmit,
        reset,
    ]
}

/// Waits for every session of a server that is being started.
async fn wait_until_all_started(server: &Server) -> Result<(), CallError> {
    for slot in server.slots() {
        wait_until_started(&slot).await?;
    }
    Ok(())
}

/// Starts a session and waits for it.
pub(crate) async fn start_and_wait(slot: &Arc<Slot>) -> Result<(), CallError> {
    slot.update(|desk| desk.supervisor.on_resume());
    wait_until_started(slot).await
}

/// Waits until a start has succeeded or failed once. The wait for a place in the process pool is bounded by the start
/// timeout.
pub(crate) async fn wait_until_started(slot: &Arc<Slot>) -> Result<(), CallError> {
    let _wanted = slot.demand_session(Demand::UntilStartFails);
    loop {
        match timeout(slot.spec.start_limit(), slot.until_state(|desk| start_outcome(slot, desk))).await {
            Ok(outcome) => return outcome,
            Err(_) if slot.is_waiting_for_process() => return Err(slot.not_ready_error()),
            // The start has its own bound.
            Err(_) => {}
        }
    }
}

/// Returns the outcome of a start, if it is over.
fn start_outcome(slot: &Slot, desk: &SlotState) -> Option<Result<(), CallError>> {
    match desk.supervisor.phase() {
        Phase::Idle | Phase::Starting { .. } => None,
        Phase::Ready { .. } => Some(Ok(())),
        Phase::Backoff { .. }
        | Phase::Ejected { .. }
        | Phase::NeedsAuth { .. }
        | Phase::Stopped
        | Phase::Draining { .. } => Some(Err(slot.failed_error(desk))),
    }
}

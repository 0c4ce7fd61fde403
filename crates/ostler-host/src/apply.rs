//! Application of snapshots: the host becomes what a config says.
//!
//! ```text
//! compare ─▶ prepare new servers ─▶ replace the snapshot in force, in one swap ─▶ end removed servers
//!                                     │ servers that need another process keep theirs, with the rights of the snapshot
//!                                     ▼
//!                                   start their successors ─▶ replace each when it is up
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ostler_core::caller::Caller;
use ostler_core::config::{Config, DisabledServer};
use ostler_core::error::CallError;
use ostler_core::pins::{LockFile, PinPolicy};
use ostler_core::policy::Rules;
use ostler_core::server_name::ServerName;
use ostler_core::spec::ServerSpec;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::host::{Host, WeakHost};
use crate::lifecycle::{PreparedServer, start_and_wait, validate_spec};
use crate::lifecycle_event::OperatorAction;
use crate::limits::Limits;
use crate::name_locks::ServerLockGuard;
use crate::pins::unless_off;
use crate::policy::Policy;
use crate::registry::{RegistrySnapshot, UnusableServer};
use crate::server::Server;
use crate::server::slot_lists::shutting_down;

/// Bounds the wait for servers that replace running ones. Everything else has long been in force by then.
const REPLACE_TIMEOUT: Duration = Duration::from_secs(10);

/// Desired state of a host: its servers, and what callers may do with them.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Servers to run. One that the host already has with an equal spec stays as it is, however it is reached.
    pub servers: Vec<ServerSpec>,
    /// Servers that are not run. They have a status, and requests to them get the reason.
    pub disabled: Vec<DisabledServer>,
    /// Rules of roles.
    pub rules: Rules,
    /// Limits of each role's callers. Charged calls stay charged, also to a budget of another size.
    pub limits: Limits,
    /// Approved definitions; absent, every definition is accepted.
    pub pins: Option<PinPolicy>,
}

impl Snapshot {
    /// Reads the servers and roles of a config, and the pins of its lock.
    pub fn from_config(config: &Config, lock: Option<&Arc<LockFile>>) -> Self {
        Self {
            servers: config.servers.clone(),
            disabled: config.disabled.clone(),
            rules: Rules::from_roles(&config.roles),
            limits: Limits::from_config(config),
            pins: PinPolicy::from_config(config, lock),
        }
    }
}

/// Outcome of applying a snapshot. Each of its servers is in one of the lists.
#[derive(Debug, Clone, Default)]
pub struct Applied {
    /// Servers that are new. They start as a registered server does.
    pub added: Vec<ServerName>,
    /// Servers with another spec. Those that need another process for it have replaced their predecessors.
    pub changed: Vec<ServerName>,
    /// Servers that are gone. Calls in flight finish.
    pub removed: Vec<ServerName>,
    /// Servers with an unchanged spec.
    pub unchanged: Vec<ServerName>,
    /// Servers that take long to start. Each replaces its predecessor when it is up; until then the predecessor serves,
    /// with the rights of the new spec.
    pub starting: Vec<ServerName>,
    /// Servers that could not be registered, and why. The predecessor of that name stays: where the new server did not
    /// start, with the rights of the new spec.
    pub failed: Vec<(ServerName, CallError)>,
}

/// Outcome of a start: a server to replace another, or none where it is in place already.
type Replacement = Result<Option<ServerChange>, (ServerName, CallError)>;

/// Replacements that are still starting. Dropping it ends those that have not come up.
struct PendingReplacements {
    host: WeakHost,
    /// Number of their snapshot; a newer snapshot cancels them.
    snapshot: u64,
    starting: JoinSet<Replacement>,
}

impl PendingReplacements {
    /// Starts the replacement of a running server, once changes to that server alone are done.
    fn start(&mut self, host: &Host, spec: &ServerSpec) {
        let (lock, host) = (host.inner().registry.server_locks.lock(&spec.name), host.downgrade());
        let (spec, snapshot) = (spec.clone(), self.snapshot);
        self.starting.spawn(async move {
            let lock = lock.await;
            let prepared = host.upgrade().map(|host| host.prepare_replacement(snapshot, &spec, lock));
            match prepared {
                Some(Ok(Some(change))) => start_replacement(change).await.map(Some),
                Some(Err(error)) => Err((spec.name, error)),
                Some(Ok(None)) | None => Ok(None),
            }
        });
    }

    /// Puts the next replacement that is up in force; returns false if none is left.
    async fn next(&mut self, applied: &mut Applied) -> bool {
        let Some(joined) = self.starting.join_next().await else { return false };
        let Some(host) = self.host.upgrade() else { return false };
        match joined {
            Ok(Ok(change)) => host.replace_late(self.snapshot, change, applied),
            Ok(Err(failed)) => applied.failed.push(failed),
            // The server is reported as missing.
            Err(_) => {}
        }
        true
    }

    async fn run(mut self) {
        let mut applied = Applied::default();
        while self.next(&mut applied).await {
            for (server, error) in applied.failed.drain(..) {
                tracing::warn!(%server, %error, "a changed server did not start; the one before serves with its new rights");
            }
        }
    }
}

/// A server that replaces another, or takes a free name.
struct ServerChange {
    server: Arc<Server>,
    prepared: PreparedServer,
    /// Keeps others from replacing the server meanwhile; absent where nothing is waited for.
    _lock: Option<ServerLockGuard>,
}

impl Host {
    /// Returns the snapshot in force, unusable servers included, to be changed and [applied](Self::apply).
    pub fn snapshot(&self) -> Snapshot {
        let current = self.current();
        let (mut servers, mut disabled) = (Vec::new(), Vec::new());
        servers.extend(current.servers.values().map(|server| ServerSpec::clone(&server.spec)));
        for unusable in current.unusable.values() {
            match unusable {
                UnusableServer::Disabled(it) => disabled.push(it.clone()),
                UnusableServer::Refused(spec, _) => servers.push(spec.clone()),
            }
        }
        Snapshot {
            servers,
            disabled,
            rules: current.policy.rules().clone(),
            limits: Limits::clone(&current.limits),
            pins: current.pins.as_deref().cloned(),
        }
    }

    /// Applies a snapshot: replaces servers, rules, limits, pins and call settings at once, so that every call meets
    /// those of one snapshot. Waits for no start before that.
    ///
    /// A server keeps its process where the new spec [needs no other one](ServerSpec::has_same_process). Otherwise its
    /// predecessor serves, with the rights of the new spec, until the successor is up; if the successor does not start,
    /// the predecessor stays. Returns when all have started or failed, after ten seconds, or when a newer snapshot is
    /// applied. Slower ones follow in the background, unless a newer snapshot is applied before.
    pub async fn apply(&self, wanted: Snapshot) -> Applied {
        self.apply_with(wanted, || ()).await
    }

    /// Applies a snapshot and runs `in_force` as soon as it is in force, before any start is waited for: state that
    /// goes with the rules, such as the roles of credentials, must not be ahead of them.
    pub async fn apply_with(&self, mut wanted: Snapshot, in_force: impl FnOnce() + Send) -> Applied {
        let registry = &self.inner().registry;
        let (mine, mut newer) = registry.next_snapshot();
        let mut applied = Applied::default();
        // In the order of the snapshot: of servers that list one resource, the first owns it.
        let mut names = BTreeSet::new();
        let (specs, twice): (Vec<_>, Vec<_>) =
            std::mem::take(&mut wanted.servers).into_iter().partition(|spec| names.insert(spec.name.clone()));
        applied.failed.extend(twice.into_iter().map(|spec| {
            let what = format!("server `{}` is there twice", spec.name);
            let hint = "give each server a name of its own".to_owned();
            (spec.name, CallError::Invalid { what, hint })
        }));
        let starting = JoinSet::new();
        let mut replacing = PendingReplacements { host: self.downgrade(), snapshot: mine, starting };
        {
            // Released before any start is waited for.
            let _applying = registry.apply_lock.lock().await;
            for spec in self.put_in_force(wanted, &specs, &mut applied) {
                replacing.start(self, spec);
            }
            in_force();
        }
        let until = Instant::now() + REPLACE_TIMEOUT;
        loop {
            tokio::select! {
                biased;
                is_more = replacing.next(&mut applied) => if !is_more { break },
                _ = newer.wait_for(|number| *number != mine) => break,
                () = sleep_until(until) => break,
            }
        }
        applied.classify_rest(&specs, &self.current());
        if !replacing.starting.is_empty() {
            tokio::spawn(async move {
                tokio::select! {
                    _ = newer.wait_for(|number| *number != mine) => {}
                    () = replacing.run() => {}
                }
            });
        }
        applied
    }

    /// Replaces the snapshot in force, then ends the servers that are gone. Returns the specs that need another process
    /// than the running one.
    fn put_in_force<'a>(
        &self,
        wanted: Snapshot,
        specs: &'a [ServerSpec],
        applied: &mut Applied,
    ) -> Vec<&'a ServerSpec> {
        let (mut ready, mut replaced): (Vec<ServerChange>, Vec<&ServerSpec>) = (Vec::new(), Vec::new());
        let mut refused: Vec<(&ServerSpec, CallError)> = Vec::new();
        let current = Arc::clone(&self.current());
        for spec in specs.iter().filter(|spec| !current.has_spec(spec)) {
            let running = current.server(spec.name.as_str());
            if let Err(error) = validate_spec(spec) {
                refused.push((spec, error));
            } else if running.is_some_and(|server| !server.spec.has_same_process(spec) && !spec.lazy) {
                replaced.push(spec);
            } else if running.is_none_or(|server| !server.spec.has_same_process(spec)) {
                match self.prepare_change(spec, None) {
                    Ok(change) => ready.extend(change),
                    Err(error) => refused.push((spec, error)),
                }
            }
        }
        let Snapshot { servers: _, disabled, rules, limits, pins } = wanted;
        let names: BTreeSet<&ServerName> = specs.iter().map(|spec| &spec.name).collect();
        let mut removed: Vec<Arc<Server>> = Vec::new();
        let mut changed: Vec<CallSettingsChange> = Vec::new();
        let (before, _) = self.change(|current| {
            let is_gone = |server: &&Arc<Server>| !names.contains(&server.spec.name);
            removed.extend(current.servers.values().filter(is_gone).cloned());
            if !(ready.is_empty() && removed.is_empty()) {
                let servers = Arc::make_mut(&mut current.servers);
                removed.iter().for_each(|server| drop(servers.remove(&server.spec.name)));
                servers.extend(ready.iter().map(|it| (it.server.spec.name.clone(), Arc::clone(&it.server))));
            }
            let is_refused = |spec: &ServerSpec| refused.iter().any(|(refused, _)| refused.name == spec.name);
            changed = current.set_call_settings(specs.iter().filter(|spec| !is_refused(spec)));
            current.set_rules(rules, limits, pins);
            let refused =
                refused.iter().map(|(spec, error)| UnusableServer::Refused((*spec).clone(), error.clone()));
            let unusable = refused.chain(disabled.into_iter().map(UnusableServer::Disabled));
            current.unusable = Arc::new(unusable.map(|it| (it.spec().name.clone(), it)).collect());
        });
        applied.failed.extend(refused.into_iter().map(|(spec, error)| (spec.name.clone(), error)));
        for server in removed {
            self.retire(&server);
            self.report_operator_action(server.spec.name.as_str(), OperatorAction::Remove, None);
            applied.removed.push(server.spec.name.clone());
        }
        for change in changed {
            let name = change.after.spec.name.clone();
            self.on_call_settings_changed(change);
            if !replaced.iter().any(|spec| spec.name == name) {
                self.report_operator_action(
                    name.as_str(),
                    OperatorAction::Replace,
                    Some(&Caller::operator()),
                );
                applied.changed.push(name);
            }
        }
        self.retire_replaced(&before, ready, applied);
        replaced
    }

    /// Replaces a server with its successor, unless a newer snapshot than the successor's is applied.
    fn replace_late(&self, snapshot: u64, change: Option<ServerChange>, applied: &mut Applied) {
        let Some(change) = change else { return };
        let mut is_late = false;
        let (before, _) = self.change(|current| {
            is_late = !self.inner().registry.is_newest(snapshot);
            if !is_late {
                let server = Arc::clone(&change.server);
                Arc::make_mut(&mut current.servers).insert(server.spec.name.clone(), server);
            }
        });
        if !is_late {
            self.retire_replaced(&before, vec![change], applied);
        }
    }

    /// Ends the servers that were replaced.
    fn retire_replaced(&self, before: &RegistrySnapshot, changes: Vec<ServerChange>, applied: &mut Applied) {
        let operator = Caller::operator();
        // Read after the change: a later shutdown finds the servers.
        let is_closed = self.inner().registry.slots.is_closed();
        if is_closed {
            self.change(|current| current.servers = Arc::default());
        }
        for ServerChange { server, prepared, _lock } in changes {
            let name = server.spec.name.clone();
            let before = before.server(name.as_str()).inspect(|before| self.retire(before));
            if is_closed {
                applied.failed.push((name.clone(), shutting_down(name)));
                continue;
            }
            prepared.keep();
            let (act, list) = match before {
                Some(_) => (OperatorAction::Replace, &mut applied.changed),
                None => (OperatorAction::Register, &mut applied.added),
            };
            list.push(name);
            self.report_operator_action(server.spec.name.as_str(), act, Some(&operator));
        }
    }

    /// Prepares a server that differs from the current one; `None` if an equal one is there.
    fn prepare_change(
        &self,
        spec: &ServerSpec,
        lock: Option<ServerLockGuard>,
    ) -> Result<Option<ServerChange>, CallError> {
        if self.current().has_spec(spec) {
            return Ok(None);
        }
        let server = self.prepare(spec.clone(), self.connector_of(spec)?);
        let prepared = PreparedServer::new(&server);
        Ok(Some(ServerChange { server, prepared, _lock: lock }))
    }

    /// Prepares the successor of a server, unless that is gone or a newer snapshot is applied. Changes that others made
    /// to the server before the lock was free get the rights of the snapshot too.
    fn prepare_replacement(
        &self,
        snapshot: u64,
        spec: &ServerSpec,
        lock: ServerLockGuard,
    ) -> Result<Option<ServerChange>, CallError> {
        let (mut is_there, mut changes) = (false, Vec::new());
        self.change(|current| {
            is_there =
                self.inner().registry.is_newest(snapshot) && current.server(spec.name.as_str()).is_some();
            if is_there {
                changes = current.set_call_settings(std::iter::once(spec));
            }
        });
        changes.into_iter().for_each(|change| self.on_call_settings_changed(change));
        if is_there { self.prepare_change(spec, Some(lock)) } else { Ok(None) }
    }

    /// Forgets what calls of a server revealed under its old call settings.
    pub(crate) fn on_call_settings_changed(&self, change: CallSettingsChange) {
        let CallSettingsChange { before, after } = change;
        self.purge(&after);
        if before.spec.cache_scope != after.spec.cache_scope {
            after.slots().iter().for_each(|slot| slot.forget_lists());
        }
    }
}

/// A server with new call settings that kept its sessions.
pub(crate) struct CallSettingsChange {
    before: Arc<Server>,
    after: Arc<Server>,
}

impl RegistrySnapshot {
    /// Puts the specs' call settings in force at their servers, which keep their sessions. Returns the servers whose
    /// settings changed.
    pub(crate) fn set_call_settings<'a>(
        &mut self,
        specs: impl Iterator<Item = &'a ServerSpec>,
    ) -> Vec<CallSettingsChange> {
        let mut changes = Vec::new();
        for spec in specs {
            let Some(before) = self.server(spec.name.as_str()) else { continue };
            let merged = before.spec.with_call_settings_of(spec);
            if merged != *before.spec {
                let (after, before) = (Arc::new(before.with_spec(merged)), Arc::clone(before));
                changes.push(CallSettingsChange { before, after });
            }
        }
        if !changes.is_empty() {
            let after = changes.iter().map(|it| (it.after.spec.name.clone(), Arc::clone(&it.after)));
            Arc::make_mut(&mut self.servers).extend(after);
        }
        changes
    }

    /// Returns whether a server with an equal spec exists.
    fn has_spec(&self, spec: &ServerSpec) -> bool {
        self.server(spec.name.as_str()).is_some_and(|it| it.spec.fingerprint() == spec.fingerprint())
    }

    /// Sets rules, limits and pins; equal ones keep their value, with the verdicts cached for it.
    fn set_rules(&mut self, rules: Rules, limits: Limits, pins: Option<PinPolicy>) {
        if *self.policy.rules() != rules {
            self.policy = Arc::new(Policy::new(rules));
        }
        self.limits = Arc::new(limits);
        let pins = unless_off(pins);
        if self.pins != pins {
            self.pins = pins;
        }
    }
}

impl Applied {
    /// Classifies the remaining servers: unchanged ones, and those that are still starting.
    fn classify_rest(&mut self, specs: &[ServerSpec], current: &RegistrySnapshot) {
        let is_told = |name: &ServerName| {
            let has_failed = || self.failed.iter().any(|(failed, _)| failed == name);
            self.added.contains(name) || self.changed.contains(name) || has_failed()
        };
        let rest: Vec<&ServerSpec> = specs.iter().filter(|spec| !is_told(&spec.name)).collect();
        for spec in rest {
            let list = if current.has_spec(spec) { &mut self.unchanged } else { &mut self.starting };
            list.push(spec.name.clone());
        }
    }
}

/// Starts a server that is to replace a running one.
async fn start_replacement(change: ServerChange) -> Result<ServerChange, (ServerName, CallError)> {
    let started = match change.server.slot(&Caller::operator()) {
        Ok(slot) => start_and_wait(&slot).await,
        Err(error) => Err(error),
    };
    match started {
        Ok(()) => Ok(change),
        Err(error) => Err((change.server.spec.name.clone(), error)),
    }
}

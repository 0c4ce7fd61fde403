//! Application of snapshots: the host becomes what a config says.
//!
//! ```text
//! compare ─▶ prepare what is new ─▶ replace all that is in force, in one swap ─▶ end what is gone
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

/// The longest wait for servers that replace running ones. By then everything else has long been in force.
const REPLACE_TIMEOUT: Duration = Duration::from_secs(10);

/// What a host is to be: its servers, and what callers may do with them.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The servers. One that a host has already with an equal spec stays as it is, however it is reached.
    pub servers: Vec<ServerSpec>,
    /// Servers that are not run. They have a status, and what is asked of them is told why.
    pub disabled: Vec<DisabledServer>,
    /// What roles may use.
    pub rules: Rules,
    /// How much the callers of each role may use. Calls that were charged stay charged, also to a budget of another size.
    pub limits: Limits,
    /// The approved definitions; without any, every definition is taken as it is.
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

/// What applying a snapshot came to. Each of its servers is in one of the lists.
#[derive(Debug, Clone, Default)]
pub struct Applied {
    /// Servers that were not there before. They start as a server that is registered does.
    pub added: Vec<ServerName>,
    /// Servers with another spec. Those that need another process for it took the place of the ones before.
    pub changed: Vec<ServerName>,
    /// Servers that are gone. Calls in flight finish.
    pub removed: Vec<ServerName>,
    /// Servers that were there with the same spec.
    pub unchanged: Vec<ServerName>,
    /// Servers that take long to start. Each takes the place of the one before when it is up; until then that one serves,
    /// with the rights of the new spec.
    pub starting: Vec<ServerName>,
    /// Servers that could not be taken, and why. What was there before under that name is still there: where the new one
    /// did not start, with the rights of the new spec.
    pub failed: Vec<(ServerName, CallError)>,
}

/// What came of a start: a server to take the place of another, or none where it is there already.
type Replacement = Result<Option<ServerChange>, (ServerName, CallError)>;

/// Servers on their way to take the place of others. Ends what has not come up when it is dropped.
struct PendingReplacements {
    host: WeakHost,
    /// The number of their snapshot; they come too late once there is a newer one.
    snapshot: u64,
    starting: JoinSet<Replacement>,
}

impl PendingReplacements {
    /// Starts a server that is to replace a running one, after whoever changes that one alone now.
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

    /// Puts the next one in force that is up; false if there is none left.
    async fn next(&mut self, applied: &mut Applied) -> bool {
        let Some(joined) = self.starting.join_next().await else { return false };
        let Some(host) = self.host.upgrade() else { return false };
        match joined {
            Ok(Ok(change)) => host.replace_late(self.snapshot, change, applied),
            Ok(Err(failed)) => applied.failed.push(failed),
            // It is told of as one that is not there.
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

/// A server that takes the place of another, or of none.
struct ServerChange {
    server: Arc<Server>,
    prepared: PreparedServer,
    /// Nobody else replaces the server meanwhile; none is needed where nothing is waited for.
    _lock: Option<ServerLockGuard>,
}

impl Host {
    /// Returns what is in force, servers that could not be taken included, to be changed and [applied](Self::apply).
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

    /// Makes the host what a snapshot says: servers, rules, limits, pins and what each spec says about calls are replaced
    /// at once, so that every call meets those of one snapshot. No start is waited for.
    ///
    /// A server keeps its process where the new spec [needs no other one](ServerSpec::has_same_process). Else the one
    /// before serves on, with the rights of the new spec, until its successor is up; if that does not start, it stays.
    /// Returns when all have started or failed, after ten seconds, or when a newer snapshot is applied. Those that take
    /// longer follow by themselves, unless a newer snapshot is applied before.
    pub async fn apply(&self, wanted: Snapshot) -> Applied {
        self.apply_with(wanted, || ()).await
    }

    /// The same, with something done as soon as the snapshot is in force and before anything is waited for: what
    /// goes with the rules, such as the roles of credentials, must not be ahead of them.
    pub async fn apply_with(&self, mut wanted: Snapshot, in_force: impl FnOnce() + Send) -> Applied {
        let registry = &self.inner().registry;
        let (mine, mut newer) = registry.next_snapshot();
        let mut applied = Applied::default();
        // In the order of the snapshot: of servers that list one resource, the first answers for it.
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
            // Not held while anything is waited for.
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

    /// Replaces what is in force by a snapshot, then ends what is gone. Returns the specs that need another process than
    /// the running one.
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

    /// Puts a server in the place of the one before, unless a newer snapshot than its own is applied.
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

    /// Ends the servers that have lost their places to others.
    fn retire_replaced(&self, before: &RegistrySnapshot, changes: Vec<ServerChange>, applied: &mut Applied) {
        let operator = Caller::operator();
        // Asked after the change: a shutdown that comes later finds the servers.
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

    /// Prepares a server that is another one than there is; `None` if there is the same.
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

    /// Prepares the successor of a server, unless that is gone or a newer snapshot is applied. What others have made of
    /// it before the lock was free gets the rights of the snapshot too.
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

    /// Forgets what was found out about calls of a server by other settings.
    pub(crate) fn on_call_settings_changed(&self, change: CallSettingsChange) {
        let CallSettingsChange { before, after } = change;
        self.purge(&after);
        if before.spec.cache_scope != after.spec.cache_scope {
            after.slots().iter().for_each(|slot| slot.forget_lists());
        }
    }
}

/// A server that got other call settings and kept its sessions.
pub(crate) struct CallSettingsChange {
    before: Arc<Server>,
    after: Arc<Server>,
}

impl RegistrySnapshot {
    /// Puts what specs say about calls in force at their servers, which keep their sessions. Returns those to which it is
    /// news.
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

    /// Returns whether there is a server with an equal spec.
    fn has_spec(&self, spec: &ServerSpec) -> bool {
        self.server(spec.name.as_str()).is_some_and(|it| it.spec.fingerprint() == spec.fingerprint())
    }

    /// Takes rules, limits and pins; what is equal stays the same value, with the verdicts that were found by it.
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
    /// Tells of the servers that nothing was told of yet: those that are as before, and those that are still starting.
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

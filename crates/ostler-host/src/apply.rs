//! Application of snapshots: the host becomes what a config says, in one replacement of all that is in force.
//!
//! ```text
//! compare ─▶ prepare what is new ─▶ start what replaces a running server ─▶ replace ─▶ end what is gone
//!                                     │ after PREPARE: those still starting replace theirs when they are up
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

/// The longest wait for servers that replace running ones before everything else is put in force: rules that take
/// something away must not wait for a download.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(10);

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
    /// Servers that took the place of another of their name.
    pub changed: Vec<ServerName>,
    /// Servers that are gone. Calls in flight finish.
    pub removed: Vec<ServerName>,
    /// Servers that were there with the same spec.
    pub unchanged: Vec<ServerName>,
    /// Servers that take long to start. Each takes the place of the one before when it is up.
    pub starting: Vec<ServerName>,
    /// Servers that could not be taken, and why. What was there before under that name is still there.
    pub failed: Vec<(ServerName, CallError)>,
}

/// Servers that were not waited for, on their way to take the place of others. Ends what has not come up when it is
/// dropped.
struct PendingReplacements {
    host: WeakHost,
    /// The number of their snapshot; they come too late once there is a newer one.
    snapshot: u64,
    starting: JoinSet<Result<ServerChange, (ServerName, CallError)>>,
    /// Nobody else changes these servers meanwhile.
    _locks: Vec<ServerLockGuard>,
}

impl PendingReplacements {
    async fn run(mut self) {
        while let Some(joined) = self.starting.join_next().await {
            let Some(host) = self.host.upgrade() else { return };
            let (mut applied, mut ready) = (Applied::default(), Vec::new());
            applied.record_start(joined, &mut ready);
            host.commit(ready, SnapshotPart::Late(self.snapshot), &mut applied);
            for (server, error) in applied.failed {
                tracing::warn!(%server, %error, "a changed server did not start, so the one before stays");
            }
        }
    }
}

/// What is put in force of a snapshot.
enum SnapshotPart<'a> {
    /// All but the servers that are still starting, and the specs of all.
    Snapshot { removed: BTreeSet<ServerName>, callers: Box<Snapshot>, specs: &'a [ServerSpec] },
    /// Servers of the snapshot of that number which were not waited for.
    Late(u64),
}

/// A server that takes the place of another, or of none.
struct ServerChange {
    server: Arc<Server>,
    before: Option<Arc<Server>>,
    prepared: PreparedServer,
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

    /// Makes the host what a snapshot says: servers, rules, limits and pins are replaced at once, so that every call
    /// meets those of one snapshot.
    ///
    /// A server that replaces a running one is started first; if that fails, the one before stays. One that takes
    /// longer than ten seconds replaces it when it is up, unless a newer snapshot is applied before; the rest does not
    /// wait for it.
    pub async fn apply(&self, wanted: Snapshot) -> Applied {
        self.apply_with(wanted, || ()).await
    }

    /// The same, with something done as soon as the snapshot is in force and before anything else is waited for: what
    /// goes with the rules, such as the roles of credentials, must not be ahead of them.
    pub async fn apply_with(&self, mut wanted: Snapshot, in_force: impl FnOnce() + Send) -> Applied {
        let registry = &self.inner().registry;
        let (mine, mut newer) = registry.next_snapshot();
        let _applying = registry.apply_lock.lock().await;
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
        // Held by whoever changes one of these servers alone; what such a change has made of it is seen below.
        let mut turns = Vec::new();
        let touched = self.current().difference(&specs, &names);
        for name in &touched {
            turns.push(registry.server_locks.lock(name).await);
        }
        let mut ready: Vec<ServerChange> = Vec::new();
        let mut starting: JoinSet<Result<ServerChange, (ServerName, CallError)>> = JoinSet::new();
        for spec in specs.iter().filter(|spec| touched.contains(&spec.name)) {
            match self.prepare_change(spec) {
                Ok(Some(change)) if spec.lazy || change.before.is_none() => ready.push(change),
                Ok(Some(change)) => {
                    starting.spawn(start_replacement(change));
                }
                Ok(None) => {}
                Err(error) => applied.failed.push((spec.name.clone(), error)),
            }
        }
        let until = Instant::now() + PREPARE_TIMEOUT;
        while !starting.is_empty() {
            tokio::select! {
                biased;
                Some(joined) = starting.join_next() => applied.record_start(joined, &mut ready),
                _ = newer.wait_for(|number| *number != mine) => break,
                () = sleep_until(until) => break,
            }
        }
        let removed: BTreeSet<ServerName> =
            touched.iter().filter(|name| !names.contains(*name)).cloned().collect();
        self.commit(
            ready,
            SnapshotPart::Snapshot { removed, callers: Box::new(wanted), specs: &specs },
            &mut applied,
        );
        in_force();
        applied.classify_rest(&specs, &self.current());
        if !starting.is_empty() {
            let replacing =
                PendingReplacements { host: self.downgrade(), snapshot: mine, starting, _locks: turns };
            tokio::spawn(async move {
                tokio::select! {
                    _ = newer.wait_for(|number| *number != mine) => {}
                    () = replacing.run() => {}
                }
            });
        }
        applied
    }

    /// Prepares a server that is another one than there is; `None` if there is the same.
    fn prepare_change(&self, spec: &ServerSpec) -> Result<Option<ServerChange>, CallError> {
        let current = self.current();
        if current.has_spec(spec) {
            return Ok(None);
        }
        let before = current.server(spec.name.as_str()).cloned();
        validate_spec(spec)?;
        let server = self.prepare(spec.clone(), self.connector_of(spec)?);
        let prepared = PreparedServer::new(&server);
        Ok(Some(ServerChange { server, before, prepared }))
    }

    /// Replaces what is in force, then ends what has lost its place.
    fn commit(&self, ready: Vec<ServerChange>, part: SnapshotPart<'_>, applied: &mut Applied) {
        let registry = &self.inner().registry;
        let (removed, callers, snapshot) = match part {
            SnapshotPart::Late(_) if ready.is_empty() => return,
            SnapshotPart::Late(snapshot) => (BTreeSet::new(), None, Some(snapshot)),
            SnapshotPart::Snapshot { removed, callers, specs } => (removed, Some((callers, specs)), None),
        };
        let mut is_late = false;
        let (before, _) = self.change(|current| {
            is_late = snapshot.is_some_and(|snapshot| !registry.is_newest(snapshot));
            if is_late {
                return;
            }
            if !(ready.is_empty() && removed.is_empty()) {
                let servers = Arc::make_mut(&mut current.servers);
                servers.retain(|name, _| !removed.contains(name));
                servers.extend(ready.iter().map(|it| (it.server.spec.name.clone(), Arc::clone(&it.server))));
            }
            if let Some((callers, specs)) = callers {
                let Snapshot { servers: _, disabled, rules, limits, pins } = *callers;
                current.set_rules(rules, limits, pins);
                let failed = applied.failed.iter().filter_map(|(name, error)| {
                    let spec = specs.iter().find(|spec| spec.name == *name)?;
                    Some(UnusableServer::Refused(spec.clone(), error.clone()))
                });
                let unusable = failed.chain(disabled.into_iter().map(UnusableServer::Disabled));
                current.unusable = Arc::new(unusable.map(|it| (it.spec().name.clone(), it)).collect());
            }
        });
        if is_late {
            return;
        }
        for server in removed.iter().filter_map(|name| before.server(name.as_str())) {
            self.retire(server);
            self.report_operator_action(server.spec.name.as_str(), OperatorAction::Remove, None);
            applied.removed.push(server.spec.name.clone());
        }
        let operator = Caller::operator();
        // Asked after the change: a shutdown that comes later finds the servers.
        let is_closed = registry.slots.is_closed();
        if is_closed {
            self.change(|current| current.servers = Arc::default());
        }
        for ServerChange { server, before, prepared } in ready {
            let name = server.spec.name.clone();
            if let Some(before) = &before {
                self.retire(before);
            }
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
}

impl RegistrySnapshot {
    /// Returns the names of servers that are others in a config, or that only one of both has.
    fn difference(&self, specs: &[ServerSpec], names: &BTreeSet<ServerName>) -> BTreeSet<ServerName> {
        let others = specs.iter().filter(|spec| !self.has_spec(spec)).map(|spec| &spec.name);
        let gone = self.servers.keys().filter(|name| !names.contains(*name));
        others.chain(gone).cloned().collect()
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

    /// Notes the end of a start.
    fn record_start(
        &mut self,
        joined: Result<Result<ServerChange, (ServerName, CallError)>, tokio::task::JoinError>,
        ready: &mut Vec<ServerChange>,
    ) {
        match joined {
            Ok(Ok(change)) => ready.push(change),
            Ok(Err(failed)) => self.failed.push(failed),
            // It is told of as one that is not there.
            Err(_) => {}
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

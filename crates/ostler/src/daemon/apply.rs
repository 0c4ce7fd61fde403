//! Application of the config to the host: at the start, and after an edit.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use ostler_core::config::{Plan, Problem};
use ostler_core::error::CallError;
use ostler_core::server_name::ServerName;
use ostler_core::shell::quote;
use ostler_host::{Applied, Snapshot};
use tokio::sync::MutexGuard;

use super::Daemon;
use crate::api::{ErrorBody, LockChange, Reload, ReloadOutcome, ServerError};
use crate::audit::AuditedAction;
use crate::config_file::{self, LoadedConfig};
use crate::output::{Tint, print_stderr};
use crate::trust::{self, TrustState};

/// Cause of a reload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReloadCause {
    /// A request with the admin token.
    Operator,
    /// A change of one of its files.
    File,
    /// SIGHUP, which any process of the same user can send.
    Signal,
}

impl Daemon {
    /// Registers every server of the config. Eager servers start in the background: a failed start is reported, and
    /// delays no other server.
    pub(super) async fn apply_initial(self: &Arc<Self>) {
        let turn = self.config_state.apply_mutex.lock().await;
        for (_, error) in self.apply_config(turn).await {
            print_stderr(&error.render());
        }
    }

    /// Reloads the config and applies what has changed. A refused config changes nothing. Only an operator's request
    /// takes up the lock file.
    pub(super) async fn reload(self: &Arc<Self>, by: ReloadCause) -> Reload {
        let turn = self.config_state.apply_mutex.lock().await;
        let number = self.config_state.next_reload();
        let Some(file) = self.config_state.file.clone() else {
            let why = "there is no config file; the built-in server is used".to_owned();
            let hint = Some("write an ostler.toml; then `ostler down` and `ostler serve`".to_owned());
            // No file has changed, so there is no refused change to report.
            return Reload::now(ReloadOutcome::Unreadable { why, hint });
        };
        let listens = self.config_state.listens;
        let known_lock = match by {
            ReloadCause::Operator => None,
            ReloadCause::File | ReloadCause::Signal => self.config_state.known_lock(),
        };
        let read = move || config_file::read_with_listen(file, listens, known_lock.as_ref());
        let read = tokio::task::spawn_blocking(read).await;
        let reading = match read {
            Ok(Ok(reading)) => reading,
            Ok(Err(failure)) => return self.finish_unreadable(number, failure.to_string()),
            Err(error) => return self.finish_unreadable(number, error.to_string()),
        };
        let LoadedConfig { file, config, problems, stamps, lock_file: locked } = reading;
        self.config_state.set_stamps(stamps);
        let lock = match by {
            ReloadCause::Operator => self.apply_lock(locked),
            ReloadCause::File | ReloadCause::Signal => {
                self.ignore_lock(locked);
                LockChange::Unchanged
            }
        };
        match lock {
            LockChange::TakenUp => self.audit_config("pins-reloaded", "the lock file was taken up"),
            LockChange::Gone => {
                self.audit_config("pins-reloaded", "the lock file is gone; nothing is pinned")
            }
            LockChange::Unchanged | LockChange::Unusable => {}
        }
        match config {
            Some(config)
                if trust::trust_state(self.config_state.origin, &file, &config) != TrustState::Trusted =>
            {
                self.apply_config(turn).await;
                self.finish_untrusted(number, file)
            }
            Some(config) => {
                let mut hosted = self.host.snapshot().servers;
                hosted.retain(|spec| self.host.unusable_reason(spec.name.as_str()).is_none());
                let plan = Plan::new(&hosted, &self.config_state.startup_config, &config);
                let plan = self
                    .config_state
                    .with_config(|before, _, _| plan.with_roles(&before.roles, &config.roles));
                let snapshot = self.config_state.snapshot(Some(&config));
                let in_force = || {
                    self.authenticator.set_roles(&config);
                    self.config_state.set_config(config, problems);
                    plan.removed.iter().for_each(|server| self.config_state.remove_server(server));
                    // The next edit does not wait for starts.
                    drop(turn);
                };
                let failed = self.apply(snapshot, in_force).await.into_iter();
                let failed =
                    failed.map(|(server, error)| ServerError { server, error: ErrorBody::from(&error) });
                self.finish_applied(number, plan, failed.collect(), lock)
            }
            None => {
                self.apply_config(turn).await;
                self.finish_broken(number, problems)
            }
        }
    }

    /// Applies the adopted config and lock to the host, servers that are still starting included. Returns the servers
    /// that the host refused. The next change may begin as soon as this one is in force.
    pub(super) async fn apply_config(
        self: &Arc<Self>,
        turn: MutexGuard<'_, ()>,
    ) -> Vec<(ServerName, CallError)> {
        let snapshot = self.config_state.snapshot(None);
        self.apply(snapshot, || drop(turn)).await
    }

    /// Applies a snapshot, and calls a function as soon as it is in force. Returns the servers that the host refused.
    async fn apply(
        self: &Arc<Self>,
        snapshot: Snapshot,
        in_force: impl FnOnce() + Send,
    ) -> Vec<(ServerName, CallError)> {
        let lazy: HashSet<ServerName> =
            snapshot.servers.iter().filter(|spec| spec.lazy).map(|spec| spec.name.clone()).collect();
        let Applied { added, failed, starting, .. } = self.host.apply_with(snapshot, in_force).await;
        for server in starting {
            self.console.write_line(
                Tint::Plain,
                &format!("`{server}` takes long to start; the one before serves until it is up, with its new rights"),
            );
        }
        for server in added.into_iter().filter(|server| !lazy.contains(server)) {
            self.watch_start(server);
        }
        failed
    }

    /// Waits for the first start of a server. Of servers that start together, the last one reports all.
    fn watch_start(self: &Arc<Self>, server: ServerName) {
        self.config_state.add_pending_start(&server);
        let daemon = Arc::clone(self);
        tokio::spawn(async move {
            let failure = daemon.host.bind(&daemon.operator, server.as_str()).await.err();
            if let Some(all) = daemon.config_state.finish_start(&server, failure) {
                daemon.console.print_eager_starts(&all);
            }
        });
    }

    fn finish_applied(&self, number: u64, plan: Plan, failed: Vec<ServerError>, lock: LockChange) -> Reload {
        if !plan.is_empty() || !failed.is_empty() {
            self.console.write_line(Tint::Plain, &describe_plan(&plan));
            self.audit_config("config-applied", &describe_plan(&plan));
        } else if self
            .config_state
            .with_config(|_, _, last| last.is_some_and(|last| last.outcome.is_refused()))
        {
            self.console.write_line(
                Tint::Plain,
                "the config can be used again; it is as it was, so nothing was changed",
            );
        }
        for ServerError { server, error } in &failed {
            let cause = error.cause.as_deref().unwrap_or(&error.message);
            self.console.write_line(
                Tint::Plain,
                &format!("error: the changed `{server}` did not start, so the process before serves on, with its new rights\n  cause: {cause}"),
            );
        }
        self.config_state.set_last_reload(number, ReloadOutcome::Applied { plan, failed, lock })
    }

    pub(super) fn audit_config(&self, action: &str, detail: &str) {
        if let Some(audit) = &self.audit {
            audit.record_action(&AuditedAction { action, detail, ..AuditedAction::default() });
        }
    }

    /// Returns whether the last change had the same outcome and was reported already: an edit applies by itself, and
    /// often a command applies it as well.
    fn is_last_outcome(&self, is_same: impl FnOnce(&ReloadOutcome) -> bool) -> bool {
        self.config_state.with_config(|_, _, last| last.is_some_and(|last| is_same(&last.outcome)))
    }

    fn finish_broken(&self, number: u64, problems: Vec<Problem>) -> Reload {
        let is_same = |last: &ReloadOutcome| matches!(last, ReloadOutcome::Broken { problems: known } if *known == problems);
        if !self.is_last_outcome(is_same) {
            for problem in &problems {
                self.console.write_line(Tint::Plain, &config_file::render_problem(problem));
            }
            self.console
                .write_line(Tint::Plain, "the config can't be used as it is now, so nothing was changed");
        }
        self.audit_config("config-refused", "it has errors");
        self.config_state.set_last_reload(number, ReloadOutcome::Broken { problems })
    }

    fn finish_untrusted(&self, number: u64, file: PathBuf) -> Reload {
        self.console.write_line(Tint::Plain, &format!(
            "{} has changed what it runs or contacts, so nothing was changed\n  hint: read it; then consent with `ostler trust {}`",
            file.display(),
            quote(&file.parent().unwrap_or(&file).display().to_string()),
        ));
        self.audit_config("config-refused", "it is not trusted");
        self.config_state.set_last_reload(number, ReloadOutcome::Untrusted { file })
    }

    fn finish_unreadable(&self, number: u64, why: String) -> Reload {
        let is_same = |last: &ReloadOutcome| matches!(last, ReloadOutcome::Unreadable { why: known, .. } if *known == why);
        if !self.is_last_outcome(is_same) {
            self.console.write_line(Tint::Plain, &format!("error: {why}, so nothing was changed"));
        }
        self.config_state.set_last_reload(number, ReloadOutcome::Unreadable { why, hint: None })
    }
}

/// `config applied: added a; removed b, c; 3 untouched`
fn describe_plan(plan: &Plan) -> String {
    let Plan { added, changed, removed, untouched, roles, needs_restart } = plan;
    let mut parts = Vec::new();
    if !roles.is_empty() {
        parts.push(format!("roles {}", roles.join(", ")));
    }
    for (word, servers) in [("added", added), ("changed", changed), ("removed", removed)] {
        if !servers.is_empty() {
            let names: Vec<&str> = servers.iter().map(ServerName::as_str).collect();
            parts.push(format!("{word} {}", names.join(", ")));
        }
    }
    // Of unchanged servers the number is enough.
    if !untouched.is_empty() {
        parts.push(format!("{} untouched", untouched.len()));
    }
    let mut text = format!("config applied: {}", parts.join("; "));
    if !needs_restart.is_empty() {
        let keys: Vec<String> = needs_restart.iter().map(|key| format!("`{key}`")).collect();
        text.push_str(&format!(
            "\n  hint: {} is read at the start only; restart the daemon",
            keys.join(", ")
        ));
    }
    text
}

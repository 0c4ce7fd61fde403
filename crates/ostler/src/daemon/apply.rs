//! Making the host what a config says: at the start, and after an edit.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use ostler_core::config::{Plan, Problem};
use ostler_core::error::CallError;
use ostler_core::name::ServerName;
use ostler_core::shell::quote;
use ostler_host::{Applied, Snapshot};

use super::Daemon;
use crate::api::{ErrorBody, LockChange, Outcome, Reload, ServerError};
use crate::audit::Note;
use crate::config_file::{self, Reading};
use crate::output::tell;
use crate::trust::{self, Standing};

/// What has a config read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// A request with the admin token.
    Operator,
    /// A change of one of its files.
    File,
    /// SIGHUP, which any process of the same user can send.
    Signal,
}

impl Daemon {
    /// Hosts every server of the config. Those that should be up are started
    /// in the background: one that fails is said to, and keeps nobody waiting.
    pub(super) async fn host_all(self: &Arc<Self>) {
        let _turn = self.roster.turn.lock().await;
        for (_, error) in self.apply_config().await {
            tell(&error.render());
        }
    }

    /// Reads the config again and applies what has changed. A config that
    /// can't be used changes nothing. Only an operator's request takes up the lock file.
    pub(super) async fn reload(self: &Arc<Self>, by: Cause) -> Reload {
        let _turn = self.roster.turn.lock().await;
        let Some(file) = self.roster.file.clone() else {
            let why = "there is no config file; the built-in server is used".to_owned();
            let hint = Some("write an ostler.toml; then `ostler down` and `ostler serve`".to_owned());
            // No file has changed, so there is no change that could have been refused.
            return Reload::now(Outcome::Unreadable { why, hint });
        };
        let listens = self.roster.listens;
        let read = tokio::task::spawn_blocking(move || config_file::read_for(file, listens)).await;
        let reading = match read {
            Ok(Ok(reading)) => reading,
            Ok(Err(failure)) => return self.unread(failure.to_string()),
            Err(error) => return self.unread(error.to_string()),
        };
        let Reading { file, config, problems, stamps, locked } = reading;
        self.roster.note_read(stamps);
        let lock = match by {
            Cause::Operator => self.take_lock(locked),
            Cause::File | Cause::Signal => {
                self.hold_lock(locked);
                LockChange::Unchanged
            }
        };
        match lock {
            LockChange::TakenUp => self.note_config("pins-reloaded", "the lock file was taken up"),
            LockChange::Gone => self.note_config("pins-reloaded", "the lock file is gone; nothing is pinned"),
            LockChange::Unchanged | LockChange::Unusable => {}
        }
        match config {
            Some(config) if trust::standing(self.roster.origin, &file, &config) != Standing::Trusted => {
                self.apply_config().await;
                self.untrusted(file)
            }
            Some(config) => {
                let mut hosted = self.host.snapshot().servers;
                hosted.retain(|spec| self.host.refusal(spec.name.as_str()).is_none());
                let plan = Plan::new(&hosted, &self.roster.started_with, &config);
                let plan =
                    self.roster.with_config(|before, _, _| plan.with_roles(&before.roles, &config.roles));
                let snapshot = self.roster.snapshot(Some(&config));
                let in_force = || {
                    self.keeper.set_roles(&config);
                    self.roster.adopt(config, problems);
                    plan.removed.iter().for_each(|server| self.roster.note_removed(server));
                };
                let failed = self.apply(snapshot, in_force).await.into_iter();
                let failed =
                    failed.map(|(server, error)| ServerError { server, error: ErrorBody::from(&error) });
                self.concluded(plan, failed.collect(), lock)
            }
            None => {
                self.apply_config().await;
                self.broken(problems)
            }
        }
    }

    /// Makes the host what the config that was adopted and the lock that was taken up say, servers that are still starting
    /// included. Returns what it did not take.
    pub(super) async fn apply_config(self: &Arc<Self>) -> Vec<(ServerName, CallError)> {
        let snapshot = self.roster.snapshot(None);
        self.apply(snapshot, || ()).await
    }

    /// Applies a snapshot, and does something as soon as it is in force. Returns what the host did not take.
    async fn apply(
        self: &Arc<Self>,
        snapshot: Snapshot,
        in_force: impl FnOnce() + Send,
    ) -> Vec<(ServerName, CallError)> {
        let lazy: HashSet<ServerName> =
            snapshot.servers.iter().filter(|spec| spec.lazy).map(|spec| spec.name.clone()).collect();
        let Applied { added, failed, starting, .. } = self.host.apply_with(snapshot, in_force).await;
        for server in starting {
            tell(&format!("`{server}` takes long to start; the one before serves until it is up"));
        }
        for server in added.into_iter().filter(|server| !lazy.contains(server)) {
            self.watch_start(server);
        }
        failed
    }

    /// Waits for the first start of a server. Of servers that start together, the last one has told how it went.
    fn watch_start(self: &Arc<Self>, server: ServerName) {
        self.roster.note_starting(&server);
        let daemon = Arc::clone(self);
        tokio::spawn(async move {
            let failure = daemon.host.bind(&daemon.operator, server.as_str()).await.err();
            if let Some(all) = daemon.roster.note_settled(&server, failure) {
                daemon.console.tell_settled(&all);
            }
        });
    }

    fn concluded(&self, plan: Plan, failed: Vec<ServerError>, lock: LockChange) -> Reload {
        if !plan.is_empty() || !failed.is_empty() {
            tell(&describe(&plan));
            self.note_config("config-applied", &describe(&plan));
        } else if self.roster.with_config(|_, _, last| last.is_some_and(|last| last.outcome.is_refused())) {
            tell("the config can be used again; it is as it was, so nothing was changed");
        }
        for ServerError { server, error } in &failed {
            let cause = error.cause.as_deref().unwrap_or(&error.message);
            tell(&format!("error: the change of `{server}` failed, so it stays as it was\n  cause: {cause}"));
        }
        self.roster.conclude(Outcome::Applied { plan, failed, lock })
    }

    pub(super) fn note_config(&self, action: &str, detail: &str) {
        if let Some(audit) = &self.audit {
            audit.note(&Note { action, detail, ..Note::default() });
        }
    }

    fn broken(&self, problems: Vec<Problem>) -> Reload {
        config_file::tell_problems(&problems);
        tell("the config can't be used as it is now, so nothing was changed");
        self.note_config("config-refused", "it has errors");
        self.roster.conclude(Outcome::Broken { problems })
    }

    fn untrusted(&self, file: PathBuf) -> Reload {
        tell(&format!(
            "{} has changed what it runs or contacts, so nothing was changed\n  hint: read it; then consent with `ostler trust {}`",
            file.display(),
            quote(&file.parent().unwrap_or(&file).display().to_string()),
        ));
        self.note_config("config-refused", "it is not trusted");
        self.roster.conclude(Outcome::Untrusted { file })
    }

    fn unread(&self, why: String) -> Reload {
        tell(&format!("error: {why}, so nothing was changed"));
        self.roster.conclude(Outcome::Unreadable { why, hint: None })
    }
}

/// `config applied: added a; removed b, c`
fn describe(plan: &Plan) -> String {
    let Plan { added, changed, removed, untouched, roles, needs_restart } = plan;
    let mut parts = Vec::new();
    if !roles.is_empty() {
        parts.push(format!("roles {}", roles.join(", ")));
    }
    for (word, servers) in
        [("added", added), ("changed", changed), ("removed", removed), ("untouched", untouched)]
    {
        if !servers.is_empty() {
            let names: Vec<&str> = servers.iter().map(ServerName::as_str).collect();
            parts.push(format!("{word} {}", names.join(", ")));
        }
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

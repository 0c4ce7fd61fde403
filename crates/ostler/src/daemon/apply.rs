//! Making the host what a config says: at the start, and after an edit.

use std::path::PathBuf;
use std::sync::Arc;

use ostler_core::config::{Plan, Problem};
use ostler_core::error::CallError;
use ostler_core::name::ServerName;
use ostler_core::policy::Rules;
use ostler_core::shell::quote;
use ostler_core::spec::ServerSpec;
use ostler_host::Limits;
use tokio::task::JoinSet;

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
        for spec in self.roster.specs() {
            if let Err(error) = self.add(&spec).await {
                tell(&error.render());
            }
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
                self.untrusted(file)
            }
            Some(config) => {
                let plan = Plan::new(&self.roster.hosted(), &self.roster.started_with, &config);
                let plan =
                    self.roster.with_config(|before, _, _| plan.with_roles(&before.roles, &config.roles));
                // Before the servers: a new one must not be seen by the old rules.
                self.host.set_rules(Rules::of(&config.roles));
                self.keeper.set_roles(&config);
                self.host.set_limits(Limits::of_config(&config));
                self.roster.adopt(config, problems);
                self.host.set_pins(self.roster.pins());
                let failed = self.carry_out(&plan).await;
                self.concluded(plan, failed, lock)
            }
            None => self.broken(problems),
        }
    }

    /// Does what a plan says; gives what could not be done.
    async fn carry_out(self: &Arc<Self>, plan: &Plan) -> Vec<ServerError> {
        for server in &plan.removed {
            self.roster.note_removed(server);
            // Its name is free afterwards, so that a later edit can bring it back;
            // calls in flight may finish, which others need not wait for. One that
            // the host has refused is not there.
            let _ = self.host.dismiss(server.as_str()).await;
        }
        let specs = self.roster.specs();
        let wanted = |server: &ServerName| specs.iter().find(|spec| spec.name == *server).cloned();
        let mut failed = Vec::new();
        for spec in plan.added.iter().filter_map(wanted) {
            if let Err(error) = self.add(&spec).await {
                failed.push(ServerError { server: spec.name, error: ErrorBody::from(&error) });
            }
        }
        let mut changes = JoinSet::new();
        for spec in plan.changed.iter().filter_map(wanted) {
            let daemon = Arc::clone(self);
            changes.spawn(async move {
                let changed = daemon.change(&spec).await;
                changed.err().map(|error| ServerError { server: spec.name, error: ErrorBody::from(&error) })
            });
        }
        failed.extend(changes.join_all().await.into_iter().flatten());
        failed
    }

    /// Hosts a server that there was none of.
    async fn add(self: &Arc<Self>, spec: &ServerSpec) -> Result<(), CallError> {
        let registered = self.host.register(&self.operator, spec.clone()).await;
        if let Err(error) = registered {
            self.roster.note_refused(&spec.name, error.clone());
            return Err(error);
        }
        self.roster.note_hosted(spec);
        if !spec.lazy {
            self.watch_start(spec.name.clone());
        }
        Ok(())
    }

    /// Puts another server in the place of one. It must prove that it can be
    /// started if it should be up; otherwise the one before it stays.
    async fn change(&self, spec: &ServerSpec) -> Result<(), CallError> {
        self.host.spawn(&self.operator, spec.clone()).await?;
        self.roster.note_hosted(spec);
        Ok(())
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

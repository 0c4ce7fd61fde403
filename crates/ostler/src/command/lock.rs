//! `ostler lock`: pins what servers offer now.

use std::path::PathBuf;

use ostler_core::error::CallError;
use ostler_core::name::ServerName;
use ostler_core::pins::{Difference, Lock};
use serde::Serialize;

use super::tools::Reason;
use crate::cli;
use crate::config_file::shown;
use crate::failure::Failure;
use crate::output::{self, Style, clean, tell};
use crate::pins::desk::{Desk, Offered};
use crate::pins::findings::{Finding, Reviewer};
use crate::pins::show;
use crate::reach;

/// What became of each server. The stable shape of `--json`.
#[derive(Default, Serialize)]
struct Outcome {
    file: PathBuf,
    /// Servers that were not in the lock file.
    added: Vec<Counted>,
    /// Servers whose differences were taken, with `--all`.
    updated: Vec<Counted>,
    /// Servers that are as they were approved.
    unchanged: Vec<ServerName>,
    /// Servers that are not, and were left alone.
    differing: Vec<Differing>,
    /// Servers of the lock file that the config does not have; with `--all` they were taken out.
    dropped: Vec<ServerName>,
    orphaned: Vec<ServerName>,
    /// Tools that can't be pinned, so that they stay refused.
    unfit: Vec<Unfit>,
    /// What a reviewer should look at in what is newly pinned.
    suspicions: Vec<Finding>,
    errors: Vec<Unlisted>,
}

#[derive(Serialize)]
struct Counted {
    server: ServerName,
    tools: usize,
}

#[derive(Serialize)]
struct Differing {
    server: ServerName,
    changed: Vec<String>,
    new: Vec<String>,
    removed: Vec<String>,
    #[serde(skip)]
    words: String,
}

#[derive(Serialize)]
struct Unfit {
    server: ServerName,
    tool: String,
    why: String,
}

#[derive(Serialize)]
struct Unlisted {
    server: ServerName,
    error: Reason,
}

pub(super) fn run(typed: &cli::Lock, shared: &cli::Shared) -> Result<(), Failure> {
    let (desk, way) = Desk::open(shared)?;
    let names = desk.names(&typed.servers)?;
    let before = match desk.locked.clone() {
        Err(broken) if typed.all && typed.servers.is_empty() => {
            tell(&format!("the old lock file can't be used, so a new one is made: {}", clean(&broken.why)));
            None
        }
        locked => locked?,
    };
    reach::run(way, async |reach| {
        let mut lock = before.clone().unwrap_or_default();
        let mut outcome = Outcome { file: desk.file.clone(), ..Outcome::default() };
        let reviewer = Reviewer::default();
        for (server, offered) in desk.ask(reach, &names).await? {
            match offered {
                Ok(offered) => outcome.take(&mut lock, &offered, (&reviewer, typed.all)),
                Err(error) => outcome.miss(server, &error, typed.json),
            }
        }
        outcome.settle_orphans(&desk, &mut lock, typed);
        if before.as_ref() != Some(&lock) {
            let detail = names.iter().map(ServerName::as_str).collect::<Vec<_>>().join(", ");
            desk.write(&lock, reach, ("pins-locked", &detail)).await?;
        }
        match typed.json {
            true => show::print_json(&outcome)?,
            false => outcome.print()?,
        }
        outcome.judge(&desk, &lock)
    })
}

impl Outcome {
    fn take(&mut self, lock: &mut Lock, offered: &Offered, (reviewer, is_all): (&Reviewer, bool)) {
        let server = offered.server.clone();
        let found = offered.differences(lock.servers.get(&server));
        let is_moved = lock.servers.get(&server).is_some_and(|it| it.transport != offered.transport);
        let is_known = lock.servers.contains_key(&server);
        if is_known && found.is_empty() && !is_moved {
            return self.unchanged.push(server);
        }
        if is_known && !is_all {
            return self.differing.push(Differing::new(server, &found));
        }
        // Of a server that is known, what has been looked at before need not be again.
        self.suspicions.extend(match is_known {
            true => reviewer.of_differences(offered, &found, lock),
            false => reviewer.of_everything(offered, lock),
        });
        let (locked, unfit) = offered.approved();
        let counted = Counted { server: server.clone(), tools: locked.tools.len() };
        let list = if is_known { &mut self.updated } else { &mut self.added };
        list.push(counted);
        let twice = "the server lists it more than once".to_owned();
        let repeated = offered.definitions.repeated.iter().map(|tool| (tool.clone(), twice.clone()));
        let unfit = unfit.into_iter().chain(repeated);
        self.unfit.extend(unfit.map(|(tool, why)| Unfit { server: server.clone(), tool, why }));
        lock.servers.insert(server, locked);
    }

    fn miss(&mut self, server: ServerName, error: &CallError, is_json: bool) {
        if !is_json {
            tell(&Failure::Unlisted(error.clone()).render(Style::stderr()));
        }
        self.errors.push(Unlisted { server, error: Reason::from(error) });
    }

    /// Servers that the config does not have any more.
    fn settle_orphans(&mut self, desk: &Desk, lock: &mut Lock, typed: &cli::Lock) {
        let is_orphan = |server: &ServerName| desk.config.server(server.as_str()).is_none();
        let orphans: Vec<ServerName> =
            lock.servers.keys().filter(|server| is_orphan(server)).cloned().collect();
        match typed.all && typed.servers.is_empty() {
            true => {
                lock.servers.retain(|server, _| !is_orphan(server));
                self.dropped = orphans;
            }
            false => self.orphaned = orphans,
        }
    }

    fn print(&self) -> Result<(), Failure> {
        let mut text = String::new();
        for (word, list) in [("added", &self.added), ("updated", &self.updated)] {
            for Counted { server, tools } in list {
                text.push_str(&format!("{word:<10} {server}: {}\n", show::tools(*tools)));
            }
        }
        for server in &self.unchanged {
            text.push_str(&format!("unchanged  {server}\n"));
        }
        for Differing { server, words, .. } in &self.differing {
            text.push_str(&format!("differs    {server}: {words}\n"));
        }
        for server in &self.dropped {
            text.push_str(&format!("dropped    {server}\n"));
        }
        let findings = self.suspicions.iter().map(|it| it.render(Style::stdout()));
        text.extend(findings);
        output::print(&text)?;
        for server in &self.orphaned {
            tell(&format!(
                "`{server}` is in the lock file and not in the config; `ostler lock --all` takes it out"
            ));
        }
        for Unfit { server, tool, why } in &self.unfit {
            tell(&format!("`{}` of `{server}` stays refused: {}", clean(tool), clean(why)));
        }
        Ok(())
    }

    fn judge(&self, desk: &Desk, lock: &Lock) -> Result<(), Failure> {
        let file = shown(&desk.file).display();
        let specs = desk.config.servers.iter();
        let unlocked: Vec<&str> =
            specs.map(|spec| spec.name.as_str()).filter(|name| !lock.servers.contains_key(*name)).collect();
        if !unlocked.is_empty() {
            let names = unlocked.join(", ");
            tell(&format!("not in {file}, so that all their tools are refused: {names}"));
        }
        if !self.differing.is_empty() {
            let names: Vec<&str> = self.differing.iter().map(|it| it.server.as_str()).collect();
            let what = format!("what was approved of {} was left as it is", names.join(", "));
            let first = names.first().copied().unwrap_or_default();
            let hint = format!(
                "`ostler diff {first}` shows what is different, `ostler approve {first}` takes it, and \
                 `ostler lock --all` takes everything as it is now"
            );
            return Err(Failure::Unapproved { what, hint });
        }
        if self.errors.is_empty() { Ok(()) } else { Err(Failure::NoneAnswered(self.errors.len())) }
    }
}

impl Differing {
    fn new(server: ServerName, found: &[Difference]) -> Self {
        let mut differing = Self {
            server,
            changed: Vec::new(),
            new: Vec::new(),
            removed: Vec::new(),
            words: show::counted(found),
        };
        if differing.words.is_empty() {
            differing.words = "it is reached in another way".into();
        }
        for difference in found {
            let list = match difference {
                Difference::Changed { .. } => &mut differing.changed,
                Difference::New { .. } => &mut differing.new,
                Difference::Removed { .. } => &mut differing.removed,
            };
            list.push(difference.tool().to_owned());
        }
        differing
    }
}

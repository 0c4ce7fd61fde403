//! `ostler lock`: pins the current definitions of servers.

use std::path::PathBuf;

use ostler_core::error::CallError;
use ostler_core::pins::{Difference, DifferenceKind, LockFile, LockSection, LockedServer};
use ostler_core::server_name::ServerName;
use serde::Serialize;

use super::tools::list_error_body;
use crate::api::ServerError;
use crate::cli;
use crate::client;
use crate::config_file::relative_to_cwd;
use crate::failure::CommandFailure;
use crate::invocation::command;
use crate::output::{self, Style, escape_line, print_stderr};
use crate::pins::findings::{ReviewFinding, Reviewer};
use crate::pins::lock_context::{LockContext, OfferedDefinitions};
use crate::pins::{diff_output, lock_file};

/// Outcome for each server: the stable shape of `--json`.
#[derive(Default, Serialize)]
struct LockOutput {
    file: PathBuf,
    /// Servers that were not in the lock file, or not with all that is pinned now.
    added: Vec<LockedCount>,
    /// Servers whose differences were pinned, with `--all`.
    updated: Vec<LockedCount>,
    /// Servers that match their pins.
    unchanged: Vec<ServerName>,
    /// Servers that differ, and were left as they are in the lock file.
    differing: Vec<DifferingServer>,
    /// Servers of the lock file that the config does not have; removed with `--all`.
    dropped: Vec<ServerName>,
    orphaned: Vec<ServerName>,
    /// Definitions that can't be pinned, or have alarms, so that they stay refused.
    unfit: Vec<UnpinnableItem>,
    /// Findings to review in newly pinned definitions.
    suspicions: Vec<ReviewFinding>,
    errors: Vec<ServerError>,
}

#[derive(Serialize)]
struct LockedCount {
    server: ServerName,
    /// Number of pinned definitions.
    definitions: usize,
    #[serde(skip)]
    words: String,
}

impl LockedCount {
    fn of(server: &ServerName, sections: &[LockSection]) -> Self {
        let words = diff_output::count_items(sections.iter().copied());
        Self { server: server.clone(), definitions: sections.len(), words }
    }
}

#[derive(Serialize)]
struct DifferingServer {
    server: ServerName,
    changed: Vec<String>,
    new: Vec<String>,
    removed: Vec<String>,
    #[serde(skip)]
    words: String,
}

#[derive(Serialize)]
struct UnpinnableItem {
    server: ServerName,
    /// Name for `ostler approve`.
    name: String,
    why: String,
}

pub(super) fn run(typed: &cli::LockArgs, shared: &cli::GlobalOptions) -> Result<(), CommandFailure> {
    let (desk, way) = LockContext::open(shared)?;
    let names = desk.select_servers(&typed.servers)?;
    let before = match desk.locked.clone() {
        Err(broken) if typed.all && typed.servers.is_empty() => {
            print_stderr(&format!(
                "the old lock file can't be used, so a new one is made: {}",
                escape_line(&broken.why)
            ));
            None
        }
        locked => locked?,
    };
    client::run_with_backend(way, async |reach| {
        let mut lock = before.as_deref().cloned().unwrap_or_default();
        let mut outcome = LockOutput { file: desk.file.clone(), ..LockOutput::default() };
        let reviewer = Reviewer::default();
        for (server, offered) in desk.fetch_definitions(reach, &names).await? {
            match offered {
                Ok(offered) => outcome.lock_server(&mut lock, &offered, (&reviewer, typed)),
                Err(error) => outcome.add_error(server, &error, typed.json),
            }
        }
        outcome.handle_orphans(&desk, &mut lock, typed);
        // An empty lock file would refuse every tool of every server.
        let is_unfounded = before.is_none() && lock.servers.is_empty();
        if before.as_deref() != Some(&lock) && !is_unfounded {
            let detail = names.iter().map(ServerName::as_str).collect::<Vec<_>>().join(", ");
            desk.write_lock(&lock, reach, ("pins-locked", &detail)).await?;
        }
        match typed.json {
            true => diff_output::print_json(&outcome)?,
            false => outcome.print()?,
        }
        if is_unfounded {
            let file = relative_to_cwd(&desk.file).display();
            print_stderr(&format!("nothing could be pinned, so {file} is not written"));
            return outcome.require_listed();
        }
        outcome.require_complete(&desk, &lock)
    })
}

impl LockOutput {
    fn lock_server(
        &mut self,
        lock: &mut LockFile,
        offered: &OfferedDefinitions,
        (reviewer, typed): (&Reviewer, &cli::LockArgs),
    ) {
        let server = offered.server.clone();
        self.lock_missing_sections(lock, offered, (reviewer, typed));
        let found = offered.differences(lock.servers.get(&server));
        let is_moved = lock.servers.get(&server).is_some_and(|it| it.transport != offered.transport);
        let is_known = lock.servers.contains_key(&server);
        if is_known && found.is_empty() && !is_moved {
            if !self.added.iter().any(|added| added.server == server) {
                self.unchanged.push(server);
            }
            return;
        }
        if is_known && !typed.all {
            return self.differing.push(DifferingServer::new(server, &found));
        }
        // For a known server, only differences need a review.
        let findings = match is_known {
            true => reviewer.review_differences(offered, &found, lock),
            false => reviewer.review_all(offered, lock),
        };
        let (mut locked, unfit) = offered.to_locked();
        let before = lock.servers.get(&server);
        self.hold_back_alarming(&findings, (&mut locked, before), typed);
        self.suspicions.extend(findings);
        let sections: Vec<LockSection> = locked.pins().map(|(section, ..)| section).collect();
        let list = if is_known { &mut self.updated } else { &mut self.added };
        list.push(LockedCount::of(&server, &sections));
        let twice = "the server lists it more than once".to_owned();
        let repeated = offered.definitions.repeated.iter();
        let repeated = repeated.map(|(section, name)| (*section, name.clone(), twice.clone()));
        for (section, name, why) in unfit.into_iter().chain(repeated) {
            let name = diff_output::item_name(&server, section, &name);
            self.unfit.push(UnpinnableItem { server: server.clone(), name, why });
        }
        lock.servers.insert(server, locked);
    }

    /// Pins the sections that an older lock does not have.
    fn lock_missing_sections(
        &mut self,
        lock: &mut LockFile,
        offered: &OfferedDefinitions,
        (reviewer, typed): (&Reviewer, &cli::LockArgs),
    ) {
        let server = &offered.server;
        let missing: Vec<LockSection> =
            lock.servers.get(server).map(|locked| locked.unpinned().collect()).unwrap_or_default();
        if missing.is_empty() {
            return;
        }
        let (mut locked, _) = offered.to_locked();
        locked.sections.retain(|section, _| missing.contains(section));
        let mut findings = reviewer.review_all(offered, lock);
        findings.retain(|it| missing.contains(&it.section()));
        self.hold_back_alarming(&findings, (&mut locked, None), typed);
        self.suspicions.extend(findings);
        let sections: Vec<LockSection> = locked.pins().map(|(section, ..)| section).collect();
        self.added.push(LockedCount::of(server, &sections));
        if let Some(known) = lock.servers.get_mut(server) {
            known.sections.extend(locked.sections);
        }
    }

    /// Keeps the approved versions of definitions with alarms, unless the new ones are taken on purpose.
    fn hold_back_alarming(
        &mut self,
        findings: &[ReviewFinding],
        (locked, before): (&mut LockedServer, Option<&LockedServer>),
        typed: &cli::LockArgs,
    ) {
        if typed.alarming {
            return;
        }
        for finding in findings {
            let Some((section, name)) = finding.alarm_item() else { continue };
            let pins = locked.sections.entry(section).or_default();
            let old = before.and_then(|before| before.sections.get(&section)?.get(name));
            let was_taken = pins.remove(name).is_some();
            if let Some(old) = old {
                pins.insert(name.to_owned(), old.clone());
            }
            if was_taken {
                let (diff, approve) = (command("diff"), command("approve --alarming"));
                let why = format!("it has alarms; read it with {diff}, then take it with {approve}");
                let (server, name) = (finding.server().clone(), finding.name());
                if !self.unfit.iter().any(|unfit| unfit.name == name) {
                    self.unfit.push(UnpinnableItem { server, name, why });
                }
            }
        }
    }

    fn add_error(&mut self, server: ServerName, error: &CallError, is_json: bool) {
        if !is_json {
            print_stderr(&CommandFailure::ListFailed(error.clone()).render(Style::stderr()));
        }
        self.errors.push(ServerError { server, error: list_error_body(error) });
    }

    /// Reports servers that the config does not have any more; removes them with `--all`.
    fn handle_orphans(&mut self, desk: &LockContext, lock: &mut LockFile, typed: &cli::LockArgs) {
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

    fn print(&self) -> Result<(), CommandFailure> {
        let mut text = String::new();
        for (word, list) in [("added", &self.added), ("updated", &self.updated)] {
            for LockedCount { server, words, .. } in list {
                text.push_str(&format!("{word:<10} {server}: {words}\n"));
            }
        }
        for server in &self.unchanged {
            text.push_str(&format!("unchanged  {server}\n"));
        }
        for DifferingServer { server, words, .. } in &self.differing {
            text.push_str(&format!("differs    {server}: {words}\n"));
        }
        for server in &self.dropped {
            text.push_str(&format!("dropped    {server}\n"));
        }
        let findings = self.suspicions.iter().map(|it| it.render(Style::stdout()));
        text.extend(findings);
        output::print(&text)?;
        for server in &self.orphaned {
            print_stderr(&format!(
                "`{server}` is in the lock file and not in the config; {} takes it out",
                command("lock --all")
            ));
        }
        for UnpinnableItem { name, why, .. } in &self.unfit {
            print_stderr(&format!("`{}` stays as it was: {}", escape_line(name), escape_line(why)));
        }
        Ok(())
    }

    fn require_complete(&self, desk: &LockContext, lock: &LockFile) -> Result<(), CommandFailure> {
        let file = relative_to_cwd(&desk.file).display().to_string();
        if let Some((what, hint)) = lock_file::describe_unlocked(&desk.config, lock, &file) {
            print_stderr(&format!("warning: {what}\n  hint: {hint}"));
        }
        if !self.differing.is_empty() {
            let names: Vec<&str> = self.differing.iter().map(|it| it.server.as_str()).collect();
            let what = format!("what was approved of {} was left as it is", names.join(", "));
            let first = names.first().copied().unwrap_or_default();
            let hint = format!(
                "{} shows what is different, {} takes it (with `--alarming` if it has alarms), and {} takes everything \
                 as it is now",
                command(&format!("diff {first}")),
                command(&format!("approve {first}")),
                command("lock --all")
            );
            return Err(CommandFailure::Unapproved { what, hint });
        }
        self.require_listed()
    }

    /// Fails if a server could not be listed.
    fn require_listed(&self) -> Result<(), CommandFailure> {
        if self.errors.is_empty() { Ok(()) } else { Err(CommandFailure::NoneAnswered(self.errors.len())) }
    }
}

impl DifferingServer {
    fn new(server: ServerName, found: &[Difference]) -> Self {
        let mut differing = Self {
            server,
            changed: Vec::new(),
            new: Vec::new(),
            removed: Vec::new(),
            words: diff_output::count_differences(found),
        };
        if differing.words.is_empty() {
            differing.words = "it is reached in another way".into();
        }
        for difference in found {
            let list = match difference.kind {
                DifferenceKind::Changed { .. } => &mut differing.changed,
                DifferenceKind::New { .. } => &mut differing.new,
                DifferenceKind::Removed { .. } => &mut differing.removed,
            };
            list.push(match difference.section {
                LockSection::Tools => difference.name.clone(),
                _ => diff_output::item_name(&differing.server, difference.section, &difference.name),
            });
        }
        differing
    }
}

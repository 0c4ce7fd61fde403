//! `ostler approve`: what servers offer now is what is wanted.

use std::collections::BTreeMap;

use ostler_core::catalog::exposed_name;
use ostler_core::error::CallError;
use ostler_core::name::ServerName;
use ostler_core::pins::{Difference, Lock, LockedServer, Pin};
use serde::Serialize;

use crate::cli;
use crate::config_file::shown;
use crate::failure::Failure;
use crate::output::{self, Style, clean, tell};
use crate::pins::desk::{Desk, Offered};
use crate::pins::findings::{Finding, Reviewer};
use crate::pins::show::{self, Shown};
use crate::reach;

/// What is to be approved of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Wish {
    Everything,
    /// By the names that were typed.
    Tools(Vec<String>),
}

/// The stable shape of `--json`.
#[derive(Serialize)]
struct Approval {
    file: std::path::PathBuf,
    approved: Vec<Shown>,
    /// What a reviewer should have looked at.
    suspicions: Vec<Finding>,
    /// Servers whose new way was taken.
    moved: Vec<ServerName>,
}

impl Approval {
    /// `2 tools and the way to `git``
    fn words(&self) -> String {
        let ways: Vec<String> = self.moved.iter().map(|server| format!("the way to `{server}`")).collect();
        let tools =
            Some(show::tools(self.approved.len())).filter(|_| ways.is_empty() || !self.approved.is_empty());
        tools.into_iter().chain(ways).collect::<Vec<_>>().join(" and ")
    }
}

pub(super) fn run(typed: &cli::Approve, shared: &cli::Shared) -> Result<(), Failure> {
    let (desk, way) = Desk::open(shared)?;
    let before = desk.lock()?;
    let wishes = read(&desk, &typed.what)?;
    let names: Vec<ServerName> = wishes.keys().cloned().collect();
    reach::run(way, async |reach| {
        let mut lock = before.clone();
        let file = desk.file.clone();
        let mut approval = Approval { file, approved: Vec::new(), suspicions: Vec::new(), moved: Vec::new() };
        let reviewer = Reviewer::default();
        // Asked once: what is printed is what is written.
        for (server, offered) in desk.ask(reach, &names).await? {
            let offered = offered.map_err(Failure::Unlisted)?;
            let wish = wishes.get(&server).unwrap_or(&Wish::Everything);
            let taken = take(&mut lock, &offered, wish)?;
            if is_moved(&before, &lock, &server) {
                approval.moved.push(server.clone());
            }
            for difference in &taken {
                if !typed.json {
                    output::print(&show::render(&server, difference, Style::stdout()))?;
                }
                let is_repeated = offered.is_repeated(difference.tool());
                approval.approved.push(Shown::new(&server, difference, is_repeated));
            }
            let findings = reviewer.of_differences(&offered, &taken, &lock);
            if !typed.json {
                findings.iter().try_for_each(|it| output::print(&it.render(Style::stdout())))?;
            }
            approval.suspicions.extend(findings);
            for tool in &offered.definitions.repeated {
                tell(&format!("`{server}` lists `{}` more than once, so it stays refused", clean(tool)));
            }
        }
        if typed.json {
            show::print_json(&approval)?;
        }
        if lock == before {
            tell("nothing is left to approve");
            return Ok(());
        }
        desk.write(&lock, reach, ("pins-approved", &typed.what.join(", "))).await?;
        tell(&format!("approved {} in {}", approval.words(), shown(&desk.file).display()));
        Ok(())
    })
}

/// Whether a server that was approved before is reached in another way now.
fn is_moved(before: &Lock, after: &Lock, server: &ServerName) -> bool {
    let (before, after) = (before.servers.get(server), after.servers.get(server));
    before.zip(after).is_some_and(|(before, after)| before.transport != after.transport)
}

/// Whose tools are meant: a server, or tools of one by their exposed names.
fn read(desk: &Desk, typed: &[String]) -> Result<BTreeMap<ServerName, Wish>, Failure> {
    let mut wishes: BTreeMap<ServerName, Wish> = BTreeMap::new();
    for what in typed {
        let names = desk.config.servers.iter().map(|spec| &spec.name);
        let is_owner = |name: &&ServerName| {
            what.strip_prefix(name.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with("__"))
        };
        let Some(server) = names.clone().filter(is_owner).max_by_key(|name| name.as_str().len()) else {
            let meant = what.split_once("__").map_or(what.as_str(), |(server, _)| server);
            return Err(CallError::unknown_server(meant, names.map(ServerName::as_str)).into());
        };
        let wish = wishes.entry(server.clone()).or_insert_with(|| Wish::Tools(Vec::new()));
        match wish {
            _ if what == server.as_str() => *wish = Wish::Everything,
            Wish::Tools(tools) => tools.push(what.clone()),
            Wish::Everything => {}
        }
    }
    Ok(wishes)
}

/// Takes into the lock what is wished for, and nothing else; gives what it was.
fn take(lock: &mut Lock, offered: &Offered, wish: &Wish) -> Result<Vec<Difference>, Failure> {
    let server = &offered.server;
    let mut found = offered.differences(lock.servers.get(server));
    if let Wish::Tools(names) = wish {
        let offered_names = offered.definitions.tools.iter().map(|tool| tool.name.as_str());
        let locked_names = lock.servers.get(server).into_iter().flat_map(|it| it.tools.keys());
        let known: Vec<String> = offered_names
            .chain(locked_names.map(String::as_str))
            .map(|tool| exposed_name(server, tool))
            .collect();
        if let Some(unknown) = names.iter().find(|name| !known.contains(name)) {
            return Err(CallError::unknown_tool(unknown, known.iter().map(String::as_str)).into());
        }
        found.retain(|difference| names.contains(&exposed_name(server, difference.tool())));
    }
    let locked = match lock.servers.get_mut(server) {
        Some(locked) => locked,
        None if found.is_empty() && *wish != Wish::Everything => return Ok(found),
        None => {
            let empty = LockedServer { transport: offered.transport.clone(), tools: BTreeMap::new() };
            lock.servers.entry(server.clone()).or_insert(empty)
        }
    };
    if *wish == Wish::Everything {
        locked.transport.clone_from(&offered.transport);
    }
    for difference in &found {
        match difference {
            Difference::Changed { tool, new, .. } | Difference::New { tool, new } => {
                let pin = Pin::of(new).map_err(|error| Failure::Unapproved {
                    what: format!(
                        "`{}` of `{server}` can't be approved: {}",
                        clean(tool),
                        clean(&error.to_string())
                    ),
                    hint: "the fault is the server's; nothing was written".into(),
                })?;
                locked.tools.insert(tool.clone(), pin);
            }
            Difference::Removed { tool, .. } => {
                locked.tools.remove(tool);
            }
        }
    }
    Ok(found)
}

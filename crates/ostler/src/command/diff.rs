//! `ostler diff`: what is not as it was approved.

use std::collections::BTreeMap;

use ostler_core::name::ServerName;
use ostler_core::pins::{Difference, Lock, hash_of_all};
use serde::Serialize;

use super::tools::error_of_list;
use crate::api::ServerError;
use crate::cli;
use crate::config_file::shown;
use crate::failure::Failure;
use crate::invocation::command;
use crate::output::{self, Style, Tint, clean, tell};
use crate::pins::desk::{Desk, Offered, say_pending};
use crate::pins::findings::{Finding, Reviewer};
use crate::pins::show::{self, Shown, item_name};
use crate::reach;

/// The stable shape of `--json`.
#[derive(Default, Serialize)]
struct Comparison {
    file: std::path::PathBuf,
    /// Definitions that are not as approved.
    tools: Vec<Shown>,
    /// Hashes of all that differs, by server: `ostler approve SERVER@HASH`.
    hashes: BTreeMap<ServerName, String>,
    /// What to look at before approving.
    suspicions: Vec<Finding>,
    /// Servers that are reached in another way than when they were approved.
    moved: Vec<ServerName>,
    /// Items that are as approved and that their server lists more than once, by their exposed names.
    repeated: Vec<String>,
    errors: Vec<ServerError>,
}

pub(super) fn run(typed: &cli::Diff, shared: &cli::Shared) -> Result<(), Failure> {
    let (desk, way) = Desk::open(shared)?;
    let lock = desk.lock()?;
    let names = desk.names(typed.server.as_slice())?;
    reach::run(way, async |reach| {
        say_pending(reach).await?;
        let mut comparison = Comparison { file: desk.file.clone(), ..Comparison::default() };
        let reviewer = Reviewer::default();
        let mut reviewed = desk.reviewed();
        for (server, offered) in desk.ask(reach, &names).await? {
            let offered = match offered {
                Ok(offered) => offered,
                Err(error) => {
                    if !typed.json {
                        tell(&Failure::Unlisted(error.clone()).render(Style::stderr()));
                    }
                    comparison.errors.push(ServerError { server, error: error_of_list(&error) });
                    continue;
                }
            };
            let found = compare(&lock, &offered, &mut comparison);
            reviewed.note(&server, &offered.transport, &found);
            if !found.is_empty() || comparison.moved.contains(&server) {
                let hash = hash_of_all(&offered.transport, &found).short();
                comparison.hashes.insert(server.clone(), hash);
            }
            let findings = reviewer.of_differences(&offered, &found, &lock);
            if !typed.json {
                print(&offered, &found, comparison.moved.contains(&server))?;
                findings.iter().try_for_each(|it| output::print(&it.render(Style::stdout())))?;
            }
            comparison.suspicions.extend(findings);
        }
        if typed.json {
            show::print_json(&comparison)?;
        }
        // After everything has been printed: what was not shown can't be approved.
        if let Err(error) = reviewed.write() {
            tell(&format!("warning: {error}, so that `ostler approve` needs hashes"));
        }
        judge(&comparison, names.len())
    })
}

/// What is to be approved, also of a tool that is as approved and listed twice.
fn compare(lock: &Lock, offered: &Offered, comparison: &mut Comparison) -> Vec<Difference> {
    let locked = lock.servers.get(&offered.server);
    let found = offered.differences(locked);
    let shown = |difference: &Difference| {
        Shown::new(&offered.server, difference, offered.is_repeated(difference.section, &difference.name))
    };
    comparison.tools.extend(found.iter().map(shown));
    let is_shown = |section, name: &str| found.iter().any(|it| it.section == section && it.name == name);
    let repeated = offered.definitions.repeated.iter().filter(|(section, name)| !is_shown(*section, name));
    comparison.repeated.extend(repeated.map(|(section, name)| item_name(&offered.server, *section, name)));
    if locked.is_some_and(|locked| locked.transport != offered.transport) {
        comparison.moved.push(offered.server.clone());
    }
    found
}

fn print(offered: &Offered, found: &[Difference], is_moved: bool) -> Result<(), Failure> {
    let style = Style::stdout();
    for difference in found {
        output::print(&show::render(&offered.server, difference, style))?;
    }
    let server = style.paint(Tint::Heading, offered.server.as_str());
    if is_moved {
        output::print(&format!("{server} is reached in another way than when it was approved\n"))?;
    }
    for (_, name) in &offered.definitions.repeated {
        let line = format!("{server} lists `{}` more than once, so it can't be used\n", clean(name));
        output::print(&line)?;
    }
    Ok(())
}

fn judge(comparison: &Comparison, asked: usize) -> Result<(), Failure> {
    let Comparison { file, tools, hashes, moved, repeated, errors, .. } = comparison;
    if tools.is_empty() && moved.is_empty() && !repeated.is_empty() {
        let names: Vec<String> = repeated.iter().map(|name| clean(name)).collect();
        return Err(Failure::Unapproved {
            what: format!("listed more than once, and so refused: {}", names.join(", ")),
            hint: "the fault is the server's; no approval helps".into(),
        });
    }
    if tools.is_empty() && moved.is_empty() {
        return match errors.len() {
            0 => {
                tell(&format!("everything is as {} says", shown(file).display()));
                Ok(())
            }
            _ => Err(Failure::NoneAnswered(asked.min(errors.len()))),
        };
    }
    let hashed = hashes.iter().map(|(server, hash)| format!("{server}@{hash}"));
    let what = match tools.len() {
        0 => "the way to a server is not the approved one".into(),
        1 => "1 definition is not as it was approved".into(),
        several => format!("{several} definitions are not as they were approved"),
    };
    let approve = command(&format!("approve {}", hashed.collect::<Vec<_>>().join(" ")));
    let hint = format!("{approve} takes all of it; NAME@HASH takes one");
    Err(Failure::Unapproved { what, hint })
}

//! `ostler diff`: definitions that differ from their approved versions.

use std::collections::BTreeMap;

use ostler_core::pins::{Difference, LockFile, hash_of_all};
use ostler_core::server_name::ServerName;
use serde::Serialize;

use super::tools::list_error_body;
use crate::api::ServerError;
use crate::cli;
use crate::client;
use crate::config_file::relative_to_cwd;
use crate::failure::CommandFailure;
use crate::invocation::command;
use crate::output::{self, Style, Tint, escape_line, print_stderr};
use crate::pins::diff_output::{self, DiffEntry, item_name};
use crate::pins::findings::{ReviewFinding, Reviewer};
use crate::pins::lock_context::{LockContext, OfferedDefinitions, warn_pending_lock};

/// Result of the comparison: the stable shape of `--json`.
#[derive(Default, Serialize)]
struct DiffOutput {
    file: std::path::PathBuf,
    /// Definitions that are not as approved.
    tools: Vec<DiffEntry>,
    /// Hashes of all that differs, by server: `ostler approve SERVER@HASH`.
    hashes: BTreeMap<ServerName, String>,
    /// Findings to review before approving.
    suspicions: Vec<ReviewFinding>,
    /// Servers that are reached in another way than when they were approved.
    moved: Vec<ServerName>,
    /// Items that are as approved and that their server lists more than once, by their exposed names.
    repeated: Vec<String>,
    errors: Vec<ServerError>,
}

pub(super) fn run(typed: &cli::DiffArgs, shared: &cli::GlobalOptions) -> Result<(), CommandFailure> {
    let (desk, way) = LockContext::open(shared)?;
    let lock = match desk.require_lock() {
        Ok(lock) => lock,
        Err(missing) => return Err(desk.explain_missing_lock(way, missing)),
    };
    let names = desk.select_servers(typed.server.as_slice())?;
    client::run_with_backend(way, async |reach| {
        warn_pending_lock(reach).await?;
        let mut comparison = DiffOutput { file: desk.file.clone(), ..DiffOutput::default() };
        let reviewer = Reviewer::default();
        let mut reviewed = desk.shown_diffs();
        for (server, offered) in desk.fetch_definitions(reach, &names).await? {
            let offered = match offered {
                Ok(offered) => offered,
                Err(error) => {
                    if !typed.json {
                        print_stderr(&CommandFailure::ListFailed(error.clone()).render(Style::stderr()));
                    }
                    comparison.errors.push(ServerError { server, error: list_error_body(&error) });
                    continue;
                }
            };
            let found = compare(&lock, &offered, &mut comparison);
            reviewed.record(&server, &offered.transport, &found);
            if !found.is_empty() || comparison.moved.contains(&server) {
                let hash = hash_of_all(&offered.transport, &found).short();
                comparison.hashes.insert(server.clone(), hash);
            }
            let findings = reviewer.review_differences(&offered, &found, &lock);
            if !typed.json {
                print(&offered, &found, comparison.moved.contains(&server))?;
                findings.iter().try_for_each(|it| output::print(&it.render(Style::stdout())))?;
            }
            comparison.suspicions.extend(findings);
        }
        if typed.json {
            diff_output::print_json(&comparison)?;
        }
        // Written after everything has been printed: a definition that was not shown can't be approved.
        if let Err(error) = reviewed.write() {
            print_stderr(&format!("warning: {error}, so that `ostler approve` needs hashes"));
        }
        require_approved(&comparison, names.len())
    })
}

/// Returns the definitions to approve, also a tool that is as approved and listed twice.
fn compare(lock: &LockFile, offered: &OfferedDefinitions, comparison: &mut DiffOutput) -> Vec<Difference> {
    let locked = lock.servers.get(&offered.server);
    let found = offered.differences(locked);
    let shown = |difference: &Difference| {
        DiffEntry::new(&offered.server, difference, offered.is_repeated(difference.section, &difference.name))
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

fn print(offered: &OfferedDefinitions, found: &[Difference], is_moved: bool) -> Result<(), CommandFailure> {
    let style = Style::stdout();
    for difference in found {
        output::print(&diff_output::render(&offered.server, difference, style))?;
    }
    let server = style.paint(Tint::Heading, offered.server.as_str());
    if is_moved {
        output::print(&format!("{server} is reached in another way than when it was approved\n"))?;
    }
    for (_, name) in &offered.definitions.repeated {
        let line = format!("{server} lists `{}` more than once, so it can't be used\n", escape_line(name));
        output::print(&line)?;
    }
    Ok(())
}

fn require_approved(comparison: &DiffOutput, asked: usize) -> Result<(), CommandFailure> {
    let DiffOutput { file, tools, hashes, moved, repeated, errors, .. } = comparison;
    if tools.is_empty() && moved.is_empty() && !repeated.is_empty() {
        let names: Vec<String> = repeated.iter().map(|name| escape_line(name)).collect();
        return Err(CommandFailure::Unapproved {
            what: format!("listed more than once, and so refused: {}", names.join(", ")),
            hint: "the fault is the server's; no approval helps".into(),
        });
    }
    if tools.is_empty() && moved.is_empty() {
        return match errors.len() {
            0 => {
                print_stderr(&format!("everything is as {} says", relative_to_cwd(file).display()));
                Ok(())
            }
            _ => Err(CommandFailure::NoneAnswered(asked.min(errors.len()))),
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
    Err(CommandFailure::Unapproved { what, hint })
}

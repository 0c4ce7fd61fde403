//! `ostler approve`: writes definitions that `ostler diff` has shown into the lock file.

use std::collections::{BTreeMap, BTreeSet};

use ostler_core::catalog::exposed_name;
use ostler_core::error::CallError;
use ostler_core::pins::{Difference, LockFile, LockSection, LockedServer, Pin, PinHash, hash_of_all};
use ostler_core::server_name::ServerName;
use serde::Serialize;

use super::item_names;
use crate::cli;
use crate::client;
use crate::config_file::relative_to_cwd;
use crate::failure::CommandFailure;
use crate::invocation::command;
use crate::output::{self, Style, escape_line, print_stderr};
use crate::pins::diff_output::{self, DiffEntry, item_name};
use crate::pins::findings::{ReviewFinding, Reviewer};
use crate::pins::lock_context::{LockContext, OfferedDefinitions};
use crate::pins::shown_diffs::ShownDiffs;

/// Definitions to approve of a server, with the hash that was typed.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ApprovalRequest {
    Everything(Option<String>),
    /// Items by the names that were typed.
    Items(Vec<(String, Option<String>)>),
}

/// Result of the approval: the stable shape of `--json`.
#[derive(Serialize)]
struct Approval {
    file: std::path::PathBuf,
    approved: Vec<DiffEntry>,
    /// Findings that a reviewer should have looked at.
    suspicions: Vec<ReviewFinding>,
    /// Servers whose new transport was approved.
    moved: Vec<ServerName>,
}

impl Approval {
    /// Returns `2 definitions and the way to `git``.
    fn summary(&self) -> String {
        let ways: Vec<String> = self.moved.iter().map(|server| format!("the way to `{server}`")).collect();
        let number = self.approved.len();
        let items = Some(output::count(number, "definition")).filter(|_| ways.is_empty() || number > 0);
        items.into_iter().chain(ways).collect::<Vec<_>>().join(" and ")
    }
}

pub(super) fn run(typed: &cli::ApproveArgs, shared: &cli::GlobalOptions) -> Result<(), CommandFailure> {
    let (desk, way) = LockContext::open(shared)?;
    let before = desk.require_lock()?;
    let wishes = parse_requests(&desk, &typed.what)?;
    let names: Vec<ServerName> = wishes.keys().cloned().collect();
    client::run_with_backend(way, async |reach| {
        let mut lock = before.clone();
        let file = desk.file.clone();
        let mut approval = Approval { file, approved: Vec::new(), suspicions: Vec::new(), moved: Vec::new() };
        let reviewer = Reviewer::default();
        let reviewed = desk.shown_diffs();
        // Fetched once: the definitions that are printed are those that are compared and written.
        for (server, offered) in desk.fetch_definitions(reach, &names).await? {
            let offered = offered.map_err(CommandFailure::ListFailed)?;
            let wish = wishes.get(&server).cloned().unwrap_or(ApprovalRequest::Everything(None));
            let taken = approve(&mut lock, &offered, (&wish, &reviewed))?;
            if has_new_transport(&before, &lock, &server) {
                approval.moved.push(server.clone());
            }
            for difference in &taken {
                if !typed.json {
                    output::print(&diff_output::render(&server, difference, Style::stdout()))?;
                }
                let is_repeated = offered.is_repeated(difference.section, &difference.name);
                approval.approved.push(DiffEntry::new(&server, difference, is_repeated));
            }
            let findings = reviewer.review_differences(&offered, &taken, &lock);
            if !typed.json {
                findings.iter().try_for_each(|it| output::print(&it.render(Style::stdout())))?;
            }
            approval.suspicions.extend(findings);
            for (_, name) in &offered.definitions.repeated {
                print_stderr(&format!(
                    "`{server}` lists `{}` more than once, so it stays refused",
                    escape_line(name)
                ));
            }
        }
        if typed.json {
            diff_output::print_json(&approval)?;
        }
        let alarmed: BTreeSet<String> = approval
            .suspicions
            .iter()
            .filter(|it| it.alarm_item().is_some())
            .map(ReviewFinding::name)
            .collect();
        if !alarmed.is_empty() && !typed.alarming {
            let names: Vec<String> = alarmed.iter().map(|name| escape_line(name)).collect();
            return Err(CommandFailure::Unapproved {
                what: format!("there are alarms about {}, so nothing was written", names.join(", ")),
                hint: format!(
                    "read what they point at; {} takes it all the same",
                    command("approve --alarming NAME")
                ),
            });
        }
        if lock == before {
            print_stderr("nothing is left to approve");
            return Ok(());
        }
        desk.write_lock(&lock, reach, ("pins-approved", &typed.what.join(", "))).await?;
        print_stderr(&format!(
            "approved {} in {}",
            approval.summary(),
            relative_to_cwd(&desk.file).display()
        ));
        Ok(())
    })
}

/// Returns whether a server that was approved before is reached in another way now.
fn has_new_transport(before: &LockFile, after: &LockFile, server: &ServerName) -> bool {
    let (before, after) = (before.servers.get(server), after.servers.get(server));
    before.zip(after).is_some_and(|(before, after)| before.transport != after.transport)
}

/// Parses the arguments: a server, or items of one by the names of `ostler diff`.
fn parse_requests(
    desk: &LockContext,
    typed: &[String],
) -> Result<BTreeMap<ServerName, ApprovalRequest>, CommandFailure> {
    let mut wishes: BTreeMap<ServerName, ApprovalRequest> = BTreeMap::new();
    let servers: Vec<ServerName> = desk.config.servers.iter().map(|spec| spec.name.clone()).collect();
    for what in typed {
        let (what, hash) = split_hash(what);
        let known = servers.iter().find(|name| name.as_str() == what).map(|name| (name, None));
        let reading = || {
            let readings = item_names::split_candidates(&servers, what).into_iter();
            readings.max_by_key(|(name, _)| name.as_str().len()).map(|(name, item)| (name, Some(item)))
        };
        let Some((server, item)) = known.or_else(reading) else {
            return Err(CommandFailure::unknown_server(
                item_names::server_part(what).unwrap_or(what),
                &servers,
            ));
        };
        let wish = wishes.entry(server.clone()).or_insert_with(|| ApprovalRequest::Items(Vec::new()));
        match (wish, item) {
            (wish, None) => *wish = ApprovalRequest::Everything(hash),
            (ApprovalRequest::Items(items), Some(item)) => items.push((diff_name(server, what, item), hash)),
            (ApprovalRequest::Everything(_), Some(_)) => {}
        }
    }
    let typed: Vec<String> = wishes.keys().map(ToString::to_string).collect();
    desk.select_servers(&typed)?;
    Ok(wishes)
}

/// Returns the name that `ostler diff` shows for an item, whichever separator was typed.
fn diff_name(server: &ServerName, what: &str, item: &str) -> String {
    let rest = &what[server.as_str().len()..];
    let is_of = |section: &LockSection| match (section, item.strip_prefix(section.noun())) {
        (LockSection::Tools, _) | (_, None) => false,
        (LockSection::Instructions, Some(rest)) => rest.is_empty(),
        (_, Some(rest)) => rest.starts_with(':'),
    };
    let is_shown = rest.starts_with("__") || (rest.starts_with('/') && LockSection::ALL.iter().any(is_of));
    if is_shown { what.to_owned() } else { exposed_name(server, item) }
}

/// Splits the hash off an argument. A URI may hold an `@` too, but hardly 16 hexadecimal digits behind it.
fn split_hash(what: &str) -> (&str, Option<String>) {
    let is_hash = |text: &str| (16..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit());
    match what.rsplit_once('@') {
        Some((name, hash)) if is_hash(hash) => (name, Some(hash.to_ascii_lowercase())),
        _ => (what, None),
    }
}

/// Writes into the lock the requested definitions that were shown, and nothing else; returns them.
fn approve(
    lock: &mut LockFile,
    offered: &OfferedDefinitions,
    (wish, reviewed): (&ApprovalRequest, &ShownDiffs),
) -> Result<Vec<Difference>, CommandFailure> {
    let server = &offered.server;
    let mut found = offered.differences(lock.servers.get(server));
    check_reviewed(lock.servers.get(server), offered, (wish, reviewed), &found)?;
    if let ApprovalRequest::Items(wished) = wish {
        let is_wished = |it: &Difference| {
            let name = item_name(server, it.section, &it.name);
            wished.iter().any(|(wished, _)| *wished == name)
        };
        found.retain(is_wished);
    }
    let is_everything = matches!(wish, ApprovalRequest::Everything(_));
    let locked = match lock.servers.get_mut(server) {
        Some(locked) => locked,
        None if found.is_empty() && !is_everything => return Ok(found),
        None => {
            let sections = LockSection::ALL.map(|section| (section, BTreeMap::new())).into();
            let empty = LockedServer { transport: offered.transport.clone(), sections };
            lock.servers.entry(server.clone()).or_insert(empty)
        }
    };
    if is_everything {
        locked.transport.clone_from(&offered.transport);
    }
    for difference in &found {
        let name = &difference.name;
        let pins = locked.sections.entry(difference.section).or_default();
        let Some(new) = difference.new_definition() else {
            pins.remove(name);
            continue;
        };
        let pin = Pin::from_definition(new).map_err(|error| CommandFailure::Unapproved {
            what: format!(
                "`{}` of `{server}` can't be approved: {}",
                escape_line(name),
                escape_line(&error.to_string())
            ),
            hint: "the fault is the server's; nothing was written".into(),
        })?;
        pins.insert(name.clone(), pin);
    }
    Ok(found)
}

/// Refuses definitions that were not shown: neither with their hash nor by the last `ostler diff`.
fn check_reviewed(
    locked: Option<&LockedServer>,
    offered: &OfferedDefinitions,
    (wish, reviewed): (&ApprovalRequest, &ShownDiffs),
    found: &[Difference],
) -> Result<(), CommandFailure> {
    let server = &offered.server;
    let other = |name: &str, offers: String| CommandFailure::Unapproved {
        what: format!("`{}` is not what was to be approved: {offers}", escape_line(name)),
        hint: format!("look again with {}; nothing was written", command(&format!("diff {server}"))),
    };
    let unseen = |name: &str| match reviewed.has_server(server) {
        true => other(name, "the server offers something else than `ostler diff` has shown".into()),
        false => CommandFailure::Unapproved {
            what: format!("nothing of `{server}` has been shown that could be approved"),
            hint: format!(
                "{} shows it, with the hash to approve; nothing was written",
                command(&format!("diff {server}"))
            ),
        },
    };
    match wish {
        ApprovalRequest::Everything(Some(hash)) => {
            let now = hash_of_all(&offered.transport, found);
            match digits(&now).starts_with(hash) {
                true => Ok(()),
                false => Err(other(server.as_str(), format!("all that differs is @{}", now.short()))),
            }
        }
        ApprovalRequest::Everything(None) => {
            let is_moved = locked.is_none_or(|locked| locked.transport != offered.transport);
            if is_moved && !reviewed.has_transport(server, &offered.transport) {
                return Err(unseen(server.as_str()));
            }
            match found.iter().find(|it| !reviewed.has_difference(server, it)) {
                Some(it) => Err(unseen(&item_name(server, it.section, &it.name))),
                None => Ok(()),
            }
        }
        ApprovalRequest::Items(wished) => wished.iter().try_for_each(|(name, hash)| {
            let difference = found.iter().find(|it| item_name(server, it.section, &it.name) == *name);
            match (difference, hash) {
                (Some(it), Some(hash)) if digits(&it.hash()).starts_with(hash) => Ok(()),
                (Some(it), Some(_)) => Err(other(name, format!("the server offers @{}", it.hash().short()))),
                (Some(it), None) if reviewed.has_difference(server, it) => Ok(()),
                (Some(_), None) => Err(unseen(name)),
                (None, hash) => check_approved(locked, offered, (name, hash.as_deref())),
            }
        }),
    }
}

/// Refuses a name that no item has, and a hash that an approved definition does not have.
fn check_approved(
    locked: Option<&LockedServer>,
    offered: &OfferedDefinitions,
    (name, hash): (&str, Option<&str>),
) -> Result<(), CommandFailure> {
    let server = &offered.server;
    let pinned = locked.into_iter().flat_map(LockedServer::pins);
    let pins: Vec<(String, String)> =
        pinned.map(|(section, item, pin)| (item_name(server, section, item), digits(&pin.hash))).collect();
    let items = offered.definitions.items().map(|(section, item, _)| item_name(server, section, item));
    let known: Vec<String> = items.chain(pins.iter().map(|(name, _)| name.clone())).collect();
    if !known.iter().any(|known| known == name) {
        return Err(CallError::unknown_tool(name, known.iter().map(String::as_str)).into());
    }
    let is_it = |hash: &str| pins.iter().any(|(pinned, digits)| pinned == name && digits.starts_with(hash));
    match hash.is_none_or(is_it) {
        true => Ok(()),
        false => Err(CommandFailure::Unapproved {
            what: format!(
                "`{}` is not what was to be approved: it is as the lock file says",
                escape_line(name)
            ),
            hint: "nothing was written".into(),
        }),
    }
}

fn digits(hash: &PinHash) -> String {
    hash.to_string().trim_start_matches("sha256:").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_approved_by_any_spelling_of_its_name() {
        let git = ServerName::new("git").unwrap();
        for (what, item) in [("git__log", "log"), ("git.log", "log"), ("git/log", "log"), ("git:log", "log")]
        {
            assert_eq!(diff_name(&git, what, item), "git__log", "{what}");
        }
        for (what, item) in [("git/prompt:review", "prompt:review"), ("git/instructions", "instructions")] {
            assert_eq!(diff_name(&git, what, item), what);
        }
    }

    #[test]
    fn a_hash_is_told_from_the_end_of_a_uri() {
        assert_eq!(split_hash("a__b@0123456789abcdef"), ("a__b", Some("0123456789abcdef".into())));
        assert_eq!(split_hash("a/resource:mail://b@c"), ("a/resource:mail://b@c", None));
        assert_eq!(split_hash("a@0123"), ("a@0123", None));
        assert_eq!(split_hash("a"), ("a", None));
    }
}

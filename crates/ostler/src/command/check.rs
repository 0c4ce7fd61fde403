//! `ostler check`: everything that is wrong with the config.

use std::path::{Path, PathBuf};

use ostler_core::config::{Disabled, Problem};
use ostler_core::name::ServerName;
use serde::Serialize;

use crate::config_file::{self, Found, counted, tell_no_servers};
use crate::failure::Failure;
use crate::spot::Spot;
use crate::{auth, cli, descriptors, environment, folders, output, pins, rule_check, trust};

pub(super) fn run(typed: &cli::Check, file: Option<&Path>) -> Result<(), Failure> {
    let (file, origin) = match config_file::find(file)? {
        Found::File { file, origin } => (file, origin),
        Found::Nowhere(looked_for) => return Err(Failure::NoConfig { looked_for }),
    };
    let mut reading = config_file::read(file)?;
    let mut broken = Vec::new();
    if let Some(config) = &reading.config {
        let missing = environment::check(config);
        let names = config.servers.iter().map(|spec| &spec.name);
        broken = names.filter(|name| is_about(name, &missing)).map(ToString::to_string).collect();
        reading.problems.extend(missing);
        reading.problems.extend(config.shared_state());
        reading.problems.extend(descriptors::check(config));
        reading.problems.extend(pins::file::check(config, &reading.locked));
        let tokens = Spot::of(Some(&reading.file)).ok().map(|spot| spot.tokens());
        reading.problems.extend(auth::check::check(config, tokens.as_ref()));
        reading.problems.extend(rule_check::check(config, folders::state().as_deref()));
    }
    if reading.locked.is_err() {
        reading.config = None;
    }
    let verdict = Verdict {
        ok: reading.config.is_some() && broken.is_empty(),
        file: &reading.file,
        servers: reading.config.as_ref().map(|config| config.servers.len()),
        disabled: reading.config.iter().flat_map(|config| &config.disabled).map(name_of).collect(),
        problems: &reading.problems,
    };
    if typed.json {
        output::print_json(&verdict)?;
    } else {
        config_file::tell_problems(&reading.problems);
    }
    let Some(servers) = verdict.servers else {
        return Err(Failure::config(&reading.file, &reading.problems));
    };
    if !broken.is_empty() {
        return Err(Failure::CannotStart { broken, servers });
    }
    if typed.json {
        return Ok(());
    }
    if servers == 0 && verdict.disabled.is_empty() {
        tell_no_servers(Some(&reading.file), &[]);
    }
    if let Some(config) = &reading.config {
        trust::tell_standing(origin, &reading.file, config);
    }
    let counted = counted(&reading.problems);
    let separator = if counted.is_empty() { "" } else { ", " };
    let disabled = reading.config.map(|config| config.disabled).unwrap_or_default();
    let names: Vec<&str> = disabled.iter().map(|server| server.spec.name.as_str()).collect();
    let disabled = match names.is_empty() {
        true => String::new(),
        false => format!(", {} disabled ({})", names.len(), names.join(", ")),
    };
    output::print(&format!("ok: {}{disabled}{separator}{counted}\n", output::count(servers, "server")))
}

/// Whether an error is about a server.
fn is_about(server: &ServerName, problems: &[Problem]) -> bool {
    let key = format!("servers.{server}.");
    problems.iter().any(|problem| problem.is_error() && problem.path.starts_with(&key))
}

fn name_of(disabled: &Disabled) -> String {
    disabled.spec.name.to_string()
}

/// The stable shape of `--json`.
#[derive(Serialize)]
struct Verdict<'a> {
    ok: bool,
    file: &'a PathBuf,
    /// Absent when the config can't be used.
    servers: Option<usize>,
    /// Servers that are named and not run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    disabled: Vec<String>,
    problems: &'a [Problem],
}

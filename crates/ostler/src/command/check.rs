//! `ostler check`: every problem of the config.

use std::path::{Path, PathBuf};

use ostler_core::config::{DisabledServer, Problem};
use ostler_core::server_name::ServerName;
use serde::Serialize;

use crate::config_file::{self, FoundConfig, count_problems, print_no_servers};
use crate::failure::CommandFailure;
use crate::instance::DaemonInstance;
use crate::{auth, cli, environment, fd_limits, output, pins, rule_check, trust, xdg};

pub(super) fn run(typed: &cli::CheckArgs, file: Option<&Path>) -> Result<(), CommandFailure> {
    let (file, origin) = match config_file::find(file)? {
        FoundConfig::File { file, origin } => (file, origin),
        FoundConfig::NotFound(looked_for) => return Err(CommandFailure::NoConfig { looked_for }),
    };
    let mut reading = config_file::read(file)?;
    let mut broken = Vec::new();
    if let Some(config) = &reading.config {
        let missing = environment::check(config);
        let names = config.servers.iter().map(|spec| &spec.name);
        broken = names.filter(|name| has_error(name, &missing)).map(ToString::to_string).collect();
        reading.problems.extend(missing);
        reading.problems.extend(config.shared_state_warnings());
        reading.problems.extend(fd_limits::check(config));
        reading.problems.extend(pins::lock_file::check(config, &reading.lock_file));
        let tokens = DaemonInstance::for_config(Some(&reading.file)).ok().map(|spot| spot.token_store());
        reading.problems.extend(auth::config_check::check_credentials(config, tokens.as_ref()));
        reading.problems.extend(rule_check::check(config, xdg::state_dir().as_deref()));
    }
    if reading.lock_file.is_err() {
        reading.config = None;
    }
    let verdict = CheckReport {
        ok: reading.config.is_some() && broken.is_empty(),
        file: &reading.file,
        servers: reading.config.as_ref().map(|config| config.servers.len()),
        disabled: reading.config.iter().flat_map(|config| &config.disabled).map(name_of).collect(),
        problems: &reading.problems,
    };
    if typed.json {
        output::print_json(&verdict)?;
    } else {
        config_file::print_problems(&reading.problems);
    }
    let Some(servers) = verdict.servers else {
        return Err(CommandFailure::invalid_config(&reading.file, &reading.problems));
    };
    if !broken.is_empty() {
        return Err(CommandFailure::CannotStart { broken, servers });
    }
    if typed.json {
        return Ok(());
    }
    if servers == 0 && verdict.disabled.is_empty() {
        print_no_servers(Some(&reading.file), &[]);
    }
    if let Some(config) = &reading.config {
        trust::print_trust_state(origin, &reading.file, config);
    }
    let counted = count_problems(&reading.problems);
    let separator = if counted.is_empty() { "" } else { ", " };
    let disabled = reading.config.map(|config| config.disabled).unwrap_or_default();
    let names: Vec<&str> = disabled.iter().map(|server| server.spec.name.as_str()).collect();
    let disabled = match names.is_empty() {
        true => String::new(),
        false => format!(", {} disabled ({})", names.len(), names.join(", ")),
    };
    output::print(&format!("ok: {}{disabled}{separator}{counted}\n", output::count(servers, "server")))
}

/// Returns whether an error is about a server.
fn has_error(server: &ServerName, problems: &[Problem]) -> bool {
    let key = format!("servers.{server}.");
    problems.iter().any(|problem| problem.is_error() && problem.path.starts_with(&key))
}

fn name_of(disabled: &DisabledServer) -> String {
    disabled.spec.name.to_string()
}

/// Result of the check: the stable shape of `--json`.
#[derive(Serialize)]
struct CheckReport<'a> {
    ok: bool,
    file: &'a PathBuf,
    /// Absent when the config can't be used.
    servers: Option<usize>,
    /// Servers that are named and not run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    disabled: Vec<String>,
    problems: &'a [Problem],
}

//! What each command means: one file each.

mod approve;
mod audit;
mod call;
mod card;
mod check;
mod daemons;
mod diff;
mod down;
mod explain;
pub(crate) mod list;
mod lock;
pub(crate) mod logs;
mod manual;
pub(crate) mod names;
mod offer;
mod offers;
pub(crate) mod operate;
mod relay;
mod serve;
mod status;
pub(crate) mod token;
pub(crate) mod tools;
mod trust;
mod worker;

use std::process::ExitCode;

use tracing_subscriber::EnvFilter;

use crate::cli::{Cli, Command};
use crate::failure::Failure;
use crate::{demo, guard, invocation, output, stdio};

/// The variable that says what is logged.
const LOG: &str = "OSTLER_LOG";

/// Does what was typed.
pub(crate) fn run(cli: Cli) -> Result<ExitCode, Failure> {
    log(cli.shared.verbose);
    let shared = &cli.shared;
    invocation::remember(shared);
    let file = shared.config.as_deref();
    match cli.command {
        Command::Serve(typed) => serve::run(&typed, file),
        Command::Stdio { token_file } => return stdio::run(shared, token_file.as_deref()),
        Command::Down(typed) => down::run(&typed, shared),
        Command::Worker(typed) => worker::run(typed),
        Command::Call(typed) => call::run(&typed, shared),
        Command::Tools(typed) => tools::run(&typed, shared),
        Command::Prompts(typed) => offers::prompts(&typed, shared),
        Command::Resources(typed) => offers::resources(&typed, shared),
        Command::List(typed) => list::run(&typed, shared),
        Command::Card(typed) => card::run(&typed, shared),
        Command::Status(typed) => status::run(&typed, shared),
        Command::Daemons(typed) => daemons::run(&typed),
        Command::Warm(typed) => status::warm(&typed, shared),
        Command::Start { server } => operate::run("start", &server, shared),
        Command::Stop { server } => operate::run("stop", &server, shared),
        Command::Restart { server } | Command::Reload { server: Some(server) } => {
            operate::run("reload", &server, shared)
        }
        Command::Reload { server: None } => operate::reload_config(shared),
        Command::Logs(typed) => logs::run(&typed, shared),
        Command::Token { command } => token::run(command, shared),
        Command::Relay { command } => relay::run(command, file),
        Command::Audit(typed) => audit::run(&typed, shared),
        Command::Check(typed) => check::run(&typed, file),
        Command::Lock(typed) => lock::run(&typed, shared),
        Command::Diff(typed) => diff::run(&typed, shared),
        Command::Approve(typed) => approve::run(&typed, shared),
        Command::Trust(typed) => trust::run(&typed, shared),
        Command::Explain(typed) => return explain::run(&typed, file),
        Command::Schema => output::print_json(&ostler_core::config::schema()),
        Command::Completions { shell } => manual::print_completions(shell),
        Command::Man { command } => manual::print_page(&command),
        Command::Help { command } => manual::print_help(&command),
        Command::Version { json } => manual::print_version(json),
        Command::Unknown(words) => Err(manual::unknown(&words)),
        Command::Demo => demo::serve(std::io::stdin().lock(), std::io::stdout()).map_err(Failure::Output),
        Command::Guard { command } => return Ok(guard::run(command)),
    }
    .map(|()| ExitCode::SUCCESS)
}

/// Logs to stderr, if asked to. Without that only our own messages are there.
fn log(is_verbose: bool) {
    let filter = std::env::var(LOG).ok().filter(|filter| !filter.is_empty());
    if !is_verbose && filter.is_none() {
        return;
    }
    let filter = filter.unwrap_or_else(|| "info,ostler=debug,ostler_host=debug".into());
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::builder().parse_lossy(filter))
        .with_writer(std::io::stderr)
        .with_ansi(output::Style::stderr().has_colours())
        .init();
}

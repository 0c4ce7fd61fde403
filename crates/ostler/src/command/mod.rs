//! Commands of the program: one file each.

mod approve;
mod audit;
mod call;
mod card;
mod check;
mod daemons;
mod diff;
mod down;
pub(crate) mod explain;
mod get_prompt_resource;
pub(crate) mod item_names;
pub(crate) mod list;
mod list_prompts_resources;
mod lock;
pub(crate) mod logs;
mod manual;
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

use crate::cli::{Cli, CliCommand};
use crate::failure::CommandFailure;
use crate::{demo, guard, invocation, output, stdio};

/// Environment variable with the log filter.
const LOG_VARIABLE: &str = "OSTLER_LOG";

/// Runs the command.
pub(crate) fn run(cli: Cli) -> Result<ExitCode, CommandFailure> {
    init_logging(cli.shared.verbose);
    let shared = &cli.shared;
    invocation::remember_flags(shared);
    let file = shared.config.as_deref();
    match cli.command {
        CliCommand::Serve(typed) => serve::run(&typed, file),
        CliCommand::Stdio { token_file } => return stdio::run(shared, token_file.as_deref()),
        CliCommand::Down(typed) => down::run(&typed, shared),
        CliCommand::Worker(typed) => worker::run(typed),
        CliCommand::Call(typed) => call::run(&typed, shared),
        CliCommand::Tools(typed) => tools::run(&typed, shared),
        CliCommand::Prompts(typed) => list_prompts_resources::prompts(&typed, shared),
        CliCommand::Resources(typed) => list_prompts_resources::resources(&typed, shared),
        CliCommand::List(typed) => list::run(&typed, shared),
        CliCommand::Card(typed) => card::run(&typed, shared),
        CliCommand::Status(typed) => status::run(&typed, shared),
        CliCommand::Daemons(typed) => daemons::run(&typed),
        CliCommand::Warm(typed) => status::warm(&typed, shared),
        CliCommand::Start { server } => operate::run("start", &server, shared),
        CliCommand::Stop { server } => operate::run("stop", &server, shared),
        CliCommand::Restart { server } | CliCommand::Reload { server: Some(server) } => {
            operate::run("reload", &server, shared)
        }
        CliCommand::Reload { server: None } => operate::reload_config(shared),
        CliCommand::Logs(typed) => logs::run(&typed, shared),
        CliCommand::Token { command } => token::run(command, shared),
        CliCommand::Relay { command } => relay::run(command, file),
        CliCommand::Audit(typed) => audit::run(&typed, shared),
        CliCommand::Check(typed) => check::run(&typed, file),
        CliCommand::Lock(typed) => lock::run(&typed, shared),
        CliCommand::Diff(typed) => diff::run(&typed, shared),
        CliCommand::Approve(typed) => approve::run(&typed, shared),
        CliCommand::Trust(typed) => trust::run(&typed, shared),
        CliCommand::Explain(typed) => return explain::run(&typed, shared),
        CliCommand::Schema => output::print_json(&ostler_core::config::schema()),
        CliCommand::Completions { shell } => manual::print_completions(shell),
        CliCommand::Man { command } => manual::print_page(&command),
        CliCommand::Help { command } => manual::print_help(&command),
        CliCommand::Version { json } => manual::print_version(json),
        CliCommand::Unknown(words) => Err(manual::unknown(&words)),
        CliCommand::Demo => {
            demo::serve(std::io::stdin().lock(), std::io::stdout()).map_err(CommandFailure::Output)
        }
        CliCommand::Guard { command } => return Ok(guard::run(command)),
    }
    .map(|()| ExitCode::SUCCESS)
}

/// Logs to stderr, if asked to. Otherwise only messages of the program itself are printed.
fn init_logging(is_verbose: bool) {
    let filter = std::env::var(LOG_VARIABLE).ok().filter(|filter| !filter.is_empty());
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

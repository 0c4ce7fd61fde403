//! `ostler`: the command line program.
//!
//! ```text
//! argv ── guard.rs ──▶ a guard: before anything else, small and single-threaded
//!      └─ cli.rs ────▶ parsed arguments ──▶ command/*.rs: one command each
//!                                             │ config_file.rs finds and reads the config
//!                                             │ client/ leads to the servers
//!                                             ▼
//!                           output.rs: data on stdout, messages on stderr;  failure/: exit codes
//! ```

mod api;
mod arguments;
mod audit;
mod auth;
mod call_events;
mod cli;
mod client;
mod command;
mod completion;
mod config_file;
mod content;
mod daemon;
mod daemon_info;
mod daemon_proof;
mod demo;
mod elicitation;
mod environment;
mod failure;
mod fd_limits;
mod file_stamp;
mod guard;
mod instance;
mod invocation;
mod output;
mod pins;
mod relay;
mod rule_check;
mod sabotage;
mod self_reference;
mod signals;
mod stdio;
mod stdio_failure;
mod terminal;
mod text_table;
mod time_text;
mod token;
mod trust;
mod worker;
mod workspace;
mod xdg;

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(code) = guard::run_if_requested(std::env::args_os().skip(1)) {
        return code;
    }
    disable_dumping();
    if let Some(code) = completion::run_if_requested() {
        return code;
    }
    let cli = match cli::parse() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    #[cfg(ostler_sabotage)]
    if let Some(code) = sabotage::refuse_unknown() {
        return code;
    }
    match command::run(cli) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

/// Keeps other processes of the same user, servers among them, from reading the memory, the environment and the
/// descriptors of this one. Disables core dumps too: they would hold the same.
fn disable_dumping() {
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_dumpable(false);
}

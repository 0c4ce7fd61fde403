//! Benchmarks of the host, of the relay and of a daemon under load.
//!
//!   bench host  [--seconds N] [--rounds N] [--in-flight N] [--payload N] [--profile]
//!   bench relay [--nats core|current|both] [--seconds N] [--rounds N]
//!   bench relay --profile relayed --callers 64 [--payload N] [--seconds N]
//!   bench load  [PART…] [--json | --markdown] [--scale PERCENT]
//!
//! `ostler` and `fake-mcp` are taken from the folder that this program is in.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a benchmark prints, and stops when something is wrong"
)]

mod closed_loop;
mod daemon;
mod host;
mod load;
mod relay;
mod spread;

use std::process::{Command, exit};

const USAGE: &str = "usage: bench host|relay|load [OPTION…]; `bench load --help` names the parts";

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    // One thread, as `ostler worker` has.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    match args.split_first().map(|(what, options)| (what.as_str(), options)) {
        Some(("host", options)) => runtime.block_on(host::run(options)),
        Some(("relay", options)) => runtime.block_on(relay::run(options)),
        Some(("load", options)) => runtime.block_on(load::run(options)),
        _ => {
            eprintln!("{USAGE}");
            exit(2)
        }
    }
}

/// Returns the output of a program; empty if it can't be run.
fn command_output(line: &[&str]) -> String {
    let out = Command::new(line[0]).args(&line[1..]).output();
    out.map(|out| String::from_utf8_lossy(&out.stdout).trim().to_owned()).unwrap_or_default()
}

/// Describes date, machine and build of the measurement.
fn describe_machine() -> String {
    format!(
        "Measured on {}, {} virtual cores, {}, {} build of commit {}",
        command_output(&["date", "-u", "+%F"]),
        std::thread::available_parallelism().map_or(0, usize::from),
        command_output(&["rustc", "--version"]).split(' ').take(2).collect::<Vec<_>>().join(" "),
        if cfg!(debug_assertions) { "debug" } else { "release" },
        command_output(&["git", "describe", "--always", "--dirty"]),
    )
}

//! `ostler-chaos`: hurts a daemon for a while, and checks what came of it.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use run::RunOptions;
use run::cleanup::Interrupted;

mod run;

/// A week.
const MAX_SECONDS: u64 = 7 * 24 * 60 * 60;

/// Hurts Ostler on purpose and checks what it promises.
#[derive(Debug, Parser)]
#[command(before_help = "Examples:
  ostler-chaos run --minutes 3
  ostler-chaos run --seconds 20 --seed 7 --only http-modern --nemesis kill-server
  ostler-chaos check /tmp/kept")]
struct ChaosArgs {
    #[command(subcommand)]
    command: ChaosCommand,
}

#[derive(Debug, Subcommand)]
enum ChaosCommand {
    /// Run callers and a nemesis against a daemon, then check
    Run(RunArgs),
    /// Check the records that a run has kept
    Check {
        /// The folder that the run has named
        folder: PathBuf,
        /// Print the report as JSON
        #[arg(long)]
        json: bool,
    },
    /// Serve a program on stdio over HTTP (the run's own server behind a URL)
    #[command(hide = true)]
    Web {
        #[arg(long)]
        port: u16,
        #[arg(last = true)]
        command: Vec<String>,
    },
}

#[derive(Debug, clap::Args)]
struct RunArgs {
    /// Minutes that the nemesis is at work; 0.5 is half a minute
    #[arg(long, conflicts_with = "seconds", default_value = "1", value_parser = parse_minutes)]
    minutes: Duration,
    /// The same in seconds
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=MAX_SECONDS))]
    seconds: Option<u64>,
    /// Seed of every random choice; drawn if it is not given
    #[arg(long)]
    seed: Option<u64>,
    /// Number of callers at once
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1024))]
    callers: u16,
    /// The daemon's program; that beside this one by default
    #[arg(long)]
    ostler: Option<PathBuf>,
    /// Keep the records here, whatever comes of it; the folder must not exist
    #[arg(long)]
    keep: Option<PathBuf>,
    /// Only these ways, by comma: http-legacy, http-modern, http-face, stdio, relay
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Do mostly this: long, forbidden, list, private, sick
    #[arg(long)]
    focus: Option<String>,
    /// Seconds that everything has at the end to recover
    #[arg(long, default_value_t = 8)]
    settle: u64,
    /// Seconds after that in which everything must work
    #[arg(long, default_value_t = 6)]
    calm: u64,
    /// Only these acts, by comma; `none` for peace
    #[arg(long, value_delimiter = ',')]
    nemesis: Vec<String>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

impl RunArgs {
    fn options(self) -> RunOptions {
        RunOptions {
            duration: self.seconds.map_or(self.minutes, Duration::from_secs),
            seed: self.seed.unwrap_or_else(|| fastrand::u64(0..1_000_000)),
            callers: self.callers.into(),
            ostler: self.ostler,
            keep: self.keep,
            only: self.only,
            nemesis: self.nemesis,
            focus: self.focus,
            settle: Duration::from_secs(self.settle),
            calm: Duration::from_secs(self.calm),
            is_json: self.json,
        }
    }
}

/// A time of at least a second and at most a week.
fn parse_minutes(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().map_or(f64::NAN, |minutes| (minutes * 60.0).round());
    if !(1.0..=MAX_SECONDS as f64).contains(&seconds) {
        return Err("it takes a number of minutes such as 3 or 0.5, of at most a week".into());
    }
    Ok(Duration::from_secs_f64(seconds))
}

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = runtime.map_err(anyhow::Error::from).and_then(|runtime| match ChaosArgs::parse().command {
        ChaosCommand::Run(typed) => runtime.block_on(run::run(typed.options())),
        ChaosCommand::Check { folder, json } => run::check_kept(&folder, json),
        ChaosCommand::Web { port, command } => {
            runtime.block_on(run::web_server::serve(port, &command)).map(|()| true)
        }
    });
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            run::print_progress(&format!("error: {error:#}"));
            ExitCode::from(error.downcast_ref::<Interrupted>().map_or(2, Interrupted::code))
        }
    }
}

//! Cost of a relayed call, beside bare NATS and beside a direct call.
//!
//! Every round drives all paths in turn, so that a busy machine slows all of them. The output is a
//! section for RESULTS.md.

mod bare_nats;
mod call_paths;
mod disruptions;
mod relay_setup;
mod report;
mod round;

use std::str::FromStr;
use std::time::Duration;

use ostler_testkit::NatsVersion;

use relay_setup::RelaySetup;

pub(crate) async fn run(args: &[String]) {
    if let [path, url] = args
        && path == bare_nats::ECHO
    {
        return bare_nats::echo(url).await;
    }
    let options = RelayBenchOptions::read(args);
    match &options.profile {
        Some(path) => round::profile(path, &options).await,
        None => measure(&options).await,
    }
}

async fn measure(options: &RelayBenchOptions) {
    report::head(options);
    for version in &options.nats {
        let mut setup = RelaySetup::start(*version).await;
        let mut rounds = Vec::new();
        for number in 1..=options.rounds {
            eprintln!("{}: round {number} of {}", setup.version(), options.rounds);
            rounds.push(round::run(&mut setup, options).await);
        }
        report::part(&setup.version(), &rounds);
    }
    report::foot();
}

pub(crate) struct RelayBenchOptions {
    pub(crate) nats: Vec<NatsVersion>,
    /// The duration of each cell, in each round.
    pub(crate) time: Duration,
    pub(crate) rounds: usize,
    /// The only path, for a profiler.
    pub(crate) profile: Option<String>,
    pub(crate) callers: usize,
    pub(crate) payload: usize,
    /// The command line, for the page.
    pub(crate) line: String,
}

impl RelayBenchOptions {
    pub(crate) fn read(args: &[String]) -> Self {
        let nats = match word(args, "--nats") {
            Some("core") => vec![NatsVersion::Core],
            Some("current") => vec![NatsVersion::Current],
            None | Some("both") => vec![NatsVersion::Core, NatsVersion::Current],
            Some(other) => panic!("--nats is core, current or both, not {other}"),
        };
        Self {
            nats,
            time: Duration::from_secs_f64(number(args, "--seconds", 1.0)),
            rounds: number(args, "--rounds", 5),
            profile: word(args, "--profile").map(str::to_owned),
            callers: number(args, "--callers", 64),
            payload: number(args, "--payload", 60),
            line: ["bench", "relay"]
                .into_iter()
                .chain(args.iter().map(|word| &**word))
                .collect::<Vec<_>>()
                .join(" "),
        }
    }
}

fn word<'t>(args: &'t [String], name: &str) -> Option<&'t str> {
    let at = args.iter().position(|word| word == name)?;
    Some(args.get(at + 1).unwrap_or_else(|| panic!("{name} wants a value")))
}

fn number<T: FromStr>(args: &[String], name: &str, default: T) -> T {
    let Some(text) = word(args, name) else { return default };
    text.parse().unwrap_or_else(|_| panic!("{name} wants a number, not {text}"))
}

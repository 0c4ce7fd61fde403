//! What a relayed call costs, beside bare NATS and beside a direct call.
//!
//! Every round drives all ways in turn, so that a machine that is busy for a
//! while is so for all of them. What is printed is a section for RESULTS.md.

mod bare_nats;
mod call_paths;
mod daemon;
mod disruptions;
mod options;
mod relay_setup;
mod report;
mod round;

use options::RelayBenchOptions;
use relay_setup::RelaySetup;

pub(crate) async fn run(typed: &[String]) {
    if let [way, url] = typed
        && way == bare_nats::ECHO
    {
        return bare_nats::echo(url).await;
    }
    let options = RelayBenchOptions::read(typed);
    match &options.profile {
        Some(way) => round::profile(way, &options).await,
        None => measure(&options).await,
    }
}

async fn measure(options: &RelayBenchOptions) {
    report::head(options);
    for which in &options.nats {
        let mut stage = RelaySetup::start(*which).await;
        let mut rounds = Vec::new();
        for number in 1..=options.rounds {
            eprintln!("{}: round {number} of {}", stage.version(), options.rounds);
            rounds.push(round::run(&mut stage, options).await);
        }
        report::part(&stage.version(), &rounds);
    }
    report::foot();
}

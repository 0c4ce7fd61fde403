//! What a relayed call costs, beside bare NATS and beside a direct call.
//!
//!   bench-relay [--nats core|current|both] [--seconds N] [--rounds N]
//!   bench-relay --profile relayed --callers 64 [--payload N] [--seconds N]
//!
//! Every round drives all ways in turn, so that a machine that is busy for a
//! while is so for all of them. What is printed is a section for RESULTS.md.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a benchmark prints, and stops when something is wrong"
)]

mod bare;
mod cpu;
mod daemon;
mod ends;
mod load;
mod options;
mod page;
mod round;
mod spread;
mod stage;
mod ways;

use options::Options;
use stage::Stage;

fn main() {
    let typed: Vec<String> = std::env::args().skip(1).collect();
    // One thread, as `ostler worker` has.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    if let [way, url] = &typed[..]
        && way == bare::ECHO
    {
        return runtime.block_on(bare::echo(url));
    }
    let options = Options::read(&typed);
    runtime.block_on(async {
        match &options.profile {
            Some(way) => round::profile(way, &options).await,
            None => measure(&options).await,
        }
    });
}

async fn measure(options: &Options) {
    page::head(options);
    for which in &options.nats {
        let mut stage = Stage::open(*which).await;
        let mut rounds = Vec::new();
        for number in 1..=options.rounds {
            eprintln!("{}: round {number} of {}", stage.version(), options.rounds);
            rounds.push(round::run(&mut stage, options).await);
        }
        page::part(&stage.version(), &rounds);
    }
    page::foot();
}

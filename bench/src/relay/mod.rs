//! What a relayed call costs, beside bare NATS and beside a direct call.
//!
//! Every round drives all ways in turn, so that a machine that is busy for a
//! while is so for all of them. What is printed is a section for RESULTS.md.

mod bare;
mod daemon;
mod ends;
mod options;
mod page;
mod round;
mod stage;
mod ways;

use options::Options;
use stage::Stage;

pub(crate) async fn run(typed: &[String]) {
    if let [way, url] = typed
        && way == bare::ECHO
    {
        return bare::echo(url).await;
    }
    let options = Options::read(typed);
    match &options.profile {
        Some(way) => round::profile(way, &options).await,
        None => measure(&options).await,
    }
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

//! What a daemon takes that does nothing.

use std::time::Duration;

use bench::process::{Tree, Usage, mib};

use super::mcp;
use super::page::Row;
use super::setup::{Daemon, Setup};

const PART: &str = "idle";

/// Background work of the start is over after this long, also with other work on the machine.
const REST: Duration = Duration::from_secs(15);

pub(crate) async fn run() -> Vec<Row> {
    let one = Setup::new().start().await;
    let setup = (1..20).fold(Setup::new().config("[pool]\nmax_processes = 32"), |setup, number| {
        setup.server(&format!("stub{number}"), &["--raw-echo"])
    });
    let twenty = setup.start().await;
    for daemon in [&one, &twenty] {
        ask_once(daemon).await;
    }
    tokio::time::sleep(REST).await;
    [("1 server", &one, 4), ("20 servers, all running", &twenty, 10)]
        .into_iter()
        .flat_map(|(what, daemon, aim)| {
            let (alone, all) = (Usage::of(daemon.pid()), Tree::of(daemon.pid()).gateway);
            let found = format!(
                "{} of its own, {} resident, {} proportional; daemon alone {}, {} and {}, {} threads, {} descriptors",
                mib(all.own_kib),
                mib(all.rss_kib),
                mib(all.pss_kib),
                mib(alone.own_kib),
                mib(alone.rss_kib),
                mib(alone.pss_kib),
                alone.threads,
                alone.fds
            );
            let row = Row::new(PART, format!("daemon with {what}, warden and guards included"), found);
            [row.aim(format!("at most {aim} MiB of its own"), all.own_kib <= aim * 1_024)]
        })
        .collect()
}

async fn ask_once(daemon: &Daemon) {
    let answer = daemon.connect().await.ask(&mcp::call("good", "echo", "{}")).await;
    assert!(answer.unwrap().is_result());
}

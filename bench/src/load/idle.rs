//! Resources of an idle daemon.

use std::time::Duration;

use bench::process::{MeasuredUsage, TreeUsage, mib};

use super::mcp;
use super::result_rows::LoadRow;
use super::setup::{DaemonSetup, LoadedDaemon};

const PART: &str = "idle";

/// Background work of the start is over after this long, even on a busy machine.
const REST: Duration = Duration::from_secs(15);

pub(crate) async fn run() -> Vec<LoadRow> {
    let one = DaemonSetup::new().start().await;
    let setup = (1..20).fold(DaemonSetup::new().config("[pool]\nmax_processes = 32"), |setup, number| {
        setup.server(&format!("stub{number}"), &["--raw-echo"])
    });
    let twenty = setup.start().await;
    for daemon in [&one, &twenty] {
        call_once(daemon).await;
    }
    tokio::time::sleep(REST).await;
    [("1 server", &one, 4), ("20 servers, all running", &twenty, 10)]
        .into_iter()
        .flat_map(|(what, daemon, aim)| {
            let (alone, all) = (MeasuredUsage::read(daemon.pid()), TreeUsage::read(daemon.pid()).gateway);
            let found = format!(
                "{} of its own, {} resident, {} proportional; daemon alone {}, {} and {}, {} threads, {} descriptors",
                mib(all.private_kib),
                mib(all.rss_kib),
                mib(all.pss_kib),
                mib(alone.private_kib),
                mib(alone.rss_kib),
                mib(alone.pss_kib),
                alone.threads,
                alone.fds
            );
            let row = LoadRow::new(PART, format!("daemon with {what}, spawner and guards included"), found);
            [row.aim(format!("at most {aim} MiB of its own"), all.private_kib <= aim * 1_024)]
        })
        .collect()
}

async fn call_once(daemon: &LoadedDaemon) {
    let answer = daemon.connect().await.request(&mcp::call("good", "echo", "{}")).await;
    assert!(answer.unwrap().is_result());
}

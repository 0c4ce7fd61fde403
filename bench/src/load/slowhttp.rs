//! slowhttptest against the daemon, beside the good client.

use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::task::LocalSet;

use super::good_client::GoodClient;
use super::options::LoadOptions;
use super::result_rows::LoadRow;
use super::setup::DaemonSetup;
use bench::process::{MeasuredUsage, mib};

const PART: &str = "slowhttptest";

/// The duration of each attack, in seconds.
const SECONDS: &str = "20";

/// The name of an attack and its arguments for slowhttptest.
const ATTACKS: [(&str, &[&str]); 4] = [
    ("slow headers", &["-H", "-i", "3"]),
    ("slow body", &["-B", "-i", "3", "-s", "65536", "-t", "POST"]),
    ("slow read", &["-X", "-w", "10", "-y", "20", "-n", "3", "-z", "32", "-k", "3"]),
    ("range", &["-R", "-a", "1", "-b", "3000", "-t", "HEAD"]),
];

pub(crate) async fn run(options: &LoadOptions) -> Vec<LoadRow> {
    let connections = options.scaled(2_000).to_string();
    LocalSet::new().run_until(attack(&connections)).await
}

async fn attack(connections: &str) -> Vec<LoadRow> {
    let mut rows = Vec::new();
    for (name, args) in ATTACKS {
        let daemon = DaemonSetup::new().start().await;
        let good = GoodClient::start(daemon.address);
        tokio::time::sleep(Duration::from_secs(2)).await;
        let (quiet, before) = (good.take_stats(), MeasuredUsage::read(daemon.pid()));
        let url = format!("http://127.0.0.1:{}/mcp", daemon.address.port());
        let attack = Command::new("slowhttptest")
            .args(args)
            .args(["-c", connections, "-r", "500", "-l", SECONDS, "-p", "2", "-u", &url])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut attack) = attack else {
            return vec![LoadRow::new(PART, "not measured", "slowhttptest is not installed")];
        };
        let mut most = before;
        while attack.try_wait().unwrap().is_none() {
            let now = MeasuredUsage::read(daemon.pid());
            most.rss_kib = most.rss_kib.max(now.rss_kib);
            most.fds = most.fds.max(now.fds);
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        let seen = good.take_stats();
        rows.push(
            LoadRow::new(
                PART,
                format!("{name}, {connections} connections: good client"),
                format!(
                    "{seen}; before: {quiet}; daemon {} more, at most {} descriptors",
                    mib(most.rss_kib - before.rss_kib),
                    most.fds
                ),
            )
            .aim("no error", seen.errors == 0),
        );
    }
    rows
}

//! Thousands of idle connections.

use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::task::LocalSet;

use super::good_client::GoodClient;
use super::http::LoadConnection;
use super::mcp;
use super::options::LoadOptions;
use super::result_rows::LoadRow;
use super::setup::DaemonSetup;
use bench::process::{MeasuredUsage, mib};

const PART: &str = "connections";

pub(crate) async fn run(options: &LoadOptions) -> Vec<LoadRow> {
    let count = options.scaled(10_000);
    let mut rows = LocalSet::new().run_until(measure_within_limit(count)).await;
    rows.extend(LocalSet::new().run_until(measure_beyond_limit(count)).await);
    rows
}

/// Measures connections below the limit, all of which are accepted.
async fn measure_within_limit(count: usize) -> Vec<LoadRow> {
    let setup = DaemonSetup::new().config(&format!("[gateway]\nmax_connections = {}", count + 100));
    let daemon = setup.start().await;
    let good = GoodClient::start(daemon.address);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let quiet = good.take_stats();
    let before = MeasuredUsage::read(daemon.pid());
    let request = mcp::call("good", "echo", "{}");
    let (mut used, mut failed) = (Vec::new(), 0);
    for _ in 0..count {
        // Each has made one request, as kept-alive connections have.
        match LoadConnection::open(daemon.address).await {
            Ok(mut connection) => match connection.request(&request).await {
                Ok(answer) if answer.is_result() => used.push(connection),
                _ => failed += 1,
            },
            Err(_) => failed += 1,
        }
    }
    good.take_stats();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let (with, seen) = (MeasuredUsage::read(daemon.pid()), good.take_stats());
    drop(used);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let after = MeasuredUsage::read(daemon.pid());
    let each = (with.rss_kib - before.rss_kib) * 1_024 / count as i64;
    vec![
        LoadRow::new(
            PART,
            format!("{count} connections that idle after a call: not served"),
            failed.to_string(),
        )
        .aim("0", failed == 0),
        LoadRow::new(PART, "resident memory of each", format!("{each} B")),
        LoadRow::new(PART, "descriptors before and with them", format!("{}, {}", before.fds, with.fds)),
        seen.row(PART, "good client with them", &quiet),
        LoadRow::new(
            PART,
            "daemon before, with them, after they have left",
            format!("{}, {}, {}", mib(before.rss_kib), mib(with.rss_kib), mib(after.rss_kib)),
        ),
    ]
}

/// Measures connections beyond the default limit, where the longest idle ones are evicted.
async fn measure_beyond_limit(count: usize) -> Vec<LoadRow> {
    let daemon = DaemonSetup::new().start().await;
    let good = GoodClient::start(daemon.address);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let quiet = good.take_stats();
    let before = MeasuredUsage::read(daemon.pid());
    let mut silent = Vec::new();
    for _ in 0..count {
        silent.push(LoadConnection::open(daemon.address).await.expect("the kernel lets it in"));
    }
    let (with, seen) = (MeasuredUsage::read(daemon.pid()), good.take_stats());
    // They have sent nothing, so a read returns only when the connection is closed.
    let mut open = 0;
    for connection in &mut silent {
        let end = tokio::time::timeout(Duration::ZERO, connection.stream.read(&mut [0])).await;
        open += usize::from(end.is_err());
    }
    vec![
        seen.row(
            PART,
            format!("{count} silent connections within the limit of 1,024: good client meanwhile"),
            &quiet,
        ),
        LoadRow::new(
            PART,
            "of these still open; descriptors before and with them; memory",
            format!("{open}; {}, {}; {} more", before.fds, with.fds, mib(with.rss_kib - before.rss_kib)),
        )
        .aim("at most 1,024", open <= 1_024),
    ]
}

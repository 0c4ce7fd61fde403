//! Thousands of connections on which nothing happens.

use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::task::LocalSet;

use super::good::GoodClient;
use super::http::Connection;
use super::mcp;
use super::options::Options;
use super::page::Row;
use super::setup::Setup;
use bench::process::{Usage, mib};

const PART: &str = "connections";

pub(crate) async fn run(options: &Options) -> Vec<Row> {
    let count = options.scaled(10_000);
    let mut rows = LocalSet::new().run_until(hold(count)).await;
    rows.extend(LocalSet::new().run_until(beyond(count)).await);
    rows
}

/// All of them are let in.
async fn hold(count: usize) -> Vec<Row> {
    let setup = Setup::new().config(&format!("[gateway]\nmax_connections = {}", count + 100));
    let daemon = setup.start().await;
    let good = GoodClient::start(daemon.address);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let quiet = good.take();
    let before = Usage::of(daemon.pid());
    let ask = mcp::call("good", "echo", "{}");
    let (mut used, mut failed) = (Vec::new(), 0);
    for _ in 0..count {
        // Each has asked something once, as connections that are kept have.
        match Connection::open(daemon.address).await {
            Ok(mut connection) => match connection.ask(&ask).await {
                Ok(answer) if answer.is_result() => used.push(connection),
                _ => failed += 1,
            },
            Err(_) => failed += 1,
        }
    }
    good.take();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let (with, seen) = (Usage::of(daemon.pid()), good.take());
    drop(used);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let after = Usage::of(daemon.pid());
    let each = (with.rss_kib - before.rss_kib) * 1_024 / count as i64;
    vec![
        Row::new(PART, format!("{count} connections that idle after a call: not served"), failed.to_string())
            .aim("0", failed == 0),
        Row::new(PART, "resident memory of each", format!("{each} B")),
        Row::new(PART, "descriptors before and with them", format!("{}, {}", before.fds, with.fds)),
        seen.row(PART, "good client with them", &quiet),
        Row::new(
            PART,
            "daemon before, with them, after they have left",
            format!("{}, {}, {}", mib(before.rss_kib), mib(with.rss_kib), mib(after.rss_kib)),
        ),
    ]
}

/// With the limit as it is: the longest idle ones make room.
async fn beyond(count: usize) -> Vec<Row> {
    let daemon = Setup::new().start().await;
    let good = GoodClient::start(daemon.address);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let quiet = good.take();
    let before = Usage::of(daemon.pid());
    let mut silent = Vec::new();
    for _ in 0..count {
        silent.push(Connection::open(daemon.address).await.expect("the kernel lets it in"));
    }
    let (with, seen) = (Usage::of(daemon.pid()), good.take());
    // Nothing was ever said on them, so only an end can be read.
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
        Row::new(
            PART,
            "of these still open; descriptors before and with them; memory",
            format!("{open}; {}, {}; {} more", before.fds, with.fds, mib(with.rss_kib - before.rss_kib)),
        )
        .aim("at most 1,024", open <= 1_024),
    ]
}

//! Streams that stay open and are not read.

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::task::LocalSet;

use super::good_client::GoodClient;
use super::http::LoadConnection;
use super::mcp;
use super::options::LoadOptions;
use super::result_rows::LoadRow;
use super::setup::DaemonSetup;
use bench::process::MeasuredUsage;

const PART: &str = "streams";

/// Changes that are notified on all streams.
const CHANGES: usize = 20;

#[derive(Debug, Clone, Copy)]
enum StreamEra {
    Legacy,
    Modern,
}

pub(crate) async fn run(options: &LoadOptions) -> Vec<LoadRow> {
    let mut rows = Vec::new();
    for era in [StreamEra::Legacy, StreamEra::Modern] {
        rows.extend(LocalSet::new().run_until(measure_streams(era, options.scaled(500))).await);
    }
    rows
}

async fn measure_streams(era: StreamEra, count: usize) -> Vec<LoadRow> {
    // One caller may have half of all streams and of all connections.
    let setup = DaemonSetup::new().config("[gateway]\nmax_connections = 4096").server("news", &["--listen"]);
    let daemon = setup.start().await;
    let good = GoodClient::start(daemon.address);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (quiet, before) = (good.take_stats(), MeasuredUsage::read(daemon.pid()));
    let (mut streams, mut refused, mut why) = (Vec::new(), 0, None);
    for _ in 0..count {
        let mut stream = LoadConnection::open_narrow(daemon.address).await.unwrap();
        let request = match era {
            StreamEra::Modern => mcp::listen(),
            StreamEra::Legacy => {
                let answer = daemon.connect().await.request(&mcp::initialize()).await.unwrap();
                mcp::stream(answer.header("mcp-session-id").expect("a session was opened"))
            }
        };
        stream.stream.write_all(&request).await.unwrap();
        let head = stream.read_head().await.unwrap();
        match head.status {
            200 => streams.push(stream),
            _ => {
                refused += 1;
                why.get_or_insert(head.head);
            }
        }
    }
    let with = MeasuredUsage::read(daemon.pid());
    good.take_stats();
    // No client reads any of it.
    let mut trigger = daemon.connect().await;
    for _ in 0..CHANGES {
        assert!(
            trigger.request(&mcp::call("news", "list_changed", r#"{"count":1}"#)).await.unwrap().status
                == 200
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let (notified, seen) = (MeasuredUsage::read(daemon.pid()), good.take_stats());
    let held = streams.len();
    drop(streams);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let after = MeasuredUsage::read(daemon.pid());
    let what = match era {
        StreamEra::Legacy => "GET streams of legacy sessions",
        StreamEra::Modern => "`subscriptions/listen`",
    };
    let refusal = why.map_or(String::new(), |head| format!(" ({})", head.lines().next().unwrap_or("")));
    vec![
        LoadRow::new(PART, format!("{count} × {what}: open, refused"), format!("{held}, {refused}{refusal}")),
        LoadRow::new(
            PART,
            format!("{what}: memory of each, and after {CHANGES} changes that nobody reads"),
            format!(
                "{:.1} KiB, {:.1} KiB",
                (with.rss_kib - before.rss_kib) as f64 / held as f64,
                (notified.rss_kib - before.rss_kib) as f64 / held as f64
            ),
        ),
        seen.row(PART, format!("{what}: good client meanwhile"), &quiet),
        LoadRow::new(PART, format!("{what}: daemon before, after; descriptors"), before.compare(after))
            .aim("descriptors as before", after.fds <= before.fds + 4),
    ]
}

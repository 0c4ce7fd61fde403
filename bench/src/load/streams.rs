//! Streams that stay open, read by some and by others not.

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::task::LocalSet;

use super::good::GoodClient;
use super::http::Connection;
use super::mcp;
use super::options::Options;
use super::page::Row;
use super::setup::Setup;
use bench::process::Usage;

const PART: &str = "streams";

/// Changes that are told to all of them, as fast as they are told.
const CHANGES: usize = 20;

#[derive(Debug, Clone, Copy)]
enum Era {
    Legacy,
    Modern,
}

pub(crate) async fn run(options: &Options) -> Vec<Row> {
    let mut rows = Vec::new();
    for era in [Era::Legacy, Era::Modern] {
        rows.extend(LocalSet::new().run_until(open(era, options.scaled(500))).await);
    }
    rows
}

async fn open(era: Era, count: usize) -> Vec<Row> {
    // One caller may have half of all streams and of all connections.
    let setup = Setup::new().config("[gateway]\nmax_connections = 4096").server("news", &["--listen"]);
    let daemon = setup.start().await;
    let good = GoodClient::start(daemon.address);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (quiet, before) = (good.take(), Usage::of(daemon.pid()));
    let (mut streams, mut refused, mut why) = (Vec::new(), 0, None);
    for _ in 0..count {
        let mut stream = Connection::open_narrow(daemon.address).await.unwrap();
        let ask = match era {
            Era::Modern => mcp::listen(),
            Era::Legacy => {
                let answer = daemon.connect().await.ask(&mcp::initialize()).await.unwrap();
                mcp::stream(answer.header("mcp-session-id").expect("a session was opened"))
            }
        };
        stream.stream.write_all(&ask).await.unwrap();
        let head = stream.read_head().await.unwrap();
        match head.status {
            200 => streams.push(stream),
            _ => {
                refused += 1;
                why.get_or_insert(head.head);
            }
        }
    }
    let with = Usage::of(daemon.pid());
    good.take();
    // Nobody reads any of it.
    let mut teller = daemon.connect().await;
    for _ in 0..CHANGES {
        assert!(
            teller.ask(&mcp::call("news", "list_changed", r#"{"count":1}"#)).await.unwrap().status == 200
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let (told, seen) = (Usage::of(daemon.pid()), good.take());
    let held = streams.len();
    drop(streams);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let after = Usage::of(daemon.pid());
    let what = match era {
        Era::Legacy => "GET streams of legacy sessions",
        Era::Modern => "`subscriptions/listen`",
    };
    let refusal = why.map_or(String::new(), |head| format!(" ({})", head.lines().next().unwrap_or("")));
    vec![
        Row::new(PART, format!("{count} × {what}: open, refused"), format!("{held}, {refused}{refusal}")),
        Row::new(
            PART,
            format!("{what}: memory of each, and after {CHANGES} changes that nobody reads"),
            format!(
                "{:.1} KiB, {:.1} KiB",
                (with.rss_kib - before.rss_kib) as f64 / held as f64,
                (told.rss_kib - before.rss_kib) as f64 / held as f64
            ),
        ),
        seen.row(PART, format!("{what}: good client meanwhile"), &quiet),
        Row::new(PART, format!("{what}: daemon before, after; descriptors"), before.beside(after))
            .aim("descriptors as before", after.fds <= before.fds + 4),
    ]
}

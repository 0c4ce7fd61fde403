//! Legacy clients that open a session and never come back.

use std::time::Duration;

use tokio::task::LocalSet;

use super::good_client::GoodClient;
use super::mcp;
use super::options::LoadOptions;
use super::result_rows::LoadRow;
use super::setup::DaemonSetup;
use bench::process::{MeasuredUsage, mib};

const PART: &str = "sessions";

/// The idle timeout of sessions here.
const IDLE: Duration = Duration::from_secs(15);

/// After this long the sessions are evicted and their memory is given back.
const GONE: Duration = Duration::from_secs(20);

pub(crate) async fn run(options: &LoadOptions) -> Vec<LoadRow> {
    LocalSet::new().run_until(abandon(options.scaled(10_000))).await
}

async fn abandon(count: usize) -> Vec<LoadRow> {
    let idle = IDLE.as_secs();
    let setup =
        DaemonSetup::new().config(&format!("[gateway]\nsession_idle = \"{idle}s\"\nmax_sessions = {count}"));
    let daemon = setup.start().await;
    let initialize = mcp::initialize();
    let mut connection = daemon.connect().await;
    // The first sessions also pay for what all of them share.
    for _ in 0..100 {
        assert!(connection.request(&initialize).await.unwrap().is_result());
    }
    let before = MeasuredUsage::read(daemon.pid());
    for _ in 100..count {
        assert!(connection.request(&initialize).await.unwrap().is_result());
    }
    let full = MeasuredUsage::read(daemon.pid());
    // As many again: each evicts an older one.
    let good = GoodClient::start(daemon.address);
    for _ in 0..count {
        assert!(connection.request(&initialize).await.unwrap().is_result());
    }
    let seen = good.take_stats();
    drop(good);
    let turned_over = MeasuredUsage::read(daemon.pid());
    tokio::time::sleep(IDLE + GONE).await;
    let after = MeasuredUsage::read(daemon.pid());
    let each = |usage: MeasuredUsage| (usage.rss_kib - before.rss_kib) * 1_024 / (count as i64 - 100);
    vec![
        LoadRow::new(
            PART,
            format!("{count} abandoned sessions: resident memory of each"),
            format!("{} B", each(full)),
        )
        .aim("at most 1 KiB", each(full) <= 1_024),
        LoadRow::new(
            PART,
            "as many again, each in place of an old one: the same",
            format!("{} B; good client meanwhile: {seen}", each(turned_over)),
        )
        .aim("bounded", each(turned_over) <= 1_280 && seen.errors == 0),
        LoadRow::new(PART, "descriptors, threads before and with them", {
            format!("{}, {}; {}, {}", before.fds, before.threads, full.fds, full.threads)
        })
        .aim("the same", full.fds <= before.fds + 1 && full.threads <= before.threads),
        LoadRow::new(
            PART,
            "daemon before, with them, after their time is over",
            format!("{}, {}, {}", mib(before.rss_kib), mib(full.rss_kib), mib(after.rss_kib)),
        )
        .aim("given back", after.rss_kib <= before.rss_kib + 2_048),
    ]
}

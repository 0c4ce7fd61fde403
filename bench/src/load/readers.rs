//! Clients that ask for much and read little.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::LocalSet;

use super::good::GoodClient;
use super::http::Connection;
use super::mcp;
use super::options::Options;
use super::page::Row;
use super::setup::Setup;
use bench::process::{Usage, forget_peak, mib};

const PART: &str = "slow readers";

/// What each asks for.
const ANSWER: usize = 10_000_000;

/// Whoever is still connected then was not cut off.
const PATIENCE: Duration = Duration::from_secs(150);

/// What the memory of the daemon may be beyond its base.
const BOUND_KIB: i64 = 256 * 1_024;

#[derive(Debug, Clone, Copy)]
enum Way {
    /// Reads nothing at all.
    Deaf,
    /// Reads a kilobyte in a second.
    Slow,
}

pub(crate) async fn run(options: &Options) -> Vec<Row> {
    let mut rows = Vec::new();
    for way in [Way::Deaf, Way::Slow] {
        rows.extend(LocalSet::new().run_until(crowd(way, options.scaled(200))).await);
    }
    rows
}

async fn crowd(way: Way, count: usize) -> Vec<Row> {
    let daemon = Setup::new().server("large", &[]).start().await;
    let good = GoodClient::start(daemon.address);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let quiet = good.take();
    let before = Usage::of(daemon.pid());
    forget_peak(daemon.pid());
    let ask = mcp::call("large", "blob", &format!(r#"{{"size":{ANSWER}}}"#));
    let began = Instant::now();
    let readers: Vec<_> =
        (0..count).map(|_| tokio::task::spawn_local(read(daemon.address, ask.clone(), way))).collect();
    let mut ends = Vec::new();
    for reader in readers {
        ends.push(reader.await.unwrap());
    }
    let seen = good.take();
    let peak = Usage::of(daemon.pid()).hwm_kib - before.rss_kib;
    let cut_off = ends.iter().filter(|end| end.is_some()).count();
    let last = ends.iter().flatten().max().map_or(Duration::ZERO, |end| end.saturating_duration_since(began));
    tokio::time::sleep(Duration::from_secs(15)).await;
    let after = Usage::of(daemon.pid());
    let what = match way {
        Way::Deaf => "that read nothing",
        Way::Slow => "that read 1 KB/s",
    };
    vec![
        Row::new(PART, format!("{count} clients {what} of 10 MB: most memory beyond base"), mib(peak))
            .aim("at most 256 MiB", peak <= BOUND_KIB),
        Row::new(
            PART,
            format!("{what}: cut off"),
            format!("{cut_off}, the last after {:.0} s", last.as_secs_f64()),
        )
        .aim("all", cut_off == count),
        seen.row(PART, format!("{what}: good client meanwhile"), &quiet),
        Row::new(PART, format!("{what}: daemon before and after, descriptors"), before.beside(after)),
    ]
}

/// When it was cut off, if it was.
async fn read(address: std::net::SocketAddr, ask: Vec<u8>, way: Way) -> Option<Instant> {
    let mut connection = Connection::open_narrow(address).await.ok()?;
    connection.stream.write_all(&ask).await.ok()?;
    let end = tokio::time::timeout(PATIENCE, async {
        loop {
            match way {
                // What can be written is taken by the kernel; a connection that is closed can't be written to.
                Way::Deaf => {
                    tokio::time::sleep(Duration::from_millis(500)).await;
                    if connection.stream.write_all(b"\n").await.is_err() {
                        return Instant::now();
                    }
                }
                Way::Slow => {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    match connection.stream.read(&mut [0; 1_000]).await {
                        Ok(0) | Err(_) => return Instant::now(),
                        Ok(_) => {}
                    }
                }
            }
        }
    });
    end.await.ok()
}

//! Clients that request large answers and read little.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::LocalSet;

use super::good_client::GoodClient;
use super::http::LoadConnection;
use super::mcp;
use super::options::LoadOptions;
use super::result_rows::LoadRow;
use super::setup::DaemonSetup;
use bench::process::{MeasuredUsage, mib, reset_peak};

const PART: &str = "slow readers";

/// Bytes that each client requests.
const ANSWER: usize = 10_000_000;

/// A client that is still connected after this long was not cut off.
const CUTOFF_TIMEOUT: Duration = Duration::from_secs(150);

/// Upper bound of the daemon's growth.
const BOUND_KIB: i64 = 256 * 1_024;

#[derive(Debug, Clone, Copy)]
enum ReadSpeed {
    /// Reads nothing at all.
    Zero,
    /// Reads a kilobyte in a second.
    Slow,
}

pub(crate) async fn run(options: &LoadOptions) -> Vec<LoadRow> {
    let mut rows = Vec::new();
    for speed in [ReadSpeed::Zero, ReadSpeed::Slow] {
        rows.extend(LocalSet::new().run_until(measure_readers(speed, options.scaled(200))).await);
    }
    rows
}

async fn measure_readers(speed: ReadSpeed, count: usize) -> Vec<LoadRow> {
    let daemon = DaemonSetup::new().server("large", &[]).start().await;
    let good = GoodClient::start(daemon.address);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let quiet = good.take_stats();
    let before = MeasuredUsage::read(daemon.pid());
    reset_peak(daemon.pid());
    let request = mcp::call("large", "blob", &format!(r#"{{"size":{ANSWER}}}"#));
    let began = Instant::now();
    let readers: Vec<_> = (0..count)
        .map(|_| tokio::task::spawn_local(read_until_cut_off(daemon.address, request.clone(), speed)))
        .collect();
    let mut ends = Vec::new();
    for reader in readers {
        ends.push(reader.await.unwrap());
    }
    let seen = good.take_stats();
    let peak = MeasuredUsage::read(daemon.pid()).hwm_kib - before.rss_kib;
    let cut_off = ends.iter().filter(|end| end.is_some()).count();
    let last = ends.iter().flatten().max().map_or(Duration::ZERO, |end| end.saturating_duration_since(began));
    tokio::time::sleep(Duration::from_secs(15)).await;
    let after = MeasuredUsage::read(daemon.pid());
    let what = match speed {
        ReadSpeed::Zero => "that read nothing",
        ReadSpeed::Slow => "that read 1 KB/s",
    };
    vec![
        LoadRow::new(PART, format!("{count} clients {what} of 10 MB: most memory beyond base"), mib(peak))
            .aim("at most 256 MiB", peak <= BOUND_KIB),
        LoadRow::new(
            PART,
            format!("{what}: cut off"),
            format!("{cut_off}, the last after {:.0} s", last.as_secs_f64()),
        )
        .aim("all", cut_off == count),
        seen.row(PART, format!("{what}: good client meanwhile"), &quiet),
        LoadRow::new(PART, format!("{what}: daemon before and after, descriptors"), before.compare(after)),
    ]
}

/// Returns the time of the cut-off, if there was one.
async fn read_until_cut_off(
    address: std::net::SocketAddr,
    request: Vec<u8>,
    speed: ReadSpeed,
) -> Option<Instant> {
    let mut connection = LoadConnection::open_narrow(address).await.ok()?;
    connection.stream.write_all(&request).await.ok()?;
    let end = tokio::time::timeout(CUTOFF_TIMEOUT, async {
        loop {
            match speed {
                // The kernel accepts writes until the connection is closed.
                ReadSpeed::Zero => {
                    tokio::time::sleep(Duration::from_millis(500)).await;
                    if connection.stream.write_all(b"\n").await.is_err() {
                        return Instant::now();
                    }
                }
                ReadSpeed::Slow => {
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

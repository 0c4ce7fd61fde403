//! Servers that send too much: an endless line, a million notifications, a compression bomb.

use std::io::Write as _;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::LocalSet;

use super::good_client::GoodClient;
use super::mcp;
use super::options::LoadOptions;
use super::result_rows::LoadRow;
use super::setup::{DaemonSetup, LoadedDaemon};
use bench::process::{MeasuredUsage, mib, reset_peak};

const PART: &str = "floods";

/// Upper bound of the daemon's growth, whatever servers send.
const BOUND_KIB: i64 = 64 * 1_024;

/// Longer than any flood takes.
const FLOOD_TIMEOUT: Duration = Duration::from_secs(120);

/// The size of the unpacked bomb.
const BOMB: usize = 1 << 30;

pub(crate) async fn run(options: &LoadOptions) -> Vec<LoadRow> {
    LocalSet::new().run_until(flood(options)).await
}

async fn flood(options: &LoadOptions) -> Vec<LoadRow> {
    let bomb = serve_bomb().await;
    let setup = DaemonSetup::new()
        .server("loud", &[])
        .server_toml("bomb", &format!("url = \"http://{bomb}/mcp\"\nlazy = true\nrestart = {{ max = 100 }}"));
    let daemon = setup.start().await;
    let line = format!(r#"{{"bytes":{},"id":"none","newline":true}}"#, options.scaled(1_000_000_000));
    let news = format!(r#"{{"count":{}}}"#, options.scaled(1_000_000));
    let mut rows = Vec::new();
    for (what, request) in [
        ("a line of 1 GB", mcp::call("loud", "huge_line", &line)),
        ("a million notifications", mcp::call("loud", "flood_notifications", &news)),
        ("1 GiB of zeros in a gzip body", mcp::call("bomb", "echo", "{}")),
    ] {
        rows.push(measure(&daemon, what, &request).await);
    }
    rows
}

async fn measure(daemon: &LoadedDaemon, what: &str, request: &[u8]) -> LoadRow {
    let good = GoodClient::start(daemon.address);
    tokio::time::sleep(Duration::from_secs(1)).await;
    good.take_stats();
    let before = MeasuredUsage::read(daemon.pid());
    reset_peak(daemon.pid());
    let mut connection = daemon.connect().await;
    let answer = tokio::time::timeout(FLOOD_TIMEOUT, connection.request(request)).await;
    let ending = match answer {
        Ok(Ok(answer)) => String::from_utf8_lossy(&answer.body).chars().take(90).collect(),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "no answer".into(),
    };
    let seen = good.take_stats();
    eprintln!("    {ending}");
    let more = MeasuredUsage::read(daemon.pid()).hwm_kib - before.rss_kib;
    LoadRow::new(
        PART,
        format!("{what}: most memory beyond base"),
        format!("{}; good client: {seen}", mib(more)),
    )
    .aim("at most 64 MiB", more <= BOUND_KIB && seen.errors == 0)
}

/// Serves HTTP answers that each unpack to a gibibyte.
async fn serve_bomb() -> std::net::SocketAddr {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    let zeros = vec![b' '; 1 << 20];
    for _ in 0..BOMB >> 20 {
        packed.write_all(&zeros).unwrap();
    }
    let packed = packed.finish().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::task::spawn_local(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let packed = packed.clone();
            tokio::task::spawn_local(async move {
                let mut head = [0; 8_192];
                let _ = stream.read(&mut head).await;
                let head = format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    packed.len()
                );
                let _ = stream.write_all(head.as_bytes()).await;
                let _ = stream.write_all(&packed).await;
            });
        }
    });
    address
}

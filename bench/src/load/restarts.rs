//! Server that crashes a thousand times.

use std::time::{Duration, Instant};

use ostler_testkit::Proc;

use super::mcp;
use super::options::LoadOptions;
use super::result_rows::LoadRow;
use super::setup::DaemonSetup;
use bench::process::{MeasuredUsage, mib};

const PART: &str = "restarts";

pub(crate) async fn run(options: &LoadOptions) -> Vec<LoadRow> {
    let count = options.scaled(1_000);
    let fake = ostler_testkit::fake_mcp();
    let text = format!(
        "command = {fake:?}\nlazy = false\nrestart = {{ max = 100000, window = \"1h\", first_delay = \"1ms\", max_delay = \"1ms\" }}\nbreaker = {{ failures = 0, reset = \"1s\" }}"
    );
    let daemon = DaemonSetup::new().server_toml("frail", &text).start().await;
    let mut connection = daemon.connect().await;
    let (crash, echo) =
        (mcp::call("frail", "crash", r#"{"when":"before"}"#), mcp::call("frail", "echo", "{}"));
    let mut gaps = Vec::new();
    let mut before = MeasuredUsage::read(daemon.pid());
    for number in 0..count + 50 {
        if number == 50 {
            before = MeasuredUsage::read(daemon.pid());
            gaps.clear();
        }
        let _ = connection.request(&crash).await.unwrap();
        let began = Instant::now();
        while !connection.request(&echo).await.unwrap().is_result() {
            assert!(began.elapsed() < Duration::from_secs(20), "it does not come back: {}", daemon.log());
        }
        gaps.push(began.elapsed());
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    let after = MeasuredUsage::read(daemon.pid());
    let daemon_process = Proc::find(daemon.pid()).expect("it lives");
    let zombies: usize = daemon_process.zombies().len()
        + daemon_process.descendants().iter().map(|it| it.zombies().len()).sum::<usize>();
    let processes = daemon_process.descendants().len();
    let (grown, descriptors) = (after.rss_kib - before.rss_kib, after.fds - before.fds);
    vec![
        LoadRow::new(
            PART,
            format!("{count} restarts: zombies"),
            format!("{zombies}, {processes} processes below the daemon"),
        )
        .aim("0", zombies == 0),
        LoadRow::new(PART, "descriptors", format!("{descriptors:+}")).aim("± 4", descriptors.abs() <= 4),
        LoadRow::new(PART, "resident memory", format!("{}{}", if grown >= 0 { "+" } else { "" }, mib(grown)))
            .aim("at most 5 MB more", grown <= 5_000),
        LoadRow::new(
            PART,
            "from a crash to the next good answer",
            format!(
                "p50 {}, p99 {}",
                super::good_client::ms(super::good_client::quantile(&gaps, 0.5)),
                super::good_client::ms(super::good_client::quantile(&gaps, 0.99))
            ),
        )
        .aim("p99 at most 100 ms", super::good_client::quantile(&gaps, 0.99) <= Duration::from_millis(100)),
    ]
}

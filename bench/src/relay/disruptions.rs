//! What happens seldom: a cancellation, a host that dies, a long answer.

use std::path::Path;
use std::time::{Duration, Instant};

use ostler_core::error::CallError;
use ostler_host::{Answer, Caller, Host};
use serde_json::json;

use super::daemon::frames;
use super::relay_setup::{RelaySetup, RelayedHost};

/// The length of a long answer.
const LARGE: usize = 20_000_000;

/// Cancellations and long answers in each round.
const TIMES: usize = 5;

/// Between two looks at a file.
const FILE_POLL_INTERVAL: Duration = Duration::from_micros(50);

/// Whatever takes longer than this does not happen any more.
const EVENT_TIMEOUT: Duration = Duration::from_secs(30);

/// What one round has shown.
#[derive(Debug, Clone)]
pub(crate) struct Disruptions {
    /// From when the caller goes to when the server has read that it has, in milliseconds.
    pub(crate) cancel_ms: Vec<f64>,
    /// From the host's death to the caller's error, in seconds.
    pub(crate) host_kill_secs: f64,
    /// Megabytes a second of a long answer, relayed and direct.
    pub(crate) large_mb_per_s: Vec<f64>,
    pub(crate) large_direct_mb_per_s: Vec<f64>,
}

pub(crate) async fn measure(stage: &mut RelaySetup) -> Disruptions {
    let mut ends = Disruptions {
        cancel_ms: Vec::new(),
        host_kill_secs: 0.0,
        large_mb_per_s: Vec::new(),
        large_direct_mb_per_s: Vec::new(),
    };
    for _ in 0..TIMES {
        ends.cancel_ms.push(measure_cancel(&stage.local).await);
        ends.large_mb_per_s.push(measure_large_answer(&stage.local.host).await);
        ends.large_direct_mb_per_s.push(measure_large_answer(&stage.direct).await);
    }
    ends.host_kill_secs = measure_host_kill(&mut stage.local).await;
    ends
}

async fn measure_cancel(relay: &RelayedHost) -> f64 {
    let frames = frames(&relay.daemon);
    let begun = count(&frames, SLEEP);
    let told = count(&frames, CANCELLED);
    let call = tokio::spawn(sleep(relay.host.clone()));
    wait_for_line(&frames, SLEEP, begun).await;
    let began = Instant::now();
    call.abort();
    wait_for_line(&frames, CANCELLED, told).await.duration_since(began).as_secs_f64() * 1e3
}

/// What stands in a line about a call that sleeps, and in one about its end.
const SLEEP: &str = r#""name":"sleep""#;
const CANCELLED: &str = "notifications/cancelled";

async fn sleep(host: Host) -> Result<Answer, CallError> {
    host.call(&Caller::local(), "slow", "sleep", json!({"ms": 120_000})).await
}

/// Waits until a word stands in a file once more; when that was.
async fn wait_for_line(file: &Path, word: &'static str, before: usize) -> Instant {
    let file = file.to_owned();
    let looking = tokio::task::spawn_blocking(move || {
        let until = Instant::now() + EVENT_TIMEOUT;
        while count(&file, word) <= before {
            assert!(Instant::now() < until, "{word} has not come");
            std::thread::sleep(FILE_POLL_INTERVAL);
        }
        Instant::now()
    });
    looking.await.unwrap()
}

fn count(file: &Path, word: &str) -> usize {
    std::fs::read_to_string(file).unwrap_or_default().matches(word).count()
}

async fn measure_large_answer(host: &Host) -> f64 {
    let began = Instant::now();
    let answer =
        host.call(&Caller::local(), "slow", "blob", json!({"size": LARGE})).await.expect("an answer");
    assert!(answer.body.len() > LARGE);
    answer.body.len() as f64 / 1e6 / began.elapsed().as_secs_f64()
}

async fn measure_host_kill(relay: &mut RelayedHost) -> f64 {
    let frames = frames(&relay.daemon);
    let begun = count(&frames, SLEEP);
    let call = tokio::spawn(sleep(relay.host.clone()));
    wait_for_line(&frames, SLEEP, begun).await;
    let began = Instant::now();
    relay.daemon.kill();
    let ended = tokio::time::timeout(EVENT_TIMEOUT, call).await.expect("an end").unwrap();
    let took = began.elapsed().as_secs_f64();
    assert!(matches!(ended, Err(CallError::OutcomeUnknown { .. })), "{ended:?}");
    relay.daemon.restart().await;
    relay.wait_until_ready().await;
    took
}

//! Rare events: a cancellation, a host that dies, a large answer.

use std::path::Path;
use std::time::{Duration, Instant};

use ostler_core::error::CallError;
use ostler_host::{Answer, Caller, Host};
use serde_json::json;

use super::relay_setup::{RelaySetup, RelayedHost, frames};

/// The length of a large answer.
const LARGE: usize = 20_000_000;

/// Cancellations and large answers in each round.
const TIMES: usize = 5;

/// Interval of checks of a file.
const FILE_POLL_INTERVAL: Duration = Duration::from_micros(50);

/// Longer than any of these events takes.
const EVENT_TIMEOUT: Duration = Duration::from_secs(30);

/// The results of one round.
#[derive(Debug, Clone)]
pub(crate) struct Disruptions {
    /// From the caller's cancellation deadline the server has read it, in milliseconds.
    pub(crate) cancel_ms: Vec<f64>,
    /// From the host's death to the caller's error, in seconds.
    pub(crate) host_kill_secs: f64,
    /// Megabytes per second of a large answer, relayed and direct.
    pub(crate) large_mb_per_s: Vec<f64>,
    pub(crate) large_direct_mb_per_s: Vec<f64>,
}

pub(crate) async fn measure(setup: &mut RelaySetup) -> Disruptions {
    let mut ends = Disruptions {
        cancel_ms: Vec::new(),
        host_kill_secs: 0.0,
        large_mb_per_s: Vec::new(),
        large_direct_mb_per_s: Vec::new(),
    };
    for _ in 0..TIMES {
        ends.cancel_ms.push(measure_cancel(&setup.local).await);
        ends.large_mb_per_s.push(measure_large_answer(&setup.local.host).await);
        ends.large_direct_mb_per_s.push(measure_large_answer(&setup.direct).await);
    }
    ends.host_kill_secs = measure_host_kill(&mut setup.local).await;
    ends
}

async fn measure_cancel(relay: &RelayedHost) -> f64 {
    let frames = frames(&relay.daemon);
    let begun = count(&frames, SLEEP);
    let cancelled = count(&frames, CANCELLED);
    let call = tokio::spawn(sleep(relay.host.clone()));
    wait_for_line(&frames, SLEEP, begun).await;
    let began = Instant::now();
    call.abort();
    wait_for_line(&frames, CANCELLED, cancelled).await.duration_since(began).as_secs_f64() * 1e3
}

/// Parts of a line about a call that sleeps, and of one about its cancellation.
const SLEEP: &str = r#""name":"sleep""#;
const CANCELLED: &str = "notifications/cancelled";

async fn sleep(host: Host) -> Result<Answer, CallError> {
    host.call(&Caller::local(), "slow", "sleep", json!({"ms": 120_000})).await
}

/// Waits deadline a file holds a word more often than `before`, and returns when.
async fn wait_for_line(file: &Path, word: &'static str, before: usize) -> Instant {
    let file = file.to_owned();
    let watching = tokio::task::spawn_blocking(move || {
        let deadline = Instant::now() + EVENT_TIMEOUT;
        while count(&file, word) <= before {
            assert!(Instant::now() < deadline, "{word} has not come");
            std::thread::sleep(FILE_POLL_INTERVAL);
        }
        Instant::now()
    });
    watching.await.unwrap()
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

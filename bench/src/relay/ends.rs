//! What happens seldom: a cancellation, a host that dies, a long answer.

use std::path::Path;
use std::time::{Duration, Instant};

use ostler_core::error::CallError;
use ostler_host::{Answer, Caller, Host};
use serde_json::json;

use super::daemon::frames;
use super::stage::{Relay, Stage};

/// The length of a long answer.
const LARGE: usize = 20_000_000;

/// Cancellations and long answers in each round.
const TIMES: usize = 5;

/// Between two looks at a file.
const LOOK: Duration = Duration::from_micros(50);

/// Whatever takes longer than this does not happen any more.
const PATIENCE: Duration = Duration::from_secs(30);

/// What one round has shown.
#[derive(Debug, Clone)]
pub(crate) struct Ends {
    /// From when the caller goes to when the server has read that it has, in milliseconds.
    pub(crate) cancel: Vec<f64>,
    /// From the host's death to the caller's error, in seconds.
    pub(crate) death: f64,
    /// Megabytes a second of a long answer, relayed and direct.
    pub(crate) large: Vec<f64>,
    pub(crate) large_direct: Vec<f64>,
}

pub(crate) async fn measure(stage: &mut Stage) -> Ends {
    let mut ends = Ends { cancel: Vec::new(), death: 0.0, large: Vec::new(), large_direct: Vec::new() };
    for _ in 0..TIMES {
        ends.cancel.push(cancel(&stage.local).await);
        ends.large.push(large(&stage.local.host).await);
        ends.large_direct.push(large(&stage.direct).await);
    }
    ends.death = death(&mut stage.local).await;
    ends
}

async fn cancel(relay: &Relay) -> f64 {
    let frames = frames(&relay.daemon);
    let begun = count(&frames, SLEEP);
    let told = count(&frames, CANCELLED);
    let call = tokio::spawn(sleep(relay.host.clone()));
    seen(&frames, SLEEP, begun).await;
    let began = Instant::now();
    call.abort();
    seen(&frames, CANCELLED, told).await.duration_since(began).as_secs_f64() * 1e3
}

/// What stands in a line about a call that sleeps, and in one about its end.
const SLEEP: &str = r#""name":"sleep""#;
const CANCELLED: &str = "notifications/cancelled";

async fn sleep(host: Host) -> Result<Answer, CallError> {
    host.call(&Caller::local(), "slow", "sleep", json!({"ms": 120_000})).await
}

/// Waits until a word stands in a file once more; when that was.
async fn seen(file: &Path, word: &'static str, before: usize) -> Instant {
    let file = file.to_owned();
    let looking = tokio::task::spawn_blocking(move || {
        let until = Instant::now() + PATIENCE;
        while count(&file, word) <= before {
            assert!(Instant::now() < until, "{word} has not come");
            std::thread::sleep(LOOK);
        }
        Instant::now()
    });
    looking.await.unwrap()
}

fn count(file: &Path, word: &str) -> usize {
    std::fs::read_to_string(file).unwrap_or_default().matches(word).count()
}

async fn large(host: &Host) -> f64 {
    let began = Instant::now();
    let answer =
        host.call(&Caller::local(), "slow", "blob", json!({"size": LARGE})).await.expect("an answer");
    assert!(answer.body.len() > LARGE);
    answer.body.len() as f64 / 1e6 / began.elapsed().as_secs_f64()
}

async fn death(relay: &mut Relay) -> f64 {
    let frames = frames(&relay.daemon);
    let begun = count(&frames, SLEEP);
    let call = tokio::spawn(sleep(relay.host.clone()));
    seen(&frames, SLEEP, begun).await;
    let began = Instant::now();
    relay.daemon.kill();
    let ended = tokio::time::timeout(PATIENCE, call).await.expect("an end").unwrap();
    let took = began.elapsed().as_secs_f64();
    assert!(matches!(ended, Err(CallError::OutcomeUnknown { .. })), "{ended:?}");
    relay.daemon.restart().await;
    relay.ready().await;
    took
}

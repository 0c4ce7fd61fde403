//! Whole parts of the product, driven by the bytes of an input: a host whose server lives in
//! memory, under a paused clock. A hang advances the clock at once, so it is found.

pub mod answers;
#[cfg(fuzzing)]
pub mod line;
pub mod pipe;
pub mod relay_host;
mod relay_messages;
pub mod relay_worker;
pub mod request;
mod server;

use std::time::Duration;

pub use self::relay_messages::headers;

/// Longer than anything takes by the paused clock: the longest call, and a margin.
const ENOUGH: Duration = Duration::from_secs(3_600);

/// The `_meta` of a modern client, as a member of the parameters.
const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

/// Runs a future to its end; a future without one within [`ENOUGH`] is a finding.
fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let runtime = runtime.expect("a runtime can be made");
    runtime.block_on(async { tokio::time::timeout(ENOUGH, future).await.expect("it ends") })
}

/// Lets every task get as far as it can without time passing.
async fn run_until_stalled() {
    for _ in 0..64 {
        tokio::task::yield_now().await;
    }
}

/// Replaces every occurrence of a word.
fn replace(text: &[u8], word: &[u8], by: &[u8]) -> Vec<u8> {
    let Some(at) = text.windows(word.len()).position(|window| window == word) else { return text.to_vec() };
    [&text[..at], by, &replace(&text[at + word.len()..], word, by)].concat()
}

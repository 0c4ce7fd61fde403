//! The host: `ostler serve` with a relay and the servers `echo` and `slow`.

use std::path::{Path, PathBuf};

use crate::daemon::BenchDaemon;

/// Longer answers than any that is measured.
const MAX_LINE: &str = "64MiB";

/// What the host is called, and its password at the broker.
pub(super) const NAME: &str = "mill";
pub(super) const PASSWORD: &str = "grain";

/// Calls that a server may have at once: more than there are callers.
pub(super) const IN_FLIGHT: usize = 1_024;

/// Starts one whose journal is `local` or `shared`.
pub(super) async fn start(nats: &str, journal: &str) -> BenchDaemon {
    let config = |folder: &Path| config(&folder.join(FRAMES), nats, journal);
    BenchDaemon::start(config, vec![("OSTLER_HOST_PASSWORD", PASSWORD)], Vec::new()).await
}

const FRAMES: &str = "frames";

/// Every line that the server `slow` has received.
pub(super) fn frames(daemon: &BenchDaemon) -> PathBuf {
    daemon.path(FRAMES)
}

fn config(frames: &Path, nats: &str, journal: &str) -> String {
    let text = |path: &Path| serde_json::to_string(&path.to_string_lossy()).unwrap();
    let (fake, frames) = (text(&ostler_testkit::fake_mcp()), text(frames));
    format!(
        r#"version = 1
[servers.echo]
command = {fake}
args = ["--raw-echo"]
lazy = false
max_in_flight = {IN_FLIGHT}
[servers.slow]
command = {fake}
args = ["--frames", {frames}]
lazy = false
max_line = "{MAX_LINE}"
[roles.bench]
allow = ["*"]
[relay]
nats = "{nats}"
host = "{NAME}"
user = "host-{NAME}"
password = "${{env:OSTLER_HOST_PASSWORD}}"
journal = "{journal}"
"#
    )
}

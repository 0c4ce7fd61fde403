//! The host: `ostler serve` as it is released, with a relay.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ostler_testkit::eventually;
use tempfile::TempDir;

/// A daemon that takes longer to start never will.
const START: Duration = Duration::from_secs(20);

/// Longer answers than any that is measured.
const MAX_LINE: &str = "64MiB";

/// What the host is called, and its password at the broker.
pub(crate) const NAME: &str = "mill";
pub(crate) const PASSWORD: &str = "grain";

/// Calls that a server may have at once: more than there are callers.
pub(crate) const IN_FLIGHT: usize = 1_024;

/// A running daemon with the servers `echo` and `slow`.
pub(crate) struct Daemon {
    folder: TempDir,
    child: Option<Child>,
}

impl Daemon {
    /// Starts one whose journal is `local` or `shared`.
    pub(crate) async fn start(nats: &str, journal: &str) -> Self {
        let folder = tempfile::Builder::new().prefix("bench-relay-").tempdir().unwrap();
        let mut daemon = Self { folder, child: None };
        std::fs::write(daemon.path("ostler.toml"), daemon.config(nats, journal)).unwrap();
        daemon.restart().await;
        daemon
    }

    /// Starts it again after [`Self::kill`].
    pub(crate) async fn restart(&mut self) {
        let port = self.path("port");
        let _ = std::fs::remove_file(&port);
        let log = std::fs::File::create(self.path("log")).unwrap();
        let child = Command::new(ostler_testkit::ostler())
            .args(["serve", "--listen", "127.0.0.1:0", "--config"])
            .arg(self.path("ostler.toml"))
            .arg("--port-file")
            .arg(&port)
            .env("HOME", self.folder.path())
            .env("XDG_STATE_HOME", self.path("state"))
            .env("XDG_RUNTIME_DIR", self.folder.path())
            .env("OSTLER_HOST_PASSWORD", PASSWORD)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("ostler can be started");
        self.child = Some(child);
        eventually("the daemon listens", START, || port.is_file()).await;
    }

    /// SIGKILL; returns when it is gone.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().expect("it was not killed").id()
    }

    /// Every line that the server `slow` has received.
    pub(crate) fn frames(&self) -> PathBuf {
        self.path("frames")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn config(&self, nats: &str, journal: &str) -> String {
        let text = |path: &Path| serde_json::to_string(&path.to_string_lossy()).unwrap();
        let (fake, frames) = (text(&ostler_testkit::fake_mcp()), text(&self.frames()));
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
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let Some(child) = &mut self.child else { return };
        // Its servers end with it only if it may end them.
        let _ = nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(child.id().cast_signed()),
            nix::sys::signal::Signal::SIGTERM,
        );
        let _ = child.wait();
    }
}

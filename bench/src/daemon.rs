//! `ostler serve` in a folder of its own; it ends when the value is dropped.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ostler_testkit::eventually;
use tempfile::TempDir;

/// Longer than any start on a busy machine.
pub(crate) const START_TIMEOUT: Duration = Duration::from_secs(20);

/// A daemon that runs unless it was killed.
pub(crate) struct BenchDaemon {
    folder: TempDir,
    env: Vec<(&'static str, &'static str)>,
    args: Vec<String>,
    child: Option<Child>,
}

impl BenchDaemon {
    /// Starts a daemon with the config that `config` makes for its folder.
    pub(crate) async fn start(
        config: impl FnOnce(&Path) -> String,
        env: Vec<(&'static str, &'static str)>,
        args: Vec<String>,
    ) -> Self {
        let folder = tempfile::Builder::new().prefix("ostler-bench-").tempdir().unwrap();
        std::fs::write(folder.path().join("ostler.toml"), config(folder.path())).unwrap();
        let mut daemon = Self { folder, env, args, child: None };
        daemon.restart().await;
        daemon
    }

    /// Starts the daemon again after [`Self::kill`], and waits until it listens.
    pub(crate) async fn restart(&mut self) {
        let port = self.path("port");
        let _ = std::fs::remove_file(&port);
        let log = std::fs::File::create(self.path("log")).unwrap();
        let mut command = self.command(&["serve", "--listen", "127.0.0.1:0"]);
        command.args(&self.args).arg("--port-file").arg(&port).stderr(log);
        let child = command.spawn().expect("ostler can be started");
        self.child = Some(child);
        eventually("the daemon listens", START_TIMEOUT, || port.is_file()).await;
    }

    /// Returns a command of `ostler` for this daemon.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(ostler_testkit::ostler());
        command
            .args(args)
            .arg("--config")
            .arg(self.path("ostler.toml"))
            .env("HOME", self.folder.path())
            .env("XDG_STATE_HOME", self.path("state"))
            .env("XDG_RUNTIME_DIR", self.folder.path())
            .envs(self.env.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        command
    }

    /// Kills the daemon with SIGKILL and waits until it is reaped.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().expect("it was not killed").id()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        let port = std::fs::read_to_string(self.path("port")).unwrap();
        SocketAddr::from(([127, 0, 0, 1], port.trim().parse().unwrap()))
    }

    /// Returns its stderr.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

impl Drop for BenchDaemon {
    fn drop(&mut self) {
        let Some(child) = &mut self.child else { return };
        // SIGTERM lets the daemon end its servers.
        let _ = kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM);
        let _ = child.wait();
    }
}

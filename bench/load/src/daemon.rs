//! `ostler serve` with servers of the test kit.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ostler_testkit::eventually;
use tempfile::TempDir;

use crate::http::Connection;
use crate::mcp;

/// A daemon that takes longer to start never will.
const START: Duration = Duration::from_secs(20);

/// A running daemon.
pub(crate) struct Daemon {
    folder: TempDir,
    child: Child,
    pub(crate) address: SocketAddr,
}

/// What a daemon is started with.
#[derive(Debug, Default, Clone)]
pub(crate) struct Setup {
    config: String,
    servers: Vec<String>,
}

impl Setup {
    /// With the server `good`, which the good client asks.
    pub(crate) fn new() -> Self {
        Self::default().server("good", &["--raw-echo"])
    }

    /// Lines of the config before the servers.
    pub(crate) fn config(mut self, text: &str) -> Self {
        self.config.push_str(text);
        self.config.push('\n');
        self
    }

    /// One more server that is up from the start.
    pub(crate) fn server(self, name: &str, args: &[&str]) -> Self {
        let command = ostler_testkit::fake_mcp();
        self.raw(name, &format!("command = {command:?}\nargs = {args:?}\nlazy = false"))
    }

    /// One more server in the words of the config.
    pub(crate) fn raw(mut self, name: &str, text: &str) -> Self {
        let mut server = format!("[servers.{name}]\n");
        writeln!(server, "{text}").unwrap();
        self.servers.push(server);
        self
    }

    /// Starts it, and returns when its first server answers.
    pub(crate) async fn start(self) -> Daemon {
        let folder = tempfile::Builder::new().prefix("bench-load-").tempdir().unwrap();
        let path = |name: &str| -> PathBuf { folder.path().join(name) };
        let text = format!("version = 1\n{}\n{}", self.config, self.servers.join("\n"));
        std::fs::write(path("ostler.toml"), text).unwrap();
        let log = std::fs::File::create(path("log")).unwrap();
        let child = Command::new(ostler_testkit::ostler())
            .args(["serve", "--listen", "127.0.0.1:0", "--config"])
            .arg(path("ostler.toml"))
            .arg("--port-file")
            .arg(path("port"))
            .env("HOME", folder.path())
            .env("XDG_STATE_HOME", path("state"))
            .env("XDG_RUNTIME_DIR", folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("ostler can be started");
        eventually("the daemon listens", START, || path("port").is_file()).await;
        let port = std::fs::read_to_string(path("port")).unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], port.trim().parse().unwrap()));
        let daemon = Daemon { folder, child, address };
        daemon.settle().await;
        daemon
    }
}

impl Daemon {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it said.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    pub(crate) async fn connect(&self) -> Connection {
        Connection::open(self.address).await.expect("the daemon can be reached")
    }

    async fn settle(&self) {
        let ask = mcp::call("good", "echo", "{}");
        let patience = tokio::time::timeout(START, async {
            while !self.connect().await.ask(&ask).await.is_ok_and(|answer| answer.is_result()) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        if patience.await.is_err() {
            panic!("no good answer: {}", self.log());
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Its servers end with it only if it may end them.
        let _ = kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGTERM);
        let _ = self.child.wait();
    }
}

//! Daemon with servers of the testkit, reached over HTTP.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use super::http::LoadConnection;
use super::mcp;
use crate::daemon::{self, START_TIMEOUT};

/// A running daemon.
pub(crate) struct LoadedDaemon {
    program: daemon::BenchDaemon,
    pub(crate) address: SocketAddr,
}

/// The config and arguments of a daemon.
#[derive(Debug, Default, Clone)]
pub(crate) struct DaemonSetup {
    config: String,
    servers: Vec<String>,
    args: Vec<String>,
}

impl DaemonSetup {
    /// Returns a setup with the server `good`, which the good client calls.
    pub(crate) fn new() -> Self {
        Self::default().server("good", &["--raw-echo"])
    }

    /// Adds lines of the config before the servers.
    pub(crate) fn config(mut self, text: &str) -> Self {
        self.config.push_str(text);
        self.config.push('\n');
        self
    }

    /// Adds a server that is up from the start.
    pub(crate) fn server(self, name: &str, args: &[&str]) -> Self {
        let command = ostler_testkit::fake_mcp();
        self.server_toml(name, &format!("command = {command:?}\nargs = {args:?}\nlazy = false"))
    }

    /// Adds a server by the text of its section.
    pub(crate) fn server_toml(mut self, name: &str, text: &str) -> Self {
        let mut server = format!("[servers.{name}]\n");
        writeln!(server, "{text}").unwrap();
        self.servers.push(server);
        self
    }

    /// Adds arguments of `ostler serve`.
    pub(crate) fn args(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(|arg| (*arg).to_owned()));
        self
    }

    /// Starts the daemon and waits until its first server answers.
    pub(crate) async fn start(self) -> LoadedDaemon {
        let text = format!("version = 1\n{}\n{}", self.config, self.servers.join("\n"));
        let program = daemon::BenchDaemon::start(|_| text, Vec::new(), self.args).await;
        let daemon = LoadedDaemon { address: program.address(), program };
        daemon.wait_until_ready().await;
        daemon
    }
}

impl LoadedDaemon {
    pub(crate) fn pid(&self) -> u32 {
        self.program.pid()
    }

    /// Runs a command of `ostler` for this daemon.
    pub(crate) fn run(&self, args: &[&str]) {
        let done = self.program.command(args).output().expect("ostler can be started");
        assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
    }

    /// Returns the token of its admin API.
    pub(crate) fn admin_token(&self) -> String {
        let state = self.program.path("state").join("ostler");
        let files = std::fs::read_dir(state).unwrap().map(|file| file.unwrap().path());
        let token = files.into_iter().find(|file| file.extension().is_some_and(|end| end == "token"));
        std::fs::read_to_string(token.expect("the daemon has made one")).unwrap()
    }

    /// Returns its stderr.
    pub(crate) fn log(&self) -> String {
        self.program.log()
    }

    pub(crate) async fn connect(&self) -> LoadConnection {
        LoadConnection::open(self.address).await.expect("the daemon can be reached")
    }

    async fn wait_until_ready(&self) {
        let request = mcp::call("good", "echo", "{}");
        let ready = tokio::time::timeout(START_TIMEOUT, async {
            while !self.connect().await.request(&request).await.is_ok_and(|answer| answer.is_result()) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        if ready.await.is_err() {
            panic!("no good answer: {}", self.log());
        }
    }
}

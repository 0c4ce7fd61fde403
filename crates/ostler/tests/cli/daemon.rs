//! Daemon of a test.

use std::io::Read;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::home::{Home, until};
use crate::http::{self, Answer};

/// Running daemon. Dropping it ends it.
pub(crate) struct Daemon<'a> {
    pub(crate) home: &'a Home,
    pub(crate) port: u16,
    child: Child,
}

impl<'a> Daemon<'a> {
    pub(crate) fn start(home: &'a Home) -> Self {
        Self::start_with(home, &[])
    }

    pub(crate) fn start_with(home: &'a Home, args: &[&str]) -> Self {
        Self::start_at(home, "127.0.0.1:0", args)
    }

    pub(crate) fn start_at(home: &'a Home, address: &str, args: &[&str]) -> Self {
        let args = [&["serve", "--listen", address, "--port-file", "port"], args].concat();
        Self::spawn(home, home.command(&args))
    }

    /// Starts a daemon with another environment, or other pipes.
    pub(crate) fn start_as(home: &'a Home, prepare: impl FnOnce(&mut Command)) -> Self {
        let mut command = home.command(&["serve", "--listen", "127.0.0.1:0", "--port-file", "port"]);
        prepare(&mut command);
        Self::spawn(home, command)
    }

    /// Starts a command that serves and writes its port into the file `port`.
    pub(crate) fn spawn(home: &'a Home, mut command: Command) -> Self {
        let file = home.path("port");
        let _ = std::fs::remove_file(&file);
        let mut child = command.spawn().unwrap();
        until("the daemon comes up", || {
            assert!(child.try_wait().unwrap().is_none(), "{}", said(&mut child));
            file.exists()
        });
        let port = std::fs::read_to_string(file).unwrap().trim().parse().unwrap();
        Self { home, port, child }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(crate) fn token(&self) -> String {
        token(self.home)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a request to the admin API, with the admin token.
    pub(crate) fn ask(&self, line: &str, body: &str) -> Answer {
        http::ask(self.port, line, &[&format!("Authorization: Bearer {}", self.token())], body)
    }

    /// Returns the daemon's state of one server.
    pub(crate) fn server(&self, name: &str) -> Value {
        self.ask(&format!("GET /api/v1/servers/{name}"), "").json()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }

    /// Shuts the daemon down; returns its exit status, the duration of the shutdown, and its stderr.
    pub(crate) fn end(mut self) -> (ExitStatus, Duration, String) {
        let began = Instant::now();
        self.signal(Signal::SIGTERM);
        let status = self.child.wait().unwrap();
        (status, began.elapsed(), said(&mut self.child))
    }
}

/// Returns the admin token of the only daemon that a home has had.
pub(crate) fn token(home: &Home) -> String {
    let folder = std::fs::read_dir(home.path("state/ostler")).unwrap();
    let files = folder.map(|entry| entry.unwrap().path());
    let tokens: Vec<_> = files.filter(|file| file.extension().is_some_and(|end| end == "token")).collect();
    assert_eq!(tokens.len(), 1, "{tokens:?}");
    std::fs::read_to_string(&tokens[0]).unwrap()
}

fn said(child: &mut Child) -> String {
    let mut text = String::new();
    child.stderr.take().map(|mut stderr| stderr.read_to_string(&mut text));
    text
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|exit| exit.is_none()) {
            self.signal(Signal::SIGTERM);
            let _ = self.child.wait();
        }
    }
}

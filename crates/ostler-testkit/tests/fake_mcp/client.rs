//! Plain client of `fake-mcp` over pipes.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// Longer than anything takes on a busy machine; only a failing test waits this long.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// A running `fake-mcp`, killed when dropped.
pub(crate) struct FakeMcpClient {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<Vec<u8>>,
    stderr: Option<JoinHandle<Vec<u8>>>,
    next_id: u64,
}

impl FakeMcpClient {
    /// Starts the server; no handshake yet.
    pub(crate) fn start(switches: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_fake-mcp"))
            .args(switches)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = channel();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            loop {
                let mut line = Vec::new();
                let size = stdout.read_until(b'\n', &mut line).unwrap_or(0);
                if size == 0 || sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut stderr = child.stderr.take().unwrap();
        let stderr = std::thread::spawn(move || {
            let mut text = Vec::new();
            stderr.read_to_end(&mut text).unwrap();
            text
        });
        Self { stdin: child.stdin.take(), child, lines, stderr: Some(stderr), next_id: 1 }
    }

    /// Starts the server and goes through the legacy handshake, with id 1.
    pub(crate) fn legacy(switches: &[&str]) -> Self {
        let mut client = Self::start(switches);
        let answer = client.initialize("2025-11-25");
        assert_eq!(answer["result"]["protocolVersion"], "2025-11-25", "{answer}");
        client
    }

    pub(crate) fn initialize(&mut self, version: &str) -> Value {
        let answer = self.request("initialize", json!({"protocolVersion": version, "capabilities": {}}));
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string());
        answer
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.id().try_into().unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).unwrap();
    }

    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Writes one line.
    pub(crate) fn send(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// Sends a request without waiting and returns its id.
    pub(crate) fn send_request(&mut self, method: &str, params: Value) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string());
        id
    }

    pub(crate) fn send_call(&mut self, tool: &str, arguments: Value) -> u64 {
        self.send_request("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    pub(crate) fn cancel(&mut self, id: u64) {
        let cancel =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
        self.send(&cancel.to_string());
    }

    /// Sends a request and returns the next line, which must be its answer.
    pub(crate) fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.send_request(method, params);
        let answer = self.read();
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.request("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    /// Calls a tool and returns its text.
    pub(crate) fn text(&mut self, tool: &str, arguments: Value) -> String {
        text_of(&self.call(tool, arguments)).to_owned()
    }

    /// Returns the next line as it came, newline included.
    pub(crate) fn read_raw(&self) -> Vec<u8> {
        self.lines.recv_timeout(ANSWER_TIMEOUT).unwrap()
    }

    pub(crate) fn read(&self) -> Value {
        let line = self.read_raw();
        serde_json::from_slice(&line)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&line)))
    }

    /// Asserts that stdout closes before any further line.
    pub(crate) fn expect_eof(&self) {
        assert_eq!(self.lines.recv_timeout(ANSWER_TIMEOUT), Err(RecvTimeoutError::Disconnected));
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Returns everything that the ended process wrote to stderr.
    pub(crate) fn stderr(&mut self) -> Vec<u8> {
        self.stderr.take().unwrap().join().unwrap()
    }
}

impl Drop for FakeMcpClient {
    fn drop(&mut self) {
        // The process may be dead already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process the server left behind, killed when dropped.
pub(crate) struct StrayProcess(pub(crate) i32);

impl StrayProcess {
    /// Reads the pid on the last line of `file`.
    pub(crate) fn read_from(file: &Path) -> Self {
        Self(read_lines(file).pop().unwrap().parse().unwrap())
    }

    /// Returns whether the process ignores a signal. An ignored signal is never pending, so no
    /// waiting could tell more.
    pub(crate) fn ignores(&self, signal: Signal) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0)).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap() >> (signal as i32 - 1) & 1 == 1
    }

    /// Returns a field of `/proc/PID/stat`, counted from the state (0): parent 1, group 2, session
    /// 3.
    pub(crate) fn stat_field(&self, field: usize) -> String {
        stat_field(self.0, field).unwrap()
    }
}

impl Drop for StrayProcess {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.0), Signal::SIGKILL);
    }
}

/// Returns a field of `/proc/PID/stat` after the process name, or None when the process is gone.
pub(crate) fn stat_field(pid: i32, field: usize) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split(' ').nth(field).map(str::to_owned)
}

/// Waits until a condition holds that no event announces.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + ANSWER_TIMEOUT;
    while !holds() {
        assert!(Instant::now() < end, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub(crate) fn text_of(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text in {answer}"))
}

pub(crate) fn read_lines(file: &Path) -> Vec<String> {
    std::fs::read_to_string(file).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// Adds the `_meta` of a modern request.
pub(crate) fn modern_params(mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    params
}

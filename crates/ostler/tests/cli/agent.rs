//! Legacy client on the pipes of a worker.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::home::{Home, until};

/// Client and its worker. Dropping it ends the worker.
pub(crate) struct Agent {
    child: Child,
    lines: BufReader<ChildStdout>,
    said: Arc<Mutex<Vec<u8>>>,
    next_id: u64,
    /// Other messages that came while an answer was waited for.
    pub(crate) heard: Vec<Value>,
}

impl Agent {
    pub(crate) fn start(home: &Home, args: &[&str]) -> Self {
        Self::start_as(home.command(&[&["worker"], args].concat()))
    }

    pub(crate) fn start_as(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let mut stderr = child.stderr.take().unwrap();
        let said = Arc::<Mutex<Vec<u8>>>::default();
        let heard = Arc::clone(&said);
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(read @ 1..) = stderr.read(&mut buffer) {
                heard.lock().unwrap().extend_from_slice(&buffer[..read]);
            }
        });
        Self { child, lines, said, next_id: 1, heard: Vec::new() }
    }

    /// Returns the worker's stderr so far.
    pub(crate) fn said(&self) -> String {
        String::from_utf8(self.said.lock().unwrap().clone()).unwrap()
    }

    /// Waits until the worker's stderr has these words.
    pub(crate) fn until_said(&self, words: &str) {
        until(&format!("it says {words:?}: {}", self.said()), || self.said().contains(words));
    }

    pub(crate) fn say(&mut self, message: &Value) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{message}").unwrap();
    }

    /// Sends a request and returns its id.
    pub(crate) fn begin(&mut self, method: &str, params: Value) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    /// Returns the next message of any kind.
    pub(crate) fn hear(&mut self) -> Value {
        let mut line = String::new();
        assert_ne!(self.lines.read_line(&mut line).unwrap(), 0, "it hung up: {}", self.said());
        serde_json::from_str(&line).unwrap()
    }

    /// Returns the answer to a request, which may have come before that to another one.
    pub(crate) fn answer(&mut self, id: u64) -> Value {
        let is_it = |message: &Value| message["id"] == id && message.get("method").is_none();
        if let Some(at) = self.heard.iter().position(is_it) {
            return self.heard.remove(at);
        }
        loop {
            let message = self.hear();
            if is_it(&message) {
                return message;
            }
            self.heard.push(message);
        }
    }

    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.begin(method, params);
        self.answer(id)
    }

    /// Opens a session; returns the result of `initialize`.
    pub(crate) fn hello(&mut self) -> Value {
        let params = json!({
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}
        });
        let answer = self.ask("initialize", params);
        self.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        answer
    }

    /// Returns the names of all tools.
    pub(crate) fn tools(&mut self) -> Vec<String> {
        let answer = self.ask("tools/list", json!({}));
        let tools = answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("{answer}"));
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    /// Closes the input; returns the exit status.
    pub(crate) fn end(mut self) -> ExitStatus {
        drop(self.child.stdin.take());
        self.child.wait().unwrap()
    }

    /// Sends a signal that does not end the worker.
    pub(crate) fn nudge(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }

    /// Sends a signal that ends the worker; returns its exit status, and the duration of the shutdown.
    pub(crate) fn signal(mut self, signal: Signal) -> (ExitStatus, Duration) {
        let began = Instant::now();
        self.nudge(signal);
        let status = self.child.wait().unwrap();
        (status, began.elapsed())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|exit| exit.is_none()) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

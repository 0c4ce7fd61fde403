//! `ostler stdio`: clients on pipes, one daemon behind them.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ostler_testkit::{MemoryGrowth, Proc};
use serde_json::{Value, json};

use crate::home::{Home, PATIENCE, until};

/// Legacy client.
pub(crate) struct StdioClient {
    pub(crate) child: Child,
    pub(crate) lines: BufReader<ChildStdout>,
}

impl StdioClient {
    pub(crate) fn start(home: &Home) -> Self {
        Self::start_as(home.command(&["stdio"]))
    }

    pub(crate) fn start_as(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    pub(crate) fn say(&mut self, message: &Value) {
        let stdin = self.child.stdin.as_mut().unwrap();
        writeln!(stdin, "{message}").unwrap();
    }

    /// Returns the answer to a request; skips messages before it.
    pub(crate) fn ask(&mut self, id: u32, method: &str, params: Value) -> Value {
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        loop {
            let mut line = String::new();
            assert_ne!(self.lines.read_line(&mut line).unwrap(), 0, "it hung up");
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["id"] == id {
                return message;
            }
        }
    }

    /// Returns the next message of any kind.
    pub(crate) fn hear(&mut self) -> Value {
        let mut line = String::new();
        assert_ne!(self.lines.read_line(&mut line).unwrap(), 0, "it hung up");
        serde_json::from_str(&line).unwrap()
    }

    pub(crate) fn initialize(&mut self) {
        let params = json!({
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}
        });
        let answer = self.ask(1, "initialize", params);
        assert_eq!(answer["result"]["protocolVersion"], "2025-11-25", "{answer}");
        self.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    }

    /// Returns the process that answers a call of a tool.
    pub(crate) fn server_pid(&mut self) -> String {
        let answer = self.ask(2, "tools/call", json!({"name": "fake__pid", "arguments": {}}));
        answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }
}

/// Guard that ends the daemon that a client has started, when the test is over.
pub(crate) struct EndedDaemon<'a>(pub(crate) &'a Home);

impl EndedDaemon<'_> {
    pub(crate) fn pids(&self) -> Vec<i32> {
        let is_daemon = |line: &&String| line.contains(" serve --linger ");
        let lines = self.0.left();
        let pid = |line: &String| line.split([':', '/']).nth(2).unwrap().parse().unwrap();
        lines.iter().filter(is_daemon).map(pid).collect()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        for pid in self.pids() {
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }
}

impl Drop for EndedDaemon<'_> {
    fn drop(&mut self) {
        // A client that is ending may see the end of its daemon first, and start another one.
        let (mut ended, end) = (BTreeSet::new(), Instant::now() + PATIENCE);
        loop {
            let pids = self.pids();
            for pid in pids.iter().filter(|pid| ended.insert(**pid)) {
                let _ = kill(Pid::from_raw(*pid), Signal::SIGTERM);
            }
            // The home reports processes that are left then.
            if pids.is_empty() || Instant::now() >= end {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn ten_clients_at_once_share_one_daemon_and_one_process() {
    let home = Home::with_servers(&[("fake", &["--starts", "starts"])]);
    let ended = EndedDaemon(&home);
    let mut clients: Vec<StdioClient> = (0..10).map(|_| StdioClient::start(&home)).collect();
    clients.iter_mut().for_each(StdioClient::initialize);
    let pids: BTreeSet<String> = clients.iter_mut().map(StdioClient::server_pid).collect();
    assert_eq!(pids.len(), 1);
    assert_eq!(home.lines("starts").len(), 1);
    until("one daemon stays", || ended.pids().len() == 1);
    for mut client in clients {
        drop(client.child.stdin.take());
        assert_eq!(client.child.wait().unwrap().code(), Some(0));
    }
    assert_eq!(home.run(&["call", "fake__echo"]).code, Some(0));
    assert_eq!(home.lines("starts").len(), 1, "commands use the same daemon");
}

#[test]
fn requests_that_are_piped_in_are_answered_before_it_ends() {
    let home = Home::with_servers(&[("fake", &[])]);
    let _ended = EndedDaemon(&home);
    let mut client = StdioClient::start(&home);
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}});
    client.say(&json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}));
    let call = json!({"name": "fake__sleep", "arguments": {"ms": 100}});
    client.say(&json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}));
    drop(client.child.stdin.take());
    let answers: Vec<Value> =
        client.lines.lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    assert!(answers.iter().all(|answer| answer.get("result").is_some()), "{answers:?}");
    assert_eq!(answers.iter().map(|answer| &answer["id"]).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(client.child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_message_beyond_the_bound_of_the_daemon_is_refused_by_its_id_and_not_held() {
    let home = Home::with_servers(&[("fake", &[])]);
    let config = std::fs::read_to_string(home.path("ostler.toml")).unwrap();
    home.write("ostler.toml", &format!("{config}\n[gateway]\nmax_body = \"1MiB\"\n"));
    let _ended = EndedDaemon(&home);
    let mut client = StdioClient::start(&home);
    client.initialize();
    let echo = |length: usize| json!({"name": "fake__echo", "arguments": {"text": "x".repeat(length)}});
    assert!(client.ask(2, "tools/call", echo(1_000_000))["result"].is_object());
    let growth = MemoryGrowth::begin(Proc::find(client.child.id()).unwrap());
    let refused = client.ask(3, "tools/call", echo(64 << 20));
    assert!(growth.kib() < 8 << 10, "{} KiB for a message of 64 MiB", growth.kib());
    assert_eq!(refused["error"]["code"], -32600, "{refused}");
    assert_eq!(
        refused["error"]["message"],
        "a message has at most 1048576 bytes; `gateway.max_body` in the config raises that"
    );
    // The message has no id, so the refusal has none either.
    client.say(&json!({"jsonrpc": "2.0", "method": "x".repeat(2 << 20)}));
    let refused = client.hear();
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&Value::Null, &json!(-32600)), "{refused}");
    assert!(client.ask(4, "tools/call", echo(10))["result"].is_object(), "the next message is taken");
}

#[test]
fn a_daemon_that_does_not_come_up_says_why() {
    let home = Home::new();
    home.write("ostler.toml", "[servers.fake]\ncomand = \"x\"\n");
    let run = home.run(&["stdio"]);
    assert_eq!(run.code, Some(4), "{run}");
    assert!(run.stderr.contains("log: ostler.toml:2:1: error: unknown key `comand`"), "{run}");
}

#[test]
fn a_variable_that_the_daemon_of_a_client_lacks_is_told_with_the_way_to_end_it() {
    let home = Home::new();
    let fake = ostler_testkit::fake_mcp();
    home.write(
        "ostler.toml",
        &format!("[servers.fake]\ncommand = {fake:?}\nenv = {{ KEY = \"${{env:MISSING_KEY}}\" }}\n"),
    );
    let _ended = EndedDaemon(&home);
    let mut client = StdioClient::start(&home);
    client.initialize();
    let run = home.finish(home.command(&["call", "fake__echo"]).env("MISSING_KEY", "here").spawn().unwrap());
    for words in ["the daemon (pid ", "`ostler down`", "`env` of the client's entry"] {
        assert!(run.stderr.contains(words), "{words}: {run}");
    }
}

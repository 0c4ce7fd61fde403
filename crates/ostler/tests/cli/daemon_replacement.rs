//! Clients of `ostler stdio` whose daemon is replaced, restarted or killed.

use std::collections::BTreeMap;

use nix::sys::signal::Signal;
use ostler_testkit::ReservedPort;
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::daemon::Daemon;
use crate::home::{Home, until};
use crate::stdio::EndedDaemon;

/// Returns a home whose server records its executions.
fn counting_home() -> Home {
    Home::with_servers(&[("fake", &["--executions", "executions"])])
}

/// Returns the number of executions of each call, and the last process that executed it, by the caller's number of the
/// call.
fn executions(home: &Home) -> BTreeMap<u64, (usize, u64)> {
    let mut begun = BTreeMap::new();
    for line in home.lines("executions") {
        let line: Value = serde_json::from_str(&line).unwrap();
        if line["what"] == "begin" {
            let (count, pid) = begun.entry(line["call"].as_u64().unwrap()).or_insert((0, 0));
            (*count, *pid) = (*count + 1, line["pid"].as_u64().unwrap());
        }
    }
    begun
}

fn counts(home: &Home) -> Vec<(u64, usize)> {
    executions(home).into_iter().map(|(nonce, (count, _))| (nonce, count)).collect()
}

fn deed(nonce: u64, ms: u64) -> Value {
    json!({"name": "fake__deed", "arguments": {"nonce": nonce, "ms": ms}})
}

fn client(home: &Home) -> Agent {
    Agent::start_as(home.command(&["stdio"]))
}

fn modern(mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    });
    params
}

fn daemons(home: &Home) -> Vec<Value> {
    let listed: Value = serde_json::from_str(&home.run(&["daemons", "--json"]).stdout).unwrap();
    listed["daemons"].as_array().unwrap().clone()
}

/// Asserts that the outcome of a call is unknown: it may have been executed.
fn assert_unknown(answer: &Value) {
    assert_eq!(answer["error"]["code"], -31003, "{answer}");
    assert_eq!(answer["error"]["data"]["code"], "outcome-unknown", "{answer}");
    assert_eq!(answer["error"]["data"]["delivery"], "unknown", "{answer}");
    assert!(answer["error"]["message"].as_str().unwrap().contains("may have been executed"), "{answer}");
}

#[test]
fn a_legacy_client_goes_on_when_its_daemon_was_killed_and_no_call_runs_twice() {
    let home = counting_home();
    let ended = EndedDaemon(&home);
    let mut client = client(&home);
    client.hello();
    assert!(client.call("fake__deed", json!({"nonce": 1}))["result"].is_object());
    let lost = client.begin("tools/call", deed(2, 600_000));
    until("the call has begun", || executions(&home).contains_key(&2));
    let old = ended.pids();
    ended.signal(Signal::SIGKILL);

    assert_unknown(&client.answer(lost));
    let next = client.call("fake__deed", json!({"nonce": 3}));
    assert!(next["result"].is_object(), "{next}");
    assert_eq!(counts(&home), [(1, 1), (2, 1), (3, 1)]);
    assert_ne!(ended.pids(), old);
    let changed = |message: &Value| message["method"] == "notifications/tools/list_changed";
    assert!(client.heard.iter().any(changed), "{:?}", client.heard);
    let stray = |message: &&Value| message.get("method").is_none();
    assert_eq!(client.heard.iter().find(stray), None, "nothing is answered that was not asked");
    client.until_said("; attached to the one at http://127.0.0.1:");
    assert!(client.end().success());
}

#[test]
fn what_only_reads_is_asked_again_when_the_daemon_was_killed() {
    let home = counting_home();
    let ended = EndedDaemon(&home);
    let mut client = client(&home);
    client.hello();
    client.tools();
    // A stopped daemon accepts connections and answers nothing.
    ended.signal(Signal::SIGSTOP);
    let list = client.begin("tools/list", json!({}));
    let call = client.begin("tools/call", deed(1, 0));
    let ping = client.begin("ping", json!({}));
    ended.signal(Signal::SIGKILL);
    assert!(client.answer(list)["result"]["tools"].is_array());
    assert!(client.answer(ping)["result"].is_object());
    // The request may have left before the kill; it runs once or not at all.
    let answer = client.answer(call);
    match answer["result"].is_object() {
        true => assert_eq!(counts(&home), [(1, 1)]),
        false => {
            assert_unknown(&answer);
            assert_eq!(counts(&home), []);
        }
    }
    assert!(client.end().success());
}

#[test]
fn a_modern_client_goes_on_when_its_daemon_was_killed_and_still_listens() {
    let home = Home::with_servers(&[("fake", &["--era", "modern", "--executions", "executions"])]);
    let ended = EndedDaemon(&home);
    let mut client = client(&home);
    let listen =
        client.begin("subscriptions/listen", modern(json!({"notifications": {"toolsListChanged": true}})));
    let acknowledged = client.hear();
    assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged", "{acknowledged}");
    let lost = client.begin("tools/call", modern(deed(1, 600_000)));
    until("the call has begun", || executions(&home).contains_key(&1));
    ended.signal(Signal::SIGKILL);

    assert_unknown(&client.answer(lost));
    let next = client.ask("tools/call", modern(deed(2, 0)));
    assert!(next["result"].is_object(), "{next}");
    assert_eq!(counts(&home), [(1, 1), (2, 1)]);
    let changed = json!({
        "jsonrpc": "2.0", "method": "notifications/tools/list_changed",
        "params": {"_meta": {"io.modelcontextprotocol/subscriptionId": listen}}
    });
    while !client.heard.contains(&changed) {
        let message = client.hear();
        client.heard.push(message);
    }
    let again = |message: &Value| message["method"] == "notifications/subscriptions/acknowledged";
    assert!(!client.heard.iter().any(again), "the client knows that it listens: {:?}", client.heard);
    assert!(client.end().success());
}

#[test]
fn subscriptions_and_the_log_level_are_taken_to_the_next_daemon() {
    let home = Home::with_servers(&[("fake", &["--shelf", "2"])]);
    let ended = EndedDaemon(&home);
    let mut client = client(&home);
    client.hello();
    let listed = client.ask("resources/list", json!({}));
    let uri = listed["result"]["resources"][0]["uri"].clone();
    assert!(uri.is_string(), "{listed}");
    let subscribed = client.ask("resources/subscribe", json!({"uri": uri}));
    assert!(subscribed["result"].is_object(), "{subscribed}");
    assert!(client.ask("logging/setLevel", json!({"level": "info"}))["result"].is_object());
    ended.signal(Signal::SIGKILL);
    let is_update = |message: &Value| {
        message["method"] == "notifications/resources/updated" && message["params"]["uri"] == uri
    };
    // The list may have changed while no client listened.
    while !is_update(&client.hear()) {}
    let updated = json!({"method": "notifications/resources/updated", "params": {"uri": uri}});
    let told = client.call("fake__notify", updated);
    assert!(told["result"].is_object(), "{told}");
    while !client.heard.iter().any(is_update) {
        let message = client.hear();
        client.heard.push(message);
    }
    assert!(client.end().success());
}

#[test]
fn serve_takes_over_from_the_daemon_of_a_client_and_loses_no_call() {
    let home = counting_home();
    let config = std::fs::read_to_string(home.path("ostler.toml")).unwrap();
    // Held to the end: between the two daemons nothing listens there.
    let port = ReservedPort::new();
    home.write("ostler.toml", &format!("listen = \"{}\"\n{config}", port.address()));
    let _ended = EndedDaemon(&home);
    let (mut busy, mut idle) = (client(&home), client(&home));
    busy.hello();
    idle.hello();
    assert!(idle.call("fake__deed", json!({"nonce": 1}))["result"].is_object());
    let old = daemons(&home).remove(0);
    let in_flight = busy.begin("tools/call", deed(2, 2_000));
    until("the call has begun", || executions(&home).contains_key(&2));

    // At the same address, while the call is in flight.
    let mut serve = home.command(&["serve"]).spawn().unwrap();
    until("the old daemon makes way", || daemons(&home).is_empty());
    let during = busy.begin("tools/call", deed(3, 0));
    let of_idle = idle.begin("tools/call", deed(4, 0));
    for answer in [busy.answer(in_flight), busy.answer(during), idle.answer(of_idle)] {
        assert!(answer["result"].is_object(), "{answer}");
    }
    assert_eq!(counts(&home), [(1, 1), (2, 1), (3, 1), (4, 1)]);
    let ran = executions(&home);
    assert_eq!(ran[&1].1, ran[&2].1, "what was in flight is finished by the old one");
    assert_eq!(ran[&3].1, ran[&4].1);
    assert_ne!(ran[&2].1, ran[&3].1, "what came during the change is executed by the new one");

    assert!(serve.try_wait().unwrap().is_none(), "{}", home.finish(serve));
    let now = daemons(&home);
    assert_eq!((now.len(), &now[0]["kind"]), (1, &"served".into()), "{now:?}");
    assert_eq!((&now[0]["url"], &now[0]["clients"]), (&old["url"], &2.into()), "{now:?}");
    assert_ne!(now[0]["pid"], old["pid"]);
    assert!(busy.end().success() && idle.end().success());
    assert_eq!(home.run(&["down"]).code, Some(0));
    assert!(serve.wait().unwrap().success());
}

#[test]
fn commands_wait_for_the_daemon_that_takes_over() {
    let home = counting_home();
    let _ended = EndedDaemon(&home);
    let mut busy = client(&home);
    busy.hello();
    busy.begin("tools/call", deed(1, 600_000));
    until("the call has begun", || executions(&home).contains_key(&1));
    let mut serve = home.command(&["serve", "--listen", "0"]).spawn().unwrap();
    until("the old daemon makes way", || daemons(&home).is_empty());

    let listed = home.run(&["daemons"]);
    let (begin, end) = (
        "a daemon (pid ",
        ") is being replaced, ends or has lost its record; it is listed when that is over\n",
    );
    assert!(listed.stderr.starts_with(begin) && listed.stderr.ends_with(end), "{listed}");
    let call = home.command(&["call", "fake__deed", "nonce=2"]);
    let late = home.command(&["stdio"]);
    let mut waiting: Vec<_> = [call, late].into_iter().map(WaitingCommand::start).collect();
    waiting.iter_mut().for_each(WaitingCommand::until_it_says_so);
    end_call(&home, 1);
    for waiting in waiting {
        assert!(waiting.end().success());
    }
    assert!(busy.call("fake__deed", json!({"nonce": 3}))["result"].is_object());
    let ran = executions(&home);
    assert_eq!(ran[&2].1, ran[&3].1, "one process of the server executes them");
    assert_ne!(ran[&1].1, ran[&3].1);
    assert!(busy.end().success());
    assert_eq!(home.run(&["down"]).code, Some(0));
    assert!(serve.wait().unwrap().success());
}

#[test]
fn down_ends_the_daemon_that_takes_over() {
    let home = counting_home();
    let _ended = EndedDaemon(&home);
    let mut busy = client(&home);
    busy.hello();
    busy.begin("tools/call", deed(1, 600_000));
    until("the call has begun", || executions(&home).contains_key(&1));
    let mut serve = home.command(&["serve", "--listen", "0"]).spawn().unwrap();
    until("the old daemon makes way", || daemons(&home).is_empty());
    let mut down = WaitingCommand::start(home.command(&["down"]));
    down.until_it_says_so();
    end_call(&home, 1);
    assert!(down.end().success());
    assert!(serve.wait().unwrap().success(), "the new one has ended");
}

#[test]
fn a_call_that_is_cancelled_before_the_next_daemon_is_there_is_never_executed() {
    let home = counting_home();
    let _ended = EndedDaemon(&home);
    let mut busy = client(&home);
    busy.hello();
    let first = busy.begin("tools/call", deed(1, 600_000));
    until("the call has begun", || executions(&home).contains_key(&1));
    let mut serve = home.command(&["serve", "--listen", "0"]).spawn().unwrap();
    until("the old daemon makes way", || daemons(&home).is_empty());
    let held = busy.begin("tools/call", deed(2, 600_000));
    busy.say(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": held}}));
    end_call(&home, 1);
    busy.answer(first);
    assert!(busy.call("fake__deed", json!({"nonce": 3}))["result"].is_object());
    assert_eq!(counts(&home), [(1, 1), (3, 1)]);
    assert!(!busy.heard.iter().any(|message| message["id"] == held), "{:?}", busy.heard);
    assert!(busy.end().success());
    assert_eq!(home.run(&["down"]).code, Some(0));
    assert!(serve.wait().unwrap().success());
}

#[test]
fn ctrl_c_ends_a_command_that_waits_for_the_daemon_that_takes_over() {
    let home = counting_home();
    let _ended = EndedDaemon(&home);
    let mut busy = client(&home);
    busy.hello();
    busy.begin("tools/call", deed(1, 600_000));
    until("the call has begun", || executions(&home).contains_key(&1));
    let mut serve = home.command(&["serve", "--listen", "0"]).spawn().unwrap();
    until("the old daemon makes way", || daemons(&home).is_empty());
    let mut call = WaitingCommand::start(home.command(&["call", "fake__deed", "nonce=2"]));
    call.until_it_says_so();
    call.interrupt();
    assert!(!call.end().success());
    assert!(daemons(&home).is_empty(), "the old daemon is still being replaced");
    end_call(&home, 1);
    assert!(busy.call("fake__deed", json!({"nonce": 3}))["result"].is_object());
    assert_eq!(counts(&home), [(1, 1), (3, 1)]);
    assert!(busy.end().success());
    assert_eq!(home.run(&["down"]).code, Some(0));
    assert!(serve.wait().unwrap().success());
}

/// Command that waits for the next daemon.
struct WaitingCommand {
    child: std::process::Child,
    said: std::io::BufReader<std::process::ChildStderr>,
}

impl WaitingCommand {
    fn start(mut command: std::process::Command) -> Self {
        let null = std::process::Stdio::null;
        command.stdin(null()).stdout(null()).stderr(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        let said = std::io::BufReader::new(child.stderr.take().unwrap());
        Self { child, said }
    }

    fn until_it_says_so(&mut self) {
        let mut line = String::new();
        std::io::BufRead::read_line(&mut self.said, &mut line).unwrap();
        assert!(
            line.starts_with("waiting: the daemon of ") && line.ends_with("is being replaced or ends\n"),
            "{line}"
        );
    }

    fn interrupt(&self) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        nix::sys::signal::kill(pid, Signal::SIGINT).unwrap();
    }

    fn end(mut self) -> std::process::ExitStatus {
        std::io::copy(&mut self.said, &mut std::io::sink()).unwrap();
        self.child.wait().unwrap()
    }
}

#[test]
fn every_call_of_a_crowd_is_executed_once_while_one_daemon_follows_the_other() {
    const CLIENTS: u64 = 4;
    const CALLS: u64 = 30;
    let home = counting_home();
    let _ended = EndedDaemon(&home);
    let mut clients: Vec<Agent> = (0..CLIENTS).map(|_| client(&home)).collect();
    clients.iter_mut().for_each(|client| drop(client.hello()));
    let is_begun = || executions(&home).len() >= usize::try_from(CLIENTS).unwrap();
    std::thread::scope(|scope| {
        let callers: Vec<_> = clients
            .into_iter()
            .zip(0..)
            .map(|(mut client, number)| {
                scope.spawn(move || {
                    for call in 0..CALLS {
                        let answer =
                            client.call("fake__deed", json!({"nonce": number * CALLS + call, "ms": 20}));
                        assert!(answer["result"].is_object(), "{answer}");
                    }
                    assert!(client.end().success());
                })
            })
            .collect();
        until("calls are under way", is_begun);
        let first = Daemon::start(&home);
        let (status, _, said) = first.end();
        assert!(status.success(), "{said}");
        let second = Daemon::start(&home);
        callers.into_iter().for_each(|caller| caller.join().unwrap());
        drop(second);
    });
    let expected: Vec<(u64, usize)> = (0..CLIENTS * CALLS).map(|nonce| (nonce, 1)).collect();
    assert_eq!(counts(&home), expected);
}

#[test]
fn a_daemon_that_was_ended_stays_ended_until_a_client_asks_for_something() {
    let home = counting_home();
    let _ended = EndedDaemon(&home);
    let mut client = client(&home);
    client.hello();
    let down = home.run(&["down"]);
    assert_eq!(down.code, Some(0), "{down}");
    assert!(
        down.stderr.contains("1 client is attached through `ostler stdio`; its next request starts a daemon"),
        "{down}"
    );
    assert_eq!(daemons(&home), Vec::<Value>::new());
    assert!(client.call("fake__deed", json!({"nonce": 1}))["result"].is_object());
    assert_eq!(daemons(&home).len(), 1);
    assert!(client.end().success());
}

#[test]
fn a_client_that_finds_no_daemon_is_told_why_and_goes_on_when_there_is_one() {
    let home = counting_home();
    let ended = EndedDaemon(&home);
    let mut client = client(&home);
    client.hello();
    let good = std::fs::read_to_string(home.path("ostler.toml")).unwrap();
    home.write("ostler.toml", "[servers.fake]\ncomand = \"x\"\n");
    ended.signal(Signal::SIGKILL);
    client.until_said("error: the daemon did not start");
    let refused = client.call("fake__deed", json!({"nonce": 1}));
    assert_eq!(refused["error"]["code"], -31002, "{refused}");
    assert_eq!(refused["error"]["data"]["code"], "daemon-not-started", "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains("unknown key `comand`"), "{refused}");
    client.until_said("error: unknown key `comand`");
    home.write("ostler.toml", &good);
    assert!(client.call("fake__deed", json!({"nonce": 2}))["result"].is_object());
    assert_eq!(counts(&home), [(2, 1)]);
    assert!(client.end().success());
}

#[test]
fn a_daemon_of_another_version_is_used_and_told_of() {
    let home = counting_home();
    let daemon = Daemon::start(&home);
    let folder = std::fs::read_dir(home.path(".local/state/ostler")).unwrap();
    let is_note = |file: &std::path::PathBuf| file.extension().is_some_and(|end| end == "json");
    let note = folder.map(|entry| entry.unwrap().path()).find(is_note).unwrap();
    let own = env!("CARGO_PKG_VERSION");
    let text = std::fs::read_to_string(&note).unwrap();
    std::fs::write(&note, text.replace(&format!("\"version\":\"{own}\""), "\"version\":\"0.0.1\"")).unwrap();
    let mut client = client(&home);
    client.hello();
    assert!(client.call("fake__deed", json!({"nonce": 1}))["result"].is_object());
    let (url, pid) = (daemon.url(), daemon.pid());
    assert_eq!(
        client.said(),
        format!(
            "warning: the daemon at {url} (pid {pid}) is version 0.0.1, and this is version {own}\n  \
             hint: start `ostler serve --config ostler.toml` again to have version {own}\n"
        )
    );
    assert!(client.end().success());
}

#[test]
fn ten_clients_that_start_beside_a_serve_share_its_daemon() {
    let home = Home::with_servers(&[("fake", &["--starts", "starts"])]);
    let ended = EndedDaemon(&home);
    let mut serve = home.command(&["serve", "--listen", "127.0.0.1:0"]).spawn().unwrap();
    let start = |number: usize| {
        let mut command = home.command(&["stdio"]);
        // Clients filter their environments in different ways.
        match number % 3 {
            0 => command.env("XDG_RUNTIME_DIR", home.path("run")).env("TMPDIR", home.path("tmp")),
            1 => command.env_remove("XDG_STATE_HOME"),
            _ => command.env("XDG_STATE_HOME", home.path("elsewhere")),
        };
        Agent::start_as(command)
    };
    let mut clients: Vec<Agent> = (0..10).map(start).collect();
    clients.iter_mut().for_each(|client| drop(client.hello()));
    until("the one that is served is the only one", || {
        let found = daemons(&home);
        found.len() == 1 && found[0]["kind"] == "served" && found[0]["clients"] == 10
    });
    until("none that was started for a client is left", || ended.pids().is_empty());
    let pid =
        |client: &mut Agent| client.call("fake__pid", json!({}))["result"]["content"][0]["text"].clone();
    let pids: std::collections::BTreeSet<String> =
        clients.iter_mut().map(|client| pid(client).to_string()).collect();
    assert_eq!(pids.len(), 1, "{pids:?}");
    clients.into_iter().for_each(|client| assert!(client.end().success()));
    assert_eq!(home.run(&["down"]).code, Some(0));
    assert!(serve.wait().unwrap().success());
}

/// Ends the call that the old daemon waits for, by killing the process that executes it.
fn end_call(home: &Home, nonce: u64) {
    let pid = i32::try_from(executions(home)[&nonce].1).unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), Signal::SIGKILL).unwrap();
}

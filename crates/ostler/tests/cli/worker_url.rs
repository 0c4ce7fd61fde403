//! `ostler worker --url`: the tools of a host elsewhere, without a broker.

use std::net::TcpListener;
use std::process::Stdio;

use nix::sys::signal::Signal;
use serde_json::json;

use crate::agent::Agent;
use crate::daemon::Daemon;
use crate::home::{Home, until};
use crate::mcp;
use crate::relay::AT_ONCE;

const RULES: &str = "[roles.local]\nallow = [\"*\"]\n[roles.ci]\nallow = [\"fake/echo\"]\n";

fn home() -> Home {
    let home = Home::with_servers(&[("fake", &[])]);
    let servers = std::fs::read_to_string(home.path("ostler.toml")).unwrap();
    home.write("ostler.toml", &format!("{servers}{RULES}"));
    home
}

/// Returns a home for the worker, without any file of the host's.
fn elsewhere() -> Home {
    Home::new()
}

fn token(home: &Home, name: &str) -> String {
    let run = home.run(&["token", "create", "--name", name, "--role", "ci"]);
    assert_eq!(run.code, Some(0), "{run}");
    run.stdout.trim().to_owned()
}

fn url(daemon: &Daemon<'_>) -> String {
    format!("{}/mcp", daemon.url())
}

/// Returns a port on which nothing listens; the next process to take it is most likely this test.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn an_agent_has_the_tools_of_its_role_under_the_hosts_names() {
    let (home, far) = (home(), elsewhere());
    let daemon = Daemon::start(&home);
    far.write("token", &token(&home, "w"));
    let mut agent = Agent::start(&far, &["--url", &url(&daemon), "--token-file", "token"]);
    let hello = agent.hello();
    assert_eq!(hello["result"]["serverInfo"]["name"], "ostler", "{hello}");
    assert_eq!(agent.tools(), ["fake__echo"]);
    let answer = agent.call("fake__echo", json!({"x": 1}));
    assert_eq!(answer["result"]["content"][0]["text"], "{\"x\":1}", "{answer}");
    let hidden = agent.call("fake__pid", json!({}));
    assert_eq!(hidden["error"]["code"], -32602, "{hidden}");
    assert_eq!(agent.said(), format!("connected to the host at {}\n", url(&daemon)));
    assert_eq!(agent.end().code(), Some(0));
}

#[test]
fn a_host_that_is_not_there_yet_is_waited_for_and_that_is_said_once() {
    let (home, far) = (home(), elsewhere());
    let address = format!("127.0.0.1:{}", free_port());
    let mut agent = Agent::start(&far, &["--url", &format!("http://{address}/mcp")]);
    let id = agent.begin(
        "initialize",
        json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}),
    );
    agent.until_said("waiting for it");
    let _daemon = Daemon::start_at(&home, &address, &[]);
    let hello = agent.answer(id);
    assert_eq!(hello["result"]["protocolVersion"], "2025-11-25", "{hello}");
    agent.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    assert!(agent.tools().contains(&"fake__echo".to_owned()));
    let said = agent.said();
    assert_eq!(said.matches("waiting for it").count(), 1, "{said}");
    assert_eq!(said.lines().count(), 2, "{said}");
}

#[test]
fn a_host_that_is_killed_and_comes_back_is_used_again() {
    let (home, far) = (home(), elsewhere());
    let daemon = Daemon::start(&home);
    let address = format!("127.0.0.1:{}", daemon.port);
    let mut agent = Agent::start(&far, &["--url", &url(&daemon)]);
    agent.hello();
    assert!(agent.call("fake__echo", json!({})).get("result").is_some());
    daemon.signal(Signal::SIGKILL);
    drop(daemon);
    let id = agent.begin("tools/call", json!({"name": "fake__echo", "arguments": {"x": 2}}));
    agent.until_said("was lost");
    let _daemon = Daemon::start_at(&home, &address, &[]);
    let answer = agent.answer(id);
    assert_eq!(answer["result"]["content"][0]["text"], "{\"x\":2}", "{answer}");
}

#[test]
fn a_call_that_was_under_way_when_the_host_died_has_an_unknown_outcome() {
    let (home, far) = (home(), elsewhere());
    let daemon = Daemon::start(&home);
    let mut agent = Agent::start(&far, &["--url", &url(&daemon)]);
    agent.hello();
    // From here on the tools are known, and only the call itself is in flight.
    assert!(agent.call("fake__echo", json!({})).get("result").is_some());
    let id = agent.begin("tools/call", json!({"name": "fake__sleep", "arguments": {"ms": 60_000}}));
    until("the call is under way", || daemon.server("fake")["in_flight"] == 1);
    daemon.signal(Signal::SIGKILL);
    drop(daemon);
    let answer = agent.answer(id);
    assert_eq!(answer["error"]["data"]["code"], "outcome-unknown", "{answer}");
    assert_eq!(answer["error"]["data"]["delivery"], "unknown", "{answer}");
}

#[test]
fn wrong_credentials_are_said_once_and_to_the_agent() {
    let (home, far) = (home(), elsewhere());
    let daemon = Daemon::start(&home);
    let mut command = far.command(&["worker", "--url", &url(&daemon)]);
    command.env("OSTLER_TOKEN", "ostler_wrong");
    let mut agent = Agent::start_as(command);
    let hello = agent.hello();
    assert_eq!(hello["error"]["data"]["state"], "needs_auth", "{hello}");
    agent.until_said("does not accept the credentials");
    assert!(!agent.said().contains("ostler_wrong"), "{}", agent.said());
    let (status, took) = agent.signal(Signal::SIGTERM);
    assert_eq!(status.code(), Some(0));
    assert!(took < AT_ONCE, "{took:?}");
}

#[test]
fn a_token_that_is_revoked_ends_its_calls_and_a_worker_says_so() {
    let (home, far) = (home(), elsewhere());
    let daemon = Daemon::start(&home);
    far.write("token", &token(&home, "w"));
    let mut agent = Agent::start(&far, &["--url", &url(&daemon), "--token-file", "token"]);
    agent.hello();
    assert!(agent.call("fake__echo", json!({})).get("result").is_some());
    assert_eq!(home.run(&["token", "revoke", "w"]).code, Some(0));
    // The call that detects the loss, or is in flight when another request does, may end otherwise.
    let answer = agent.call("fake__echo", json!({}));
    assert!(answer.get("error").is_some(), "{answer}");
    agent.until_said("does not accept the credentials");
    let answer = agent.call("fake__echo", json!({}));
    assert_eq!(answer["error"]["data"]["state"], "needs_auth", "{answer}");
}

#[test]
fn a_signal_ends_it_at_once_while_it_waits() {
    let far = elsewhere();
    let agent = Agent::start(&far, &["--url", &format!("http://127.0.0.1:{}/mcp", free_port())]);
    agent.until_said("waiting for it");
    let (status, took) = agent.signal(Signal::SIGTERM);
    assert_eq!(status.code(), Some(0));
    assert!(took < AT_ONCE, "{took:?}");
}

#[test]
fn the_same_is_served_over_http_to_this_machine_only() {
    let (home, far) = (home(), elsewhere());
    let daemon = Daemon::start(&home);
    far.write("token", &token(&home, "w"));
    let args = ["--token-file", "token", "--listen", "127.0.0.1:0", "--port-file", "port", "--quiet"];
    let agent = Agent::start(&far, &[&["--url", &url(&daemon)][..], &args].concat());
    until("it listens", || far.path("port").exists());
    let port = std::fs::read_to_string(far.path("port")).unwrap().trim().parse().unwrap();
    let tools = mcp::ask(port, "tools/list", json!({}));
    assert_eq!(tools["result"]["tools"][0]["name"], "fake__echo", "{tools}");
    let answer = mcp::call(port, "fake__echo", json!({"x": 3}));
    assert_eq!(answer["result"]["content"][0]["text"], "{\"x\":3}", "{answer}");
    assert_eq!(agent.said(), "");
    agent.signal(Signal::SIGTERM);

    let open = far.command(&["worker", "--url", &url(&daemon), "--listen", "0.0.0.0:0"]);
    let run = far.finish({ open }.stdin(Stdio::null()).spawn().unwrap());
    assert_eq!(run.code, Some(2), "{run}");
    assert!(run.stderr.contains("can be reached from other machines"), "{run}");
}

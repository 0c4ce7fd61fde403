//! Relay: a daemon, a broker and workers, each a process of its own.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::broker::CliBroker;
use crate::daemon::Daemon;
use crate::home::{Home, until};

/// Limit of an immediate end, on a busy machine too: half of the ten seconds that an orderly end may take.
pub(crate) const AT_ONCE: Duration = Duration::from_secs(5);

const ROLES: &str = "[roles.local]\nallow = [\"*\"]\n[roles.ci]\nallow = [\"fake/echo\", \"fake/progress\", \"fake/sleep\"]\n";

/// Returns a home whose daemon has one server and is reached through a broker.
fn home(url: &str, relay: &str) -> Home {
    let home = Home::with_servers(&[("fake", &["--ledger", "ledger"])]);
    let servers = std::fs::read_to_string(home.path("ostler.toml")).unwrap();
    home.write("ostler.toml", &format!("{servers}{ROLES}[relay]\nnats = \"{url}\"\n{relay}"));
    home
}

/// Starts a worker in a role.
fn worker(far: &Home, url: &str, role: &str) -> Agent {
    Agent::start(far, &["--nats", url, "--role", role, "--name", "w1"])
}

fn relay(daemon: &Daemon<'_>) -> Value {
    daemon.ask("GET /api/v1/relay", "").json()["relay"].clone()
}

fn until_connected(daemon: &Daemon<'_>) {
    until("the relay is connected", || relay(daemon)["state"] == "connected");
}

/// Returns the text of an answer.
fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

#[test]
fn a_worker_has_exactly_the_tools_of_its_role() {
    let broker = CliBroker::open();
    let (home, far) = (home(&broker.url(), "host = \"mill\"\n"), Home::new());
    let daemon = Daemon::start(&home);
    let mut agent = worker(&far, &broker.url(), "ci");
    agent.hello();
    assert_eq!(agent.tools(), ["fake__echo", "fake__sleep", "fake__progress"]);
    assert_eq!(text(&agent.call("fake__echo", json!({"x": 1}))), "{\"x\":1}");
    let hidden = agent.call("fake__pid", json!({}));
    assert_eq!(hidden["error"]["data"]["code"], "unknown-tool", "{hidden}");
    agent.until_said("3 tools of 1 server of the host mill");

    let shown = home.run(&["status"]);
    let line = format!("relay: connected to {}, 0 calls of 1 worker: w1 (ci)", broker.url());
    assert!(shown.stdout.contains(&line), "{shown}");
    let shown: Value = serde_json::from_str(&home.run(&["status", "--json"]).stdout).unwrap();
    assert_eq!(shown["relay"]["workers"], json!([{"name": "w1", "role": "ci", "in_flight": 0}]), "{shown}");
    assert!(relay(&daemon)["answered"].as_u64().unwrap() > 0);
    until("the calls are on record", || home.run(&["audit", "--json"]).stdout.contains("worker:w1"));
    assert_eq!(agent.end().code(), Some(0));
}

#[test]
fn a_worker_has_what_a_restarted_host_has_long_before_it_would_ask_by_itself() {
    let broker = CliBroker::open();
    let (home, far) = (home(&broker.url(), "host = \"mill\"\n"), Home::new());
    let daemon = Daemon::start(&home);
    let mut agent = worker(&far, &broker.url(), "ci");
    agent.hello();
    assert_eq!(agent.tools(), ["fake__echo", "fake__sleep", "fake__progress"]);
    daemon.end();
    let config = std::fs::read_to_string(home.path("ostler.toml")).unwrap();
    home.write("ostler.toml", &config.replace("\"fake/sleep\"", "\"fake/pid\""));
    let _daemon = Daemon::start(&home);
    // A worker polls once a minute without a notification, which is longer than this waits.
    until("the worker has the new tools", || {
        let tools = agent.tools();
        tools.contains(&"fake__pid".to_owned()) && !tools.contains(&"fake__sleep".to_owned())
    });
}

#[test]
fn progress_comes_before_the_answer() {
    let broker = CliBroker::open();
    let (home, far) = (home(&broker.url(), ""), Home::new());
    let _daemon = Daemon::start(&home);
    let mut agent = worker(&far, &broker.url(), "ci");
    agent.hello();
    let call =
        json!({"name": "fake__progress", "arguments": {"count": 3, "ms": 1}, "_meta": {"progressToken": 7}});
    let answer = agent.ask("tools/call", call);
    assert!(answer.get("result").is_some(), "{answer}");
    let heard = agent.heard.iter().filter(|message| message["method"] == "notifications/progress");
    assert_eq!(
        heard.map(|message| message["params"]["progressToken"].clone()).collect::<Vec<_>>(),
        [7, 7, 7]
    );
}

#[test]
fn a_role_that_the_config_does_not_have_is_an_error_and_no_empty_list() {
    let broker = CliBroker::open();
    let (home, far) = (home(&broker.url(), ""), Home::new());
    let daemon = Daemon::start(&home);
    until_connected(&daemon);
    let mut agent = worker(&far, &broker.url(), "boss");
    agent.hello();
    let list = agent.begin("tools/list", json!({}));
    let call = agent.begin("tools/call", json!({"name": "fake__echo", "arguments": {}}));
    let list = agent.answer(list);
    assert_eq!(list["error"]["data"]["code"], "server-unavailable", "{list}");
    assert!(list["error"]["message"].as_str().unwrap().contains("no role `boss`"), "{list}");
    agent.until_said("there are no tools yet");
    let call = agent.answer(call);
    assert!(call.get("error").is_some(), "{call}");
    assert!(home.lines("ledger").is_empty());
}

#[test]
fn a_broker_that_is_away_at_the_start_is_waited_for_on_both_sides() {
    let mut broker = CliBroker::open();
    broker.kill();
    let (home, far) = (home(&broker.url(), ""), Home::new());
    let daemon = Daemon::start(&home);
    until("the daemon waits", || relay(&daemon)["state"] == "waiting" && relay(&daemon)["why"].is_string());
    let mut agent = worker(&far, &broker.url(), "ci");
    agent.until_said("waiting for it");
    broker.come_back();
    agent.hello();
    agent.until_said("connected to the broker");
    assert_eq!(text(&agent.call("fake__echo", json!({"x": 2}))), "{\"x\":2}");
    assert_eq!(agent.said().matches("waiting for it").count(), 1, "{}", agent.said());
    let (status, _, said) = daemon.end();
    assert!(status.success());
    assert_eq!(said.matches("waiting for it").count(), 1, "{said}");
    assert_eq!(said.matches("connected to the broker").count(), 1, "{said}");
}

#[test]
fn an_agent_outlives_a_broker_that_is_killed_and_a_host_that_is_restarted() {
    let mut broker = CliBroker::open();
    let (home, far) = (home(&broker.url(), ""), Home::new());
    let daemon = Daemon::start(&home);
    let mut agent = worker(&far, &broker.url(), "ci");
    agent.hello();
    assert_eq!(text(&agent.call("fake__echo", json!({"x": 1}))), "{\"x\":1}");
    broker.kill();
    agent.until_said("was lost");
    let id = agent.begin("tools/call", json!({"name": "fake__echo", "arguments": {"x": 2}}));
    broker.come_back();
    assert_eq!(text(&agent.answer(id)), "{\"x\":2}");

    daemon.signal(Signal::SIGKILL);
    drop(daemon);
    let id = agent.begin("tools/call", json!({"name": "fake__echo", "arguments": {"x": 3}}));
    let _daemon = Daemon::start(&home);
    let answer = agent.answer(id);
    assert_eq!(text(&answer), "{\"x\":3}");
    let calls = home.lines("ledger");
    assert_eq!(calls.len(), 3, "each ran once: {calls:?}");
}

#[test]
fn a_call_that_was_under_way_when_the_host_died_has_an_unknown_outcome_soon() {
    let broker = CliBroker::open();
    let (home, far) = (home(&broker.url(), ""), Home::new());
    let daemon = Daemon::start(&home);
    let mut agent = worker(&far, &broker.url(), "ci");
    agent.hello();
    let id = agent.begin("tools/call", json!({"name": "fake__sleep", "arguments": {"ms": 60_000}}));
    until("the call is under way", || relay(&daemon)["in_flight"] == 1);
    let began = Instant::now();
    daemon.signal(Signal::SIGKILL);
    drop(daemon);
    let answer = agent.answer(id);
    assert_eq!(answer["error"]["data"]["code"], "outcome-unknown", "{answer}");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

/// Returns a broker config with users for one host and one worker, by password.
fn users(home: &Home) -> (String, [(&'static str, &'static str); 2]) {
    let printed = home.run(&["relay", "nats-config", "--host", "mill", "--worker", "w1=ci"]);
    assert_eq!(printed.code, Some(0), "{printed}");
    let passwords = [("OSTLER_HOST_MILL_PASSWORD", "hunter-h"), ("OSTLER_WORKER_W1_PASSWORD", "hunter-w")];
    (printed.stdout, passwords)
}

const HOST_LOGIN: &str = "host = \"mill\"\nuser = \"host-mill\"\npassword = \"${file:password}\"\n";

#[test]
fn the_printed_config_lets_a_worker_be_itself_and_nobody_else() {
    let draft = home("nats://127.0.0.1:1", "");
    let (config, passwords) = users(&draft);
    let broker = CliBroker::with_users(&config, &passwords);
    let (home, far) = (home(&broker.url(), HOST_LOGIN), Home::new());
    home.write("password", "hunter-h\n");
    let daemon = Daemon::start(&home);
    until_connected(&daemon);
    far.write("password", "hunter-w\n");
    let (url, login) = (broker.url(), ["--user", "worker-w1", "--password-file", "password"]);
    let as_worker = |role: &str, name: &str| {
        Agent::start(&far, &[&["--nats", &url, "--role", role, "--name", name], &login[..]].concat())
    };
    let mut agent = as_worker("ci", "w1");
    agent.hello();
    assert_eq!(text(&agent.call("fake__echo", json!({"x": 1}))), "{\"x\":1}");

    let mut liars = [("local", "w1"), ("ci", "w2")].map(|(role, name)| {
        let mut liar = as_worker(role, name);
        liar.hello();
        let list = liar.begin("tools/list", json!({}));
        (liar, list)
    });
    for (liar, list) in &mut liars {
        let list = liar.answer(*list);
        assert!(list.get("error").is_some(), "{list}");
    }
    let (_, _, said) = daemon.end();
    assert!(!said.contains("asks nobody"), "{said}");
}

#[test]
fn keys_are_made_once_kept_to_their_user_and_let_in() {
    use std::os::unix::fs::PermissionsExt as _;

    let draft = home("nats://127.0.0.1:1", "");
    let args = ["relay", "nats-config", "--host", "mill", "--worker", "w1=ci", "--new-keys", "keys"];
    let printed = draft.run(&args);
    assert_eq!(printed.code, Some(0), "{printed}");
    let seed = std::fs::read_to_string(draft.path("keys/worker-w1.nk")).unwrap();
    assert!(!printed.stdout.contains(seed.trim()) && !printed.stderr.contains(seed.trim()));
    let mode = draft.path("keys/worker-w1.nk").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(draft.run(&args).stdout, printed.stdout, "keys that are there are kept");

    let broker = CliBroker::with_users(&printed.stdout, &[]);
    let key = draft.path("keys/host-mill.nk").display().to_string();
    let home = home(&broker.url(), &format!("host = \"mill\"\nnkey = {key:?}\n"));
    let far = Home::new();
    let _daemon = Daemon::start(&home);
    let key = draft.path("keys/worker-w1.nk").display().to_string();
    let mut agent =
        Agent::start(&far, &["--nats", &broker.url(), "--role", "ci", "--name", "w1", "--nkey", &key]);
    agent.hello();
    assert_eq!(text(&agent.call("fake__echo", json!({"x": 1}))), "{\"x\":1}");
}

#[test]
fn wrong_credentials_are_said_once_on_both_sides() {
    let draft = home("nats://127.0.0.1:1", "");
    let (config, passwords) = users(&draft);
    let broker = CliBroker::with_users(&config, &passwords);
    let (home, far) = (home(&broker.url(), HOST_LOGIN), Home::new());
    home.write("password", "wrong-secret\n");
    let daemon = Daemon::start(&home);
    until("the daemon is refused", || relay(&daemon)["state"] == "refused");
    let mut command = far.command(&[
        "worker",
        "--nats",
        &broker.url(),
        "--role",
        "ci",
        "--name",
        "w1",
        "--user",
        "worker-w1",
    ]);
    command.env("OSTLER_NATS_PASSWORD", "wrong-secret");
    let agent = Agent::start_as(command);
    agent.until_said("does not accept the credentials");
    let said = agent.said();
    assert_eq!(said.lines().count(), 1, "{said}");
    let (status, took) = agent.signal(Signal::SIGTERM);
    assert_eq!(status.code(), Some(0));
    assert!(took < AT_ONCE, "{took:?}");
    let shown = home.run(&["status"]);
    assert!(shown.stdout.contains("relay: refused by"), "{shown}");
    let (_, _, more) = daemon.end();
    assert_eq!(more.matches("does not accept the credentials").count(), 1, "{more}");
    assert!(!format!("{said}{more}{shown}").contains("wrong-secret"));
}

#[test]
fn a_signal_ends_both_sides_at_once_while_they_wait_for_the_broker() {
    let mut broker = CliBroker::open();
    broker.kill();
    let (home, far) = (home(&broker.url(), ""), Home::new());
    let daemon = Daemon::start(&home);
    let agent = worker(&far, &broker.url(), "ci");
    agent.until_said("waiting for it");
    let (status, took) = agent.signal(Signal::SIGTERM);
    assert_eq!(status.code(), Some(0));
    assert!(took < AT_ONCE, "{took:?}");
    let (status, took, _) = daemon.end();
    assert!(status.success());
    assert!(took < AT_ONCE, "{took:?}");
}

#[test]
fn an_open_broker_is_warned_about_here_and_refused_elsewhere() {
    let broker = CliBroker::open();
    let home = home(&broker.url(), "");
    let daemon = Daemon::start(&home);
    until_connected(&daemon);
    let (_, _, said) = daemon.end();
    assert_eq!(said.matches("anybody who reaches it can take any role").count(), 1, "{said}");

    // The same broker, by an address that could be another machine's.
    let elsewhere = format!("nats://0.0.0.0:{}", broker.port());
    let far = self::home(&elsewhere, "");
    let daemon = Daemon::start(&far);
    until("the daemon refuses", || relay(&daemon)["state"] == "refused");
    let (_, _, said) = daemon.end();
    assert!(said.contains("error: the relay is not served") && said.contains("allow_open_broker"), "{said}");

    let allowed = self::home(&elsewhere, "allow_open_broker = true\n");
    let daemon = Daemon::start(&allowed);
    until_connected(&daemon);
    let (_, _, said) = daemon.end();
    assert!(said.contains("anybody who reaches it can take any role"), "{said}");
}

#[test]
fn of_two_hosts_one_may_die() {
    let broker = CliBroker::with_buckets();
    let (one, other) = (
        home(&broker.url(), "host = \"one\"\njournal = \"shared\"\n"),
        home(&broker.url(), "host = \"other\"\njournal = \"shared\"\n"),
    );
    let far = Home::new();
    let (first, second) = (Daemon::start(&one), Daemon::start(&other));
    until_connected(&first);
    until_connected(&second);
    let mut agent = worker(&far, &broker.url(), "ci");
    agent.hello();
    let mut run = |numbers: std::ops::Range<u64>| {
        for number in numbers {
            let answer = agent.call("fake__echo", json!({"x": number}));
            assert_eq!(text(&answer), format!("{{\"x\":{number}}}"));
        }
    };
    run(0..40);
    let executed = |home: &Home| home.lines("ledger").len();
    until("both have worked", || executed(&one) + executed(&other) == 40);
    assert!(executed(&one) > 0 && executed(&other) > 0, "{} {}", executed(&one), executed(&other));
    first.signal(Signal::SIGKILL);
    drop(first);
    run(40..60);
    assert_eq!(executed(&one) + executed(&other), 60, "each ran once");
    drop(second);
}

#[test]
fn what_a_relay_needs_is_checked_before_it_is_started() {
    let home = home("nats://127.0.0.1:1", "nkey = \"nowhere.nk\"\nca = \"ca.pem\"\n");
    let run = home.run_wide(&["check"]);
    assert_eq!(run.code, Some(0), "{run}");
    assert!(run.stderr.contains("`relay.nkey` can't be read"), "{run}");
    assert!(run.stderr.contains("`relay.ca` can't be read"), "{run}");
    let unknown = home.run(&["relay", "nats-config", "--worker", "w1=cu"]);
    assert_eq!(unknown.code, Some(2), "{unknown}");
    assert!(unknown.stderr.contains("did you mean `ci`?"), "{unknown}");
}

/// Two users of one name would receive, and end, each other's calls.
#[test]
fn no_two_users_of_a_broker_have_one_name() {
    let home = Home::new();
    let roles = "[roles.ci]\nallow = [\"*\"]\n[roles.ops]\nallow = [\"*\"]\n";
    home.write("ostler.toml", &format!("{roles}[relay]\nnats = \"nats://127.0.0.1:1\"\nhost = \"mill\"\n"));
    let table = [
        (&["--worker", "a=ci", "--worker", "a=ops"][..], "there are two workers `a`"),
        (&["--worker", "ci=ops"], "the role `ci` has no worker, and a worker of another role has its name"),
        (&["--host", "a", "--host", "a"], "there are two hosts `a`"),
    ];
    for (args, expected) in table {
        let run = home.run(&[&["relay", "nats-config", "--new-keys", "keys"], args].concat());
        assert_eq!(run.code, Some(2), "{run}");
        assert!(run.stderr.contains(expected), "{run}");
    }
    assert!(!home.path("keys").exists(), "nothing is written for what is refused");
    let run = home.run(&["relay", "nats-config", "--worker", "ci=ops", "--worker", "b=ci"]);
    assert_eq!(run.code, Some(0), "{run}");
}

#[test]
fn a_password_that_is_nowhere_keeps_the_daemon_from_starting() {
    let home = home("nats://127.0.0.1:1", "user = \"u\"\npassword = \"${env:NO_SUCH_VARIABLE}\"\n");
    let run = home.run(&["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!(run.code, Some(3), "{run}");
    assert!(run.stderr.contains("NO_SUCH_VARIABLE"), "{run}");
}

//! Isolation of callers: bad arguments, oversize answers, timeouts, hung calls and calls suspended on a question of one
//! caller must not take a server from the others.

use std::thread;

use ostler_testkit::fake_mcp;
use serde_json::{Value, json};

use crate::client::{AttackClient, AttackClientEra, HttpAttackClient, entrances, token};
use crate::daemon::Daemon;
use crate::home::{Home, until};

/// Returns a home with the server `fake`, configured by `settings`, an abusive caller and a good one.
fn home(switches: &[&str], settings: &str) -> Home {
    let home = Home::new();
    home.write(
        "ostler.toml",
        &format!(
            "[servers.fake]\ncommand = {:?}\nargs = {switches:?}\n{settings}\n[roles.all]\nallow = [\"*\"]\n",
            fake_mcp()
        ),
    );
    token(&home, "abuser", "all");
    token(&home, "good", "all");
    home
}

fn abuser(daemon: &Daemon<'_>) -> HttpAttackClient {
    let token = std::fs::read_to_string(daemon.home.path("abuser.token")).unwrap();
    HttpAttackClient::open(daemon.port, "/servers/fake/mcp", AttackClientEra::Modern, Some(&token))
}

fn call(client: &mut dyn AttackClient, tool: &str, arguments: Value) -> Value {
    let tool = client.exposed("fake", tool);
    client.ask("tools/call", json!({"name": tool, "arguments": arguments}))
}

/// Asserts that the good caller is served at every entrance, by the process that was there before.
fn the_good_caller_is_served(daemon: &Daemon<'_>) {
    for (entrance, mut client) in entrances(daemon, "fake", Some("good.token")) {
        let answer = call(&mut *client, "add", json!({"a": 2, "b": 40}));
        assert_eq!(answer["result"]["content"][0]["text"], "42", "{entrance}: {answer}");
    }
    let status = daemon.home.run(&["status", "fake", "--json"]);
    let status: Value = serde_json::from_str(&status.stdout).unwrap();
    let server = status["servers"].get(0).unwrap_or(&status);
    assert_eq!(server["generation"], 1, "{status}");
}

#[test]
fn bad_arguments_hold_nobody_back() {
    let home = home(&[], "");
    let daemon = Daemon::start(&home);
    let mut abuser = abuser(&daemon);
    for code in [-32603, -32600, -32700] {
        for _ in 0..8 {
            let answer = call(&mut abuser, "rpc_error", json!({"code": code, "message": "bad arguments"}));
            assert_eq!(answer["error"]["code"], code, "{answer}");
        }
    }
    the_good_caller_is_served(&daemon);
}

#[test]
fn oversize_answers_restart_nothing() {
    let home = home(&[], "max_line = \"64KiB\"");
    let daemon = Daemon::start(&home);
    let mut abuser = abuser(&daemon);
    for id in ["first", "last"] {
        for _ in 0..20 {
            let answer = call(&mut abuser, "huge_line", json!({"bytes": 200_000, "id": id}));
            assert!(answer["error"].to_string().contains("upstream-protocol"), "{answer}");
        }
    }
    the_good_caller_is_served(&daemon);
}

#[test]
fn timeouts_of_one_caller_hold_back_only_that_caller() {
    let home = home(&[], "call_timeout = \"200ms\"");
    let daemon = Daemon::start(&home);
    let mut abuser = abuser(&daemon);
    for _ in 0..5 {
        let answer = call(&mut abuser, "sleep", json!({"ms": 60_000}));
        assert!(answer["error"].to_string().contains("timed-out"), "{answer}");
    }
    let answer = call(&mut abuser, "sleep", json!({"ms": 60_000}));
    assert!(
        answer["error"].to_string().contains("of your calls to `sleep`"),
        "it is held back itself: {answer}"
    );
    the_good_caller_is_served(&daemon);
}

#[test]
fn hung_calls_of_one_caller_leave_places_for_the_others() {
    let home =
        home(&[], "call_timeout = \"10m\"\nmax_call_time = \"10m\"\nmax_in_flight = 4\nmax_queued = 8");
    let daemon = Daemon::start(&home);
    let tokens = [(); 12].map(|()| abuser(&daemon));
    let hung: Vec<_> = tokens
        .into_iter()
        .map(|mut client| thread::spawn(move || call(&mut client, "sleep", json!({"ms": 60_000}))))
        .collect();
    // Two calls run, eight wait in the queue and two were shed.
    until("the abuser has calls in flight and in line", || {
        let run = home.run(&["status", "fake", "--json"]);
        let status: Value = serde_json::from_str(&run.stdout).unwrap();
        let server = status["servers"].get(0).unwrap_or(&status).clone();
        server["queued"].as_u64() == Some(8)
    });
    the_good_caller_is_served(&daemon);
    let served = hung.iter().filter(|call| call.is_finished()).count();
    assert!(served <= 2, "no place came free for the good caller");
}

#[test]
fn calls_parked_on_a_question_leave_the_server_to_the_others() {
    let home = home(&["--era", "legacy"], "max_in_flight = 8\nmax_queued = 0");
    let daemon = Daemon::start(&home);
    let mut abuser = abuser(&daemon);
    for nth in 0..8 {
        let params = json!({"message": "?", "requestedSchema": {"type": "object", "properties": {}}});
        let answer = call(
            &mut abuser,
            "ask",
            json!({"method": "elicitation/create", "id": nth.to_string(), "params": params}),
        );
        assert_eq!(answer["result"]["resultType"], "input_required", "{answer}");
    }
    the_good_caller_is_served(&daemon);
}

//! Budgets in a daemon, and over its restart.

use nix::sys::signal::Signal;
use ostler_testkit::fake_mcp;
use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::home::{Home, until};
use crate::mcp;

/// Writes a config with one server, and a budget of this many calls in an hour for all local callers.
fn write_config(home: &Home, calls: u32) {
    let role = format!("[roles.local]\nallow = [\"*\"]\nbudget = {{ calls = {calls}, per = \"1h\" }}\n");
    home.write("ostler.toml", &format!("[servers.fake]\ncommand = {:?}\n{role}", fake_mcp()));
}

/// Returns the use of the one budget.
fn used(daemon: &Daemon<'_>) -> Value {
    let shown = daemon.ask("GET /api/v1/budgets", "").json();
    assert_eq!(shown["kept"], true);
    shown["budgets"][0]["used"].clone()
}

fn is_over_budget(answer: &Value) -> bool {
    answer["error"]["data"]["code"] == "over-budget"
}

#[test]
fn of_a_hundred_parallel_calls_over_http_with_a_budget_of_ten_exactly_ten_reach_the_server() {
    let home = Home::new();
    write_config(&home, 10);
    let daemon = Daemon::start(&home);
    let answers: Vec<Value> = std::thread::scope(|scope| {
        let port = daemon.port;
        let calls: Vec<_> =
            (0..100).map(|_| scope.spawn(move || mcp::call(port, "fake__counter", json!({})))).collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    assert_eq!(answers.iter().filter(|answer| is_over_budget(answer)).count(), 90);
    let refused = answers.iter().find(|answer| is_over_budget(answer)).unwrap();
    assert_eq!(refused["error"]["code"], -31_001);
    assert_eq!(refused["error"]["data"]["budget"], "role");
    assert!(refused["error"]["data"]["retryAfterMs"].as_u64().is_some_and(|wait| wait <= 3_600_000));
    assert_eq!(used(&daemon), 10);
    let texts = answers.iter().filter_map(|answer| answer["result"]["content"][0]["text"].as_str());
    let mut counted: Vec<u32> = texts.map(|text| text.parse().unwrap()).collect();
    counted.sort_unstable();
    assert_eq!(counted, (1..=10).collect::<Vec<_>>(), "the server has counted no other call");
    let run = home.run(&["call", "fake__counter"]);
    assert_eq!(run.code, Some(9), "{run}");
    assert!(
        run.stderr.starts_with("error: the call budget of your role is used up\n  hint: the next"),
        "{run}"
    );
}

#[test]
fn charges_outlive_a_killed_daemon_and_an_edit_of_the_budget() {
    let home = Home::new();
    write_config(&home, 3);
    let daemon = Daemon::start(&home);
    for _ in 0..2 {
        assert!(!is_over_budget(&mcp::call(daemon.port, "fake__echo", json!({"text": "x"}))));
    }
    // A thread of its own writes the file, some microseconds later.
    let folder = home.path("state/ostler");
    let size = || {
        let files = std::fs::read_dir(&folder).unwrap().flatten();
        let file = files.map(|it| it.path()).find(|it| it.extension().is_some_and(|it| it == "budgets"));
        file.map_or(0, |file| std::fs::metadata(file).unwrap().len())
    };
    until("the charges are written", || size() == 32 * 3);
    daemon.signal(Signal::SIGKILL);
    drop(daemon);

    let daemon = Daemon::start(&home);
    assert_eq!(used(&daemon), 2);
    let call = || mcp::call(daemon.port, "fake__echo", json!({"text": "x"}));
    assert!(!is_over_budget(&call()) && is_over_budget(&call()));
    write_config(&home, 4);
    until("the edit is seen", || !is_over_budget(&call()));
    assert!(is_over_budget(&call()));
    assert_eq!(used(&daemon), 4);
}

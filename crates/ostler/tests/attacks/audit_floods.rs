//! Floods of refused requests, which cost the caller nothing and must not push rows out of the audit.

use std::time::Instant;

use ostler_testkit::fake_mcp;
use serde_json::{Value, json};

use crate::client::{AttackClient, AttackClientEra, HttpAttackClient, token};
use crate::daemon::Daemon;
use crate::home::Home;
use crate::http;

fn home() -> Home {
    let home = Home::new();
    let command = fake_mcp();
    home.write(
        "ostler.toml",
        &format!("[servers.fake]\ncommand = {command:?}\n[roles.few]\nallow = [\"fake/echo\"]\n"),
    );
    home
}

/// Returns all rows, in the order of their numbers.
fn rows(home: &Home) -> Vec<Value> {
    let run = home.run(&["audit", "--json"]);
    assert_eq!(run.code, Some(0), "{run}");
    run.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns the rows of a principal, and the number of refusals they stand for.
fn of<'r>(rows: &'r [Value], principal: Option<&str>) -> (Vec<&'r Value>, u64) {
    let is_own = |row: &&Value| row["principal"].as_str() == principal && row["outcome"] != "ok";
    let own: Vec<&Value> = rows.iter().filter(is_own).filter(|row| row["kind"] != "gap").collect();
    let sum = own.iter().map(|row| row["count"].as_u64().unwrap_or(1)).sum();
    (own, sum)
}

/// Returns the limit of rows of one caller's flood: ten and a count for each second, and the one that has begun.
fn most_rows(began: Instant) -> usize {
    11 * (began.elapsed().as_secs() as usize + 2)
}

#[test]
fn refusals_beyond_ten_a_second_of_one_caller_are_counted() {
    const CALLS: u64 = 400;
    let home = home();
    let (ann, bob) = (token(&home, "ann", "few"), token(&home, "bob", "few"));
    let daemon = Daemon::start(&home);
    let credential = |file: &str| std::fs::read_to_string(home.path(file)).unwrap();
    let mut flood =
        HttpAttackClient::open(daemon.port, "/mcp", AttackClientEra::Modern, Some(&credential(&bob)));
    let began = Instant::now();
    for n in 0..CALLS {
        // Hidden tools, missing ones and other servers alike.
        let tool = ["fake__add", "fake__nonesuch", "nobody__x"][n as usize % 3];
        flood.ask("tools/call", json!({"name": tool, "arguments": {}}));
    }
    let most = most_rows(began);
    let mut other =
        HttpAttackClient::open(daemon.port, "/mcp", AttackClientEra::Modern, Some(&credential(&ann)));
    other.ask("tools/call", json!({"name": "fake__add", "arguments": {}}));
    daemon.end();
    let rows = rows(&home);
    let (own, sum) = of(&rows, Some("token:bob"));
    assert_eq!(sum, CALLS, "each is accounted for");
    assert!(own.len() <= most, "{} rows of at most {most}", own.len());
    let others = own.iter().find(|row| row["action"] == "others").expect("a row for those without one");
    assert_eq!((&others["kind"], &others["role"]), (&json!("refusal"), &json!("few")), "{others}");
    assert_eq!(of(&rows, Some("token:ann")).1, 1, "a flood takes no row from another caller");
    let shown = home.run(&["audit", "--caller", "bob", "--limit", "0"]).stdout;
    assert!(shown.contains(" more refusals"), "{shown}");
}

#[test]
fn callers_without_a_credential_are_counted_too() {
    const KNOCKS: u64 = 300;
    let home = home();
    token(&home, "ann", "few");
    let daemon = Daemon::start(&home);
    let began = Instant::now();
    for _ in 0..KNOCKS {
        let answer = http::ask(daemon.port, "POST /mcp", &["Authorization: Bearer wrong"], "{}");
        assert_eq!(answer.status, 401, "{answer:?}");
    }
    let most = most_rows(began);
    daemon.end();
    let rows = rows(&home);
    let (own, sum) = of(&rows, None);
    assert_eq!(sum, KNOCKS);
    assert!(own.len() <= most, "{} rows of at most {most}", own.len());
    assert!(rows.iter().any(|row| row["action"] == "token-created"), "what operators did is there");
}

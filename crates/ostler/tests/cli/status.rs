//! `ostler status`.

use std::io::{BufRead, BufReader};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::daemon::Daemon;
use crate::home::{Home, Run, until};

/// Returns the text without numbers that differ between runs and the spaces that depend on them.
fn calm(run: &Run) -> String {
    let word = |word: &str| {
        let number = word.trim_end_matches("ms");
        let is_number = number.len() > 2 && number.bytes().all(|byte| byte.is_ascii_digit());
        if is_number || word.ends_with("ms") { "[N]".to_owned() } else { word.to_owned() }
    };
    let line = |line: &str| line.split_whitespace().map(word).collect::<Vec<_>>().join(" ");
    run.to_string().lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn without_a_probe_nothing_is_started() {
    let home = Home::with_servers(&[("fake", &["--starts", "starts"]), ("more", &[])]);
    insta::assert_snapshot!(home.run(&["status"]));
    let json: Value = serde_json::from_str(&home.run(&["status", "fake", "--json"]).stdout).unwrap();
    assert_eq!(json["servers"][0]["state"], "idle");
    assert_eq!(json["servers"].as_array().unwrap().len(), 1);
    assert!(home.lines("starts").is_empty());
}

#[test]
fn a_probe_shows_what_each_server_says() {
    let home = Home::with_servers(&[
        ("broken", &["--exit-at-start", "1:no licence"]),
        ("modern", &["--era", "modern"]),
        ("legacy", &["--era", "legacy"]),
    ]);
    insta::assert_snapshot!(calm(&home.run(&["status", "--probe"])));
    let json: Value = serde_json::from_str(&home.run(&["status", "--probe", "--json"]).stdout).unwrap();
    let server = |index: usize| &json["servers"][index];
    assert_eq!(server(0)["error"]["code"], "server-unavailable");
    assert_eq!(server(0)["last_error"]["stderr"][0], "no licence");
    assert_eq!((&server(1)["state"], &server(1)["protocol"]), (&"ready".into(), &"2026-07-28".into()));
    assert!(
        server(1)["pid"].is_u64() && server(1)["start_ms"].is_u64() && server(1)["start_wait_ms"].is_u64()
    );
    assert_eq!(server(2)["protocol"], "2025-11-25");
    assert_eq!(server(2)["containment"], "guard");
}

#[test]
fn a_probe_of_nothing_but_broken_servers_fails() {
    let home = Home::with_servers(&[("broken", &["--exit-at-start", "1:no licence"])]);
    insta::assert_snapshot!(home.run(&["status", "broken", "--probe"]));
    insta::assert_snapshot!(home.run(&["status", "borken", "--probe"]));
}

#[test]
fn warming_starts_each_server_once_and_later_lists_need_no_start() {
    let home = Home::with_servers(&[
        ("one", &["--starts", "one", "--start-delay", "300"]),
        ("other", &["--starts", "other"]),
    ]);
    let warm = home.run(&["warm"]);
    assert_eq!((warm.code, home.lines("one").len(), home.lines("other").len()), (Some(0), 1, 1), "{warm}");
    let tools = home.run(&["tools"]);
    assert!(tools.stdout.contains("one__echo") && tools.stdout.contains("other__echo"), "{tools}");
    assert_eq!((home.lines("one").len(), home.lines("other").len()), (1, 1), "they are listed asleep");
    let json: Value = serde_json::from_str(&home.run(&["warm", "one", "--json"]).stdout).unwrap();
    assert_eq!((&json["servers"][0]["name"], json["servers"].as_array().unwrap().len()), (&"one".into(), 1));
    assert_eq!((home.lines("one").len(), home.lines("other").len()), (2, 1));
    assert_eq!(home.run(&["warm", "onw"]).code, Some(5));
}

#[test]
fn a_server_that_failed_says_why_also_while_it_waits_for_its_next_use() {
    let home = Home::new();
    let config = "[servers.gone]\ncommand = \"no-such-program\"\nrestart = { readmit_after = \"10ms\" }\n";
    home.write("ostler.toml", config);
    let daemon = Daemon::start(&home);
    assert_eq!(home.run(&["call", "gone__echo"]).code, Some(6));
    until("it may be tried again", || daemon.server("gone")["state"] == "idle");
    let run = home.run(&["status"]);
    assert!(run.stdout.contains("gone: program `no-such-program` was not found"), "{run}");
    assert!(run.stdout.contains("it is started again with the next call"), "{run}");
    assert!(run.stdout.lines().any(|line| line.starts_with("gone  failed ")), "{run}");
}

#[test]
fn a_probe_of_one_server_shows_all_that_it_wrote_and_one_of_several_says_what_is_left_out() {
    let home = Home::new();
    let script = "n=0; while [ $n -lt 19 ]; do n=$((n+1)); echo line $n of 19 >&2; done; exit 3";
    let other = ostler_testkit::fake_mcp();
    home.write(
        "ostler.toml",
        &format!("[servers.bad]\ncommand = \"sh\"\nargs = [\"-c\", {script:?}]\n[servers.other]\ncommand = {other:?}\n"),
    );
    let check = || {
        let one = home.run(&["status", "bad", "--probe"]);
        assert_eq!(one.stdout.matches(" of 19\n").count(), 19, "{one}");
        let several = home.run(&["status", "--probe"]);
        assert_eq!(several.stdout.matches(" of 19\n").count(), 8, "{several}");
        let left_out = "… 11 lines before; `ostler status bad --probe";
        assert!(several.stdout.contains(left_out), "{several}");
    };
    check();
    let _daemon = Daemon::start(&home);
    check();
}

#[test]
fn a_watched_server_stays_up_until_the_watching_ends() {
    let home = Home::with_servers(&[("fake", &["--starts", "starts"])]);
    let mut child = home.command(&["status", "--probe", "--watch"]).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let rows: Vec<String> = lines.filter(|line| line.starts_with("fake ")).take(3).collect();
    assert!(rows.iter().all(|row| row.contains("ready")), "{rows:?}");
    assert_eq!(home.lines("starts").len(), 1);
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

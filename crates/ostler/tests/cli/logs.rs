//! `ostler logs`: the stderr output of servers, and of the daemon itself.

use std::io::{BufRead, BufReader};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::daemon::Daemon;
use crate::home::{Home, until};
use crate::stdio::{EndedDaemon, StdioClient};

/// Returns a home with two servers, of which each has written one line.
fn home() -> Home {
    Home::with_servers(&[("one", &[]), ("other", &[])])
}

fn write(home: &Home, server: &str, lines: usize) {
    let run = home.run(&["call", &format!("{server}__stderr"), &format!("bytes={}", 80 * lines)]);
    assert_eq!(run.code, Some(0), "{run}");
}

/// Returns the lines of servers, without the marks of their starts.
fn objects(home: &Home, args: &[&str]) -> Vec<Value> {
    let mut lines = all_objects(home, args);
    lines.retain(|line| line["start"] != true);
    lines
}

fn all_objects(home: &Home, args: &[&str]) -> Vec<Value> {
    let run = home.run(&[&["logs", "--json"], args].concat());
    assert_eq!(run.code, Some(0), "{run}");
    run.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn lines_of_all_servers_have_their_server_and_their_time() {
    let home = home();
    let _daemon = Daemon::start(&home);
    write(&home, "other", 1);
    write(&home, "one", 2);
    until("all is read", || objects(&home, &[]).len() == 3);
    let lines = objects(&home, &[]);
    let servers: Vec<&str> = lines.iter().map(|line| line["server"].as_str().unwrap()).collect();
    assert_eq!(servers, ["other", "one", "one"], "ordered by time");
    let times: Vec<&str> = lines.iter().map(|line| line["at"].as_str().unwrap()).collect();
    assert!(times.is_sorted() && times.iter().all(|time| time.ends_with('Z')), "{times:?}");

    let shown = home.command(&["logs"]).env("TZ", "ABC-9:30").output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    let told: Vec<&str> =
        shown.lines().map(|line| line.split_once(' ').unwrap().1.get(9..18).unwrap()).collect();
    assert_eq!(told, ["other | -", "other | e", "one   | -", "one   | e", "one   | e"], "{shown}");
    let plain = "e".repeat(79) + "\n";
    assert_eq!(home.run(&["logs", "other", "--plain"]).stdout, plain);
    assert_eq!(home.run(&["logs", "--plain", "-n", "2"]).stdout, plain.repeat(2));
    assert!(!home.run(&["logs", "other"]).stdout.contains("other"), "one server needs no name");
    assert_eq!(home.run(&["logs", "one", "other", "--plain"]).stdout, plain.repeat(3));

    assert_eq!(objects(&home, &["--since", times[1]]).len(), 2);
    assert_eq!(objects(&home, &["--since", "1h"]).len(), 3);
    assert_eq!(objects(&home, &["--since", "2999-01-01"]).len(), 0);
    insta::assert_snapshot!(home.run(&["logs", "one", "ohter"]));
    insta::assert_snapshot!(home.run(&["logs", "--since", "yesterday"]));
}

#[test]
fn all_servers_are_followed_over_restarts_and_edits() {
    let home = home();
    let _daemon = Daemon::start(&home);
    let mut child = home.command(&["logs", "--follow", "--json"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || {
        let mut lines = lines.by_ref().map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
        lines.find(|line| line["start"] != true).unwrap()
    };
    write(&home, "one", 1);
    assert_eq!(next()["server"], "one");
    assert_eq!(home.run(&["restart", "other"]).code, Some(0));
    write(&home, "other", 1);
    assert_eq!(next()["server"], "other");
    // A server that an edit adds is followed too.
    let config = std::fs::read_to_string(home.path("ostler.toml")).unwrap();
    home.write("ostler.toml", &config.replace("servers.other", "servers.third"));
    assert_eq!(home.run(&["reload"]).code, Some(0));
    write(&home, "third", 1);
    assert_eq!(next()["server"], "third");
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn all_that_a_server_wrote_before_it_crashed_is_kept_with_its_time() {
    let home = Home::new();
    let script = "for n in 1 2 3 4 5 6 7 8 9 10; do echo line $n >&2; done; printf 'no token' >&2; exit 3";
    home.write("ostler.toml", &format!("[servers.crash]\ncommand = \"sh\"\nargs = [\"-c\", {script:?}]\n"));
    let _daemon = Daemon::start(&home);
    assert_eq!(home.run(&["start", "crash"]).code, Some(6));
    let lines = objects(&home, &["crash"]);
    let texts: Vec<&str> = lines.iter().map(|line| line["line"].as_str().unwrap()).collect();
    assert_eq!((texts.len(), texts.first(), texts.last()), (11, Some(&"line 1"), Some(&"no token")));
    assert!(lines.iter().all(|line| line["at"].is_string()), "{lines:?}");
}

#[test]
fn what_a_process_wrote_is_kept_over_the_next_ones_behind_a_mark_for_each() {
    let home = Home::new();
    let script = "echo attempt >> starts; echo \"attempt $(wc -l < starts)\" >&2; exit 3";
    let crash = format!("[servers.crash]\ncommand = \"sh\"\nargs = [\"-c\", {script:?}]\n");
    let fake = ostler_testkit::fake_mcp();
    home.write("ostler.toml", &format!("{crash}[servers.fake]\ncommand = {fake:?}\n"));
    let daemon = Daemon::start(&home);
    write(&home, "fake", 1);
    until("the line is read", || objects(&home, &["fake"]).len() == 1);
    let first = daemon.server("fake")["pid"].clone();
    kill(Pid::from_raw(first.as_i64().unwrap().try_into().unwrap()), Signal::SIGKILL).unwrap();
    until("the end is noticed", || daemon.server("fake")["active"] == false);
    write(&home, "fake", 2);
    assert_eq!(home.run(&["stop", "fake"]).code, Some(0));
    assert_eq!(home.run(&["start", "fake"]).code, Some(0));
    write(&home, "fake", 1);
    until("all is read", || objects(&home, &["fake"]).len() == 4);
    let lines = all_objects(&home, &["fake"]);
    let marks: Vec<bool> = lines.iter().map(|line| line["start"] == true).collect();
    assert_eq!(marks, [true, false, true, false, false, true, false], "{lines:?}");
    assert_eq!(lines[0]["line"], format!("--- started, pid {first} ---"));
    assert_eq!(all_objects(&home, &["fake", "-n", "1"]).len(), 1);
    assert_eq!(all_objects(&home, &["fake", "-n", "3"]), lines[3..], "marks do not count");
    assert_eq!(objects(&home, &["fake", "--since", lines[3]["at"].as_str().unwrap()]).len(), 3);
    // Starts that fail leave their output too.
    for _ in 0..2 {
        assert_eq!(home.run(&["restart", "crash"]).code, Some(6));
    }
    let texts: Vec<Value> = objects(&home, &["crash"]).iter_mut().map(|line| line["line"].take()).collect();
    assert!(texts.len() >= 2 && texts[..2] == ["attempt 1", "attempt 2"], "{texts:?}");
}

#[test]
fn without_a_daemon_it_is_said_how_to_see_what_a_server_writes() {
    insta::assert_snapshot!(home().run(&["logs"]));
}

#[test]
fn the_log_of_a_daemon_is_shown_by_itself() {
    let home = home();
    let none = home.run(&["logs", "--self"]);
    assert_eq!((none.code, none.stdout.as_str()), (Some(0), ""));
    insta::assert_snapshot!(none);
    {
        let _daemon = Daemon::start(&home);
        insta::assert_snapshot!(home.run(&["logs", "--self"]));
    }
    let _ended = EndedDaemon(&home);
    let mut command = home.command(&["stdio"]);
    command.env("OSTLER_LOG", "info");
    let mut client = StdioClient::start_as(command);
    client.initialize();
    until("the daemon has logged", || !home.run(&["logs", "--self"]).stdout.is_empty());
    assert_eq!(home.run(&["logs", "--self", "-n", "1"]).stdout.lines().count(), 1);
    let line = home.run(&["logs", "--self", "-n", "1", "--json"]).stdout;
    assert!(serde_json::from_str::<Value>(&line).unwrap()["line"].is_string(), "{line}");
    client.child.kill().unwrap();
    client.child.wait().unwrap();
}

#[test]
fn nothing_to_show_is_said() {
    let home = Home::new();
    let _daemon = Daemon::start(&home);
    let run = home.run(&["logs"]);
    assert_eq!((run.stdout.as_str(), run.code), ("", Some(0)), "{run}");
    assert!(run.stderr.starts_with("no server has written to stderr; `ostler logs --follow"), "{run}");
    let run = home.run(&["prompts"]);
    assert!(run.stderr.starts_with("no server offers prompts; `ostler tools"), "{run}");
    let run = home.run(&["resources", "demo"]);
    assert!(run.stderr.starts_with("`demo` offers no resources; `ostler tools"), "{run}");
    let run = home.run(&["trust", "--list"]);
    assert!(run.stderr.starts_with("no config is trusted; `ostler trust`"), "{run}");
}

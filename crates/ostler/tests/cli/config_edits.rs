//! Edits of the config while the daemon runs.

use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::Signal;
use ostler_testkit::fake_mcp;
use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::home::{Home, until};
use crate::mcp;

/// Returns a server's table of a config file.
fn table(name: &str, rest: &str) -> String {
    format!("[servers.{name}]\ncommand = {:?}\n{rest}\n", fake_mcp())
}

/// Returns the daemon's report of the last change.
fn last_change(daemon: &Daemon<'_>) -> Value {
    daemon.ask("GET /api/v1/config", "").json()["last_change"].clone()
}

fn until_applied(daemon: &Daemon<'_>, outcome: &str) -> Value {
    until("the edit is seen", || last_change(daemon)["outcome"] == outcome);
    last_change(daemon)
}

#[test]
fn an_edit_leaves_servers_that_it_does_not_touch_alone() {
    let home = Home::new();
    home.write("ostler.toml", &(table("same", "") + &table("other", "") + &table("gone", "")));
    let daemon = Daemon::start(&home);
    assert_eq!(home.run(&["status", "--probe"]).code, Some(0));
    let pid = |server: &str| daemon.server(server)["pid"].clone();
    let (same, other) = (pid("same"), pid("other"));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let calls = scope.spawn(|| {
            let mut calls = 0;
            while !is_over.load(Ordering::Relaxed) {
                let answer = mcp::call(daemon.port, "same__echo", json!({"text": "hi"}));
                assert!(answer["result"].is_object(), "{answer}");
                calls += 1;
            }
            calls
        });
        // As editors do it: a new file, renamed.
        home.write(
            "new.toml",
            &(table("same", "") + &table("other", "call_timeout = \"7s\"") + &table("new", "")),
        );
        std::fs::rename(home.path("new.toml"), home.path("ostler.toml")).unwrap();
        let change = until_applied(&daemon, "applied");
        is_over.store(true, Ordering::Relaxed);
        assert!(calls.join().unwrap() > 0);
        let plan = serde_json::json!({
            "added": ["new"], "changed": ["other"], "removed": ["gone"], "untouched": ["same"], "roles": [], "needs_restart": []
        });
        assert_eq!((&change["plan"], &change["failed"]), (&plan, &serde_json::json!([])));
    });
    assert_eq!(pid("same"), same);
    assert_ne!(pid("other"), other);
    assert_eq!(home.run(&["call", "new__echo"]).code, Some(0));
    assert_eq!(home.run(&["call", "gone__echo"]).code, Some(5));
}

#[test]
fn a_broken_edit_changes_nothing_and_says_where() {
    let home = Home::new();
    home.write("ostler.toml", &table("fake", ""));
    let daemon = Daemon::start(&home);
    assert_eq!(home.run(&["start", "fake"]).code, Some(0));
    let pid = daemon.server("fake")["pid"].clone();
    home.write("ostler.toml", &(table("fake", "lazzy = true") + &table("more", "")));
    let change = until_applied(&daemon, "broken");
    assert_eq!(change["problems"][0]["line"], 3);
    assert_eq!(daemon.server("fake")["pid"], pid);
    assert_eq!(daemon.ask("GET /api/v1/servers/more", "").status, 404);
    assert_eq!(home.run(&["call", "fake__echo"]).code, Some(0), "commands go on with what is served");
    assert_eq!(daemon.ask("POST /api/v1/config/reload", "").status, 422);
    insta::assert_snapshot!(home.run(&["reload"]));
    home.write("ostler.toml", &table("fake", ""));
    until_applied(&daemon, "applied");
    assert_eq!(home.run(&["reload"]).stdout, "untouched: fake\n");
    assert_eq!(daemon.server("fake")["pid"], pid);
    let (_, _, said) = daemon.end();
    assert!(said.contains("ostler.toml:3:1: error: unknown key `lazzy`"), "{said}");
    let again = said.rfind("the config can be used again; it is as it was, so nothing was changed");
    assert!(again > said.rfind("the config can't be used as it is now"), "{said}");
    let rows = home.run(&["audit", "--json", "--outcome", "refused"]).stdout;
    assert!(rows.contains("config-refused"), "{rows}");
}

#[test]
fn every_line_after_the_start_has_its_time_and_an_error_of_the_config_is_told_once() {
    let home = Home::new();
    home.write("ostler.toml", &(table("fake", "") + &table("same", "")));
    let daemon = Daemon::start(&home);
    home.write("ostler.toml", &table("fake", "lazzy = true"));
    until_applied(&daemon, "broken");
    assert_eq!(daemon.ask("POST /api/v1/config/reload", "").status, 422);
    home.write("ostler.toml", &(table("fake", "max_in_flight = 3") + &table("same", "")));
    until_applied(&daemon, "applied");
    let (_, _, said) = daemon.end();
    let after = said.split_once("/mcp\n  config:").unwrap().1;
    let lines: Vec<&str> = after.lines().skip(1).filter(|line| !line.starts_with(' ')).collect();
    let is_timed = |line: &&str| {
        line.split_once(' ').is_some_and(|(time, _)| time.starts_with("20") && time.ends_with('Z'))
    };
    assert!(lines.iter().all(is_timed), "{said}");
    assert_eq!(said.matches("unknown key `lazzy`").count(), 1, "{said}");
    assert!(said.contains("config applied: changed fake; 1 untouched"), "{said}");
    assert!(lines.last().unwrap().contains("ending;"), "{said}");
}

#[test]
fn a_server_that_can_not_be_replaced_stays_as_it_was() {
    let home = Home::new();
    home.write("ostler.toml", &table("fake", "lazy = false"));
    let daemon = Daemon::start(&home);
    until("it is up", || daemon.server("fake")["state"] == "ready");
    let pid = daemon.server("fake")["pid"].clone();
    home.write("ostler.toml", &table("fake", "lazy = false\nargs = [\"--exit-at-start\", \"1:no licence\"]"));
    let change = until_applied(&daemon, "applied");
    assert_eq!(change["failed"][0]["error"]["code"], "server-unavailable", "{change}");
    assert_eq!(
        (daemon.server("fake")["pid"].clone(), daemon.server("fake")["state"].clone()),
        (pid, "ready".into())
    );
}

#[test]
fn included_files_are_watched_and_a_signal_reads_everything_again() {
    let home = Home::new();
    let client = |name: &str| format!(r#"{{"mcpServers": {{"{name}": {{"command": {:?}}}}}}}"#, fake_mcp());
    home.write("sub/mcp.json", &client("one"));
    home.write("ostler.toml", "include = [\"sub/mcp.json\"]\n");
    let daemon = Daemon::start(&home);
    home.write("sub/mcp.json", &client("two"));
    assert_eq!(until_applied(&daemon, "applied")["plan"]["added"][0], "two");
    home.write("ostler.toml", "include = [\"sub/mcp.json\"]\nwatch = false\nlisten = \"127.0.0.1:1\"\n");
    until("the main file is read", || last_change(&daemon)["plan"]["needs_restart"][0] == "listen");
    home.write("sub/mcp.json", &client("three"));
    assert_eq!(daemon.ask("GET /api/v1/servers/three", "").status, 404);
    daemon.signal(Signal::SIGHUP);
    until("the signal is heard", || daemon.ask("GET /api/v1/servers/three", "").status == 200);
}

#[test]
fn an_edit_applies_however_busy_its_directory_is() {
    let home = Home::new();
    home.write("ostler.toml", &table("one", ""));
    let daemon = Daemon::start(&home);
    // From here on it waits for events.
    home.write("ostler.toml", &table("first", ""));
    until_applied(&daemon, "applied");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Neither the files beside the config nor the config itself are ever left alone.
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                home.write("busy.log", "x");
                home.write("new.toml", &table("two", ""));
                std::fs::rename(home.path("new.toml"), home.path("ostler.toml")).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        });
        let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            until("the edit is seen", || daemon.ask("GET /api/v1/servers/two", "").status == 200);
        }));
        is_over.store(true, Ordering::Relaxed);
        assert!(seen.is_ok(), "the edit is not seen");
    });
}

#[test]
fn a_server_that_is_taken_out_comes_back_while_its_calls_finish() {
    let home = Home::new();
    let config = |rest: &str| format!("watch = false\n{}{rest}", table("same", ""));
    let fake = table("fake", "args = [\"--ledger\", \"ledger\"]");
    home.write("ostler.toml", &config(&fake));
    let daemon = Daemon::start(&home);
    let mut hanging = home.command(&["call", "fake__hang"]).spawn().unwrap();
    until("the call arrives", || home.lines("ledger").len() == 1);
    let before = daemon.server("fake")["pid"].clone();
    home.write("ostler.toml", &config(""));
    assert_eq!(daemon.ask("POST /api/v1/config/reload", "").status, 200);
    assert_eq!(daemon.ask("GET /api/v1/servers/fake", "").status, 404);
    home.write("ostler.toml", &config(&fake));
    assert_eq!(daemon.ask("POST /api/v1/config/reload", "").status, 200);
    assert!(hanging.try_wait().unwrap().is_none(), "the call is still in flight");
    assert_eq!(home.run(&["call", "fake__echo"]).code, Some(0));
    assert_ne!(daemon.server("fake")["pid"], before);
    hanging.kill().unwrap();
    hanging.wait().unwrap();
}

#[test]
fn a_reload_without_a_config_is_refused_with_a_hint_and_leaves_no_warning() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let run = home.run(&["reload"]);
    assert!(run.stderr.contains("there is no config file"), "{run}");
    assert!(
        run.stderr.contains("hint: write an ostler.toml; then `ostler down` and `ostler serve`"),
        "{run}"
    );
    let status = home.run(&["status"]);
    assert!(!status.to_string().contains("has changed"), "{status}");
    daemon.end();
}

/// Returns a server that can start only once and is not lazy.
fn started_once(rest: &str) -> String {
    let script = format!("test -e started && exit 1; touch started; exec {}", fake_mcp().display());
    format!(
        "[servers.once]\ncommand = \"sh\"\nargs = [\"-c\", {script:?}]\ncwd = \".\"\nlazy = false\n{rest}\n"
    )
}

#[test]
fn an_edit_that_takes_tools_away_is_in_force_although_the_server_does_not_start_again() {
    let home = Home::new();
    home.write("ostler.toml", &(started_once("") + "[roles.dev]\nallow = [\"*\"]\n"));
    let daemon = Daemon::start(&home);
    let explain = |tool: &str| home.run(&["explain", "dev", &format!("once__{tool}")]).code;
    assert_eq!(home.run(&["call", "once__counter"]).code, Some(0));
    let pid = daemon.server("once")["pid"].clone();
    let denied = "tools = { deny = [\"counter\"] }";
    home.write("ostler.toml", &(started_once(denied) + "[roles.dev]\nallow = [\"*\"]\n"));
    assert_eq!(home.run(&["reload"]).code, Some(0), "it needs no other process");
    assert_eq!(home.run(&["call", "once__counter"]).code, Some(5));
    assert_eq!((explain("counter"), explain("echo")), (Some(5), Some(0)));

    let denied = "tools = { deny = [\"echo\"] }\nenv = { OTHER = \"1\" }";
    home.write("ostler.toml", &(started_once(denied) + "[roles.dev]\nallow = [\"once/echo\"]\n"));
    assert_eq!(home.run(&["reload"]).code, Some(6), "its next process does not start");
    assert_eq!(home.run(&["call", "once__echo"]).code, Some(5));
    assert_eq!(home.run(&["call", "once__counter"]).code, Some(0));
    assert_eq!((explain("counter"), explain("echo")), (Some(5), Some(5)));
    assert_eq!(daemon.server("once")["pid"], pid);
}

#[test]
fn explain_tells_what_is_in_force_in_the_daemon_and_warns_of_another_config_on_disk() {
    let home = Home::new();
    home.write("ostler.toml", &(table("fake", "") + "[roles.dev]\nallow = [\"*\"]\n"));
    let daemon = Daemon::start(&home);
    let broken = table("fake", "lazzy = true") + "[roles.dev]\nallow = []\n";
    home.write("ostler.toml", &broken);
    until_applied(&daemon, "broken");
    let run = home.run(&["explain", "dev", "fake__echo"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(run.stdout.contains("`*` in `allow` of `[roles.dev]`"), "{}", run.stdout);
    assert!(run.stderr.contains("the config has changed and can't be used"), "{}", run.stderr);
    assert_eq!(daemon.ask("GET /api/v1/explain?role=dev", "").status, 400);
}

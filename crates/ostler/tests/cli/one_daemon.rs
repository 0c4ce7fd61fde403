//! One daemon for a config, in every environment of its clients.

use std::process::{Child, Command};

use serde_json::json;

use crate::daemon::Daemon;
use crate::home::{Home, until};
use crate::stdio::{EndedDaemon, StdioClient};

/// Returns a command with the variables that the Python SDK, the Inspector and Claude Code pass on, and no others.
fn filtered(home: &Home, args: &[&str]) -> Command {
    let mut command = home.command(args);
    command
        .env_clear()
        .env("HOME", home.path("ostler.toml").parent().unwrap())
        .env("PATH", std::env::var_os("PATH").unwrap());
    for (name, value) in [("LOGNAME", "ada"), ("USER", "ada"), ("SHELL", "/bin/sh"), ("TERM", "dumb")] {
        command.env(name, value);
    }
    command
}

fn processes(home: &Home, word: &str) -> usize {
    home.left().iter().filter(|line| line.contains(word)).count()
}

/// Returns a home with a config of one server, whose callers have three calls.
fn with_budget() -> Home {
    let home = Home::new();
    let fake = ostler_testkit::fake_mcp();
    let config = format!(
        "[servers.fake]\ncommand = {fake:?}\nargs = [\"--starts\", \"starts\"]\n\
         [roles.local]\nallow = [\"*\"]\nbudget = {{ calls = 3, per = \"1h\" }}\n"
    );
    home.write("ostler.toml", &config);
    home
}

#[test]
fn a_client_with_a_filtered_environment_shares_the_daemon_its_processes_and_its_budget() {
    let home = with_budget();
    let runtime = home.path("run");
    std::fs::create_dir(&runtime).unwrap();
    let daemon = Daemon::start_as(&home, |command| {
        command.env("XDG_RUNTIME_DIR", &runtime);
    });
    let mut client = StdioClient::start_as(filtered(&home, &["stdio"]));
    client.initialize();
    let pid = client.server_pid();
    let run = home.run(&["call", "fake__pid"]);
    assert_eq!(run.stdout.trim(), pid, "{run}");
    let run = home.finish(filtered(&home, &["call", "fake__pid"]).spawn().unwrap());
    assert_eq!(run.stdout.trim(), pid, "{run}");
    let over = client.ask(3, "tools/call", json!({"name": "fake__pid", "arguments": {}}));
    assert_eq!(over["error"]["data"]["code"], "over-budget", "{over}");
    assert_eq!((processes(&home, " serve "), home.lines("starts").len()), (1, 1));
    drop(client.child.stdin.take());
    assert!(client.child.wait().unwrap().success());
    assert!(daemon.end().0.success());
}

#[test]
fn a_daemon_that_a_filtered_client_has_started_is_found_from_a_whole_environment() {
    let home = Home::with_servers(&[("fake", &["--starts", "starts"])]);
    let ended = EndedDaemon(&home);
    let mut client = StdioClient::start_as(filtered(&home, &["stdio"]));
    client.initialize();
    let pid = client.server_pid();
    // Here XDG_STATE_HOME is set, and the admin token lies in another directory than without it.
    let run = home.run(&["call", "fake__pid"]);
    assert_eq!(run.stdout.trim(), pid, "{run}");
    assert_eq!((ended.pids().len(), home.lines("starts").len()), (1, 1));
    drop(client.child.stdin.take());
    assert!(client.child.wait().unwrap().success());
}

#[test]
fn a_daemon_is_found_by_every_name_of_its_config() {
    let home = Home::with_servers(&[("fake", &["--starts", "starts"])]);
    std::os::unix::fs::symlink(home.path("ostler.toml"), home.path("link.toml")).unwrap();
    std::fs::create_dir(home.path("sub")).unwrap();
    let daemon = Daemon::start(&home);
    let absolute = home.path("ostler.toml");
    for name in [absolute.to_str().unwrap(), "link.toml", "sub/../ostler.toml", "/proc/self/cwd/ostler.toml"]
    {
        let run = home.run(&["--config", name, "call", "fake__pid"]);
        assert_eq!(run.code, Some(0), "{name}: {run}");
    }
    assert_eq!(home.lines("starts").len(), 1);
    drop(daemon);
}

#[test]
fn two_that_are_served_at_once_are_one_and_a_message() {
    let home = Home::with_servers(&[("fake", &[])]);
    let serve = |mut command: Command| command.args(["--listen", "127.0.0.1:0"]).spawn().unwrap();
    let children = [serve(home.command(&["serve"])), serve(filtered(&home, &["serve"]))];
    let mut children = children.map(Some);
    let mut ended = None;
    until("one of them ends", || {
        let has_ended = |child: &mut Option<Child>| child.as_mut().unwrap().try_wait().unwrap().is_some();
        ended = children.iter_mut().position(has_ended);
        ended.is_some()
    });
    let loser = children[ended.unwrap()].take().unwrap();
    let run = home.finish(loser);
    assert_eq!(run.code, Some(1), "{run}");
    assert!(run.stderr.contains("a daemon for this config is already running at http://127.0.0.1:"), "{run}");
    let mut winner = children.into_iter().flatten().next().unwrap();
    let pid = nix::unistd::Pid::from_raw(winner.id().cast_signed());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    assert!(winner.wait().unwrap().success());
}

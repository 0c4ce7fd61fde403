//! `ostler serve`: start, discovery and shutdown of the daemon.

use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::daemon::Daemon;
use crate::home::{Home, until};
use crate::http;

#[test]
fn without_a_config_the_built_in_server_is_served() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    assert_eq!(http::ask(daemon.port, "GET /healthz", &[], "").text, r#"{"ok":true}"#);
    let ready = http::ask(daemon.port, "GET /readyz", &[], "");
    assert_eq!((ready.status, ready.text.as_str()), (200, r#"{"ready":true,"waiting":0}"#));
    let run = home.run(&["call", "demo__add", "a=2", "b=40"]);
    assert_eq!((run.stdout.as_str(), run.stderr.as_str(), run.code), ("42\n", "", Some(0)));
    let port = daemon.port.to_string();
    let (status, _, said) = daemon.end();
    assert!(status.success());
    let untimed = |line: &str| match line.split_once("Z ") {
        Some((time, rest)) if time.starts_with("20") => format!("[TIME] {rest}\n"),
        _ => format!("{line}\n"),
    };
    let said: String = said.replace(&port, "[PORT]").lines().map(untimed).collect();
    insta::assert_snapshot!(said);
}

#[test]
fn the_config_says_whom_and_what_the_endpoints_take() {
    let home = Home::new();
    home.write(
        "ostler.toml",
        "[gateway]\nmax_body = \"1KiB\"\nallowed_hosts = [\"box.example\"]\n\
         allowed_origins = [\"https://app.example\"]\n",
    );
    let daemon = Daemon::start(&home);
    let post = |headers: &[&str], body: &str| {
        let mut all = vec!["Content-Type: application/json", "Accept: application/json, text/event-stream"];
        all.extend(headers);
        http::ask(daemon.port, "POST /mcp", &all, body).status
    };
    let hello = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}"#;
    let token = home.run(&["token", "create", "--name", "ada", "--role", "local"]).stdout;
    let bearer = format!("Authorization: Bearer {}", token.trim());
    assert_eq!(post(&["Host: box.example", &bearer], hello), 200);
    assert_eq!(post(&["Host: box.example"], hello), 401, "under such a name nobody is local");
    assert_eq!(post(&["Host: other.example"], hello), 403);
    assert_eq!(post(&["Origin: https://app.example"], hello), 200);
    assert_eq!(post(&["Origin: https://other.example"], hello), 403);
    for path in ["GET /healthz", "GET /readyz"] {
        let get = |header: &str| http::ask(daemon.port, path, &[header], "").status;
        assert_eq!((get("Host: box.example"), get("Host: other.example")), (200, 403), "{path}");
        let origins = (get("Origin: https://app.example"), get("Origin: https://other.example"));
        assert_eq!(origins, (200, 403), "{path}");
    }
    assert_eq!(post(&[], &format!("{hello}{}", " ".repeat(1_024))), 413);
    home.write("ostler.toml", "[gateway]\nmax_body = \"2KiB\"\n");
    let last = || daemon.ask("GET /api/v1/config", "").json()["last_change"].clone();
    until("the edit is seen", || last()["outcome"] == "applied");
    assert_eq!(last()["plan"]["needs_restart"], serde_json::json!(["gateway"]));
}

#[test]
fn an_address_that_others_reach_is_refused() {
    let home = Home::new();
    insta::assert_snapshot!(home.run(&["serve", "--listen", "0.0.0.0:0"]));
    assert_eq!(home.run(&["serve", "--listen", "[::]:0"]).code, Some(3));
    home.write("ostler.toml", "listen = \"192.0.2.1:0\"\n");
    assert_eq!(home.run(&["serve"]).code, Some(3));
}

#[test]
fn a_config_has_one_daemon() {
    let home = Home::with_servers(&[("fake", &[])]);
    let daemon = Daemon::start(&home);
    let run = home.run(&["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!(run.code, Some(1));
    assert!(run.stderr.contains(&format!("already running at {}", daemon.url())), "{run}");
}

#[test]
fn a_port_that_is_taken_is_told_with_who_has_it() {
    let home = Home::with_servers(&[("fake", &[])]);
    home.write("other.toml", "");
    let daemon = Daemon::start(&home);
    let address = format!("127.0.0.1:{}", daemon.port);
    let run = home.run(&["serve", "--config", "other.toml", "--listen", &address]);
    assert_eq!(run.code, Some(1));
    assert!(run.stderr.contains("the daemon for [HOME]/ostler.toml (pid "), "{run}");
}

#[test]
fn a_killed_daemon_is_not_taken_for_a_running_one() {
    let home = Home::with_servers(&[("fake", &[])]);
    let daemon = Daemon::start(&home);
    daemon.signal(Signal::SIGKILL);
    drop(daemon);
    let run = home.run(&["call", "fake__echo", "text=hi"]);
    assert_eq!((run.stdout.as_str(), run.code), ("{\"text\":\"hi\"}\n", Some(0)));
    assert!(Daemon::start(&home).end().0.success());
}

#[test]
fn sigterm_ends_in_time_whatever_servers_ignore() {
    let stubborn: &[&str] =
        &["--ignore-stdin-close", "--ignore-sigterm", "--fork-setsid", "stray", "--ledger", "ledger"];
    let home = Home::with_servers(&[("fake", stubborn), ("more", stubborn)]);
    let daemon = Daemon::start(&home);
    assert_eq!(home.run(&["status", "--probe"]).code, Some(0));
    let mut hanging = home.command(&["call", "fake__hang"]).stderr(Stdio::null()).spawn().unwrap();
    until("the call arrives", || home.lines("ledger").len() == 1);
    let (status, took, _) = daemon.end();
    assert!(status.success() && took < Duration::from_secs(10), "{status} after {took:?}");
    assert_eq!(hanging.wait().unwrap().code(), Some(8), "what may have run is not called a failure");
}

#[test]
fn a_server_that_should_be_up_and_fails_keeps_nobody_from_the_others() {
    let home = Home::new();
    let fake = ostler_testkit::fake_mcp();
    home.write(
        "ostler.toml",
        &format!(
            "[servers.bad]\ncommand = {fake:?}\nargs = [\"--exit-at-start\", \"1:no licence\"]\nlazy = false\n\
             [servers.good]\ncommand = {fake:?}\nlazy = false\n"
        ),
    );
    let daemon = Daemon::start(&home);
    until("all have settled", || http::ask(daemon.port, "GET /readyz", &[], "").status == 200);
    assert_eq!(daemon.server("good")["state"], "ready");
    let bad = daemon.server("bad");
    assert!(bad["state"] == "backoff" || bad["state"] == "starting" || bad["state"] == "ejected", "{bad}");
    assert_eq!(bad["last_error"]["stderr"][0], "no licence");
    let (_, _, said) = daemon.end();
    assert!(said.contains("`bad` could not be started: \"no licence\", exit code 1"), "{said}");
}

#[test]
fn a_daemon_that_was_started_for_somebody_ends_by_itself() {
    let home = Home::with_servers(&[("fake", &[])]);
    let daemon = Daemon::start_with(&home, &["--linger", "300ms"]);
    assert_eq!(home.run(&["call", "fake__echo", "text=hi"]).code, Some(0));
    until("it has ended", || home.left().is_empty());
    drop(daemon);
}

/// Returns a shell whose start-up files print a greeting and add one more directory to `PATH`.
fn login_shell(home: &Home) -> std::path::PathBuf {
    std::fs::create_dir(home.path("bin")).unwrap();
    std::os::unix::fs::symlink(ostler_testkit::fake_mcp(), home.path("bin/only-in-login-path")).unwrap();
    let shell = home.path("shell");
    let script =
        format!("#!/bin/sh\necho hello\nexport PATH=\"{}:$PATH\"\neval \"$4\"\n", home.path("bin").display());
    std::fs::write(&shell, script).unwrap();
    std::fs::set_permissions(&shell, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    shell
}

#[test]
fn a_daemon_that_a_desktop_program_starts_finds_what_the_login_shell_finds() {
    for is_on in [true, false] {
        let home = Home::new();
        let shell = login_shell(&home);
        let text =
            format!("[defaults]\nlogin_path = {is_on}\n[servers.fake]\ncommand = \"only-in-login-path\"\n");
        home.write("ostler.toml", &text);
        let daemon = Daemon::start_as(&home, |command| {
            command.env("PATH", "/usr/bin:/bin").env("SHELL", &shell).stderr(Stdio::null());
        });
        let run = home.run(&["call", "fake__env"]);
        assert_eq!(run.stdout.contains("\"PATH\":\"/usr/bin:/bin:[HOME]/bin\""), is_on, "{run}");
        assert_eq!(run.code, Some(if is_on { 0 } else { 6 }), "{run}");
        daemon.end();
    }
}

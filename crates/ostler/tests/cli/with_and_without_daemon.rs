//! Commands through a daemon: their output is the same as without one.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::daemon::Daemon;
use crate::home::{Home, until};
use crate::mcp;

fn home() -> Home {
    Home::with_servers(&[
        ("fake", &["--starts", "starts", "--ledger", "ledger"]),
        ("bad", &["--exit-at-start", "1:no licence"]),
    ])
}

/// Runs a command without a daemon and with one, without messages about waiting, which depend on the load.
fn both(home: &Home, args: &[&str]) -> (String, String) {
    let run = || {
        let text = home.run(args).without_times();
        let is_timely = |line: &&str| line.starts_with("waiting: ") || line.contains("\"retryAfterMs\": ");
        text.lines().filter(|line| !is_timely(line)).collect::<Vec<_>>().join("\n")
    };
    let alone = run();
    let daemon = Daemon::start(home);
    let through = run();
    drop(daemon);
    (alone, through)
}

#[test]
fn calls_lists_and_errors_read_the_same() {
    let home = home();
    for line in [
        "call fake__echo text=hi",
        "call fake__echo text=hi --json",
        "call fake__add a=9007199254740993 b=1",
        "call fake__ecko",
        "call fakes__echo",
        "call fake__fail",
        "call fake__rpc_error code=-32000 message=no",
        "call fake__exit",
        "call fake__sleep ms=60000 --timeout 3s",
        "call bad__x",
        "tools fake",
        "tools fake --full",
        "tools fake --json",
        "tools nope",
        "tools fake.echo",
        "call fake/echo text=hi",
        "call fake.ecko --json",
        "tools bad",
        "prompts fake",
        "prompts --json",
        "resources fake",
        "resources --json",
        "resources nope",
        "prompts get fake__greet who=Ada",
        "prompts get fake__greet --json",
        "resources read fake://static --server fake",
        "resources read fake://none --server fake",
        "list",
        "list --json",
    ] {
        let args: Vec<&str> = line.split(' ').collect();
        let (alone, through) = both(&home, &args);
        // A daemon tries a server that does not start again with the next call, and only it has something to reload.
        let told = |text: String| {
            let text = text.replace(TRIED_AGAIN, "it failed 2 times");
            text.replace("; then `ostler reload bad --config ostler.toml`", "")
        };
        assert_eq!(told(through), told(alone), "{line}");
    }
}

/// Starts a proxy before a port that counts connections; returns its own port.
fn counting(port: u16) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = listener.local_addr().unwrap().port();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    std::thread::spawn(move || {
        for client in listener.incoming() {
            counted.fetch_add(1, Ordering::SeqCst);
            let (client, daemon) = (client.unwrap(), TcpStream::connect(("127.0.0.1", port)).unwrap());
            let (back, answers) = (client.try_clone().unwrap(), daemon.try_clone().unwrap());
            for (mut from, mut to) in [(client, daemon), (answers, back)] {
                std::thread::spawn(move || {
                    let _ = io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Write);
                });
            }
        }
    });
    (own, count)
}

#[test]
fn a_command_asks_its_daemon_over_one_connection() {
    let home = Home::with_servers(&[("fake", &[])]);
    let daemon = Daemon::start(&home);
    // A slow start is reported, for which the daemon is asked meanwhile.
    daemon.ask("POST /api/v1/servers/fake/start", "");
    // The states of servers, which `tools` asks for when it has the list, are not part of MCP.
    for (line, connections) in [
        ("call fake__echo text=hi", 1),
        ("call fake__echo text=hi --json", 1),
        ("call echo text=hi", 1),
        ("tools fake", 2),
        ("tools", 2),
        ("prompts", 1),
        ("resources", 1),
        ("prompts get fake__greet who=Ada", 1),
        ("resources read fake://static", 1),
    ] {
        let (port, count) = counting(daemon.port);
        let url = format!("http://127.0.0.1:{port}");
        let args: Vec<&str> = line.split(' ').chain(["--daemon", &url]).collect();
        let run = home.run(&args);
        assert_eq!(run.code, Some(0), "{line}: {}", run.stderr);
        assert_eq!(count.load(Ordering::SeqCst), connections, "{line}");
    }
}

/// Message about a daemon's next attempt at a server that does not start.
const TRIED_AGAIN: &str = "it has never come up; the next call tries again";

#[test]
fn one_process_serves_all_commands_of_a_daemon() {
    let home = home();
    let daemon = Daemon::start(&home);
    for _ in 0..3 {
        assert_eq!(home.run(&["call", "fake__echo", "text=hi"]).code, Some(0));
    }
    assert_eq!(home.lines("starts").len(), 1);
    let json: Value = serde_json::from_str(&home.run(&["status", "fake", "--json"]).stdout).unwrap();
    assert_eq!(
        (&json["servers"][0]["state"], &json["servers"][0]["starts_total"]),
        (&"ready".into(), &1.into())
    );
    drop(daemon);
}

#[test]
fn the_shape_of_status_is_the_same_with_a_daemon() {
    fn keys(text: &str) -> Vec<String> {
        let json: Value = serde_json::from_str(text).unwrap();
        json["servers"][0].as_object().unwrap().keys().cloned().collect()
    }
    let home = home();
    let alone = home.run(&["status", "--json"]);
    let _daemon = Daemon::start(&home);
    assert_eq!(keys(&home.run(&["status", "--json"]).stdout), keys(&alone.stdout));
}

#[test]
fn an_operator_stops_starts_and_reloads_servers() {
    let home = home();
    let daemon = Daemon::start(&home);
    assert_eq!(home.run(&["start", "fake"]).code, Some(0));
    let pid = daemon.server("fake")["pid"].clone();
    assert!(pid.is_u64());
    assert_eq!(home.run(&["reload", "fake"]).code, Some(0));
    assert_ne!(daemon.server("fake")["pid"], pid);
    insta::assert_snapshot!(home.run(&["stop", "fake"]));
    insta::assert_snapshot!(home.run(&["call", "fake__echo"]));
    assert_eq!(home.run(&["start", "fake"]).code, Some(0));
    assert_eq!(home.run(&["call", "fake__echo"]).code, Some(0));
    insta::assert_snapshot!(home.run(&["start", "bad"]));
    insta::assert_snapshot!(home.run(&["stop", "fakes"]));
}

#[test]
fn what_a_server_says_can_be_read_and_followed() {
    let home = home();
    let _daemon = Daemon::start(&home);
    home.run(&["call", "bad__x"]);
    let logs = home.run(&["logs", "bad", "--plain"]);
    assert_eq!((logs.stdout.as_str(), logs.code), ("no licence\nno licence\n", Some(0)), "of both starts");
    let mut child = home.command(&["logs", "fake", "--follow", "--plain"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(home.run(&["call", "fake__stderr", "bytes=160"]).code, Some(0));
    for line in lines.by_ref().take(2) {
        assert_eq!(line.unwrap(), "e".repeat(79));
    }
    // It goes on with the next process.
    assert_eq!(home.run(&["reload", "fake"]).code, Some(0));
    assert_eq!(home.run(&["call", "fake__stderr", "bytes=80"]).code, Some(0));
    assert_eq!(lines.next().unwrap().unwrap(), "e".repeat(79));
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn without_a_daemon_there_is_nothing_to_operate() {
    let home = home();
    insta::assert_snapshot!(home.run(&["stop", "fake"]));
    for args in [&["start", "fake"][..], &["reload", "fake"], &["reload"], &["logs", "fake"]] {
        assert_eq!(home.run(args).code, Some(4), "{args:?}");
    }
}

#[test]
fn a_daemon_that_is_named_must_be_there() {
    let home = home();
    let daemon = Daemon::start(&home);
    let (url, token) = (daemon.url(), daemon.token());
    let elsewhere = Home::new();
    let run = elsewhere.run(&["tools", "--daemon", &url]);
    assert_eq!(run.code, Some(5), "{run}");
    assert!(run.stderr.contains("OSTLER_ADMIN_TOKEN"), "{run}");
    let mut command = elsewhere.command(&["call", "fake__echo", "text=hi", "--daemon", &url]);
    let output = command.env("OSTLER_ADMIN_TOKEN", &token).output().unwrap();
    assert_eq!((&*output.stdout, output.status.code()), (&b"{\"text\":\"hi\"}\n"[..], Some(0)));
    drop(daemon);
    for args in [&["status"][..], &["call", "fake__echo"], &["list"], &["stop", "fake"]] {
        assert_eq!(home.run(&[args, &["--daemon", &url]].concat()).code, Some(4), "{args:?}");
    }
}

#[test]
fn a_call_whose_daemon_is_killed_may_have_run() {
    let home = home();
    let daemon = Daemon::start(&home);
    let child = home.command(&["call", "fake__hang"]).spawn().unwrap();
    until("the call arrives", || !home.lines("ledger").is_empty());
    daemon.signal(Signal::SIGKILL);
    let run = home.finish(child);
    assert_eq!(run.code, Some(8), "{run}");
    assert!(run.stderr.contains("may have been executed"), "{run}");
    drop(daemon);
}

#[test]
fn a_log_is_not_waited_for_for_ever() {
    let home = Home::new();
    // The kernel accepts connections, and no process answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let run = home.run(&["logs", "fake", "--follow", "--daemon", &url]);
    assert_eq!(run.code, Some(4), "{run}");
    assert!(run.stderr.contains("it does not answer"), "{run}");
}

#[test]
fn a_daemon_without_a_connection_left_is_not_taken_for_a_stranger() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = BufReader::new(&stream).read_line(&mut String::new());
            let _ = stream.write_all(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let home = home();
    for command in ["status", "stdio"] {
        let mut command = home.command(&[command, "--daemon", &url]);
        let output =
            command.env("OSTLER_ADMIN_TOKEN", "x").stdin(std::process::Stdio::null()).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(told.contains("gateway.max_connections") && !told.contains("admin token"), "{told}");
    }
}

#[test]
fn tools_with_one_plain_name_are_listed_under_the_names_of_the_endpoint() {
    let home = Home::with_servers(&[("a", &["--catalog", "a.json"]), ("a_", &["--catalog", "b.json"])]);
    for (file, tool) in [("a.json", "_b"), ("b.json", "b")] {
        let tool = serde_json::json!({"name": tool, "inputSchema": {"type": "object"}});
        home.write(file, &serde_json::json!({ "tools": [tool] }).to_string());
    }
    let names = |listing: &Value| -> Vec<String> {
        let tools = listing["tools"].as_array().unwrap().iter();
        tools.map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    };
    let listed = |args: &[&str]| names(&serde_json::from_str(&home.run(args).stdout).unwrap());
    let alone = listed(&["tools", "--json"]);
    assert!(alone[0] != alone[1] && alone.iter().all(|name| name.starts_with("a___b_")), "{alone:?}");
    let daemon = Daemon::start(&home);
    assert_eq!(listed(&["tools", "--json"]), alone);
    assert_eq!([listed(&["tools", "a", "--json"]), listed(&["tools", "a_", "--json"])].concat(), alone);
    assert_eq!(names(&mcp::ask(daemon.port, "tools/list", serde_json::json!({}))["result"]), alone);
}

//! Limits of the machine: file descriptors of the daemon and of its servers, and the size of files.

use std::process::Command;

use ostler_testkit::fake_mcp;

use crate::daemon::Daemon;
use crate::home::{Home, until};
use crate::{http, mcp};

/// Runs the command with another limit of open files.
fn limit(command: &mut Command, ulimit: &str) {
    let script = format!("{ulimit} && exec \"$0\" \"$@\"");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            shell.env(name, value);
        }
    }
    if let Some(folder) = command.get_current_dir() {
        shell.current_dir(folder);
    }
    shell.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null());
    shell.stderr(std::process::Stdio::piped());
    *command = shell;
}

/// Returns the soft and the hard limit of a process.
fn limits(pid: u64) -> (String, String) {
    let text = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    let mut words = line.split_whitespace().map(str::to_owned);
    (words.next().unwrap(), words.next().unwrap())
}

#[test]
fn the_daemon_takes_what_there_is_and_its_servers_get_what_it_was_started_with() {
    let home = Home::new();
    home.write("ostler.toml", &format!("[servers.fake]\ncommand = {:?}\nlazy = false\n", fake_mcp()));
    let daemon = Daemon::start_as(&home, |command| limit(command, "ulimit -Sn 300 && ulimit -Hn 2000"));
    assert_eq!(limits(u64::from(daemon.pid())), ("2000".into(), "2000".into()));
    assert_eq!(home.run(&["call", "fake__pid"]).code, Some(0));
    let server = daemon.server("fake")["pid"].as_u64().unwrap();
    assert_eq!(limits(server), ("300".into(), "2000".into()));
    let (_, _, said) = daemon.end();
    assert!(!said.contains("open files"), "{said}");
}

#[test]
fn a_machine_with_few_descriptors_is_told_of_and_the_daemon_serves_as_many_connections_as_fit() {
    let home = Home::new();
    let daemon = Daemon::start_as(&home, |command| limit(command, "ulimit -n 300"));
    let port = daemon.port;
    // More connections than descriptors: the longest idle ones are closed.
    let crowd: Vec<_> =
        (0..600).map(|_| std::net::TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    assert_eq!(home.run(&["call", "demo__add", "a=2", "b=40"]).stdout, "42\n");
    drop(crowd);
    let (_, _, said) = daemon.end();
    assert!(said.contains("this machine allows 300 open files, so at most 108 connections"), "{said}");
    assert!(!said.contains("no connection can be accepted"), "{said}");
}

#[test]
fn too_few_open_files_for_the_processes_of_servers_are_told_of_by_serve_and_check() {
    let home = Home::new();
    let servers: String =
        (0..60).map(|number| format!("[servers.s{number}]\ncommand = {:?}\n", fake_mcp())).collect();
    home.write("ostler.toml", &servers);
    let told = "this machine allows 256 open files, so at most 1 connection is served, and servers may fail to start: \
                their processes take up to 480";
    let hint = "hint: raise the limit to 1568 (`ulimit -n`, or `LimitNOFILE=` of a systemd service), or lower \
                `pool.max_processes` or `gateway.max_connections`";
    let daemon = Daemon::start_as(&home, |command| limit(command, "ulimit -n 256"));
    let (_, _, said) = daemon.end();
    assert!(said.contains(told) && said.contains(hint), "{said}");

    let check = |ulimit: &str| {
        let mut command = home.command(&["check"]);
        limit(&mut command, ulimit);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let said = check("ulimit -n 256");
    assert!(said.contains(told) && said.contains(hint), "{said}");
    let said = check("ulimit -Sn 256 && ulimit -Hn 2000");
    assert!(!said.contains("open files"), "the daemon takes what the machine allows: {said}");
}

#[test]
fn a_daemon_whose_connections_are_all_in_use_can_be_operated() {
    let home = Home::with_servers(&[("fake", &["--executions", "executions"])]);
    let servers = std::fs::read_to_string(home.path("ostler.toml")).unwrap();
    home.write("ostler.toml", &format!("{servers}[gateway]\nmax_connections = 2\n"));
    let created = home.run(&["token", "create", "--name", "ada", "--role", "local"]);
    let bearer = format!("Authorization: Bearer {}", created.stdout.trim());
    let daemon = Daemon::start(&home);
    let held: Vec<_> = [(1, None), (2, Some(bearer.as_str()))]
        .into_iter()
        .map(|(nonce, further)| {
            let deed =
                serde_json::json!({"name": "fake__deed", "arguments": {"nonce": nonce, "ms": 600_000}});
            let (headers, body) = mcp::request("tools/call", deed);
            let headers: Vec<&str> = headers.iter().map(String::as_str).chain(further).collect();
            http::open(daemon.port, "POST /mcp", &headers, &body)
        })
        .collect();
    // Not by a request to the daemon: a connection whose request has not been read yet would be evicted.
    until("both callers are served", || home.lines("executions").len() == 2);

    assert_eq!(mcp::ask_with(daemon.port, "tools/list", serde_json::json!({}), &[]).status, 503);
    let call = home.run(&["call", "fake__pid"]);
    assert!(call.code == Some(4) && call.stderr.contains("gateway.max_connections"), "{call}");
    for command in [&["status"][..], &["reload"], &["logs", "fake"], &["down"]] {
        let run = home.run(command);
        assert_eq!(run.code, Some(0), "{command:?}: {run}");
    }
    drop(held);
}

#[test]
fn remote_servers_leave_fewer_connections_to_clients() {
    let home = Home::new();
    let remote = |name| format!("[servers.{name}]\nurl = \"http://127.0.0.1:1/mcp\"\nmax_in_flight = 64\n");
    home.write("ostler.toml", &format!("[pool]\nmax_processes = 2\n{}{}", remote("one"), remote("other")));
    let daemon = Daemon::start_as(&home, |command| limit(command, "ulimit -n 300"));
    let (_, _, said) = daemon.end();
    assert!(said.contains("this machine allows 300 open files, so at most 92 connections"), "{said}");
}

#[test]
fn a_tool_can_be_called_where_no_file_may_grow() {
    let home = Home::new();
    let mut command = home.command(&["call", "demo__add", "a=2", "b=40"]);
    limit(&mut command, "ulimit -f 0");
    let output = command.stdout(std::process::Stdio::piped()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "42\n", "{output:?}");
}

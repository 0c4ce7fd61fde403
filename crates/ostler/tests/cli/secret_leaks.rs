//! Secrets: each reaches its recipients, and no other place.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;

use ostler_testkit::fake_mcp;
use serde_json::Value;

use crate::daemon::Daemon;
use crate::home::{Home, until};
use crate::http;

/// In the daemon's environment, without a reference to it.
const KEPT: &str = "canary-kept-8f14e45fceea";
/// In the daemon's environment, and given to one server.
const GIVEN: &str = "canary-given-c9f0f895fb98";
/// In a file, given to a remote server in a header and in the address.
const FILED: &str = "canary-filed-45c48cce2e2d";

fn config(fake: &Path, port: u16) -> String {
    format!(
        "[audit]\narguments = \"full\"\n\
         [servers.holder]\ncommand = {fake:?}\nenv = {{ TOKEN = \"${{env:GIVEN}}\" }}\n\
         [servers.other]\ncommand = {fake:?}\n\
         [servers.teller]\ncommand = \"sh\"\nargs = [\"-c\", \"echo my token is $TOKEN >&2; exit 3\", \"${{env:GIVEN}}\"]\n\
         env = {{ TOKEN = \"${{env:GIVEN}}\" }}\n\
         [servers.remote]\nurl = \"http://127.0.0.1:{port}/mcp?key=${{file:secret}}\"\n\
         headers = {{ Authorization = \"Bearer ${{file:secret}}\" }}\n"
    )
}

/// Starts a remote server that repeats the request in its refusal; returns its port.
fn parrot() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = vec![0; 16 << 10];
            let n = stream.read(&mut request).unwrap_or(0);
            let head = String::from_utf8_lossy(&request[..n]);
            let head = head.split("\r\n\r\n").next().unwrap_or_default().replace("\r\n", " ");
            let answer = format!(
                "HTTP/1.1 500 No\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{head}",
                head.len()
            );
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    port
}

/// Returns every file under a folder with its content.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(files(&entry.path())),
            false => found.push((entry.path().display().to_string(), std::fs::read(entry.path()).unwrap())),
        }
    }
    found
}

fn holds(bytes: &[u8], canary: &str) -> bool {
    bytes.windows(canary.len()).any(|part| part == canary.as_bytes())
}

/// Returns the variables of the process behind a server.
fn environ(daemon: &Daemon<'_>, server: &str) -> Vec<u8> {
    let pid = daemon.server(server)["pid"].as_u64().unwrap();
    std::fs::read(format!("/proc/{pid}/environ")).unwrap()
}

#[test]
fn a_secret_is_with_whom_it_was_given_to_and_nowhere_else() {
    let home = Home::new();
    home.write("secret", FILED);
    home.write("ostler.toml", &config(&fake_mcp(), parrot()));
    let lines = home.path("said");
    let daemon = Daemon::start_as(&home, |command| {
        command.env("KEPT", KEPT).env("GIVEN", GIVEN).env("RUST_LOG", "debug");
        command.stderr(Stdio::from(std::fs::File::create(&lines).unwrap()));
    });

    // Calls that succeed, that fail to start, that get invalid answers, and one that carries the secret.
    let mut told = Vec::new();
    for line in [
        vec!["call", "holder__echo", "text=hi"],
        vec!["call", "other__echo", "text=hi"],
        vec!["call", "teller__echo", "--timeout", "3s"],
        vec!["call", "remote__echo", "--timeout", "3s"],
        vec!["status"],
        vec!["status", "--json"],
        vec!["list", "--json"],
        vec!["logs", "teller"],
        vec!["tools"],
        vec!["check"],
    ] {
        let run = home.run_wide(&line);
        told.push((line.join(" "), (run.stdout + &run.stderr).into_bytes()));
    }
    let argument = format!("text=take {GIVEN}");
    assert_eq!(home.run(&["call", "other__echo", &argument]).code, Some(0));
    for path in [
        "servers",
        "servers/teller",
        "servers/remote",
        "servers/holder",
        "tools",
        "config",
        "audit",
        "tokens",
    ] {
        told.push((path.into(), daemon.ask(&format!("GET /api/v1/{path}"), "").text.into_bytes()));
    }
    told.push(("/healthz".into(), http::ask(daemon.port, "GET /healthz", &[], "").text.into_bytes()));

    assert!(holds(&environ(&daemon, "holder"), GIVEN), "it was given");
    assert!(!holds(&environ(&daemon, "other"), GIVEN));
    for server in ["holder", "other"] {
        assert!(!holds(&environ(&daemon, server), KEPT), "{server}");
        assert!(!holds(&environ(&daemon, server), FILED), "{server}");
    }

    // The calls are on record, without the secrets.
    until("the calls are on record", || {
        let rows = home.run(&["audit", "--json"]).stdout;
        rows.lines().filter(|row| row.contains("\"tools/call\"")).count() >= 3
    });
    let rows = home.run_wide(&["audit", "--json"]).stdout;
    let has_arguments = |row: &str| {
        let row: Value = serde_json::from_str(row).unwrap();
        row["arguments"].to_string().contains("take [hidden env:GIVEN]")
    };
    assert!(rows.lines().any(has_arguments), "{rows}");
    told.push(("audit".into(), rows.into_bytes()));
    told.push(("audit table".into(), home.run_wide(&["audit"]).stdout.into_bytes()));
    drop(daemon);

    told.push(("stderr of the daemon".into(), std::fs::read(home.path("said")).unwrap()));
    told.extend(files(&home.path("state")));
    let teller = told.iter().find(|(what, _)| what.contains("teller__echo")).unwrap();
    assert!(holds(&teller.1, "my token is [hidden env:GIVEN]"), "{}", String::from_utf8_lossy(&teller.1));
    for (what, text) in &told {
        for canary in [KEPT, GIVEN, FILED] {
            assert!(!holds(text, canary), "{canary} in {what}:\n{}", String::from_utf8_lossy(text));
        }
    }
}

//! Tokens of callers, from `ostler token` to the end of the connections they opened.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::home::{Home, until};
use crate::{http, mcp};

fn home() -> Home {
    Home::with_servers(&[("fake", &[])])
}

/// Creates a token and returns its text.
fn create(home: &Home, name: &str, more: &[&str]) -> String {
    let args = [&["token", "create", "--name", name, "--role", "local"], more].concat();
    let run = home.run(&args);
    assert_eq!(run.code, Some(0), "{run}");
    run.stdout.trim().to_owned()
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}")
}

fn ask(port: u16, headers: &[&str]) -> u16 {
    mcp::ask_with(port, "tools/list", json!({}), headers).status
}

#[test]
fn a_token_is_shown_once_listed_without_its_secret_and_good_until_it_is_revoked() {
    let home = home();
    let run = home.run(&[
        "token",
        "create",
        "--name",
        "ci",
        "--role",
        "builder",
        "--expires",
        "30d",
        "--budget",
        "100/1h",
    ]);
    let token = run.stdout.trim().to_owned();
    assert!(token.starts_with("ostler_") && token.len() == 84, "{run}");
    assert!(run.stderr.contains("no role `builder`") && run.stderr.contains("shown this once"), "{run}");
    let again = home.run(&["token", "create", "--name", "ci", "--role", "local"]);
    assert_eq!(again.code, Some(2), "{again}");

    let daemon = Daemon::start(&home);
    let ada = create(&home, "ada", &[]);
    assert_eq!(ask(daemon.port, &[&bearer(&ada)]), 200, "the daemon knows it at once");
    let listed = home.run(&["token", "list", "--json"]);
    let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
    assert_eq!(listed["tokens"][0]["name"], "ci");
    assert_eq!(listed["tokens"][0]["budget"], json!({"calls": 100, "per": "1h"}));
    assert_eq!(listed["tokens"][0]["expired"], false);
    assert!(listed["tokens"][1]["last_used"].is_u64(), "{listed}");
    let secret = token.rsplit('_').next().unwrap();
    for entry in std::fs::read_dir(home.path("state/ostler")).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap_or_default();
        assert!(!text.contains(secret));
    }
    let shown = home.run(&["token", "list"]);
    assert!(shown.stdout.contains("100/1h") && !shown.stdout.contains(secret), "{shown}");

    assert_eq!(home.run(&["token", "revoke", "ada"]).code, Some(0));
    assert_eq!(ask(daemon.port, &[&bearer(&ada)]), 401);
    let gone = home.run(&["token", "revoke", "ada"]);
    assert_eq!(gone.code, Some(5), "{gone}");
}

#[test]
fn a_token_survives_a_restart_and_an_expired_one_stays_so() {
    let home = home();
    let daemon = Daemon::start(&home);
    let (lasting, short) = (create(&home, "lasting", &[]), create(&home, "short", &["--expires", "1s"]));
    until("the token expires", || ask(daemon.port, &[&bearer(&short)]) == 401);
    daemon.end();
    let daemon = Daemon::start(&home);
    assert_eq!(ask(daemon.port, &[&bearer(&lasting)]), 200);
    assert_eq!(ask(daemon.port, &[&bearer(&short)]), 401);
}

#[test]
fn when_a_token_was_last_used_is_known_after_a_restart_and_without_a_daemon() {
    let home = home();
    let daemon = Daemon::start(&home);
    let (ada, _) = (create(&home, "ada", &[]), create(&home, "unused", &[]));
    assert_eq!(ask(daemon.port, &[&bearer(&ada)]), 200);
    let listed = || {
        let run = home.run(&["token", "list", "--json"]);
        let listed: Value = serde_json::from_str(&run.stdout).unwrap();
        listed["tokens"]
            .as_array()
            .unwrap()
            .iter()
            .map(|token| token["last_used"].clone())
            .collect::<Vec<_>>()
    };
    let used = listed();
    assert!(used[0].is_u64() && used[1].is_null(), "{used:?}");
    daemon.end();
    assert_eq!(listed(), used, "without a daemon");
    let daemon = Daemon::start(&home);
    assert_eq!(listed(), used, "with the next one");
    daemon.end();
    assert_eq!(listed(), used, "and after one that was not used");
}

#[test]
fn a_daemon_that_can_not_write_down_when_tokens_were_used_works_as_ever() {
    let home = home();
    let daemon = Daemon::start(&home);
    let ada = create(&home, "ada", &[]);
    assert_eq!(ask(daemon.port, &[&bearer(&ada)]), 200);
    let folder = std::fs::read_dir(home.path("state/ostler")).unwrap();
    let is_tokens = |file: &std::path::PathBuf| file.extension().is_some_and(|end| end == "tokens");
    let tokens = folder.map(|entry| entry.unwrap().path()).find(is_tokens).unwrap();
    // A folder in its place can't be replaced by a file.
    std::fs::create_dir_all(tokens.with_extension("tokens.used").join("x")).unwrap();
    let (status, _, said) = daemon.end();
    assert!(status.success(), "{said}");
    let daemon = Daemon::start(&home);
    assert_eq!(ask(daemon.port, &[&bearer(&ada)]), 200);
}

#[test]
fn local_is_only_who_shows_nothing_and_comes_straight_from_here() {
    let home = home();
    let daemon = Daemon::start(&home);
    let token = create(&home, "ada", &[]);
    assert_eq!(ask(daemon.port, &[]), 200);
    let wrong = token.replace(&token[80..], "0000");
    for header in ["Bearer wrong", &format!("Bearer {wrong}"), "Basic eA==", "Bearer", "Bearer a.b.c"] {
        let header = format!("Authorization: {header}");
        assert_eq!(ask(daemon.port, &[&header]), 401, "{header}");
    }
    for header in
        ["Forwarded: for=10.0.0.1", "X-Forwarded-For: 10.0.0.1", "X-Forwarded-Host: x", "Via: 1.1 proxy"]
    {
        assert_eq!(ask(daemon.port, &[header]), 401, "{header}");
        assert_eq!(ask(daemon.port, &[header, &bearer(&token)]), 200, "{header}");
    }
    let answer = mcp::ask_with(daemon.port, "tools/list", json!({}), &["Via: 1.1 proxy"]);
    assert!(answer.text.contains("a proxy has passed this request on"), "{answer:?}");
    assert!(
        answer.head.to_lowercase().contains("www-authenticate: bearer realm=\"ostler\"\r\n"),
        "{answer:?}"
    );
}

#[test]
fn a_form_of_a_foreign_page_reaches_neither_the_endpoint_nor_the_admin_api() {
    let home = home();
    let daemon = Daemon::start(&home);
    let admin = bearer(&daemon.token());
    let form = "Content-Type: application/x-www-form-urlencoded";
    for line in ["POST /mcp", "POST /api/v1/config/reload", "POST /api/v1/tokens/reload"] {
        let status = |headers: &[&str]| http::ask(daemon.port, line, headers, "a=b").status;
        assert_eq!(status(&[form, "Origin: https://evil.example"]), 403, "{line}");
        assert_eq!(status(&[form, "Origin: https://evil.example", &admin]), 403, "{line}");
        assert_eq!(status(&[form, "Origin: null"]), 403, "{line}");
        assert_eq!(status(&[form, "Host: evil.example"]), 403, "{line}");
    }
    assert_eq!(http::ask(daemon.port, "POST /mcp", &[form], "a=b").status, 415);
    let token = create(&home, "ada", &[]);
    let asked = |token: &str| http::ask(daemon.port, "GET /api/v1/version", &[&bearer(token)], "").status;
    assert_eq!((asked(&token), asked(&daemon.token())), (401, 200), "a caller is no operator");
    assert_eq!(ask(daemon.port, &[&admin]), 401, "an operator's token is no caller's");
}

/// Opens a listen stream and waits until it has begun.
fn listen(daemon: &Daemon<'_>, token: &str) -> BufReader<TcpStream> {
    let (mut headers, body) =
        mcp::request("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}}));
    headers.push(bearer(token));
    let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
    let mut stream = http::open(daemon.port, "POST /mcp", &headers, &body);
    let mut line = String::new();
    while !line.contains("acknowledged") {
        line.clear();
        assert_ne!(stream.read_line(&mut line).unwrap(), 0, "it did not begin");
    }
    stream
}

/// Waits for the end of a chunked body.
fn ends(mut stream: BufReader<TcpStream>) {
    let mut line = String::new();
    while line != "0\r\n" {
        line.clear();
        assert_ne!(stream.read_line(&mut line).unwrap(), 0, "it broke off");
    }
}

fn initialize(daemon: &Daemon<'_>, token: &str) -> String {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}});
    let headers =
        ["Content-Type: application/json", "Accept: application/json, text/event-stream", &bearer(token)];
    let answer = http::ask(daemon.port, "POST /mcp", &headers, &body.to_string());
    let id = answer
        .head
        .lines()
        .find_map(|line| line.to_lowercase().strip_prefix("mcp-session-id: ").map(str::to_owned));
    id.unwrap_or_else(|| panic!("{answer:?}"))
}

fn in_session(daemon: &Daemon<'_>, token: &str, session: &str) -> u16 {
    let body = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#;
    let session = format!("Mcp-Session-Id: {session}");
    let headers = ["Content-Type: application/json", "Accept: application/json", &bearer(token), &session];
    http::ask(daemon.port, "POST /mcp", &headers, body).status
}

#[test]
fn what_a_token_has_opened_ends_when_it_is_revoked() {
    let home = home();
    let daemon = Daemon::start(&home);
    let (ada, bob) = (create(&home, "ada", &[]), create(&home, "bob", &[]));
    let (of_ada, of_bob) = (initialize(&daemon, &ada), initialize(&daemon, &bob));
    assert_eq!(in_session(&daemon, &ada, &of_ada), 200);
    assert_eq!(in_session(&daemon, &bob, &of_ada), 404, "another's session looks like none");
    let stream = listen(&daemon, &ada);
    assert_eq!(home.run(&["token", "revoke", "ada"]).code, Some(0));
    ends(stream);
    let ada = create(&home, "ada", &[]);
    assert_eq!(in_session(&daemon, &ada, &of_ada), 404, "a token of the same name is another one");
    assert_eq!(in_session(&daemon, &bob, &of_bob), 200);
}

#[test]
fn what_a_token_has_opened_ends_when_it_expires() {
    let home = home();
    let daemon = Daemon::start(&home);
    let token = create(&home, "ada", &["--expires", "2s"]);
    ends(listen(&daemon, &token));
    assert_eq!(ask(daemon.port, &[&bearer(&token)]), 401);
}

#[test]
fn tokens_that_can_not_be_read_change_nothing() {
    let home = home();
    let daemon = Daemon::start(&home);
    let token = create(&home, "ada", &[]);
    let folder = std::fs::read_dir(home.path("state/ostler")).unwrap();
    let file = folder
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|end| end == "tokens"));
    std::fs::write(file.unwrap(), "rubbish").unwrap();
    let answer = daemon.ask("POST /api/v1/tokens/reload", "");
    assert_eq!(answer.status, 422, "{answer:?}");
    assert_eq!(ask(daemon.port, &[&bearer(&token)]), 200);
    let run = home.run(&["token", "create", "--name", "bob", "--role", "local"]);
    assert_eq!(run.code, Some(1), "{run}");
    let (_, _, said) = daemon.end();
    assert!(said.contains("can't be read, so those from before stay"), "{said}");
    let run = home.run(&["serve", "--listen", "0.0.0.0:0"]);
    assert_eq!(run.code, Some(1), "{run}");
}

#[test]
fn other_machines_are_served_only_if_they_can_prove_who_they_are() {
    let home = home();
    let run = home.run(&["serve", "--listen", "0.0.0.0:0"]);
    assert_eq!(run.code, Some(3), "{run}");
    assert!(run.stderr.contains("ostler token create") && run.stderr.contains("allowed_hosts"), "{run}");
    let token = create(&home, "ada", &[]);
    let daemon = Daemon::start_at(&home, "0.0.0.0:0", &[]);
    assert_eq!(ask(daemon.port, &[&bearer(&token)]), 200);
    assert_eq!(ask(daemon.port, &[]), 401, "who is near needs a credential like everybody");
    assert_eq!(home.run(&["status"]).code, Some(0), "commands find it");
    assert_eq!(home.run(&["token", "revoke", "ada"]).code, Some(0));
    assert_eq!(ask(daemon.port, &[&bearer(&token)]), 401, "it goes on, and refuses all");
    let (_, _, said) = daemon.end();
    assert!(said.contains("can be reached from other machines"), "{said}");
}

#[test]
fn a_client_on_pipes_is_the_caller_of_its_token_until_that_is_revoked() {
    let home = home();
    let daemon = Daemon::start(&home);
    home.write("ada.token", &create(&home, "ada", &[]));
    let mut child =
        home.command(&["stdio", "--token-file", "ada.token"]).stdin(Stdio::piped()).spawn().unwrap();
    let used = || daemon.ask("GET /api/v1/tokens", "").json()["tokens"][0]["last_used"].is_u64();
    until("the client is attached", used);
    assert_eq!(home.run(&["token", "revoke", "ada"]).code, Some(0));
    let mut said = String::new();
    child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(5));
    let run = home.run(&["stdio", "--token-file", "ada.token"]);
    assert_eq!(run.code, Some(5), "{run}");
    let run = home.run(&["stdio", "--token-file", "nothing"]);
    assert_eq!(run.code, Some(3), "{run}");
    // A variable that was meant to hold a token and is invalid does not fall back to `local`.
    for token in [OsStr::new(""), OsStr::from_bytes(b"\xff")] {
        let child = home.command(&["stdio"]).env("OSTLER_TOKEN", token).spawn().unwrap();
        let run = home.finish(child);
        assert_eq!(run.code, Some(2), "{run}");
    }
}

#[test]
fn no_token_is_the_operators_and_one_of_local_is_warned_of() {
    let home = Home::new();
    home.write("ostler.toml", "[servers.git]\ncommand = \"cat\"\n");
    let run = home.run(&["token", "create", "--name", "x", "--role", "operator"]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{run}");
    let run = home.run(&["explain", "operator", "git__log"]);
    assert!(run.stdout.contains("no token can have this role"), "{run}");
    let run = home.run(&["token", "create", "--name", "x", "--role", "local"]);
    assert!(run.code == Some(0) && run.stderr.contains("may use everything"), "{run}");
    home.write("ostler.toml", "[roles.local]\nallow = []\n");
    let run = home.run(&["token", "create", "--name", "y", "--role", "local"]);
    assert!(run.code == Some(0) && !run.stderr.contains("warning"), "{run}");
}

#[test]
fn what_serve_would_complain_of_is_told_by_check() {
    let home = Home::new();
    let check = || {
        let run = home.run(&["check"]);
        assert_eq!(run.code, Some(0), "{run}");
        run.stderr
    };
    home.write("ostler.toml", "\nlisten = \"0.0.0.0:0\"\n");
    let said = check();
    assert!(said.contains("ostler.toml:2") && said.contains("ostler token create"), "{said}");
    home.run(&["token", "create", "--name", "x", "--role", "local"]);
    assert!(!check().contains("warning"));
    let jwt = "[auth.jwt]\nissuer = \"https://id.example\"\naudience = \"x\"\njwks = \"keys.json\"\n";
    home.write("ostler.toml", jwt);
    for keys in [None, Some(""), Some("no JSON"), Some("{\"keys\":[]}")] {
        if let Some(keys) = keys {
            home.write("keys.json", keys);
        }
        let said = check();
        assert!(
            said.contains("ostler.toml:4") && said.contains("keys.json can't be read"),
            "{keys:?}: {said}"
        );
    }
}

#[test]
fn a_token_goes_into_a_file_that_only_its_user_can_read() {
    use std::os::unix::fs::PermissionsExt;
    let home = home();
    let daemon = Daemon::start(&home);
    let create = ["token", "create", "--name", "ci", "--role", "local", "--out", "ci.token"];
    let run = home.run(&create);
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), ""), "{run}");
    assert!(
        run.stderr.ends_with("token `ci` of role `local`, good until it is revoked, is in ci.token\n"),
        "{run}"
    );
    let token = std::fs::read_to_string(home.path("ci.token")).unwrap();
    let mode = home.path("ci.token").metadata().unwrap().permissions().mode();
    assert_eq!((token.lines().count(), mode & 0o777), (1, 0o600));
    assert_eq!(ask(daemon.port, &[&bearer(token.trim())]), 200);

    // An existing file is kept, and no token is left without an owner.
    let other = ["token", "create", "--name", "other", "--role", "local", "--out", "ci.token"];
    insta::assert_snapshot!(home.run(&other));
    let nowhere = ["token", "create", "--name", "other", "--role", "local", "--out", "no/such/folder"];
    insta::assert_snapshot!(home.run(&nowhere));
    assert_eq!(std::fs::read_to_string(home.path("ci.token")).unwrap(), token);
    assert!(!home.run(&["token", "list"]).stdout.contains("other"));

    let forced = home.run(&[&other[..], &["--force", "--json"]].concat());
    let told: Value = serde_json::from_str(&forced.stdout).unwrap();
    assert_eq!((&told["name"], told.get("token")), (&json!("other"), None), "{forced}");
    assert_ne!(std::fs::read_to_string(home.path("ci.token")).unwrap(), token);
}

#[test]
fn people_read_local_times_and_programs_utc() {
    let home = home();
    create(&home, "ci", &[]);
    let seen = |args: &[&str], zone: &str| {
        let output = home.command(args).env("TZ", zone).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    // Nine hours and a half apart, so that the minutes differ too.
    let time = |args: &[&str], zone| {
        let text = seen(args, zone);
        let row = text.lines().nth(1).unwrap().to_owned();
        let at = row.find("20").unwrap();
        let (hours, minutes) = row[at + 11..at + 16].split_once(':').unwrap();
        hours.parse::<i32>().unwrap() * 60 + minutes.parse::<i32>().unwrap()
    };
    for args in [&["token", "list"][..], &["audit"][..]] {
        let utc = time(&[args, &["--utc"]].concat(), "ABC-9:30");
        assert_eq!((time(args, "ABC-9:30") - utc).rem_euclid(24 * 60), 9 * 60 + 30, "{args:?}");
        assert_eq!(time(args, "UTC0"), utc);
    }
    assert!(seen(&["audit", "--utc"], "ABC-9:30").starts_with("TIME (UTC)"));
    assert!(seen(&["audit"], "ABC-9:30").starts_with("TIME  "));
    assert_eq!(seen(&["audit", "--json"], "ABC-9:30"), seen(&["audit", "--json"], "UTC0"));

    // A time without a zone is local too: ten hours ago in UTC is half an hour ago nine and a half hours ahead.
    let audit: Value = serde_json::from_str(&seen(&["audit", "--json"], "UTC0")).unwrap();
    let moment = &audit["at"].as_str().unwrap()[..16];
    assert_eq!(seen(&["audit", "--since", moment], "ABC-9:30").lines().count(), 2);
    assert_eq!(seen(&["audit", "--since", moment], "ABC+9:30").lines().count(), 0, "that is still to come");
    assert_eq!(seen(&["audit", "--utc", "--since", moment], "ABC+9:30").lines().count(), 2);
}

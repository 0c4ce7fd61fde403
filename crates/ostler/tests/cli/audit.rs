//! Audit: every call is on record with its caller, whatever its outcome.

use std::io::BufRead;
use std::process::{Command, Stdio};

use ostler_testkit::fake_mcp;
use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::home::{Home, until};
use crate::{http, mcp};

/// Returns the events that `ostler audit --json` prints with these filters.
fn events(home: &Home, filters: &[&str]) -> Vec<Value> {
    let run = home.run(&[&["audit", "--json"], filters].concat());
    assert_eq!(run.code, Some(0), "{run}");
    run.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns `kind action subject outcome` of every event.
fn words(events: &[Value]) -> Vec<String> {
    let word = |event: &Value, key: &str| event[key].as_str().unwrap_or("-").to_owned();
    let keys = ["kind", "action", "server", "subject", "outcome"];
    events.iter().map(|event| keys.map(|key| word(event, key)).join(" ")).collect()
}

fn home() -> Home {
    let home = Home::new();
    home.write("ostler.toml", &config(""));
    home
}

fn config(more: &str) -> String {
    let fake = fake_mcp();
    format!(
        "[servers.fake]\ncommand = {fake:?}\n\
         [servers.shy]\ncommand = {fake:?}\ntools = {{ deny = [\"echo\"] }}\n{more}"
    )
}

/// Calls a tool of one server, under its own name.
fn call_directly(port: u16, server: &str, tool: &str) -> Value {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    });
    let params = json!({"name": tool, "arguments": {}, "_meta": meta});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let name = format!("Mcp-Name: {tool}");
    let headers = [
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        "MCP-Protocol-Version: 2026-07-28",
        "Mcp-Method: tools/call",
        &name,
    ];
    http::ask(port, &format!("POST /servers/{server}/mcp"), &headers, &body.to_string()).json()
}

#[test]
fn every_kind_of_thing_is_on_record() {
    let home = home();
    let eager = format!("[servers.eager]\ncommand = {:?}\nlazy = false\n", fake_mcp());
    home.write("ostler.toml", &config(&eager));
    let daemon = Daemon::start(&home);
    mcp::call(daemon.port, "fake__echo", json!({"text": "hi"}));
    mcp::call(daemon.port, "fake__fail", json!({"text": "no"}));
    let (headers, body) = mcp::request("tools/call", json!({"name": "fake__hang", "arguments": {}}));
    let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
    let leaving = http::open(daemon.port, "POST /mcp", &headers, &body);
    until("the call is at the server", || daemon.server("fake")["in_flight"] == 1);
    drop(leaving);
    until("its caller is known to have left", || daemon.server("fake")["in_flight"] == 0);
    mcp::call(daemon.port, "fake__exit", json!({"code": 3}));
    mcp::call(daemon.port, "eager__exit", json!({"code": 3}));
    home.run(&["reload", "fake"]);
    home.run(&["stop", "fake"]);
    let stopped = mcp::call(daemon.port, "fake__echo", json!({}));
    assert_eq!(stopped["error"]["data"]["code"], "server-unavailable");
    http::ask(daemon.port, "POST /mcp", &["Origin: https://evil.example"], "{}");
    http::ask(daemon.port, "GET /api/v1/servers", &["Authorization: Bearer wrong"], "");
    http::ask(daemon.port, "GET /healthz", &["Origin: https://evil.example"], "");
    home.write("ostler.toml", &config(&format!("{eager}[servers.more]\ncommand = \"cat\"\n")));
    until("the edit is applied", || daemon.ask("GET /api/v1/servers/more", "").status == 200);
    let (status, _, said) = daemon.end();
    assert!(status.success(), "{said}");
    let events = events(&home, &[]);
    let words = words(&events);
    for expected in [
        "admin daemon-started - - ok",
        "admin register fake - ok",
        "server started fake - ok",
        "call tools/call fake echo ok",
        "call tools/call fake fail tool-error",
        "call tools/call fake hang cancelled",
        "call tools/call fake exit outcome-unknown",
        "server lost fake - failed",
        "server restart-planned eager - ok",
        "admin reload fake - ok",
        "admin stop fake - ok",
        "server ended fake - ok",
        "call tools/call fake echo server-unavailable",
        "refusal POST /mcp - - forbidden",
        "refusal GET /api/v1/servers - - unauthorized",
        "refusal GET /healthz - - forbidden",
        "admin register more - ok",
        "admin config-applied - - ok",
        "admin daemon-ended - - ok",
    ] {
        assert!(words.iter().any(|word| word == expected), "no {expected} in {words:#?}");
    }
    let planned = "server restart-planned fake - ok".to_owned();
    assert!(!words.contains(&planned), "a lazy server is started with its next call");
    let echo = &events[words.iter().position(|word| word == "call tools/call fake echo ok").unwrap()];
    assert_eq!((&echo["principal"], &echo["role"]), (&json!("local"), &json!("local")));
    assert_eq!((&echo["delivery"], &echo["generation"]), (&json!("answered"), &json!(1)));
    assert_eq!(echo["argumentsHash"].as_str().map(str::len), Some(32));
    assert!(echo["tookMs"].as_f64().is_some_and(|took| took > 0.0) && echo["arguments"].is_null(), "{echo}");
    let lost = &events[words.iter().position(|word| word == "server lost fake - failed").unwrap()];
    assert!(lost["detail"].as_str().is_some_and(|detail| detail.contains('3')), "{lost}");
}

#[test]
fn a_daemon_that_ends_by_itself_has_refusals_on_record_too() {
    let home = home();
    let daemon = Daemon::start_with(&home, &["--linger", "60s"]);
    let evil = "Origin: https://evil.example";
    for target in ["POST /mcp", "POST /servers/fake/mcp", "GET /mcp/server-card", "GET /readyz"] {
        assert_eq!(http::ask(daemon.port, target, &[evil], "{}").status, 403, "{target}");
    }
    assert_eq!(http::ask(daemon.port, "GET /api/v1/servers", &[], "").status, 401);
    let (status, _, said) = daemon.end();
    assert!(status.success(), "{said}");
    let refusals: Vec<String> =
        words(&events(&home, &[])).into_iter().filter(|word| word.starts_with("refusal ")).collect();
    let expected = [
        "refusal POST /mcp - - forbidden",
        "refusal POST /servers/fake/mcp - - forbidden",
        "refusal GET /mcp/server-card - - forbidden",
        "refusal GET /readyz - - forbidden",
        "refusal GET /api/v1/servers - - unauthorized",
    ];
    assert_eq!(refusals, expected);
}

#[test]
fn a_denied_call_names_the_rule_and_its_caller_learns_nothing() {
    let home = home();
    let daemon = Daemon::start(&home);
    // Its tools are listed first, so that an unknown one has its nearest name.
    call_directly(daemon.port, "shy", "fail");
    let hidden = call_directly(daemon.port, "shy", "echo").to_string();
    let unknown = call_directly(daemon.port, "shy", "ecko").to_string();
    assert_eq!(hidden.replace("echo", "…"), unknown.replace("ecko", "…"));
    until("it is on record", || !events(&home, &["--denied"]).is_empty());
    let denied = events(&home, &["--denied"]);
    assert_eq!(words(&denied), ["call tools/call shy echo denied"]);
    assert!(denied[0]["rule"].as_str().is_some_and(|rule| !rule.is_empty()), "{}", denied[0]);
    drop(daemon);
    let unknown = events(&home, &["--tool", "shy__ecko"]);
    assert_eq!(words(&unknown), ["call tools/call shy ecko unknown-tool"]);
}

#[test]
fn a_command_without_a_daemon_is_on_record_too() {
    let home = home();
    let folder = home.path("state/ostler");
    let nothing = home.run(&["audit"]);
    assert_eq!((nothing.code, nothing.stdout.as_str()), (Some(0), ""));
    assert!(!folder.exists(), "reading makes nothing");
    home.run(&["call", "fake__echo", "text=hi"]);
    home.run(&["call", "fake__echo", "text=hi"]);
    home.run(&["call", "fake__echo", "text=ho"]);
    let calls = events(&home, &["--server", "fake", "--tool", "echo"]);
    assert_eq!(words(&calls), ["call tools/call fake echo ok"; 3]);
    let hash = |at: usize| calls[at]["argumentsHash"].as_str().unwrap();
    assert!(hash(0) == hash(1) && hash(1) != hash(2));
    assert_eq!(events(&home, &["--limit", "1"]).len(), 1);
    assert!(events(&home, &["--until", "1h"]).is_empty() && !events(&home, &["--since", "1h"]).is_empty());
    let shown = home.run_wide(&["audit", "--tool", "fake__echo"]);
    assert_eq!(
        shown.stdout.lines().filter(|line| line.contains("local  fake__echo  ok")).count(),
        3,
        "{shown}"
    );
}

#[test]
fn an_audit_that_is_off_writes_nothing() {
    let home = Home::new();
    home.write("ostler.toml", &config("[audit]\nenabled = false\n"));
    home.run(&["call", "fake__echo"]);
    assert!(events(&home, &[]).is_empty());
    let files = std::fs::read_dir(home.path("state/ostler")).unwrap().flatten();
    let names: Vec<_> = files.map(|file| file.file_name().into_string().unwrap()).collect();
    assert!(!names.iter().any(|name| name.contains("audit")), "{names:?}");
}

#[test]
fn names_of_callers_and_tools_can_not_move_the_cursor() {
    let home = home();
    let daemon = Daemon::start(&home);
    home.run(&["call", "shy__bad\u{202e}\u{1b}[2J"]);
    drop(daemon);
    let shown = home.run_wide(&["audit", "--server", "shy"]);
    assert!(shown.stdout.contains(r"shy__bad\u{202e}\u{1b}[2J"), "{shown}");
    assert!(!shown.stdout.contains(['\u{202e}', '\u{1b}']), "{shown}");
}

#[test]
fn who_follows_sees_what_comes() {
    let home = home();
    home.run(&["call", "fake__echo"]);
    let mut following =
        home.command(&["audit", "--follow", "--json"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufReader::new(following.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    while !next().contains("\"subject\":\"echo\"") {}
    home.run(&["call", "fake__sleep", "ms=1"]);
    while !next().contains("\"subject\":\"sleep\"") {}
    following.kill().unwrap();
    following.wait().unwrap();
}

#[test]
fn calls_go_on_while_the_disk_is_full_and_what_is_missing_is_counted() {
    const CALLS: usize = 30;
    let home = home();
    let daemon = Daemon::start(&home);
    mcp::call(daemon.port, "fake__echo", json!({}));
    until("it is on record", || !events(&home, &["--tool", "echo"]).is_empty());
    // No file of the daemon may grow from now on.
    limit_files(&daemon, "1");
    for _ in 0..CALLS {
        let answer = mcp::call(daemon.port, "fake__sleep", json!({"ms": 0}));
        assert!(answer["result"].is_object(), "{answer}");
    }
    let state = || daemon.ask("GET /api/v1/version", "").json()["audit"].clone();
    until("it is said that nothing can be written", || state()["trouble"].is_string());
    let status = home.run(&["status"]);
    assert!(status.stderr.contains("the audit can't be written"), "{status}");
    let shown = home.run(&["audit", "--json"]);
    assert!(shown.code == Some(0) && shown.stderr.contains("newer rows are missing"), "{shown}");
    limit_files(&daemon, "unlimited");
    until("it is written again", || state()["trouble"].is_null());
    assert_eq!(home.run(&["audit", "--json"]).stderr, "", "none is missing");
    let rows = events(&home, &["--tool", "sleep"]);
    assert_eq!(rows.iter().filter(|row| row["kind"] == "call").count(), CALLS, "{rows:?}");
    let (status, _, said) = daemon.end();
    assert!(status.success(), "{said}");
    assert_eq!(said.matches("the audit can't be written").count(), 1, "{said}");
    assert!(said.contains("the audit is written again") && said.contains("hint: calls go on"), "{said}");
}

#[test]
fn rows_that_a_full_disk_takes_at_the_end_are_counted() {
    const CALLS: u64 = 20;
    let home = home();
    let daemon = Daemon::start(&home);
    mcp::call(daemon.port, "fake__echo", json!({}));
    until("it is on record", || !events(&home, &["--tool", "echo"]).is_empty());
    limit_files(&daemon, "1");
    for _ in 0..CALLS {
        mcp::call(daemon.port, "fake__sleep", json!({"ms": 0}));
    }
    let (status, _, said) = daemon.end();
    assert!(status.success(), "{said}");
    let (before, _) = said.split_once(" rows of the audit could not be written").unwrap_or_default();
    let missing: u64 = before.rsplit(' ').next().unwrap_or_default().parse().unwrap_or_default();
    // The calls, and the rows about the end of the server and the daemon.
    assert!((CALLS + 2..CALLS + 10).contains(&missing), "{said}");
    let (status, _, said) = Daemon::start(&home).end();
    assert!(status.success(), "{said}");
    let gaps = words(&events(&home, &["--caller", "nobody"]));
    assert_eq!(gaps, ["gap end-missing - - lost"], "the next daemon says that rows are missing");
}

#[test]
fn a_file_that_is_moved_and_a_log_that_is_deleted_are_told_and_cost_no_row() {
    let home = home();
    let daemon = Daemon::start(&home);
    let call = || drop(mcp::call(daemon.port, "fake__echo", json!({})));
    let calls = || events(&home, &["--tool", "echo"]).iter().filter(|row| row["kind"] == "call").count();
    call();
    until("it is on record", || calls() == 1);
    let file = audit_file(&home);
    for end in ["-wal", "-shm"] {
        std::fs::remove_file(format!("{}{end}", file.display())).unwrap();
    }
    call();
    until("both are on record", || calls() == 2);
    let status = home.run(&["status"]);
    assert!(status.stderr.contains("the log beside it was moved away or deleted"), "{status}");
    let moved = file.with_file_name("moved.db");
    std::fs::rename(&file, &moved).unwrap();
    call();
    until("the call is in the new file", || file.exists() && calls() == 1);
    let (status, _, said) = daemon.end();
    assert!(status.success(), "{said}");
    assert!(said.contains("the log beside it was moved away or deleted; its rows are in the file"), "{said}");
    assert!(said.contains("it was moved away or deleted; a new one is begun"), "{said}");
    assert_eq!(words(&events(&home, &["--caller", "nobody"])), ["gap file-gone - - lost"]);
    let moved = rusqlite::Connection::open(moved).unwrap();
    let count = |what: &str| {
        let count = format!("SELECT count(*) FROM events WHERE {what}");
        moved.query_row(&count, [], |row| row.get::<_, i64>(0)).unwrap()
    };
    assert_eq!((count("kind = 'call'"), count("action = 'log-gone'")), (2, 1));
}

fn audit_file(home: &Home) -> std::path::PathBuf {
    let mut files = std::fs::read_dir(home.path("state/ostler")).unwrap().map(|file| file.unwrap().path());
    files.find(|file| file.to_str().unwrap().ends_with(".audit.db")).unwrap()
}

fn open_audit(home: &Home) -> rusqlite::Connection {
    rusqlite::Connection::open(audit_file(home)).unwrap()
}

/// Keeps the daemon from writing its audit.
fn hold_audit(home: &Home) -> rusqlite::Connection {
    let other = open_audit(home);
    other.busy_timeout(std::time::Duration::from_secs(30)).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    other
}

#[test]
fn where_calls_wait_for_their_rows_they_do_so_whichever_way_they_come() {
    /// Rows that fill the limit of bytes that wait, with their arguments.
    const CROWD: usize = 34;
    type RecordedCall = fn(&Home, &Daemon<'_>);
    let ways: [RecordedCall; 3] = [
        |_, daemon| drop(mcp::call(daemon.port, "fake__sleep", json!({"ms": 0}))),
        |_, daemon| drop(call_directly(daemon.port, "fake", "sleep")),
        |home, _| {
            let run = home.run(&["call", "fake__sleep", "ms=0"]);
            assert_eq!(run.code, Some(0), "{run}");
        },
    ];
    let ask = |way: RecordedCall| {
        let home = Home::new();
        home.write("ostler.toml", &config("[audit]\nwhen_full = \"wait\"\n"));
        let daemon = Daemon::start(&home);
        mcp::call(daemon.port, "fake__echo", json!({}));
        until("it is on record", || !events(&home, &["--tool", "echo"]).is_empty());
        let held = hold_audit(&home);
        for _ in 0..CROWD {
            mcp::call(daemon.port, "fake__echo", json!({"text": "x".repeat(62_000)}));
        }
        let began = std::time::Instant::now();
        way(&home, &daemon);
        assert!(began.elapsed() >= std::time::Duration::from_secs(5), "{:?}", began.elapsed());
        held.execute_batch("ROLLBACK").unwrap();
        let (status, _, said) = daemon.end();
        assert!(status.success() && said.contains("the audit is stalled"), "{said}");
        assert!(!said.contains("calls go on;") && said.contains("calls wait too, for at most 5s"), "{said}");
        assert_eq!(events(&home, &["--tool", "echo"]).len(), CROWD + 1, "nothing is missing");
        assert_eq!(events(&home, &["--tool", "sleep"]).len(), 1);
    };
    std::thread::scope(|scope| {
        for way in ways {
            scope.spawn(move || ask(way));
        }
    });
}

/// Sets the limit of the size of the daemon's files.
fn limit_files(daemon: &Daemon<'_>, size: &str) {
    let args = ["--pid".into(), daemon.pid().to_string(), format!("--fsize={size}:unlimited")];
    assert!(Command::new("prlimit").args(args).status().unwrap().success());
}

#[test]
fn who_may_do_what_is_on_record_when_a_command_changes_it() {
    let home = home();
    home.run(&["token", "create", "--name", "ci", "--role", "local"]);
    home.run(&["token", "revoke", "ci"]);
    home.run(&["lock", "fake"]);
    let words = words(&events(&home, &["--caller", "operator"]));
    let expected = ["admin token-created - ci ok", "admin token-revoked - ci ok", "admin pins-locked - - ok"];
    assert_eq!(words, expected);
}

#[test]
fn rows_are_listed_by_their_time_whenever_they_were_written() {
    let home = home();
    for name in ["a", "b", "c"] {
        home.run(&["token", "create", "--name", name, "--role", "local"]);
    }
    let subjects = |events: &[Value]| -> Vec<String> {
        events.iter().map(|event| event["subject"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(subjects(&events(&home, &[])), ["a", "b", "c"]);
    // The last one was written ten seconds late.
    let late = "UPDATE operator_entries SET late = late + 10000000 WHERE id = (SELECT max(id) FROM operator_entries)";
    assert_eq!(open_audit(&home).execute(late, ()).unwrap(), 1);
    assert_eq!(subjects(&events(&home, &[])), ["c", "a", "b"]);
    assert_eq!(subjects(&events(&home, &["--limit", "2"])), ["c", "b"], "the two that were written last");
    let table = home.run(&["audit"]).stdout;
    let at = |name: &str| table.find(&format!("token-created {name} ")).unwrap();
    assert!(at("c") < at("a") && at("a") < at("b"), "{table}");
    let none = home.run(&["audit", "--tool", "nosuch"]);
    assert!(none.stderr.starts_with("nothing of that is on record; rows are written up to 200ms"), "{none}");
}

#[test]
fn a_caller_is_found_without_what_says_where_it_comes_from() {
    let home = home();
    home.write("ostler.toml", &config("[roles.guest]\nallow = [\"fake/*\"]\n"));
    let token = home.run(&["token", "create", "--name", "ada", "--role", "guest"]).stdout;
    let daemon = Daemon::start(&home);
    let bearer = format!("Authorization: Bearer {}", token.trim());
    mcp::ask_with(daemon.port, "tools/call", json!({"name": "fake__echo", "arguments": {}}), &[&bearer]);
    mcp::call(daemon.port, "fake__echo", json!({}));
    drop(daemon);
    for caller in ["ada", "token:ada"] {
        let found = events(&home, &["--caller", caller]);
        assert_eq!(words(&found), ["call tools/call fake echo ok"], "{caller}");
        assert_eq!(found[0]["principal"], "token:ada");
    }
    assert!(events(&home, &["--caller", "jwt:ada"]).is_empty());
}

#[test]
fn the_audit_of_another_machine_is_not_mistaken_for_this_ones() {
    let home = home();
    let run = home.run(&["audit", "--daemon", "http://127.0.0.1:9"]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{run}");
    assert!(run.stderr.contains("/api/v1/audit"), "{run}");
}

#[test]
fn a_call_that_a_command_can_not_place_is_on_record_too() {
    let home = home();
    home.write(
        "ostler.toml",
        &config("[roles.local]\nallow = [\"fake/*\", \"shy/*\"]\ndeny = [\"fake/fail\"]\n"),
    );
    let calls = ["fake__ecko", "fake__fail", "shy__echo", "nosuch__echo"];
    let ask = || {
        calls.map(|call| {
            let run = home.run(&["call", call]);
            assert_eq!((run.code, run.stdout.as_str()), (Some(5), ""), "{call}: {run}");
            run.stderr
        })
    };
    let expected = [
        "call tools/call fake ecko unknown-tool",
        "call tools/call fake fail denied",
        "call tools/call shy echo denied",
        "call tools/call nosuch echo unknown-server",
    ];
    let alone = ask();
    assert!(alone[0].contains("did you mean `fake__echo`"), "{alone:?}");
    let found: Vec<String> = words(&events(&home, &["--role", "local"]));
    assert_eq!(found, expected);
    let daemon = Daemon::start(&home);
    assert_eq!(ask(), alone, "the daemon says the same");
    drop(daemon);
    assert_eq!(words(&events(&home, &["--role", "local"])), [expected, expected].concat());
}

#[test]
fn who_is_over_budget_is_on_record_with_the_budget_and_lists_are_not() {
    let home = home();
    home.write(
        "ostler.toml",
        &config("[roles.local]\nallow = [\"fake/*\"]\nbudget = { calls = 1, per = \"1h\" }\n"),
    );
    let daemon = Daemon::start(&home);
    let (headers, body) = mcp::request("tools/list", json!({}));
    let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
    let list = http::ask(daemon.port, "POST /servers/fake/mcp", &headers, &body).json();
    assert!(list["result"]["tools"].is_array(), "{list}");
    mcp::call(daemon.port, "fake__echo", json!({}));
    let over = mcp::call(daemon.port, "fake__echo", json!({}));
    assert_eq!(over["error"]["data"]["code"], "over-budget", "{over}");
    let run = home.run(&["call", "fake__echo"]);
    assert!(run.code == Some(9) && !run.stderr.contains(".0s"), "{run}");
    drop(daemon);
    let rows = events(&home, &["--role", "local"]);
    let [ok, over] = ["call tools/call fake echo ok", "call tools/call fake echo over-budget"];
    assert_eq!(words(&rows), [ok, over, over]);
    assert_eq!(rows[1]["detail"], "the budget of role `local`: 1 in 1h");
}

#[test]
fn what_does_not_exist_is_on_record_once_for_each_time_it_is_asked_for() {
    let home = home();
    let daemon = Daemon::start(&home);
    mcp::call(daemon.port, "fake__ecko", json!({}));
    mcp::call(daemon.port, "nosuch__echo", json!({}));
    mcp::ask(daemon.port, "no/such", json!({}));
    call_directly(daemon.port, "nosuch", "echo");
    let session = ["Mcp-Session-Id: none", "Accept: text/event-stream"];
    assert_eq!(http::ask(daemon.port, "GET /mcp", &session, "").status, 404);
    drop(daemon);
    let expected = [
        "call tools/call fake ecko unknown-tool",
        "call tools/call - nosuch__echo unknown-tool",
        "call no/such - - unknown-method",
        "call tools/call nosuch echo unknown-server",
        "call GET /mcp - - unknown-session",
    ];
    assert_eq!(words(&events(&home, &["--role", "local"])), expected);
    assert!(events(&home, &["--role", "local", "--denied"]).is_empty(), "no rule refused any");
}

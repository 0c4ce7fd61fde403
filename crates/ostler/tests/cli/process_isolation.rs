//! Process isolation: callers that share a process of a server, with real clients and real processes.

use std::process::Command;

use ostler_testkit::fake_mcp;
use serde_json::json;

use crate::daemon::Daemon;
use crate::home::{Home, until};
use crate::http;
use crate::stdio::{EndedDaemon, StdioClient};

/// Returns a home with a config in a directory of its own, and two projects beside it.
fn home(lines: &str) -> Home {
    let home = Home::new();
    let args = ["--starts", "${workspaceFolder}/starts"];
    let table = format!("[servers.fake]\ncommand = {:?}\nargs = {args:?}\n{lines}\n", fake_mcp());
    home.write("config/ostler.toml", &table);
    for project in ["one", "two"] {
        std::fs::create_dir(home.path(project)).unwrap();
    }
    std::os::unix::fs::symlink(home.path("one"), home.path("link")).unwrap();
    home
}

/// Returns a command with the config of the home, started in a project.
fn in_project(home: &Home, project: &str, args: &[&str]) -> Command {
    let config = home.path("config/ostler.toml");
    let mut command = home.finding_command(&[&["--config", config.to_str().unwrap()], args].concat());
    command.current_dir(home.path(project));
    command
}

fn client(home: &Home, project: &str) -> StdioClient {
    let mut client = StdioClient::start_as(in_project(home, project, &["stdio"]));
    client.initialize();
    client
}

#[test]
fn clients_in_one_directory_share_a_process_and_those_in_another_have_their_own() {
    let home = home("isolation = \"workspace\"\nstart_timeout = \"20s\"");
    let _ended = EndedDaemon(&home);
    let mut clients = ["one", "link", "two"].map(|project| client(&home, project));
    let [one, link, two] = clients.each_mut().map(StdioClient::server_pid);
    assert_eq!(one, link, "a link leads to the same directory");
    assert_ne!(one, two);
    assert_eq!(home.lines("one/starts").join(" "), one, "`${{workspaceFolder}}` is the client's directory");
    assert_eq!(home.lines("two/starts").join(" "), two);
    let status = in_project(&home, "two", &["status"]).output().unwrap();
    let status = String::from_utf8_lossy(&status.stdout).into_owned();
    let shown: Vec<&str> = status.lines().filter(|line| line.contains(": ")).skip(1).collect();
    let row = |project: &str, pid: &str| format!("  ~/{project}: ready, pid {pid}, up 0s");
    let rows = [row("one", &one), row("two", &two)];
    let seconds = |line: &str| line.split(", up ").next().unwrap().to_owned();
    assert_eq!(shown[0], "fake: 2 processes, one for each workspace", "{status}");
    assert_eq!([shown[1], shown[2]].map(seconds), rows.each_ref().map(|row| seconds(row)), "{status}");
    let call = in_project(&home, "two", &["call", "fake__pid"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&call.stdout).trim(), two, "a command works where it was started");
}

#[test]
fn a_command_without_a_daemon_works_in_its_working_directory() {
    let home = home("isolation = \"workspace\"");
    let call = in_project(&home, "one", &["call", "fake__echo"]).output().unwrap();
    assert!(call.status.success(), "{call:?}");
    assert_eq!((home.lines("one/starts").len(), home.lines("config/starts").len()), (1, 0));
}

#[test]
fn lists_of_one_directory_are_neither_shown_nor_completed_in_another() {
    let home = Home::new();
    let args = ["--catalog", "${workspaceFolder}/catalog.json"];
    let table =
        format!("[servers.fake]\ncommand = {:?}\nargs = {args:?}\nisolation = \"workspace\"\n", fake_mcp());
    home.write("config/ostler.toml", &table);
    for project in ["one", "two"] {
        let tool =
            format!(r#"{{"tools": [{{"name": "of_{project}", "inputSchema": {{"type": "object"}}}}]}}"#);
        home.write(&format!("{project}/catalog.json"), &tool);
    }
    let completed = |project: &str| {
        let config = home.path("config/ostler.toml");
        let words = ["--", "ostler", "--config", config.to_str().unwrap(), "call", "fake__"];
        let mut command = home.finding_command(&words);
        let output = command.current_dir(home.path(project)).env("OSTLER_COMPLETE", "fish").output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let tools = |project: &str| {
        let output = in_project(&home, project, &["tools"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(tools("one").contains("of_one"));
    assert_eq!((completed("one").trim(), completed("two").trim()), ("fake__of_one", ""));
    assert!(!tools("two").contains("of_one"));
    assert_eq!((completed("one").trim(), completed("two").trim()), ("fake__of_one", "fake__of_two"));
}

#[test]
fn a_shared_server_has_the_directory_of_its_config() {
    let home = home("");
    let _ended = EndedDaemon(&home);
    let mut clients = ["one", "two"].map(|project| client(&home, project));
    let [one, two] = clients.each_mut().map(StdioClient::server_pid);
    assert_eq!(one, two);
    assert_eq!(home.lines("config/starts"), [one]);
}

#[test]
fn each_client_has_a_process_that_ends_with_it_where_sessions_are_apart() {
    let home = home("isolation = \"session\"");
    let _ended = EndedDaemon(&home);
    let mut clients = ["one", "one"].map(|project| client(&home, project));
    let [first, second] = clients.each_mut().map(StdioClient::server_pid);
    assert_ne!(first, second);
    let [mut one, mut two] = clients;
    drop(one.child.stdin.take());
    assert_eq!(one.child.wait().unwrap().code(), Some(0));
    until("its process has ended", || !std::path::Path::new("/proc").join(&first).exists());
    assert_eq!(two.server_pid(), second);
}

/// Calls a tool with a token, and returns its text.
fn call_with_token(daemon: &Daemon<'_>, token: &str, tool: &str) -> String {
    let bearer = format!("Authorization: Bearer {}", token.trim());
    let params = json!({"name": tool, "arguments": {}});
    let answer = crate::mcp::ask_with(daemon.port, "tools/call", params, &[&bearer]).json();
    let text = answer["result"]["content"][0]["text"].as_str();
    text.unwrap_or_else(|| panic!("{answer}")).to_owned()
}

#[test]
fn the_process_of_a_token_ends_with_it_and_the_next_of_its_name_gets_another() {
    let home = home("isolation = \"caller\"\n[roles.all]\nallow = [\"*/*\"]");
    let daemon = Daemon::spawn(&home, {
        let serve =
            ["--config", "config/ostler.toml", "serve", "--listen", "127.0.0.1:0", "--port-file", "port"];
        home.command(&serve)
    });
    let create =
        || home.run(&["--config", "config/ostler.toml", "token", "create", "--name", "zed", "--role", "all"]);
    let first = call_with_token(&daemon, &create().stdout, "fake__pid");
    let revoked = home.run(&["--config", "config/ostler.toml", "token", "revoke", "zed"]);
    assert_eq!(revoked.code, Some(0), "{revoked}");
    until("its process has ended", || !std::path::Path::new("/proc").join(&first).exists());
    for verb in ["stop", "start", "reload"] {
        let run = home.run(&["--config", "config/ostler.toml", verb, "fake"]);
        assert_eq!(run.code, Some(0), "{run}");
    }
    assert_eq!(home.lines("config/starts").len(), 1, "nothing is started for a token that has gone");
    let second = call_with_token(&daemon, &create().stdout, "fake__pid");
    assert_ne!(first, second);
    assert_eq!(home.lines("config/starts"), [first, second]);
}

/// Config whose server looks like a published one; nothing is started.
const MEMORY: &str =
    "[servers.notes]\ncommand = \"npx\"\nargs = [\"-y\", \"@modelcontextprotocol/server-memory\"]\n";

#[test]
fn check_warns_of_a_server_that_keeps_state_and_is_shared_unsaid() {
    let home = Home::new();
    let browser = "[servers.web]\ncommand = \"npx\"\nargs = [\"@playwright/mcp@latest\"]\n";
    let time = "[servers.playwright]\ncommand = \"mcp-server-time\"\n";
    home.write("ostler.toml", &format!("{MEMORY}{browser}{time}"));
    let run = home.run(&["check"]);
    let warned: String = run
        .stderr
        .lines()
        .filter(|line| {
            !["was not found", "hint: install", "can't start here"].iter().any(|it| line.contains(it))
        })
        .map(|line| format!("{line}\n"))
        .collect();
    insta::assert_snapshot!(warned, @r#"
    ostler.toml:1:1: warning: all clients share the process of `notes`, which keeps one knowledge graph, in one file
      hint: add isolation = "workspace" and MEMORY_FILE_PATH = "${workspaceFolder}/.memory.jsonl" in `env` to keep them apart, or isolation = "shared" if that is meant
    ostler.toml:4:1: warning: all clients share the process of `web`, which keeps one browser and its pages
      hint: add isolation = "session" and the argument "--isolated" to keep them apart, or isolation = "shared" if that is meant
    "#);
    for (line, is_silent) in
        [("isolation = \"shared\"", true), ("isolation = \"workspace\"", true), ("lazy = true", false)]
    {
        home.write("ostler.toml", &format!("{MEMORY}{line}\n"));
        assert_eq!(!home.run(&["check"]).stderr.contains("all clients share"), is_silent, "{line}");
    }
    std::fs::remove_file(home.path("ostler.toml")).unwrap();
    home.write(".mcp.json", r#"{"mcpServers": {"think": {"command": "npx", "args": ["@modelcontextprotocol/server-sequential-thinking"]}}}"#);
    let run = home.run(&["check"]);
    assert!(run.stderr.contains(r#"hint: add "isolation": "session" to keep them apart, or "isolation": "shared" if that is meant"#), "{run}");
}

#[test]
fn the_page_about_sharing_shows_the_table_of_the_program() {
    let page = include_str!("../../../../docs/guide/sharing.md");
    for server in ostler_core::stateful_servers::SERVERS {
        let isolation = format!("{:?}", server.isolation).to_lowercase();
        let also = if server.also_needs.is_empty() { "" } else { server.also_needs };
        let row = format!("| `{}` | {} | `{isolation}` | {also} |", server.names[0], server.state);
        assert!(page.contains(&row), "docs/guide/sharing.md lacks\n{row}");
    }
    let rows = page.lines().filter(|line| line.starts_with("| `") && line.matches('|').count() == 5).count();
    assert_eq!(rows, ostler_core::stateful_servers::SERVERS.len(), "a row of the page is not in the table");
}

#[test]
fn a_client_without_the_admin_token_can_not_name_a_workspace() {
    let home = home("isolation = \"workspace\"");
    let config = home.path("config/ostler.toml");
    let daemon = Daemon::start_with(&home, &["--config", config.to_str().unwrap()]);
    let meta = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"fake__pid","_meta":{meta}}}}}"#
    );
    let workspace = format!("ostler-workspace: {}", home.path("one").display());
    let headers = [
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        "MCP-Protocol-Version: 2026-07-28",
        "Mcp-Method: tools/call",
        "Mcp-Name: fake__pid",
        &workspace,
    ];
    let answer = http::ask(daemon.port, "POST /mcp", &headers, &body);
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!((home.lines("one/starts").len(), home.lines("config/starts").len()), (0, 1));
}

#[test]
fn the_first_root_of_a_client_is_its_workspace_until_it_has_another() {
    let home = home("isolation = \"workspace\"");
    let _ended = EndedDaemon(&home);
    let mut client = StdioClient::start_as(in_project(&home, "one", &["stdio"]));
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {"roots": {}}});
    client.ask(1, "initialize", params);
    client.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "fake__pid"}});
    for (root, starts) in [("two", (0, 1)), ("missing", (1, 1))] {
        client.say(&call);
        let question = client.hear();
        assert_eq!(question["method"], "roots/list", "{question}");
        let uri = format!("file://{}", home.path(root).display());
        let roots = json!({"roots": [{"uri": uri}, {"uri": "file:///"}]});
        client.say(&json!({"jsonrpc": "2.0", "id": question["id"], "result": roots}));
        assert!(client.hear()["result"].is_object());
        assert_eq!((home.lines("one/starts").len(), home.lines("two/starts").len()), starts, "{root}");
        client.server_pid();
        client.say(&json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}));
    }
}

//! Config discovery, and the servers of a config that run.

use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ostler_testkit::fake_mcp;

use crate::agent::Agent;
use crate::daemon::Daemon;
use crate::home::{Home, Run, until};
use crate::stdio::EndedDaemon;

const OSTLER: &str = env!("CARGO_BIN_EXE_ostler");

/// Returns the output of `claude mcp add --scope project x ostler stdio`.
fn only_ostler() -> String {
    format!(
        "{{\n  \"mcpServers\": {{\n    \"x\": {{ \"command\": {OSTLER:?}, \"args\": [\"stdio\"] }}\n  }}\n}}\n"
    )
}

fn fake(name: &str) -> String {
    format!("[servers.{name}]\ncommand = {:?}\n", fake_mcp())
}

/// Runs a command that finds its config from a folder of the home.
fn run_in(home: &Home, folder: &str, args: &[&str]) -> Run {
    home.finish(home.finding_command(args).current_dir(home.path(folder)).spawn().unwrap())
}

/// Returns the daemons that were started for clients.
fn daemons(home: &Home) -> Vec<i32> {
    let lines = home.left();
    let daemons = lines.iter().filter(|line| line.contains(" serve --linger "));
    daemons.map(|line| line.split([':', '/']).nth(2).unwrap().parse().unwrap()).collect()
}

fn end_daemons(home: &Home) {
    for pid in daemons(home) {
        let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
    }
}

#[test]
fn a_project_that_names_only_ostler_ends_in_a_clear_message() {
    let home = Home::new();
    home.write(".mcp.json", &only_ostler());
    let tools = home.run_finding(&["tools"]);
    insta::assert_snapshot!(tools.stderr, @"
    warning: ./.mcp.json names nothing but Ostler itself, so it says nothing about what to run; looking further
    no config found; using the built-in server `demo` (looked for ./ostler.toml, ./.mcp.json (names only Ostler), ~/.config/ostler/ostler.toml)
    ");
    assert_eq!(tools.code, Some(0), "{tools}");

    let mut client = Agent::start_as(home.finding_command(&["stdio"]));
    let hello = client.hello();
    let instructions = hello["result"]["instructions"].as_str().unwrap();
    assert!(instructions.starts_with("Ostler found no config"), "{instructions}");
    assert!(instructions.contains("`ostler stdio --config FILE`"), "{instructions}");
    assert!(client.tools().iter().all(|tool| tool.starts_with("demo__")), "there is no loop");
    insta::assert_snapshot!(client.said(), @"
    warning: ./.mcp.json names nothing but Ostler itself, so it says nothing about what to run; looking further
    warning: no config found, so there is only the built-in server `demo`
      looked for: ./ostler.toml, ./.mcp.json (names only Ostler), ~/.config/ostler/ostler.toml
      hint: write an ostler.toml in your project, or start it as `ostler stdio --config FILE`
    ");
    assert_eq!(daemons(&home).len(), 1, "no daemon starts daemons");
    client.end();
    end_daemons(&home);
}

#[test]
fn ostler_among_the_servers_of_a_config_is_left_out_by_every_command() {
    let home = Home::new();
    let own = format!("[servers.x]\ncommand = {OSTLER:?}\nargs = [\"stdio\"]\n");
    let address = "[servers.y]\nurl = \"http://localhost:7999/mcp\"\n";
    home.write("ostler.toml", &format!("listen = \"127.0.0.1:7999\"\n{}{own}{address}", fake("fake")));
    insta::assert_snapshot!(home.run(&["check"]), @"
    $ ostler check
    ok: 1 server, 2 disabled (x, y), 2 warnings
    --- stderr
    ostler.toml:4:1: warning: `servers.x` runs `ostler stdio` for this config, which would be Ostler in itself; it is left out
      hint: the entry is for your MCP client; take it out here, or name another config in it
    ostler.toml:7:1: warning: `servers.y` is the address of this daemon, which would be Ostler in itself; it is left out
      hint: the entry is for your MCP client; take it out here, or name another config in it
    --- exit 0
    ");
    for args in [&["tools"][..], &["list"], &["status"], &["status", "--probe"], &["call", "fake__echo"]] {
        let run = home.run(args);
        assert_eq!(run.code, Some(0), "{run}");
        assert!(run.stderr.contains("`servers.x` runs `ostler stdio` for this config"), "{run}");
        assert!(run.stderr.contains("`servers.y` is the address of this daemon"), "{run}");
        assert!(!run.stdout.contains("x__") && !run.stdout.contains("y__"), "{run}");
    }
    let call = home.run(&["call", "x__fake__echo"]);
    assert_eq!(call.code, Some(6), "{call}");
    assert!(call.stderr.contains("server `x` is disabled"), "{call}");

    // It listens at another port than that of the config, where another process may listen.
    let daemon = Daemon::start(&home);
    let status = home.run(&["status", "--json", "x"]);
    let status: serde_json::Value = serde_json::from_str(&status.stdout).unwrap();
    assert_eq!(status["servers"][0]["state"], "disabled", "{status}");
    daemon.end();
}

#[test]
fn a_config_is_looked_for_up_to_the_root_of_the_repository() {
    let home = Home::new();
    home.write("ostler.toml", &fake("above"));
    home.write("proj/.git/HEAD", "");
    home.write("proj/a/b/file", "");
    home.write("lone/a/file", "");
    let nothing = run_in(&home, "lone/a", &["list"]);
    assert!(nothing.stdout.contains("demo"), "without a repository only the directory counts: {nothing}");
    let nothing = run_in(&home, "proj/a/b", &["list"]);
    assert!(nothing.stdout.contains("demo"), "the root of the repository ends the search: {nothing}");

    home.write(
        "proj/.mcp.json",
        &format!("{{\"mcpServers\": {{\"json\": {{\"command\": {:?}}}}}}}", fake_mcp()),
    );
    assert!(run_in(&home, "proj/a/b", &["list"]).stdout.contains("json"));
    home.write("proj/ostler.toml", &fake("toml"));
    assert!(run_in(&home, "proj/a/b", &["list"]).stdout.contains("toml"), "ostler.toml comes first");
    home.write("proj/a/.mcp.json", &only_ostler());
    let found = run_in(&home, "proj/a/b", &["list"]);
    assert!(found.stdout.contains("toml") && found.stderr.contains("names nothing but Ostler"), "{found}");

    let refused = run_in(&home, "proj/a/b", &["call", "toml__echo"]);
    assert_eq!(refused.code, Some(5), "one found above needs consent: {refused}");
    assert_eq!(run_in(&home, "proj/a/b", &["trust"]).code, Some(0));
    assert_eq!(run_in(&home, "proj/a/b", &["call", "toml__echo"]).code, Some(0));

    home.write(".config/ostler/ostler.toml", &fake("users"));
    assert!(run_in(&home, "lone/a", &["list"]).stdout.contains("users"), "then the user's own");
}

#[test]
fn a_server_runs_in_the_folder_of_its_config_wherever_it_is_started_from() {
    let home = Home::new();
    home.write("conf/sub/more.toml", &format!("{}args = [\"--starts\", \"starts\"]\n", fake("b")));
    home.write(
        "conf/main.toml",
        &format!("include = [\"sub/more.toml\"]\n{}args = [\"--starts\", \"starts\"]\n", fake("a")),
    );
    let config = home.path("conf/main.toml");
    for tool in ["a__echo", "b__echo"] {
        let run = home.run(&["call", tool, "--config", config.to_str().unwrap()]);
        assert_eq!(run.code, Some(0), "{run}");
    }
    assert_eq!((home.lines("conf/starts").len(), home.lines("conf/sub/starts").len()), (1, 1));
    assert!(!Path::exists(&home.path("starts")));
}

#[test]
fn a_disabled_server_is_known_and_never_started() {
    let home = Home::new();
    let off = format!("{}args = [\"--starts\", \"starts\"]\ndisabled = true\n", fake("off"));
    home.write("ostler.toml", &format!("{}{off}", fake("on")));
    insta::assert_snapshot!(home.run(&["check"]), @"
    $ ostler check
    ok: 1 server, 1 disabled (off)
    --- exit 0
    ");
    insta::assert_snapshot!(home.run(&["call", "off__echo"]), @"
    $ ostler call off__echo
    --- stderr
    error: server `off` is disabled: [HOME]/ostler.toml:6 says so
      hint: remove `disabled = true` there to enable it
    --- exit 6
    ");
    let list = home.run(&["list"]);
    assert!(list.stdout.contains("disabled"), "{list}");
    let tools = home.run(&["tools"]);
    assert!(tools.code == Some(0) && !tools.stdout.contains("off__") && tools.stderr.is_empty(), "{tools}");
    assert_eq!(home.run(&["status", "--probe"]).code, Some(0));

    let daemon = Daemon::start(&home);
    assert_eq!(daemon.server("off")["state"], "disabled");
    let call = home.run(&["call", "off__echo"]);
    assert!(call.code == Some(6) && call.stderr.contains("ostler.toml:6 says so"), "{call}");
    assert_eq!(home.run(&["start", "off"]).code, Some(6));
    home.write(
        "ostler.toml",
        &format!("{}{}", fake("on"), off.replace("disabled = true", "disabled = false")),
    );
    until("an edit enables it", || home.run(&["call", "off__echo"]).code == Some(0));
    assert_eq!(home.lines("starts").len(), 1);
    daemon.end();
}

/// Message about a server that leads back to its own daemon.
const BACK: &str = "leads back";

#[test]
fn two_daemons_that_have_each_other_as_servers_do_not_loop() {
    let home = Home::new();
    home.write("a.toml", &fake("own"));
    let a = Daemon::start_with(&home, &["--config", "a.toml"]);
    home.write("b.toml", &format!("{}[servers.a]\nurl = \"{}/mcp\"\n", fake("own"), a.url()));
    let b = Daemon::start_with(&home, &["--config", "b.toml"]);
    let chain = home.run(&["tools", "--config", "b.toml"]);
    assert!(chain.code == Some(0) && chain.stdout.contains("a__own__echo"), "a chain works: {chain}");

    home.write("a.toml", &format!("{}[servers.b]\nurl = \"{}/mcp\"\n", fake("own"), b.url()));
    until("the edit is applied", || home.run(&["list", "--config", "a.toml"]).stdout.contains("/mcp"));
    let from_a = home.run(&["tools", "b", "--config", "a.toml"]);
    assert!(from_a.code != Some(0) && from_a.stderr.contains(BACK), "{from_a}");
    let own = home.run(&["call", "own__echo", "--config", "a.toml"]);
    assert_eq!(own.code, Some(0), "its own servers are there: {own}");
    a.end();
    b.end();
}

#[test]
fn two_configs_that_start_each_other_end_at_two_daemons() {
    let home = Home::new();
    let other = |file: &str| {
        let args = ["stdio", "--config", file];
        format!("{}[servers.other]\ncommand = {OSTLER:?}\nargs = {args:?}\n", fake("own"))
    };
    home.write("a.toml", &other("b.toml"));
    home.write("b.toml", &other("a.toml"));
    let mut client = Agent::start_as(home.command(&["stdio", "--config", "a.toml"]));
    client.hello();
    let tools = client.tools();
    assert!(tools.contains(&"own__echo".to_owned()), "{tools:?}");
    assert!(tools.contains(&"other__own__echo".to_owned()), "the chain works: {tools:?}");
    assert!(!tools.iter().any(|tool| tool.contains("other__other")), "and comes back nowhere: {tools:?}");
    assert_eq!(daemons(&home).len(), 2, "{:?}", home.left());
    client.end();
    end_daemons(&home);
}

#[test]
fn a_server_of_the_users_own_config_runs_in_the_folder_of_that() {
    let home = Home::new();
    home.write(".config/ostler/ostler.toml", &format!("{}args = [\"--starts\", \"starts\"]\n", fake("own")));
    home.write("elsewhere/x", "");
    assert_eq!(run_in(&home, "elsewhere", &["call", "own__echo"]).code, Some(0));
    assert_eq!((home.lines(".config/ostler/starts").len(), home.lines("elsewhere/starts").len()), (1, 0));
}

#[test]
fn a_repository_of_another_user_is_not_searched() {
    let home = Home::new();
    home.write("shared/.git/HEAD", "");
    home.write("shared/ostler.toml", &fake("theirs"));
    home.write("shared/mine/file", "");
    assert!(run_in(&home, "shared/mine", &["list"]).stdout.contains("theirs"));
    let has_changed_hands = std::os::unix::fs::chown(home.path("shared/.git"), Some(12_345), None).is_ok();
    // Only root can give a directory away.
    let found = run_in(&home, "shared/mine", &["list"]);
    assert_eq!(found.stdout.contains("theirs"), !has_changed_hands, "{found}");
}

#[test]
fn a_link_of_another_user_makes_no_repository() {
    let home = Home::new();
    home.write("shared/ostler.toml", &fake("theirs"));
    home.write("shared/mine/file", "");
    let link = home.path("shared/.git");
    std::os::unix::fs::symlink("/etc", &link).unwrap();
    assert!(run_in(&home, "shared/mine", &["list"]).stdout.contains("theirs"), "a link of one's own is good");
    let has_changed_hands = std::os::unix::fs::lchown(&link, Some(12_345), None).is_ok();
    // Only root can give a link away.
    let found = run_in(&home, "shared/mine", &["list"]);
    assert_eq!(found.stdout.contains("theirs"), !has_changed_hands, "{found}");
}

#[test]
fn a_config_of_another_user_is_found_in_the_working_directory_and_not_above_it() {
    for given in ["shared", "shared/ostler.toml", "shared/target.toml"] {
        let home = Home::new();
        home.write("shared/.git/HEAD", "");
        home.write("shared/target.toml", &fake("theirs"));
        std::os::unix::fs::symlink("target.toml", home.path("shared/ostler.toml")).unwrap();
        home.write("shared/mine/file", "");
        assert!(run_in(&home, "shared/mine", &["list"]).stdout.contains("theirs"));
        let has_changed_hands = std::os::unix::fs::lchown(home.path(given), Some(12_345), None).is_ok();
        let above = run_in(&home, "shared/mine", &["list"]);
        assert_eq!(above.stdout.contains("theirs"), !has_changed_hands, "{given}: {above}");
        assert_eq!(above.stderr.contains("(of another user)"), has_changed_hands, "{given}: {above}");
        let here = run_in(&home, "shared", &["list"]);
        assert!(here.stdout.contains("theirs"), "{given}: {here}");
    }
}

#[test]
fn a_client_without_a_config_is_told_of_the_daemon_of_another_config() {
    let home = Home::with_servers(&[("fake", &[])]);
    let _ended = EndedDaemon(&home);
    let daemon = Daemon::start(&home);
    home.write("elsewhere/note.txt", "");
    let mut command = home.finding_command(&["stdio"]);
    command.current_dir(home.path("elsewhere"));
    let mut client = Agent::start_as(command);
    let hello = client.hello();
    let file = home.path("ostler.toml");
    let words = format!("`ostler stdio --config {}` uses it", file.display());
    let instructions = hello["result"]["instructions"].as_str().unwrap();
    assert!(instructions.contains(&words), "{instructions}");
    let said = client.said();
    assert!(said.contains(&words), "{said}");
    daemon.end();
}

#[test]
fn a_config_that_is_not_trusted_yet_is_told_by_check_list_and_status() {
    let home = Home::with_servers(&[("fake", &[])]);
    for command in ["check", "list", "status"] {
        let run = home.run_finding(&[command]);
        assert!(run.stderr.contains("not trusted yet: `ostler trust`"), "{run}");
        let run = home.run(&[command]);
        assert!(!run.stderr.contains("trusted"), "a named file is trusted: {run}");
    }
}

//! `ostler tools` and `ostler list`.

use serde_json::Value;

use crate::daemon::Daemon;
use crate::home::Home;

#[test]
fn without_a_config_there_is_the_built_in_server() {
    let home = Home::new();
    insta::assert_snapshot!(home.run(&["tools"]));
    insta::assert_snapshot!(home.run(&["tools", "demo", "--full"]));
    insta::assert_snapshot!(home.run_wide(&["list"]));
    insta::assert_snapshot!(home.run(&["call", "demo__add", "a=9007199254740993", "b=1"]));
    let time = home.run(&["call", "demo__time"]).stdout;
    assert!(time.starts_with("20") && time.ends_with("Z\n"), "{time}");
}

#[test]
fn a_broken_server_is_told_and_spoils_nothing() {
    let home = Home::with_servers(&[("broken", &["--exit-at-start", "1:no licence"]), ("fake", &[])]);
    insta::assert_snapshot!(home.run(&["tools"]));
    let json: Value = serde_json::from_str(&home.run(&["tools", "--json"]).stdout).unwrap();
    assert_eq!(json["tools"][0]["name"], "fake__echo");
    assert_eq!(json["errors"][0]["server"], "broken");
    assert_eq!(json["errors"][0]["error"]["code"], "server-unavailable");
}

#[test]
fn with_no_server_that_answers_the_command_fails() {
    let args: &[&str] = &["--exit-at-start", "1:no licence"];
    let home = Home::with_servers(&[("one", args), ("two", args)]);
    insta::assert_snapshot!(home.run(&["tools"]));
    insta::assert_snapshot!(home.run(&["tools", "one"]));
    insta::assert_snapshot!(home.run(&["tools", "one", "--json"]));
}

#[test]
fn json_holds_each_definition_as_its_server_wrote_it() {
    let home = Home::with_servers(&[("fake", &["--forge-origin"])]);
    let run = home.run(&["tools", "fake", "--json"]);
    let json: Value = serde_json::from_str(&run.stdout).unwrap();
    let echo = &json["tools"][0];
    assert_eq!(
        (&echo["name"], &echo["server"], &echo["tool"]),
        (&"fake__echo".into(), &"fake".into(), &"echo".into())
    );
    // The server's own claim of its origin stays inside the definition.
    assert_eq!(echo["definition"]["server"], "somebody-else");
    assert_eq!(json["errors"], Value::Array(Vec::new()));
}

#[test]
fn a_sleeping_server_is_listed_without_being_started() {
    let home = Home::with_servers(&[("fake", &["--starts", "starts"])]);
    let first = home.run(&["tools"]).stdout;
    assert_eq!(home.run(&["tools"]).stdout, first);
    assert_eq!(home.lines("starts").len(), 1);
    home.run(&["tools", "fake"]);
    assert_eq!(home.lines("starts").len(), 2, "a server that is named is asked");
}

#[test]
fn a_server_that_is_slow_with_its_list_is_named_with_what_to_type() {
    let home = Home::with_servers(&[("fake", &[]), ("slow", &["--slow-list", "6000"])]);
    let run = home.run(&["tools"]);
    assert_eq!(run.code, Some(0), "{run}");
    assert!(run.stderr.contains("waiting: `slow` has not answered with its list yet\n"), "{run}");
    assert!(run.stderr.contains("`ostler tools NAME --config ostler.toml` asks one server alone"), "{run}");
}

#[test]
fn one_tool_is_shown_in_full_by_any_spelling_of_its_name() {
    let home = Home::new();
    let shown = home.run(&["tools", "demo__add"]);
    insta::assert_snapshot!(shown);
    for words in [&["demo.add"][..], &["demo/add"], &["demo:add"], &["demo", "add"], &["add"]] {
        assert_eq!(home.run(&[&["tools"], words].concat()).stdout, shown.stdout, "{words:?}");
    }
    let run = home.run(&["tools", "demo.add", "--json"]);
    let json: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!((json["tools"].as_array().unwrap().len(), &json["tools"][0]["tool"]), (1, &"add".into()));
    insta::assert_snapshot!(home.run(&["tools", "demo__ad"]));
    insta::assert_snapshot!(home.run(&["tools", "deno"]));
}

#[test]
fn patterns_choose_among_the_tools() {
    let home = Home::new();
    insta::assert_snapshot!(home.run(&["tools", "demo__*e*"]));
    assert_eq!(home.run(&["tools", "demo.*e*"]).stdout, home.run(&["tools", "demo__*e*"]).stdout);
    insta::assert_snapshot!(home.run(&["tools", "git__*"]));
}

#[test]
fn a_search_finds_the_best_tools_first_and_not_too_many() {
    let home = Home::new();
    insta::assert_snapshot!(home.run(&["tools", "--search", "numbers", "add"]));
    insta::assert_snapshot!(home.run(&["tools", "--search", "submarine"]));
    let many = Home::with_servers(&[("fake", &["--tools", "100"])]);
    let run = many.run(&["tools", "--search", "fake"]);
    assert_eq!(run.stdout.lines().count(), 21, "{run}");
    assert!(run.stderr.contains(" more fit less well"), "{run}");
}

#[test]
fn a_description_can_not_control_the_terminal() {
    let home = Home::with_servers(&[("fake", &["--change-tools", "suffix"])]);
    home.write("suffix", "\u{1b}[2J gotcha");
    let run = home.run(&["tools", "fake", "--full"]);
    assert!(run.stdout.contains("\\u{1b}[2J gotcha") && !run.stdout.contains('\u{1b}'), "{run}");
}

#[test]
fn an_unknown_server_is_told_with_what_was_meant() {
    let home = Home::with_servers(&[("fake", &[])]);
    insta::assert_snapshot!(home.run(&["tools", "fkae"]));
}

#[test]
fn a_config_without_servers_is_not_an_error() {
    let home = Home::with_servers(&[]);
    for command in ["tools", "list", "status"] {
        let run = home.run(&[command]);
        assert_eq!((run.code, run.stdout.as_str()), (Some(0), ""), "{run}");
        assert!(run.stderr.contains("the config has no servers"), "{run}");
    }
}

#[test]
fn a_config_whose_servers_are_disabled_is_not_said_to_have_none() {
    let home = Home::new();
    home.write(".mcp.json", r#"{"mcpServers": {"time": {"command": "true", "disabled": true}}}"#);
    let run = home.run_finding(&["tools", "--config", ".mcp.json"]);
    assert!(run.stderr.contains("the config has 1 server, and it is disabled: `time`"), "{run}");
    home.write(".mcp.json", r#"{"mcpServers": {}}"#);
    let run = home.run_finding(&["tools", "--config", ".mcp.json"]);
    assert!(run.stderr.contains(r#"hint: write one: "mcpServers": {"NAME""#), "{run}");
}

#[test]
fn servers_are_listed_with_where_they_come_from() {
    let home = Home::with_servers(&[("fake", &["--era", "legacy"])]);
    let main = std::fs::read_to_string(home.path("ostler.toml")).unwrap();
    home.write("ostler.toml", &format!("include = [\"more.json\"]\n{main}lazy = false\n"));
    home.write("more.json", r#"{"mcpServers": {"other": {"command": "it's", "args": ["a b", "${HOME}"]}}}"#);
    insta::assert_snapshot!(home.run_wide(&["list"]));
    insta::assert_snapshot!(home.run(&["list", "--json"]));
}

#[test]
fn no_list_shows_a_secret() {
    let home = Home::new();
    let table = "command = \"x\"\nargs = [\"--token\", \"hunter2\", \"--url=https://me:hunter2@x/\"]\n";
    let remote = "url = \"https://x/?api_key=hunter2\"\nheaders = { Authorization = \"hunter2\" }\n";
    home.write("ostler.toml", &format!("[servers.a]\n{table}[servers.b]\n{remote}"));
    for args in [&["list"][..], &["list", "--json"], &["check"], &["check", "--json"], &["status", "--json"]]
    {
        let run = home.run_wide(args);
        assert!(!format!("{run}").contains("hunter2"), "{run}");
    }
}

#[test]
fn several_servers_are_listed_one_after_the_other() {
    let home = Home::with_servers(&[("one", &[]), ("two", &[]), ("three", &[])]);
    let run = home.run(&["tools", "one", "two"]);
    assert_eq!(run.code, Some(0), "{run}");
    assert!(run.stdout.contains("one__echo") && run.stdout.contains("two__echo"), "{run}");
    assert!(!run.stdout.contains("three__"), "{run}");
    assert!(home.run(&["tools", "one", "echo"]).stdout.starts_with("one__echo\n"));
}

#[test]
fn a_misspelt_server_is_told_in_the_same_words_with_and_without_a_daemon() {
    // The tool `echo` is as near as the server.
    let home = Home::with_servers(&[("ecko", &[]), ("other", &[])]);
    let alone = home.run(&["tools", "eco"]).stderr;
    let daemon = Daemon::start(&home);
    let beside = home.run(&["tools", "eco"]).stderr;
    assert_eq!(alone, beside);
    assert!(beside.starts_with("error: unknown server `eco`\n"), "{beside}");
    assert!(beside.contains("did you mean `ecko`?"), "{beside}");
    daemon.end();
}

//! Help texts.

use crate::home::Home;

/// Returns every command that `ostler --help` shows, and those that it hides.
fn commands(home: &Home) -> Vec<String> {
    let help = home.run(&["--help"]).stdout;
    let groups = help.split("Usage:").nth(1).unwrap().split("Options:").next().unwrap();
    let names = groups.lines().filter(|line| line.starts_with("  "));
    names.map(|line| line.split_whitespace().next().unwrap().to_owned()).chain(["guard".into()]).collect()
}

#[test]
fn help_begins_with_examples() {
    let home = Home::new();
    let whole = home.run(&["--help"]);
    assert!(whole.stdout.lines().all(|line| line.chars().count() <= 80), "{whole}");
    insta::assert_snapshot!("help", whole);
    for command in commands(&home) {
        let run = home.run(&[&command, "--help"]);
        let lines: Vec<&str> = run.stdout.lines().collect();
        assert_eq!(lines[2], "Examples:", "{command}");
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{command}: {run}");
        assert_eq!(run.stdout, home.run(&[&command, "-h"]).stdout, "{command}: there is one help, not two");
        insta::assert_snapshot!(format!("help-{command}"), run);
    }
    for command in ["create", "list", "revoke"] {
        insta::assert_snapshot!(format!("help-token-{command}"), home.run(&["token", command, "--help"]));
    }
    insta::assert_snapshot!("help-relay-nats-config", home.run(&["relay", "nats-config", "--help"]));
}

#[test]
fn the_reference_has_the_groups_of_the_help() {
    let page = include_str!("../../../../docs/reference/commands.md");
    let help = Home::new().run(&["--help"]).stdout;
    let groups = help.split("Usage:").nth(1).unwrap().split("\nOptions:").next().unwrap();
    for group in groups.trim().split("\n\n").skip(1) {
        let (title, members) = group.split_once(":\n").unwrap();
        let section =
            page.split(&format!("## {title}\n")).nth(1).unwrap_or_else(|| panic!("no section {title}"));
        let section = section.split("\n## ").next().unwrap();
        for member in members.lines() {
            let command = format!("`ostler {}", member.split_whitespace().next().unwrap());
            assert!(section.contains(&command), "section {title} has no {command}`");
        }
    }
}

#[test]
fn help_is_a_command_too() {
    let home = Home::new();
    assert_eq!(home.run(&["help"]).stdout, home.run(&["--help"]).stdout);
    for command in commands(&home) {
        let asked = home.run(&["help", &command]);
        assert_eq!(asked.stdout, home.run(&[&command, "--help"]).stdout, "{command}");
        assert_eq!((asked.code, asked.stderr.as_str()), (Some(0), ""));
    }
    let create = home.run(&["help", "token", "create"]);
    assert_eq!(create.stdout, home.run(&["token", "create", "--help"]).stdout);
    insta::assert_snapshot!("unknown-help", home.run(&["help", "tolls"]));
    insta::assert_snapshot!("unknown-help-token", home.run(&["help", "token", "creat"]));
}

#[test]
fn the_version_is_told_in_words_and_as_json() {
    let home = Home::new();
    let version = env!("CARGO_PKG_VERSION");
    let run = home.run(&["version"]);
    assert!(run.stdout.starts_with(&format!("ostler {version} (")), "{run}");
    let run = home.run(&["version", "--json"]);
    let told: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(told["version"], version);
    assert!(told["target"].as_str().unwrap().contains(std::env::consts::ARCH), "{told}");
    assert!(told.as_object().unwrap().contains_key("commit"), "{told}");
}

#[test]
fn words_that_are_no_commands_lead_to_the_one_that_was_meant() {
    let home = Home::new();
    let typed = ["up", "ls", "kill", "log", "tool", "servers", "config", "validate", "srve", "Serve"];
    let told: Vec<String> = typed.iter().map(|word| home.run(&[word, "--follow", "x"]).to_string()).collect();
    insta::assert_snapshot!("synonyms", told.join("\n"));
    insta::assert_snapshot!("no-synonym", home.run(&["zzzzzzzz"]));
    for (typed, meant) in [
        (&["mcp", "list"][..], "`ostler list`"),
        (&["mcp"], "`ostler stdio`"),
        (&["search", "issue"], "`ostler tools --search`"),
        (&["add", "x", "--", "y"], "edit ostler.toml"),
        (&["import"], "works as it is"),
        (&["connect", "cursor"], "`ostler stdio`"),
        (&["ui"], "`ostler status --watch`"),
        (&["demo__add", "a=1", "b=2"], "write `ostler call demo__add key=value`"),
        (&["tools", "list"], "write `ostler tools` without `list`"),
        (&["prompts", "list"], "write `ostler prompts` without `list`"),
        (&["resources", "list"], "write `ostler resources` without `list`"),
    ] {
        let run = home.run(typed);
        assert!(run.stderr.contains(meant) && run.code == Some(2), "{run}");
    }
}

#[test]
fn arguments_that_are_written_as_options_lead_to_key_and_value() {
    let home = Home::new();
    let call = ["call", "demo__time"];
    for args in [&["--timezone", "UTC"][..], &["--timezone=UTC"]] {
        let run = home.run(&[&call, args].concat());
        assert!(run.stderr.contains("if it is an argument, write timezone=UTC;"), "{run}");
        assert!(!run.stderr.contains("--timeout") && run.code == Some(2), "{run}");
    }
    let run = home.run(&["call", "demo__time", "--jsn"]);
    assert!(run.stderr.contains("'--json'"), "{run}");
}

#[test]
fn a_port_is_what_to_listen_on() {
    let home = Home::new();
    for typed in [["serve", "--port", "none"], ["serve", "-p", "none"]] {
        let run = home.run(&typed);
        assert!(run.stderr.contains("invalid value 'none' for '--listen"), "{run}");
    }
}

#[test]
fn ps_is_status() {
    let home = Home::with_servers(&[("one", &[])]);
    assert_eq!(home.run(&["ps"]).stdout, home.run(&["status"]).stdout);
    assert_eq!(home.run(&["ps", "--help"]).stdout, home.run(&["status", "--help"]).stdout);
}

#[test]
fn what_is_typed_wrong_is_told_with_what_was_meant() {
    let home = Home::new();
    insta::assert_snapshot!(home.run(&["tolls"]));
    insta::assert_snapshot!(home.run(&["call"]));
    for (typed, source) in [
        (&["start"][..], "`ostler list`"),
        (&["stop"], "`ostler list`"),
        (&["call", "--json"], "`ostler tools`"),
        (&["prompts", "get"], "`ostler prompts`"),
        (&["resources", "read"], "`ostler resources`"),
        (&["token", "revoke"], "`ostler token list`"),
        (&["explain", "ci"], "SERVER__TOOL"),
    ] {
        let run = home.run(typed);
        assert!(run.stderr.contains(source) && run.code == Some(2), "{run}");
    }
    insta::assert_snapshot!(home.run(&["call", "demo__echo", "--timeout", "30"]));
    insta::assert_snapshot!(home.run(&["status", "--watch"]));
    insta::assert_snapshot!(home.run(&["man", "cal"]));
    insta::assert_snapshot!(home.run(&["serve", "--listen", ":7790"]));
    insta::assert_snapshot!(home.run(&["serve", "--listen", "localhost:7790"]));
}

#[test]
fn there_is_a_page_for_every_command_and_a_completion_for_every_shell() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let run = home.run(&["completions", shell]);
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
        assert!(run.stdout.contains("OSTLER_COMPLETE"), "{shell}");
    }
    assert!(home.run(&["man"]).stdout.contains(".TH OSTLER"));
    assert!(home.run(&["man", "call"]).stdout.contains("ostler\\-call"));
}

#[test]
fn the_schema_is_json_and_knows_the_keys() {
    let run = Home::new().run(&["schema"]);
    let schema: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(schema["title"], "Ostler configuration");
    assert!(schema["$defs"]["server"]["properties"]["keep_alive"].is_object());
}

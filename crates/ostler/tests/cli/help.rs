//! What people read first.

use crate::home::Home;

#[test]
fn help_begins_with_examples() {
    let home = Home::new();
    insta::assert_snapshot!("help", home.run(&["--help"]));
    let commands = "serve stdio call tools prompts resources list status start stop reload logs token audit check explain schema completions man demo guard";
    for command in commands.split(' ') {
        let run = home.run(&[command, "--help"]);
        let lines: Vec<&str> = run.stdout.lines().collect();
        assert_eq!(lines[2], "Examples:", "{command}");
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{command}: {run}");
        assert_eq!(run.stdout, home.run(&[command, "-h"]).stdout, "{command}: there is one help, not two");
        insta::assert_snapshot!(format!("help-{command}"), run);
    }
}

#[test]
fn what_is_typed_wrong_is_told_with_what_was_meant() {
    let home = Home::new();
    insta::assert_snapshot!(home.run(&["tolls"]));
    insta::assert_snapshot!(home.run(&["call"]));
    insta::assert_snapshot!(home.run(&["call", "demo__echo", "--timeout", "30"]));
    insta::assert_snapshot!(home.run(&["status", "--watch"]));
    insta::assert_snapshot!(home.run(&["man", "cal"]));
}

#[test]
fn there_is_a_page_and_a_completion_for_every_command() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let run = home.run(&["completions", shell]);
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
        assert!(run.stdout.contains("timeout"), "{shell}");
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

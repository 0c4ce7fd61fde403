//! Shell completion, in real shells.

#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

use std::process::Command;

use crate::home::Home;
use crate::terminal::{TestTerminal, is_installed};

/// Typed text before TAB, and the line that it becomes.
const LINES: [(&str, &str); 14] = [
    ("ostler call ti", "ostler call time__"),
    ("ostler call time__ec", "ostler call time__echo"),
    ("ostler call time__echo te", "ostler call time__echo text="),
    ("ostler call time__echo text=", "ostler call time__echo text="),
    ("ostler call time__echo text=a", "ostler call time__echo text=a"),
    ("ostler call time ti", "ostler call time ti"),
    ("ostler stop ", "ostler stop time"),
    ("ostler logs t", "ostler logs time"),
    ("ostler explain re", "ostler explain researcher"),
    ("ostler explain researcher time__s", "ostler explain researcher time__sleep"),
    ("ostler token create --role l", "ostler token create --role local"),
    ("ostler tools time__a", "ostler tools time__add"),
    ("ostler stat", "ostler status"),
    ("ostler status --pr", "ostler status --probe"),
];

/// Returns a home with a server whose tools are known, and roles.
fn home() -> Home {
    let home = Home::new();
    let server = format!("[servers.time]\ncommand = {:?}\nargs = [\"demo\"]\n", env!("CARGO_BIN_EXE_ostler"));
    home.write("ostler.toml", &format!("{server}[roles.researcher]\nallow = [\"*\"]\n"));
    assert_eq!(home.run(&["tools"]).code, Some(0));
    home
}

/// Starts a shell that has read the script, on a terminal.
fn shell(home: &Home, words: &[&str], setup: &str) -> TestTerminal {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).current_dir(home.path("")).env("HOME", home.path(""));
    command.env("XDG_STATE_HOME", home.path("state")).env("TERM", "dumb").env("PS1", "> ");
    let bin = std::path::Path::new(env!("CARGO_BIN_EXE_ostler")).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}:{path}", bin.display()));
    let mut terminal = TestTerminal::start(&command);
    terminal.enter(setup);
    terminal.wait_for("\nset up");
    terminal
}

/// Types each line and TAB, and makes the shell print the completed line.
fn check(terminal: &mut TestTerminal) {
    for (typed, whole) in LINES {
        // Ctrl-A is the beginning of the line in all of them.
        terminal.press(&format!("{typed}\t\u{1}echo '['"));
        terminal.press("\u{5}']'\n");
        terminal.wait_for("\n[");
        // Zsh takes its space back when the cursor leaves it.
        assert_eq!(terminal.wait_for("]").trim_end(), whole, "{}", terminal.screen());
    }
    terminal.press("exit\n");
    assert_eq!(terminal.finish(), Some(0));
}

#[test]
fn bash_completes_servers_tools_arguments_and_roles() {
    let home = home();
    let setup = "source <(ostler completions bash); echo set up";
    check(&mut shell(&home, &["bash", "--norc", "--noprofile", "-i"], setup));
}

/// Returns the program's answer to bash, which takes `=` for a word of its own.
fn offered_to_bash(home: &Home, words: &[&str]) -> String {
    let mut command = home.finding_command(&["--", "ostler"]);
    let index = words.len().to_string();
    command.args(words).env("OSTLER_COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", index);
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

#[test]
fn the_place_of_a_value_offers_its_values_or_nothing() {
    let home = Home::with_servers(&[("fake", &["--catalog", "catalog.json"])]);
    let colour = r#"{"type": "object", "properties": {"colour": {"enum": ["red", "blue"]}, "text": {"type": "string"}}}"#;
    home.write("catalog.json", &format!(r#"{{"tools": [{{"name": "paint", "inputSchema": {colour}}}]}}"#));
    assert_eq!(home.run(&["tools"]).code, Some(0));
    let bash = |words: &[&str]| offered_to_bash(&home, &[&["call", "fake__paint"], words].concat());
    // Of `colour=` bash passes the key and an empty word.
    assert_eq!(bash(&["colour", ""]), "red\nblue");
    assert_eq!(bash(&["colour", "=", "r"]), "red");
    assert_eq!(bash(&["colour", "=", "green"]), "");
    assert_eq!(bash(&["text", ""]), "");
    assert_eq!(bash(&["text", "=", "a"]), "");
    assert_eq!(bash(&["unknown", "=", "a"]), "");
    let fish = |word: &str| offered(&home, &["call", "fake__paint", word]);
    assert_eq!(fish("colour="), "colour=red\ncolour=blue\n");
    assert_eq!(fish("text="), "");
    assert!(bash(&["--ti"]).contains("--timeout"), "flags are still offered after a dash");
    assert!(
        bash(&["colour", "=", "red", "text", "=", "a", ""]).contains("--json"),
        "and where there is nothing else"
    );
}

#[test]
fn zsh_completes_servers_tools_arguments_and_roles() {
    if !is_installed("zsh") {
        eprintln!("SKIPPED: there is no zsh here (Debian: apt-get install zsh)");
        return;
    }
    let home = home();
    let setup = "autoload -U compinit && compinit -u -D && source <(ostler completions zsh); echo set up";
    check(&mut shell(&home, &["zsh", "-f", "-i"], setup));
}

#[test]
fn fish_completes_servers_tools_arguments_and_roles() {
    if !is_installed("fish") {
        eprintln!("SKIPPED: there is no fish here (Debian: apt-get install fish)");
        return;
    }
    let home = home();
    check(&mut shell(&home, &["fish", "--no-config", "-i"], "ostler completions fish | source; echo set up"));
}

/// Returns the program's answer to a shell.
fn offered(home: &Home, words: &[&str]) -> String {
    let mut command = home.finding_command(&["--", "ostler"]);
    let output = command.args(words).env("OSTLER_COMPLETE", "fish").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "completion is silent");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_config_that_is_broken_or_missing_completes_nothing_and_says_nothing() {
    let home = home();
    assert_eq!(offered(&home, &["stop", ""]), "time\n");
    assert_eq!(offered(&home, &["--config", "nowhere.toml", "stop", "t"]), "");
    home.write("ostler.toml", "[servers.time\n");
    assert_eq!(offered(&home, &["stop", "t"]), "");
}

#[test]
fn completion_starts_no_server_and_offers_only_what_local_may_use() {
    let home = Home::with_servers(&[("fake", &["--ledger", "ledger"])]);
    assert_eq!(offered(&home, &["call", "fake__ec"]), "", "nothing is known before the first list");
    assert!(home.left().is_empty());
    home.run(&["tools"]);
    assert!(offered(&home, &["call", "fake__ec"]).starts_with("fake__echo\t"));
    let config = home.lines("ostler.toml").join("\n");
    home.write("ostler.toml", &format!("{config}\n[roles.local]\nallow = [\"fake/add\"]\n"));
    assert_eq!(offered(&home, &["call", "fake__ec"]), "");
}

#[test]
fn arguments_that_are_given_are_not_offered_again() {
    let home = home();
    assert_eq!(offered(&home, &["call", "time__add", "a=1", ""]), "b=\tThe second\n");
    assert_eq!(offered(&home, &["call", "time.add", "a=1", ""]), "b=\tThe second\n");
    assert_eq!(offered(&home, &["call", "time", "add", "a=1", ""]), "b=\tThe second\n");
}

#[test]
fn a_pipe_in_place_of_a_lock_file_or_of_kept_lists_holds_no_tab_up() {
    let home = home();
    let make_pipe =
        |path: &std::path::Path| nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    make_pipe(&home.path("ostler.lock"));
    let began = std::time::Instant::now();
    assert_eq!(offered(&home, &["call", "time__ec"]), "", "what is approved is not known");
    assert!(began.elapsed() < std::time::Duration::from_secs(2), "it is refused, not waited for");
    std::fs::remove_file(home.path("ostler.lock")).unwrap();
    let kept = home.path("state/ostler/lists/time.json");
    std::fs::remove_file(&kept).unwrap();
    make_pipe(&kept);
    assert_eq!(offered(&home, &["call", "time__ec"]), "", "an answer has a deadline");
}

#[test]
fn words_of_servers_that_are_options_or_that_zsh_replaces_are_not_offered() {
    let home = Home::with_servers(&[("fake", &["--catalog", "catalog.json"])]);
    let schema = serde_json::json!({"type": "object", "properties": {
        "--config": {"enum": ["evil.toml"]}, "-v": {}, "=ls": {}, "colour": {"enum": ["-h", "=ls", "red"]},
    }});
    let uris = ["--config=/tmp/evil.toml", "-h", "=ls", "file:///a"];
    let catalog = serde_json::json!({
        "tools": [{"name": "paint", "inputSchema": schema}],
        "resources": uris.map(|uri| serde_json::json!({"uri": uri, "name": "x"})),
    });
    home.write("catalog.json", &catalog.to_string());
    for list in ["tools", "resources"] {
        assert_eq!(home.run(&[list]).code, Some(0));
    }
    let bash = |words: &[&str]| offered_to_bash(&home, words);
    assert_eq!(bash(&["resources", "read", ""]), "file:///a");
    assert!(!bash(&["resources", "read", "--config=/tmp/e"]).contains("evil"));
    assert_eq!(bash(&["call", "fake__paint", ""]), "colour=");
    assert_eq!(bash(&["call", "fake__paint", "colour", ""]), "red");
}

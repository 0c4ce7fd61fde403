//! The command line, and starts that fail.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::json;
use tempfile::tempdir;

use crate::client::{FakeMcpClient, read_lines};

fn run(switches: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fake-mcp")).args(switches).output().unwrap()
}

#[test]
fn an_unknown_argument_exits_2_and_says_which() {
    let output = run(&["--frobnicate"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("`--frobnicate`"));
    assert!(output.stdout.is_empty());
}

#[test]
fn help_has_a_line_for_each_switch() {
    let output = run(&["--help"]);
    assert_eq!(output.status.code(), Some(0));
    let help = String::from_utf8(output.stdout).unwrap();
    for switch in ["--era ERA", "--ledger FILE", "--raw-echo", "--exit-at-start CODE[:TEXT]"] {
        assert_eq!(help.lines().filter(|line| line.trim_start().starts_with(switch)).count(), 1, "{switch}");
    }
}

#[test]
fn an_early_exit_has_its_code_and_its_last_words() {
    let output = run(&["--exit-at-start", "7:missing TOKEN: none set"]);
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(output.stderr, b"missing TOKEN: none set\n");
}

#[test]
fn only_the_first_starts_fail() {
    let directory = tempdir().unwrap();
    let starts = directory.path().join("starts");
    let switches = ["--exit-at-start-times", "2", "--starts", starts.to_str().unwrap()];
    assert_eq!(run(&switches).status.code(), Some(1));
    assert_eq!(run(&switches).status.code(), Some(1));
    let mut third = FakeMcpClient::legacy(&switches);
    assert_eq!(third.text("pid", json!({})), third.pid().to_string());
    assert_eq!(read_lines(&starts).len(), 3);
    assert_eq!(read_lines(&starts)[2], third.pid().to_string());
}

#[test]
fn a_delayed_start_answers_late() {
    let begin = Instant::now();
    FakeMcpClient::legacy(&["--start-delay", "150"]);
    assert!(begin.elapsed() >= Duration::from_millis(150));
}

//! `ostler-chaos check`: kept records, checked again.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test that took it")]

use std::path::Path;
use std::process::{Command, Stdio};

/// A refused call, and everything that a run records up to its end.
const WHOLE: &str = r#"{"what":"invoke","call":1,"at":10,"way":"stdio","principal":"ada","role":"all","server":"a","tool":"deed","purpose":"once","deadline":900}
{"what":"end","call":1,"at":20,"end":"fail","kind":"overloaded","code":-31005,"ran":"no"}
{"what":"calm","at":30}
{"what":"census","at":40,"occasion":"running","processes":[]}
{"what":"census","at":50,"occasion":"over","processes":[]}
"#;

fn run_folder(history: &str, log: Option<&str>) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("history.jsonl"), history).unwrap();
    std::fs::create_dir(folder.path().join("ledgers")).unwrap();
    if let Some(log) = log {
        std::fs::write(folder.path().join("daemon.log"), log).unwrap();
    }
    folder
}

/// Returns the exit code and the output on stdout and stderr.
fn check(folder: &Path) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_ostler-chaos")).arg("check").arg(folder).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

#[test]
fn what_the_records_hold_nothing_about_is_not_tried_and_not_passed() {
    let (code, said) = check(run_folder(WHOLE, Some("all is well\n")).path());
    assert_eq!(code, Some(0), "{said}");
    for line in ["kept       EveryCallEnds     1 calls", "not tried  OwnAnswer         0 answers"] {
        assert!(said.contains(line), "{said}");
    }
    assert!(said.contains("8 not tried"), "{said}");
    assert!(said.ends_with("\n4 passed, 0 failed\n"), "{said}");
}

#[test]
fn a_history_that_breaks_off_is_a_failure() {
    let lines: Vec<&str> = WHOLE.lines().collect();
    for history in ["", &lines[..2].join("\n"), &lines[..4].join("\n")] {
        let (code, said) = check(run_folder(history, Some("")).path());
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("mishap: the history does not go on to the end of the run"), "{said}");
        assert!(said.contains(", 1 failed\n"), "{said}");
    }
}

#[test]
fn a_panic_in_the_log_is_a_failure_and_a_missing_log_is_told() {
    let (code, said) = check(run_folder(WHOLE, Some("thread 'main' panicked at src/x.rs:1:2:\n")).path());
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("mishap: the daemon's log: thread 'main' panicked at src/x.rs"), "{said}");
    let (code, said) = check(run_folder(WHOLE, None).path());
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("not tried  the run itself    0 mishaps, there is no daemon.log"), "{said}");
}

#[test]
fn a_ledger_that_can_t_be_used_is_named() {
    let folder = run_folder(WHOLE, None);
    let ledger = folder.path().join("ledgers/a.jsonl");
    std::fs::write(&ledger, "nonsense\n").unwrap();
    let (code, said) = check(folder.path());
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains(ledger.to_str().unwrap()) && said.contains("line 1"), "{said}");
}

#[test]
fn a_reader_who_hangs_up_is_no_panic() {
    let folder = run_folder(WHOLE, None);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_ostler-chaos"));
    command.arg("check").arg(folder.path()).stdout(writer).stderr(Stdio::piped());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

//! `ostler-chaos run` that is interrupted, or can't begin.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test that took it")]

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ostler_testkit::eventually;

/// Longer than any run takes on a busy machine.
const RUN_TIMEOUT: Duration = Duration::from_secs(60);

fn command(home: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ostler-chaos"));
    command.args(args).env("TMPDIR", home).stdin(Stdio::null());
    command
}

fn run_failing(home: &Path, args: &[&str]) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = command(home, args).output().unwrap();
    (status.code(), String::from_utf8_lossy(&stderr).into_owned())
}

/// Counts the processes that have the text in their arguments or their environment.
fn count_processes_naming(text: &str) -> usize {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let holds = |file: &Path| {
        let bytes = std::fs::read(file).unwrap_or_default();
        bytes.windows(text.len()).any(|window| window == text.as_bytes())
    };
    entries.filter(|entry| ["cmdline", "environ"].iter().any(|file| holds(&entry.path().join(file)))).count()
}

/// Starts a run in a folder and waits until its callers are at work.
async fn start_run(home: &Path) -> Child {
    let args = ["run", "--minutes", "2", "--callers", "4", "--nemesis", "none"];
    let run = command(home, &args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let has_written = || {
        let entries = std::fs::read_dir(home).unwrap().flatten();
        let mut histories = entries.filter_map(|entry| entry.path().join("history.jsonl").metadata().ok());
        histories.any(|history| history.len() > 0)
    };
    eventually("callers call", RUN_TIMEOUT, has_written).await;
    run
}

#[tokio::test]
async fn a_run_that_is_told_to_end_leaves_no_process_and_no_folder() {
    for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGHUP, 129), (Signal::SIGINT, 130)] {
        let home = tempfile::tempdir().unwrap();
        let text = home.path().to_str().unwrap();
        let mut run = start_run(home.path()).await;
        assert!(count_processes_naming(text) > 5, "a daemon and its servers run");
        kill(Pid::from_raw(i32::try_from(run.id()).unwrap()), signal).unwrap();
        let mut status = None;
        eventually("the run ends", RUN_TIMEOUT, || {
            status = run.try_wait().unwrap();
            status.is_some()
        })
        .await;
        assert_eq!(status.unwrap().code(), Some(code));
        assert_eq!(count_processes_naming(text), 0, "{signal}");
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0, "{signal}");
    }
}

#[test]
fn what_can_t_be_run_is_refused_before_anything_is_started() {
    let home = tempfile::tempdir().unwrap();
    let here = home.path().to_str().unwrap();
    let cases: [(&[&str], &str); 7] = [
        (&["--keep", here], "is there already"),
        (&["--ostler", "/nope"], "there is no program /nope"),
        (&["--focus", "nosuch"], "there is no focus `nosuch`"),
        (&["--only", "nosuch"], "there is no way"),
        (&["--callers", "0"], "1..=1024"),
        (&["--minutes", "0"], "such as 3 or 0.5"),
        (&["--minutes", "many"], "such as 3 or 0.5"),
    ];
    for (args, expected) in cases {
        let (code, said) = run_failing(home.path(), &[&["run"], args].concat());
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(expected), "{said}");
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0, "{args:?}");
    }
}

#[test]
fn a_daemon_that_does_not_come_up_is_quoted() {
    let home = tempfile::tempdir().unwrap();
    let program = home.path().join("ostler");
    // Tokens are created; the daemon fails to start.
    std::fs::write(&program, "#!/bin/sh\n[ \"$1\" = token ] && exit 0\necho no such luck >&2\nexit 3\n")
        .unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, mode).unwrap();
    let args = ["run", "--seconds", "1", "--only", "http-face", "--ostler", program.to_str().unwrap()];
    let (code, said) = run_failing(home.path(), &args);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("no such luck"), "{said}");
}

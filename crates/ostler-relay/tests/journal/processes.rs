//! SQLite journal across processes that are killed or may write no more.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use ostler_relay::RelayName;
use ostler_relay::journal::{CallJournal, ClaimOutcome};

use super::{SETTLED, UNSETTLED, claim, id, open};

/// Environment variable that passes the file to the child process.
const FILE: &str = "OSTLER_TEST_JOURNAL";

fn file_of_parent() -> PathBuf {
    PathBuf::from(std::env::var_os(FILE).unwrap())
}

/// Runs one of the tests below in a process of its own, after a line of shell.
fn run(before: &str, test: &str, file: &std::path::Path) -> Child {
    let script = format!("{before}; exec \"$0\" --ignored --exact --nocapture processes::{test}");
    Command::new("sh")
        .args(["-c", &script])
        .arg(std::env::current_exe().unwrap())
        .env(FILE, file)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

#[tokio::test]
async fn what_a_killed_process_has_claimed_stays_claimed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("journal.db");
    let mut child = run(":", "claims_and_waits_to_be_killed", &file);
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let is_claimed = lines.map_while(Result::ok).any(|line| line.ends_with("claimed"));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(is_claimed, "the other process has failed");
    let journal = open(&file);
    for call in 0..50 {
        let expected = if call < 10 { SETTLED } else { UNSETTLED };
        assert_eq!(claim(&journal, call).await, expected, "{call}");
    }
    assert_eq!(claim(&journal, 50).await, ClaimOutcome::Ours);
}

#[tokio::test]
#[ignore = "run by another test, which kills it"]
async fn claims_and_waits_to_be_killed() {
    let journal = open(&file_of_parent());
    for call in 0..10 {
        claim(&journal, call).await;
        journal.mark_answered(id(call));
    }
    for call in 10..50 {
        assert_eq!(claim(&journal, call).await, ClaimOutcome::Ours);
    }
    #[allow(clippy::print_stdout)]
    {
        println!("\nclaimed");
    }
    let _ = std::io::stdin().lines().next();
}

#[test]
fn where_there_is_no_room_nothing_begins_until_there_is() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("journal.db");
    // A write beyond 512 KiB fails, and must not end the process.
    let mut child = run("trap '' XFSZ; ulimit -Sf 1024", "runs_out_of_room", &file);
    let output = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let output: Vec<String> = output.collect();
    assert!(child.wait().unwrap().success(), "{output:#?}");
    assert!(output.iter().any(|line| line.contains("1 passed")), "{output:#?}");
}

#[tokio::test]
#[ignore = "run by another test, with a limit on files"]
async fn runs_out_of_room() {
    let journal = open(&file_of_parent());
    let worker = RelayName::new("w").unwrap();
    let mut claimed = 0;
    let why = loop {
        match journal.claim(id(claimed), &worker).await {
            Ok(claim) => assert_eq!(claim, ClaimOutcome::Ours),
            Err(why) => break why.to_string(),
        }
        claimed += 1;
        assert!(claimed < 100_000, "there is room without end");
    };
    assert!(why.contains("journal.db") && (why.contains("disk") || why.contains("full")), "{why}");
    journal.mark_answered(id(0));
    let (_, hard) = getrlimit(Resource::RLIMIT_FSIZE).unwrap();
    setrlimit(Resource::RLIMIT_FSIZE, hard, hard).unwrap();
    // Neither a refusal nor a full disk has dropped or made a claim.
    assert_eq!(claim(&journal, claimed).await, ClaimOutcome::Ours);
    for call in 0..=claimed {
        let expected = if call == 0 { SETTLED } else { UNSETTLED };
        assert_eq!(claim(&journal, call).await, expected, "{call} of {claimed}");
    }
}

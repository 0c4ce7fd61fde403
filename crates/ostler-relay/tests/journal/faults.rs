//! SQLite journal: corrupt files, locked files, full disks.

use std::time::Duration;

use ostler_relay::RelayName;
use ostler_relay::journal::{CallJournal, ClaimError, ClaimOutcome, SqliteJournal};
use rusqlite::Connection;

use super::{UNSETTLED, claim, id, open};

async fn try_claim(journal: &SqliteJournal, number: u64) -> Result<ClaimOutcome, ClaimError> {
    journal.claim(id(number), &RelayName::new("w").unwrap()).await
}

#[tokio::test]
async fn a_file_that_is_no_journal_is_put_aside_and_nothing_begins_for_a_while() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("journal.db");
    std::fs::write(&file, "no database at all ".repeat(500)).unwrap();
    let journal = open(&file);
    let refused = try_claim(&journal, 1).await.unwrap_err().to_string();
    assert!(refused.contains("corrupt"), "{refused}");
    let names: Vec<String> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| name.contains(".corrupt-"))
        .collect();
    assert_eq!(names.len(), 1, "{names:?}");
    let began = std::time::Instant::now();
    while try_claim(&journal, 1).await.is_err() {
        assert!(began.elapsed() < Duration::from_secs(30), "it never becomes ready");
    }
    assert_eq!(try_claim(&journal, 1).await, Ok(UNSETTLED));
}

#[tokio::test]
async fn a_file_that_is_spoilt_meanwhile_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("journal.db");
    let journal = open(&file);
    for call in 0..2_000 {
        claim(&journal, call).await;
    }
    let other = Connection::open(&file).unwrap();
    let _: i64 = other.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0)).unwrap();
    drop(other);
    let length = usize::try_from(std::fs::metadata(&file).unwrap().len()).unwrap();
    let spoilt = vec![0xAB; length];
    let handle = std::fs::OpenOptions::new().write(true).open(&file).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&handle, &spoilt, 0).unwrap();
    // Pages in memory may hide the corruption for a while, but claims stay claimed.
    let (mut call, mut refusals) = (0, 0);
    let began = std::time::Instant::now();
    loop {
        assert!(began.elapsed() < Duration::from_secs(30), "{refusals} refusals, call {call}");
        match try_claim(&journal, call).await {
            Ok(ClaimOutcome::Ours) if refusals > 0 => break,
            Ok(ClaimOutcome::Ours) => assert!(call >= 2_000, "{call} was forgotten without a word"),
            Ok(ClaimOutcome::Taken { .. }) => {}
            Err(_) => refusals += 1,
        }
        call += 1;
    }
}

#[tokio::test]
async fn a_file_that_is_taken_away_is_begun_anew_and_nothing_begins_for_a_while() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("journal.db");
    let journal = open(&file);
    claim(&journal, 1).await;
    std::fs::rename(&file, folder.path().join("elsewhere.db")).unwrap();
    let refused = try_claim(&journal, 1).await.unwrap_err().to_string();
    assert!(refused.contains("moved away"), "{refused}");
    let quiet = try_claim(&journal, 1).await.unwrap_err().to_string();
    assert!(quiet.contains("begun anew"), "{quiet}");
    let began = std::time::Instant::now();
    while try_claim(&journal, 1).await.is_err() {
        assert!(began.elapsed() < Duration::from_secs(30), "it never becomes ready");
    }
    drop(journal);
    assert_eq!(claim(&open(&file), 1).await, UNSETTLED, "the claim is in the file of that name");
}

#[tokio::test]
async fn a_log_that_is_deleted_makes_no_claim_forgotten_and_holds_up_none() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("journal.db");
    let journal = open(&file);
    claim(&journal, 1).await;
    for end in ["-wal", "-shm"] {
        std::fs::remove_file(format!("{}{end}", file.display())).unwrap();
    }
    assert_eq!(claim(&journal, 1).await, UNSETTLED);
    assert_eq!(claim(&journal, 2).await, ClaimOutcome::Ours);
    drop(journal);
    let again = open(&file);
    assert_eq!((claim(&again, 1).await, claim(&again, 2).await), (UNSETTLED, UNSETTLED));
}

#[tokio::test]
async fn a_log_that_another_process_has_replaced_counts_as_a_journal_that_is_taken_away() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("journal.db");
    let journal = open(&file);
    claim(&journal, 1).await;
    let log = format!("{}-wal", file.display());
    std::fs::remove_file(&log).unwrap();
    std::fs::write(&log, "claims of another process").unwrap();
    let refused = try_claim(&journal, 1).await.unwrap_err().to_string();
    assert!(refused.contains("may be lost"), "{refused}");
    let quiet = try_claim(&journal, 1).await.unwrap_err().to_string();
    assert!(quiet.contains("has lost its log"), "{quiet}");
}

#[tokio::test]
async fn while_another_process_holds_the_file_nothing_begins() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("journal.db");
    let journal = open(&file);
    let other = Connection::open(&file).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let refused = try_claim(&journal, 1).await.unwrap_err().to_string();
    assert!(refused.contains("locked") && refused.contains("journal.db"), "{refused}");
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(claim(&journal, 1).await, ClaimOutcome::Ours);
}

#[tokio::test]
async fn claims_hear_who_holds_the_file_even_when_they_come_while_others_wait_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("journal.db");
    let journal = open(&file);
    let other = Connection::open(&file).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    // The second claim waits for the timeout of the first, and then for its own.
    let (first, second) = tokio::join!(try_claim(&journal, 1), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        try_claim(&journal, 2).await
    });
    for refused in [first, second] {
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("locked"), "{refused}");
    }
}

#[test]
fn a_journal_of_a_later_version_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("journal.db");
    drop(open(&file));
    Connection::open(&file).unwrap().execute_batch("PRAGMA user_version = 9").unwrap();
    let error = SqliteJournal::open(&file).unwrap_err().to_string();
    assert!(error.contains("later version") && error.contains("journal.db"), "{error}");
}

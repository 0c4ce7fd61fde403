//! SQLite journal with real files, threads and processes.

#![allow(clippy::unwrap_used)]

mod faults;
mod processes;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Barrier};
use std::time::Instant;

use ostler_relay::journal::{CallJournal, ClaimOutcome, SqliteJournal};
use ostler_relay::{CallId, RelayName};
use rusqlite::Connection;

const SETTLED: ClaimOutcome = ClaimOutcome::Taken { is_answered: true };
const UNSETTLED: ClaimOutcome = ClaimOutcome::Taken { is_answered: false };

fn open(file: &Path) -> SqliteJournal {
    SqliteJournal::open(file).unwrap_or_else(|error| panic!("{error}"))
}

fn id(number: u64) -> CallId {
    let mut random = [0; 10];
    // Spread over the whole index, as real ids are.
    random[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    random[8..].copy_from_slice(&(number as u16).to_be_bytes());
    CallId::new(1_700_000_000_000, &random)
}

async fn claim(journal: &impl CallJournal, number: u64) -> ClaimOutcome {
    let worker = RelayName::new("w").unwrap();
    journal.claim(id(number), &worker).await.unwrap_or_else(|error| panic!("{error}"))
}

#[tokio::test]
async fn a_call_is_claimed_once_and_its_end_is_remembered() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("deep/er/journal.db");
    let journal = open(&file);
    assert_eq!(claim(&journal, 1).await, ClaimOutcome::Ours);
    assert_eq!(claim(&journal, 1).await, UNSETTLED);
    journal.mark_answered(id(1));
    journal.flush().await;
    assert_eq!(claim(&journal, 1).await, SETTLED);
    assert_eq!(claim(&journal, 2).await, ClaimOutcome::Ours);
    journal.mark_answered(id(77));
    journal.flush().await;
    drop(journal);
    let again = open(&file);
    assert_eq!((claim(&again, 1).await, claim(&again, 2).await), (SETTLED, UNSETTLED));
    assert_eq!(claim(&again, 77).await, ClaimOutcome::Ours, "the end of a call is no claim");
}

#[tokio::test]
async fn a_journal_that_was_flushed_stands_in_its_file_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (file, copy) = (folder.path().join("journal.db"), folder.path().join("copy.db"));
    let journal = open(&file);
    assert_eq!(claim(&journal, 1).await, ClaimOutcome::Ours);
    journal.flush().await;
    std::fs::copy(&file, &copy).unwrap();
    let copy = Connection::open(copy).unwrap();
    let count: i64 = copy.query_row("SELECT count(*) FROM claims", [], |row| row.get(0)).unwrap();
    assert_eq!(count, 1);
}

#[tokio::test]
async fn nobody_else_may_read_the_files() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("journal.db");
    let journal = open(&file);
    claim(&journal, 1).await;
    let mut modes: Vec<u32> = Vec::new();
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        modes.push(entry.unwrap().metadata().unwrap().permissions().mode() & 0o777);
    }
    assert_eq!(modes, [0o600; 3], "the file, its log and the index of that");
}

/// Claims the same calls from many threads, through several journals on one file, as overlapping
/// processes would.
#[test]
fn of_many_who_claim_the_same_call_one_gets_it() {
    const THREADS: usize = 64;
    const CALLS: u64 = 100;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("journal.db");
    let journals: Vec<Arc<SqliteJournal>> = (0..3).map(|_| Arc::new(open(&file))).collect();
    let start = Arc::new(Barrier::new(THREADS));
    let threads: Vec<_> = (0..THREADS)
        .map(|n| {
            let (journal, start) = (Arc::clone(&journals[n % 3]), Arc::clone(&start));
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                start.wait();
                runtime.block_on(async {
                    let mut ours = Vec::new();
                    for call in 0..CALLS {
                        if claim(&*journal, call).await == ClaimOutcome::Ours {
                            ours.push(call);
                        }
                    }
                    ours
                })
            })
        })
        .collect();
    let mut ours: Vec<u64> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    ours.sort_unstable();
    assert_eq!(ours, (0..CALLS).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_claim_that_nobody_waits_for_is_not_made_or_made_for_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(&folder.path().join("journal.db"));
    let worker = RelayName::new("w").unwrap();
    for call in 0..100 {
        let mut claiming = journal.claim(id(call), &worker);
        let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(claiming.as_mut().poll(cx))).await;
        drop((polled, claiming));
    }
    for call in 0..100 {
        let claim = claim(&journal, call).await;
        assert!(matches!(claim, ClaimOutcome::Ours | UNSETTLED), "{claim:?}");
    }
}

#[tokio::test]
async fn old_claims_are_deleted_and_young_ones_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("journal.db");
    let journal = open(&file);
    for call in 0..1_000 {
        claim(&journal, call).await;
    }
    drop(journal);
    let aside = Connection::open(&file).unwrap();
    // 700 claims eleven minutes old; claims dated in the future count as old.
    aside.execute("UPDATE claims SET at = at - 660 WHERE id <= 700", []).unwrap();
    aside.execute("UPDATE claims SET at = at + 10000 WHERE id <= 10", []).unwrap();
    let count = || aside.query_row("SELECT count(*) FROM claims", [], |row| row.get::<_, i64>(0)).unwrap();
    let journal = open(&file);
    let began = Instant::now();
    while count() > 300 {
        assert!(began.elapsed().as_secs() < 20, "{} are left", count());
        claim(&journal, 999).await;
    }
    assert_eq!(count(), 300);
    assert_eq!((claim(&journal, 0).await, claim(&journal, 700).await), (ClaimOutcome::Ours, UNSETTLED));
}

/// Prints the claim rate of one host; asserts nothing about it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_claims_share_a_transaction() {
    const WAITING: u64 = 64;
    const EACH: u64 = 300;
    let folder = tempfile::tempdir().unwrap();
    let journal = Arc::new(open(&folder.path().join("journal.db")));
    let began = Instant::now();
    let callers: Vec<_> = (0..WAITING)
        .map(|caller| {
            let journal = Arc::clone(&journal);
            tokio::spawn(async move {
                for call in 0..EACH {
                    let number = caller * EACH + call;
                    assert_eq!(claim(&*journal, number).await, ClaimOutcome::Ours);
                    journal.mark_answered(id(number));
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
    let rate = (WAITING * EACH) as f64 / began.elapsed().as_secs_f64();
    #[allow(clippy::print_stderr)]
    {
        eprintln!("{rate:.0} claims and ends/s at {WAITING} waiting");
    }
}

//! Tests of the writer with real files: locked, corrupt, missing and blocked ones.

use std::path::Path;
use std::time::{Duration, Instant};

use ostler_core::config;
use rusqlite::Connection;

use super::query::{AuditEvent, AuditFilter, AuditReader};
use super::row::{AuditRow, RowArguments, RowFields, RowKind};
use super::*;

/// Timeout that no test reaches.
const PATIENCE: Duration = Duration::from_secs(30);

fn begin(folder: &Path) -> Arc<AuditLog> {
    AuditLog::start(
        &DaemonInstance::in_test_dir(folder),
        &config::AuditConfig::default(),
        ProcessLifetime::Daemon,
    )
    .unwrap()
}

fn call(subject: &str) -> AuditRow {
    AuditRow::now(RowKind::Call, "ok", &RowFields { action: "tools/call", subject, ..RowFields::default() })
}

fn events(folder: &Path) -> Vec<AuditEvent> {
    let mut events = Vec::new();
    let reader = AuditReader::open(&DaemonInstance::in_test_dir(folder).audit_file()).unwrap().unwrap();
    let read = reader.each(&AuditFilter::default(), |event| {
        events.push(event);
        true
    });
    read.unwrap();
    events
}

fn newest(folder: &Path) -> String {
    let mut newest = String::new();
    // Behind a call there may be a row about deleted ones.
    let filter = AuditFilter { limit: Some(8), ..AuditFilter::default() };
    let reader = AuditReader::open(&DaemonInstance::in_test_dir(folder).audit_file()).unwrap().unwrap();
    let read = reader.each(&filter, |event| {
        if event.kind == "call" {
            newest = event.subject.unwrap_or_default();
        }
        true
    });
    read.unwrap();
    newest
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the rows of calls, and the rows that gaps stand for.
fn counted(folder: &Path) -> (usize, usize) {
    let events = events(folder);
    let calls = events.iter().filter(|event| event.kind == "call").count();
    let gaps = events.iter().filter(|event| event.kind == "gap").filter_map(|event| event.count);
    (calls, gaps.map(|count| usize::try_from(count).unwrap()).sum())
}

#[test]
fn what_is_brought_is_on_record_when_it_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let audit = begin(folder.path());
    audit.push(call("echo"));
    audit.record_action(&AuditedAction {
        action: "token-created",
        subject: "ada",
        ..AuditedAction::default()
    });
    audit.close(PATIENCE);
    let events = events(folder.path());
    let seen: Vec<_> = events.iter().map(|event| (event.kind.as_str(), event.action.as_str())).collect();
    assert_eq!(seen, [("call", "tools/call"), ("admin", "token-created")]);
    assert_eq!(events[1].principal.as_deref(), Some("operator"));
    use std::os::unix::fs::PermissionsExt;
    for file in std::fs::read_dir(folder.path().join("state")).unwrap() {
        let file = file.unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o077, 0, "{file:?}");
    }
}

/// Returns the rows of calls in the file itself, without those in the write-ahead log.
fn calls_in_file_alone(file: &Path) -> i64 {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy.db");
    std::fs::copy(file, &copy).unwrap();
    let copy = Connection::open(copy).unwrap();
    copy.query_row("SELECT count(*) FROM events WHERE kind = 'call'", [], |row| row.get(0)).unwrap()
}

#[test]
fn a_daemon_and_a_command_leave_nothing_in_the_log_beside_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let spot = DaemonInstance::in_test_dir(folder.path());
    for (calls, lifetime) in [(1, ProcessLifetime::Daemon), (2, ProcessLifetime::Command)] {
        let audit = AuditLog::start(&spot, &config::AuditConfig::default(), lifetime).unwrap();
        audit.push(call("echo"));
        until("the file is made", || spot.audit_file().exists());
        // A reader is open: otherwise SQLite checkpoints the log when the last connection closes.
        let reader = AuditReader::open(&spot.audit_file()).unwrap().unwrap();
        let mut seen = 0;
        until("the row is written", || {
            seen = 0;
            reader
                .each(&AuditFilter::default(), |_| {
                    seen += 1;
                    true
                })
                .unwrap();
            seen == calls
        });
        audit.close(PATIENCE);
        assert_eq!(calls_in_file_alone(&spot.audit_file()), calls, "{lifetime:?}");
    }
}

#[test]
fn what_was_written_before_a_pause_stands_in_the_file_itself() {
    let folder = tempfile::tempdir().unwrap();
    let audit = begin(folder.path());
    audit.push(call("echo"));
    let file = DaemonInstance::in_test_dir(folder.path()).audit_file();
    until("the row is written", || file.exists() && counted(folder.path()) == (1, 0));
    until("the log is written into the file", || std::fs::metadata(&file).unwrap().len() > 4_096);
    audit.close(PATIENCE);
}

#[test]
fn a_daemon_notes_that_the_one_before_ended_without_saying_so() {
    let folder = tempfile::tempdir().unwrap();
    let lives: [(ProcessLifetime, &[&str]); 5] = [
        (ProcessLifetime::Daemon, &["daemon-started", "daemon-ended"]),
        // Killed.
        (ProcessLifetime::Daemon, &["daemon-started", "reload"]),
        (ProcessLifetime::Command, &["token-created"]),
        (ProcessLifetime::Daemon, &["daemon-started", "daemon-ended"]),
        (ProcessLifetime::Daemon, &["daemon-started"]),
    ];
    for (lifetime, actions) in lives {
        let spot = DaemonInstance::in_test_dir(folder.path());
        let audit = AuditLog::start(&spot, &config::AuditConfig::default(), lifetime).unwrap();
        for action in actions {
            audit.record_action(&AuditedAction { action, ..AuditedAction::default() });
        }
        audit.close(PATIENCE);
    }
    let events = events(folder.path());
    let actions: Vec<_> = events.iter().map(|event| event.action.as_str()).collect();
    let expected = [
        "daemon-started",
        "daemon-ended",
        "daemon-started",
        "reload",
        "token-created",
        "end-missing",
        "daemon-started",
        "daemon-ended",
        "daemon-started",
    ];
    assert_eq!(actions, expected);
    assert_eq!((events[5].kind.as_str(), events[5].outcome.as_str()), ("gap", "lost"));
}

#[test]
fn nothing_is_made_before_there_is_something_to_write() {
    let folder = tempfile::tempdir().unwrap();
    begin(folder.path()).close(PATIENCE);
    assert!(!folder.path().join("state").exists());
    let disabled = config::AuditConfig { enabled: false, ..config::AuditConfig::default() };
    assert!(
        AuditLog::start(&DaemonInstance::in_test_dir(folder.path()), &disabled, ProcessLifetime::Daemon)
            .is_none()
    );
}

#[test]
fn a_flood_at_a_locked_file_loses_rows_but_not_their_number() {
    const CALLS: usize = 80_000;
    let folder = tempfile::tempdir().unwrap();
    let audit = begin(folder.path());
    audit.push(call("first"));
    until("the first row is written", || {
        DaemonInstance::in_test_dir(folder.path()).audit_file().exists() && counted(folder.path()) == (1, 0)
    });
    let other = Connection::open(DaemonInstance::in_test_dir(folder.path()).audit_file()).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let began = Instant::now();
    for _ in 1..CALLS {
        audit.push(call("echo"));
    }
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    until("it is said that nothing can be written", || audit.status().error.is_some());
    other.execute_batch("ROLLBACK").unwrap();
    until("it is written again", || audit.status().error.is_none() && audit.status().dropped > 0);
    audit.push(call("last"));
    audit.close(PATIENCE);
    let (rows, gaps) = counted(folder.path());
    assert_eq!(rows + gaps, CALLS + 1);
    assert_eq!(gaps, usize::try_from(audit.status().dropped).unwrap());
    assert!(gaps > 0);
    let gap = events(folder.path()).into_iter().find(|event| event.kind == "gap").unwrap();
    assert!(gap.detail.unwrap().ends_with(": database is locked"), "a row says what kept the others from it");
}

#[test]
fn rows_that_a_held_file_takes_at_the_end_are_counted_to_the_last() {
    let folder = tempfile::tempdir().unwrap();
    let audit = begin(folder.path());
    audit.push(call("first"));
    let file = DaemonInstance::in_test_dir(folder.path()).audit_file();
    until("the first row is written", || file.exists() && counted(folder.path()) == (1, 0));
    let other = Connection::open(file).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    audit.push(call("in hand"));
    until("it is said that nothing can be written", || audit.status().error.is_some());
    for _ in 0..10 {
        audit.push(call("behind it"));
    }
    audit.close(PATIENCE);
    assert_eq!(audit.queue.unwritten(), 11);
}

#[test]
fn refusals_that_are_only_counted_and_dropped_rows_are_among_those_that_could_not_be_written() {
    let folder = tempfile::tempdir().unwrap();
    // A directory in its place: the file can never be opened.
    std::fs::create_dir_all(DaemonInstance::in_test_dir(folder.path()).audit_file()).unwrap();
    let audit = begin(folder.path());
    audit.push(call("in hand"));
    until("it is said that nothing can be written", || audit.status().error.is_some());
    for _ in 0..500 {
        audit.push(refused("token:bob"));
    }
    (0..70_000).for_each(|_| audit.push(call("too many")));
    let dropped = audit.status().dropped;
    assert!(dropped > 0, "dropped rows are counted while nothing can be written");
    audit.close(PATIENCE);
    assert_eq!(audit.queue.unwritten(), 70_501);
    assert_eq!(audit.status().dropped, dropped);
}

fn waiting() -> config::AuditConfig {
    config::AuditConfig { when_full: WhenFull::Wait, ..config::AuditConfig::default() }
}

/// Pushes rows as calls do: waits for room, and then pushes its row.
async fn bring(audit: &Arc<AuditLog>, subject: &str) {
    if let Some(room) = audit.wait_for_room("ada") {
        room.await;
    }
    audit.push(call(subject));
}

#[tokio::test]
async fn no_row_is_lost_on_a_slow_disk_for_which_calls_wait() {
    const CALLERS: usize = 64;
    const EACH: usize = 1_500;
    let folder = tempfile::tempdir().unwrap();
    let audit =
        AuditLog::start(&DaemonInstance::in_test_dir(folder.path()), &waiting(), ProcessLifetime::Daemon)
            .unwrap();
    let file = DaemonInstance::in_test_dir(folder.path()).audit_file();
    audit.push(call("first"));
    until("the first row is written", || file.exists() && counted(folder.path()) == (1, 0));
    // Held again and again until calls wait.
    let (slow, is_over) = (Arc::clone(&audit), Arc::new(std::sync::atomic::AtomicBool::new(false)));
    let is_done = Arc::clone(&is_over);
    let disk = std::thread::spawn(move || {
        let other = Connection::open(file).unwrap();
        other.busy_timeout(PATIENCE).unwrap();
        let (mut held, mut is_over) = (0, false);
        while !is_over {
            other.execute_batch("BEGIN IMMEDIATE").unwrap();
            until("calls wait, or all have been made", || {
                is_over = is_done.load(std::sync::atomic::Ordering::Acquire);
                is_over || slow.queue.should_wait("ada")
            });
            held += usize::from(!is_over);
            other.execute_batch("ROLLBACK").unwrap();
            until("there is room again", || !slow.queue.should_wait("ada"));
        }
        held
    });
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let audit = Arc::clone(&audit);
            tokio::spawn(async move {
                for _ in 0..EACH {
                    bring(&audit, "echo").await;
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
    is_over.store(true, std::sync::atomic::Ordering::Release);
    assert!(disk.join().unwrap() > 0, "no call has ever waited");
    audit.close(PATIENCE);
    assert_eq!((counted(folder.path()), audit.status().dropped), ((CALLERS * EACH + 1, 0), 0));
}

/// Returns a key whose file blocks when it is written: a stalled disk.
fn stuck_key(folder: &Path) -> std::path::PathBuf {
    let key = DaemonInstance::in_test_dir(folder).audit_key_file();
    std::fs::create_dir_all(key.parent().unwrap()).unwrap();
    nix::unistd::mkfifo(&key, nix::sys::stat::Mode::S_IRWXU).unwrap();
    key
}

#[tokio::test(start_paused = true)]
async fn a_stuck_disk_holds_up_calls_for_a_while_or_not_at_all_and_the_end_not_for_ever() {
    const CALLS: usize = 40_000;
    for settings in [config::AuditConfig::default(), waiting()] {
        let folder = tempfile::tempdir().unwrap();
        let key = stuck_key(folder.path());
        let audit =
            AuditLog::start(&DaemonInstance::in_test_dir(folder.path()), &settings, ProcessLifetime::Daemon)
                .unwrap();
        let began = tokio::time::Instant::now();
        for _ in 0..CALLS {
            match settings.when_full {
                WhenFull::Gap => audit.push(call("echo")),
                WhenFull::Wait => bring(&audit, "echo").await,
            }
        }
        let waited = if settings.when_full == WhenFull::Wait { queue::ROOM_TIMEOUT } else { Duration::ZERO };
        assert_eq!(began.elapsed(), waited, "one call has waited, and none after it");
        assert_eq!(audit.status().error.is_some(), waited > Duration::ZERO, "a stall is told");
        audit.close(Duration::from_millis(1));
        assert_eq!(audit.queue.unwritten(), CALLS as u64);
        // It answers after all.
        std::fs::write(key, "0".repeat(64)).unwrap();
        audit.close(PATIENCE);
        assert_eq!((counted(folder.path()), audit.queue.unwritten()), ((CALLS, 0), 0));
    }
}

#[test]
fn a_corrupt_file_is_put_aside_and_another_begun() {
    let folder = tempfile::tempdir().unwrap();
    let file = DaemonInstance::in_test_dir(folder.path()).audit_file();
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, "this is no database, and never was one".repeat(100)).unwrap();
    let audit = begin(folder.path());
    audit.push(call("echo"));
    audit.close(PATIENCE);
    let events = events(folder.path());
    let seen: Vec<_> = events.iter().map(|event| (event.kind.as_str(), event.action.as_str())).collect();
    assert!(seen.contains(&("gap", "corrupt")) && seen.contains(&("call", "tools/call")), "{seen:?}");
    let names = std::fs::read_dir(file.parent().unwrap()).unwrap().map(|entry| entry.unwrap().file_name());
    let aside = names.filter(|name| name.to_str().unwrap().contains(".audit.db.corrupt-")).count();
    assert_eq!(aside, 1);
}

#[test]
fn rows_wait_while_the_file_is_not_to_be_had() {
    let folder = tempfile::tempdir().unwrap();
    let file = DaemonInstance::in_test_dir(folder.path()).audit_file();
    std::fs::create_dir_all(&file).unwrap();
    let audit = begin(folder.path());
    audit.push(call("early"));
    until("it is said that nothing can be written", || audit.status().error.is_some());
    std::fs::remove_dir(&file).unwrap();
    audit.push(call("late"));
    until("it is written again", || audit.status().error.is_none());
    audit.close(PATIENCE);
    let subjects: Vec<_> = events(folder.path()).into_iter().filter_map(|event| event.subject).collect();
    assert_eq!(subjects, ["early", "late"]);
}

#[test]
fn a_file_that_was_taken_away_is_made_anew() {
    let folder = tempfile::tempdir().unwrap();
    let file = DaemonInstance::in_test_dir(folder.path()).audit_file();
    let audit = begin(folder.path());
    audit.push(call("before"));
    until("it is written", || file.exists() && counted(folder.path()) == (1, 0));
    for end in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{end}", file.display()));
    }
    audit.push(call("after"));
    audit.close(PATIENCE);
    let subjects: Vec<_> = events(folder.path()).into_iter().filter_map(|event| event.subject).collect();
    assert_eq!(subjects, ["after"]);
}

/// Returns kind and action of all rows, in order.
fn kinds_and_actions(folder: &Path) -> Vec<(String, String)> {
    events(folder).into_iter().map(|event| (event.kind, event.action)).collect()
}

#[test]
fn a_file_that_is_moved_has_all_its_rows_and_the_next_one_says_that_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let file = DaemonInstance::in_test_dir(folder.path()).audit_file();
    let audit = begin(folder.path());
    audit.push(call("before"));
    until("it is written", || file.exists() && counted(folder.path()) == (1, 0));
    let moved = file.with_file_name("moved.db");
    std::fs::rename(&file, &moved).unwrap();
    audit.push(call("after"));
    audit.close(PATIENCE);
    let gap = ("gap".to_owned(), "file-gone".to_owned());
    assert_eq!(kinds_and_actions(folder.path()), [gap, ("call".into(), "tools/call".into())]);
    assert_eq!(calls_in_file_alone(&moved), 1);
}

#[test]
fn a_log_that_is_deleted_costs_no_row_and_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = DaemonInstance::in_test_dir(folder.path()).audit_file();
    let audit = begin(folder.path());
    audit.push(call("before"));
    until("it is written", || file.exists() && counted(folder.path()) == (1, 0));
    assert_eq!(audit.status().log_gone, None);
    for end in ["-wal", "-shm"] {
        std::fs::remove_file(format!("{}{end}", file.display())).unwrap();
    }
    audit.push(call("after"));
    audit.close(PATIENCE);
    let call = || ("call".to_owned(), "tools/call".to_owned());
    assert_eq!(kinds_and_actions(folder.path()), [call(), ("gap".into(), "log-gone".into()), call()]);
    assert!(audit.status().log_gone.is_some_and(|what| what.contains("moved away or deleted")));
}

#[test]
fn several_processes_write_into_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let audits: Vec<_> = (0..4).map(|_| begin(folder.path())).collect();
    for number in 0..400 {
        audits[number % 4].push(call("echo"));
    }
    audits.iter().for_each(|audit| audit.close(PATIENCE));
    assert_eq!(counted(folder.path()), (400, 0));
}

#[test]
fn arguments_are_hashed_or_kept_without_their_secrets() {
    for arguments in [AuditedArguments::Hash, AuditedArguments::Full] {
        let folder = tempfile::tempdir().unwrap();
        let settings = config::AuditConfig { arguments, ..config::AuditConfig::default() };
        let audit =
            AuditLog::start(&DaemonInstance::in_test_dir(folder.path()), &settings, ProcessLifetime::Daemon)
                .unwrap();
        let text = bytes::Bytes::from_static(br#"{"user": "ada", "password": "hunter2"}"#);
        audit.push(AuditRow { arguments: RowArguments::Kept(text), ..call("login") });
        audit.close(PATIENCE);
        let event = events(folder.path()).remove(0);
        assert_eq!(event.arguments_hash.unwrap().len(), 32);
        let is_full = arguments == AuditedArguments::Full;
        assert_eq!(event.arguments.is_some(), is_full);
        assert!(event.arguments.is_none_or(|text| text.contains("ada") && !text.contains("hunter2")));
    }
}

#[test]
fn rows_that_are_too_old_go_and_the_rest_stays() {
    let folder = tempfile::tempdir().unwrap();
    let settings = config::AuditConfig { keep: Duration::from_secs(3600), ..config::AuditConfig::default() };
    let audit =
        AuditLog::start(&DaemonInstance::in_test_dir(folder.path()), &settings, ProcessLifetime::Daemon)
            .unwrap();
    let hour = 3_600_000_000;
    for age in [3, 2, 0] {
        let row = call(&format!("{age} hours"));
        audit.push(AuditRow { at: row.at - age * hour - 1_000_000, ..row });
    }
    audit.close(PATIENCE);
    let subjects: Vec<_> = events(folder.path()).into_iter().filter_map(|event| event.subject).collect();
    assert_eq!(subjects, ["0 hours"]);
}

#[test]
fn a_row_that_was_written_late_is_found_by_its_time_and_goes_in_time() {
    let hour = 3_600_000_000;
    for keep in [Duration::from_secs(3 * 3600), Duration::from_secs(3600)] {
        let folder = tempfile::tempdir().unwrap();
        let settings = config::AuditConfig { keep, ..config::AuditConfig::default() };
        let audit =
            AuditLog::start(&DaemonInstance::in_test_dir(folder.path()), &settings, ProcessLifetime::Daemon)
                .unwrap();
        let newer = call("newer");
        let at = newer.at;
        audit.push(newer);
        audit.push(AuditRow { at: at - 2 * hour, ..call("older") });
        audit.close(PATIENCE);
        let filter =
            AuditFilter { since: Some(at - 3 * hour), until: Some(at - hour), ..AuditFilter::default() };
        let mut found = Vec::new();
        let reader =
            AuditReader::open(&DaemonInstance::in_test_dir(folder.path()).audit_file()).unwrap().unwrap();
        let read = reader.each(&filter, |event| {
            found.extend(event.subject);
            true
        });
        read.unwrap();
        let is_kept = keep > Duration::from_secs(2 * 3600);
        assert_eq!(found, if is_kept { vec!["older"] } else { vec![] });
        assert_eq!(events(folder.path()).len(), if is_kept { 2 } else { 1 });
    }
}

#[test]
fn what_rows_have_in_common_is_written_once_and_goes_with_the_last_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let audit = begin(folder.path());
    for n in 0..100 {
        audit.push(call(if n < 50 { "one" } else { "other" }));
    }
    audit.close(PATIENCE);
    let file = DaemonInstance::in_test_dir(folder.path()).audit_file();
    let count = |what: &str| {
        let connection = Connection::open(&file).unwrap();
        connection.query_row(&format!("SELECT count(*) FROM {what}"), [], |row| row.get::<_, i64>(0)).unwrap()
    };
    assert_eq!((count("entries"), count("abouts"), count("events")), (100, 2, 100));
    let connection = Connection::open(&file).unwrap();
    connection.execute("DELETE FROM entries WHERE id < (SELECT max(id) FROM entries)", []).unwrap();
    let settings = config::AuditConfig { keep: Duration::ZERO, ..config::AuditConfig::default() };
    let audit =
        AuditLog::start(&DaemonInstance::in_test_dir(folder.path()), &settings, ProcessLifetime::Daemon)
            .unwrap();
    audit.push(AuditRow { at: i64::MAX / 2, ..call("last") });
    audit.close(PATIENCE);
    assert_eq!((count("entries"), count("abouts"), count("events")), (1, 1, 1));
}

#[test]
fn what_late_rows_are_about_goes_with_them_though_rows_of_the_future_stay() {
    let folder = tempfile::tempdir().unwrap();
    let (hour, year) = (3_600_000_000, 8_760 * 3_600_000_000);
    let now = call("").at;
    // Each is a batch of its own, or two are one: the clock is a year ahead and is then set right.
    let batches =
        [vec![("ahead", year)], vec![("long ago", -2 * hour)], vec![("older", -2 * hour), ("newer", 0)]];
    for batch in batches {
        let audit = begin(folder.path());
        for (subject, after) in batch {
            audit.push(AuditRow { at: now + after, ..call(subject) });
        }
        audit.close(PATIENCE);
    }
    let connection = Connection::open(DaemonInstance::in_test_dir(folder.path()).audit_file()).unwrap();
    let subjects = |from: &str| -> Vec<String> {
        let mut read = connection.prepare(&format!("SELECT subject FROM {from} ORDER BY id")).unwrap();
        let subjects = read.query_map([], |row| row.get(0)).unwrap();
        subjects.map(Result::unwrap).collect()
    };
    assert_eq!(subjects("abouts"), ["ahead", "long ago", "older", "newer"]);
    let settings = config::AuditConfig { keep: Duration::from_secs(3600), ..config::AuditConfig::default() };
    let audit =
        AuditLog::start(&DaemonInstance::in_test_dir(folder.path()), &settings, ProcessLifetime::Daemon)
            .unwrap();
    audit.push(call("last"));
    audit.close(PATIENCE);
    assert_eq!(subjects("events"), ["ahead", "newer", "last"]);
    assert_eq!(subjects("abouts"), ["ahead", "newer", "last"]);
}

#[test]
fn rows_of_the_first_version_are_readable_and_move_along() {
    let folder = tempfile::tempdir().unwrap();
    let file = DaemonInstance::in_test_dir(folder.path()).audit_file();
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    let old = Connection::open(&file).unwrap();
    old.execute_batch(include_str!("first_version.sql")).unwrap();
    // Out of order, and two at the same moment.
    let now = call("").at;
    for (before, subject) in [(10, "third"), (30, "first"), (30, "second"), (5, "fourth")] {
        let insert = "INSERT INTO events (at, kind, action, subject, outcome, arguments_hash, took)
            VALUES (?, 'call', 'tools/call', ?, 'ok', '00ff', 7)";
        old.execute(insert, rusqlite::params![now - before, subject]).unwrap();
    }
    assert_eq!(events(folder.path()).len(), 4);
    let audit = begin(folder.path());
    audit.push(call("fifth"));
    audit.close(PATIENCE);
    let events = events(folder.path());
    let subjects: Vec<_> = events.iter().filter_map(|event| event.subject.as_deref()).collect();
    assert_eq!(subjects, ["first", "second", "third", "fourth", "fifth"]);
    assert!(events.is_sorted_by_key(|event| event.id));
    assert_eq!(events[0].at, events[1].at);
    assert_eq!((events[0].arguments_hash.as_deref(), events[0].took_ms), (Some("00ff"), Some(0.007)));
}

#[test]
fn a_file_grows_to_its_size_and_no_further() {
    let max_size = 2 << 20;
    let folder = tempfile::tempdir().unwrap();
    let settings = config::AuditConfig { max_size, ..config::AuditConfig::default() };
    let audit =
        AuditLog::start(&DaemonInstance::in_test_dir(folder.path()), &settings, ProcessLifetime::Daemon)
            .unwrap();
    let file = DaemonInstance::in_test_dir(folder.path()).audit_file();
    let size = || std::fs::metadata(&file).map_or(0, |meta| meta.len());
    let most = (max_size + max_size / 10) as u64;
    let detail = "x".repeat(500);
    // Six times as much as there is room for.
    for number in 1..=20_000 {
        let subject = number.to_string();
        let said =
            RowFields { action: "tools/call", subject: &subject, detail: &detail, ..RowFields::default() };
        audit.push(AuditRow::now(RowKind::Call, "ok", &said));
        if number % 4_000 == 0 {
            until("it is written, and there is room again", || {
                size() > 0 && newest(folder.path()) == subject && size() <= most
            });
        }
    }
    audit.close(PATIENCE);
    assert!(size() <= most, "{}", size());
    let mut left = events(folder.path());
    left.retain(|event| event.kind == "call");
    let first: usize = left[0].subject.as_deref().unwrap().parse().unwrap();
    assert_eq!((left.last().unwrap().subject.as_deref(), left.len()), (Some("20000"), 20_001 - first));
    assert!(left.len() > 1_500, "{}", left.len());
}

#[test]
fn who_reads_slowly_gets_every_row_and_does_not_hold_up_the_log() {
    const ROWS: usize = 2_500;
    let folder = tempfile::tempdir().unwrap();
    let audit = begin(folder.path());
    let same = call("echo").at;
    for n in 0..ROWS {
        // Most of them at the same moment, across the border of what is read at a time.
        audit.push(AuditRow { at: if n < 2_100 { same } else { same + 1 }, ..call(&n.to_string()) });
    }
    audit.close(PATIENCE);
    let file = DaemonInstance::in_test_dir(folder.path()).audit_file();
    let other = Connection::open(&file).unwrap();
    other.busy_timeout(Duration::ZERO).unwrap();
    let write = || {
        other.execute("UPDATE abouts SET detail = 'later' WHERE id = 1", []).unwrap();
        other.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0)).unwrap()
    };
    let mut seen = Vec::new();
    let read = AuditReader::open(&file).unwrap().unwrap().each(&AuditFilter::default(), |event| {
        if seen.is_empty() {
            assert_eq!(write(), 0, "the log is held up");
        }
        seen.push(event.subject.unwrap_or_default());
        true
    });
    read.unwrap();
    assert_eq!(seen, (0..ROWS).map(|n| n.to_string()).collect::<Vec<_>>());
}

/// Returns a refused call of a principal.
fn refused(principal: &str) -> AuditRow {
    let said = RowFields {
        principal,
        role: "reader",
        action: "tools/call",
        rule: "no rule",
        ..RowFields::default()
    };
    AuditRow { at: call("").at, ..AuditRow::now(RowKind::Call, "denied", &said) }
}

#[test]
fn refusals_of_one_principal_are_counted_and_those_of_others_have_their_rows() {
    let folder = tempfile::tempdir().unwrap();
    let audit = begin(folder.path());
    for _ in 0..500 {
        audit.push(refused("token:bob"));
    }
    audit.push(refused("token:ann"));
    until("the count gets its row though nobody is refused any more", || {
        DaemonInstance::in_test_dir(folder.path()).audit_file().exists()
            && events(folder.path()).iter().any(|event| event.action == "others")
    });
    audit.push(call("echo"));
    audit.close(PATIENCE);
    let events = events(folder.path());
    let of = |principal: &str| {
        let own = events.iter().filter(|event| event.principal.as_deref() == Some(principal));
        own.map(|event| event.count.unwrap_or(1)).collect::<Vec<_>>()
    };
    assert_eq!(of("token:ann"), [1]);
    assert_eq!(of("token:bob").iter().sum::<i64>(), 500);
    assert!(of("token:bob").len() < 100, "{}", of("token:bob").len());
    let others = events.iter().find(|event| event.action == "others").unwrap();
    assert_eq!((others.kind.as_str(), others.role.as_deref()), ("refusal", Some("reader")));
    assert!(others.took_ms.is_some() && others.detail.as_deref().unwrap().contains("denied "), "{others:?}");
}

/// Writes rows in order, with pauses for retention.
fn write(folder: &Path, settings: &config::AuditConfig, rows: impl Iterator<Item = AuditRow>) {
    let rows: Vec<AuditRow> = rows.collect();
    let mut rows = rows.into_iter().peekable();
    while rows.peek().is_some() {
        let audit =
            AuditLog::start(&DaemonInstance::in_test_dir(folder), settings, ProcessLifetime::Daemon).unwrap();
        rows.by_ref().take(2_000).for_each(|row| audit.push(row));
        audit.close(PATIENCE);
    }
}

#[test]
fn callers_push_out_neither_operators_nor_servers_and_refusals_no_calls() {
    let folder = tempfile::tempdir().unwrap();
    let settings = config::AuditConfig { max_size: 2 << 20, ..config::AuditConfig::default() };
    let begun = RowFields { action: "started", server: "a", ..RowFields::default() };
    let first = [
        AuditRow::now(RowKind::Admin, "ok", &RowFields { action: "token-created", ..RowFields::default() }),
        AuditRow::now(RowKind::Server, "ok", &begun),
        call("first"),
    ];
    write(folder.path(), &settings, first.into_iter());
    let detail = "x".repeat(900);
    let kinds = |folder: &Path| -> Vec<(String, String)> {
        let rows = events(folder).into_iter().map(|event| (event.kind, event.action));
        rows.filter(|(_, action)| action != "others").collect()
    };
    // Refusals of many principals, six times as much as there is room for.
    let refusals = (0..12_000).map(|number| {
        let principal = format!("jwt:{number}");
        let said =
            RowFields { principal: &principal, action: "tools/call", rule: &detail, ..RowFields::default() };
        AuditRow::now(RowKind::Call, "denied", &said)
    });
    write(folder.path(), &settings, refusals);
    let left = events(folder.path());
    assert!(left.iter().any(|event| event.subject.as_deref() == Some("first")), "refusals push out no call");
    // Calls, six times as much as there is room for.
    let calls = (0..12_000).map(|number| {
        let (subject, server) = (number.to_string(), &detail);
        let said = RowFields { action: "tools/call", subject: &subject, server, ..RowFields::default() };
        AuditRow::now(RowKind::Call, "ok", &said)
    });
    write(folder.path(), &settings, calls);
    let left = kinds(folder.path());
    for kept in [("admin", "token-created"), ("server", "started"), ("gap", "deleted")] {
        let kept = (kept.0.to_owned(), kept.1.to_owned());
        assert!(left.contains(&kept), "{kept:?}");
    }
    let left = events(folder.path());
    assert!(!left.iter().any(|event| event.subject.as_deref() == Some("first")), "calls push out calls");
    let calls = left.iter().filter(|event| event.kind == "call" && event.outcome == "ok").count();
    let deleted: i64 = left
        .iter()
        .filter(|event| event.action == "deleted" && event.subject.as_deref() == Some("calls"))
        .filter_map(|event| event.count)
        .sum();
    assert_eq!(usize::try_from(deleted).unwrap() + calls, 12_001, "what is deleted is accounted for");
}

#[test]
fn rows_of_the_second_version_are_readable_and_move_into_their_classes() {
    let folder = tempfile::tempdir().unwrap();
    let file = DaemonInstance::in_test_dir(folder.path()).audit_file();
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    let old = Connection::open(&file).unwrap();
    old.execute_batch(include_str!("second_version.sql")).unwrap();
    let now = call("").at;
    for (id, kind) in ["call", "admin", "server", "refusal", "gap", "call"].into_iter().enumerate() {
        let (id, at) = (i64::try_from(id).unwrap() + 1, now - 100 + i64::try_from(id).unwrap());
        let about = "INSERT INTO abouts (id, kind, action, subject, outcome) VALUES (?, ?, 'a', ?, 'ok')";
        old.execute(about, rusqlite::params![id, kind, format!("{kind}{id}")]).unwrap();
        old.execute("INSERT INTO entries VALUES (?, 0, ?, 7, NULL, NULL)", [at, id]).unwrap();
    }
    let subjects =
        || -> Vec<String> { events(folder.path()).into_iter().filter_map(|event| event.subject).collect() };
    let before = ["call1", "admin2", "server3", "refusal4", "gap5", "call6"];
    assert_eq!(subjects(), before);
    let audit = begin(folder.path());
    audit.push(call("new"));
    audit.close(PATIENCE);
    assert_eq!(subjects(), [&before[..], &["new"]].concat());
    let count = |table: &str| -> i64 {
        old.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
    };
    assert_eq!(["entries", "operator_entries", "server_entries", "refusal_entries"].map(count), [3, 2, 1, 1]);
    assert_eq!(["abouts", "operator_abouts", "server_abouts", "refusal_abouts"].map(count), [3, 2, 1, 1]);
}

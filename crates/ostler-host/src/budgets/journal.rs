//! Charge journal: a file of charges that outlive the process, to which one thread appends.
//!
//! ```text
//!   charge, refund ──▶ enqueue ──▶ a bounded queue ──▶ the thread ──▶ write, at once
//!                                                          └─ compacted when it has grown
//! ```
//!
//! Written charges survive the process however it ends; only a power cut can lose them, because the thread does not
//! wait for the disk. A file that can't be written blocks no call: the budgets go on in memory, one warning says that
//! charges would not survive, and [`ChargeJournal::is_failing`] reports it meanwhile.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use ostler_store::private_file;

use super::charge_record::{ChargeRecord, FILE_HEADER, RECORD_SIZE, compact, read_all};

/// Bounds the records that wait to be written: a second of calls at rates no budget is made for.
const MAX_PENDING: usize = 65_536;
/// Size at which the journal is first compacted: compaction stays rare. It is compacted again at four times the size
/// that was left.
const COMPACT_AT: u64 = 1 << 20;
/// Bounds the bytes that are read of a journal: its newest two million records.
const MAX_FILE: u64 = 64 << 20;

/// Journal of charges that outlive the process.
pub(crate) struct ChargeJournal {
    queue: Arc<JournalQueue>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct JournalQueue {
    pending: Mutex<PendingCharges>,
    wake: Condvar,
    is_failing: AtomicBool,
}

#[derive(Default)]
struct PendingCharges {
    /// At most [`MAX_PENDING`].
    records: Vec<ChargeRecord>,
    is_closed: bool,
}

impl JournalQueue {
    fn pending(&self) -> MutexGuard<'_, PendingCharges> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Logs once that charges are not kept, and once that they are again.
    fn report(&self, path: &Path, result: &io::Result<()>) {
        let was_failing = self.is_failing.swap(result.is_err(), Ordering::AcqRel);
        match result {
            Err(error) if !was_failing => {
                let path = path.display();
                tracing::warn!(%path, %error, "charges of budgets are not kept; a restart would forget them");
            }
            Ok(()) if was_failing => tracing::info!("charges of budgets are kept again"),
            _ => {}
        }
    }
}

impl ChargeJournal {
    /// Opens a journal, and returns the charges of earlier runs that still count.
    pub(super) fn open(path: PathBuf) -> (Self, Vec<ChargeRecord>) {
        let desk = Arc::<JournalQueue>::default();
        let kept = recover(&path).unwrap_or_else(|error| {
            desk.report(&path, &Err(error));
            Vec::new()
        });
        let book = JournalFile::create(&path, &kept);
        desk.report(
            &path,
            &book.as_ref().map(drop).map_err(|error| io::Error::new(error.kind(), error.to_string())),
        );
        let at_desk = Arc::clone(&desk);
        let writing = move || run_writer(&at_desk, &path, book.ok());
        let writer = std::thread::Builder::new().name("budgets".into()).spawn(writing);
        if let Err(error) = &writer {
            desk.is_failing.store(true, Ordering::Release);
            tracing::warn!(%error, "charges of budgets are not kept; a restart would forget them");
        }
        (Self { queue: desk, writer: Mutex::new(writer.ok()) }, kept)
    }

    /// Queues a record for the writer thread. Never waits.
    pub(super) fn enqueue(&self, record: ChargeRecord) {
        let mut waiting = self.queue.pending();
        if waiting.records.len() >= MAX_PENDING {
            drop(waiting);
            self.queue.is_failing.store(true, Ordering::Release);
            return;
        }
        waiting.records.push(record);
        let is_first = waiting.records.len() == 1;
        drop(waiting);
        if is_first {
            self.queue.wake.notify_one();
        }
    }

    /// Returns whether charges are not kept at the moment.
    pub(super) fn is_failing(&self) -> bool {
        self.queue.is_failing.load(Ordering::Acquire)
    }

    /// Writes the pending records and ends the thread. Blocks.
    pub(crate) fn close(&self) {
        self.queue.pending().is_closed = true;
        self.queue.wake.notify_one();
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = writer {
            let _ = writer.join();
        }
    }
}

impl Drop for ChargeJournal {
    /// Ends the thread, which writes the pending records first, without waiting for it.
    fn drop(&mut self) {
        self.queue.pending().is_closed = true;
        self.queue.wake.notify_one();
    }
}

/// Writes until the journal is closed.
fn run_writer(desk: &JournalQueue, path: &Path, mut book: Option<JournalFile>) {
    let mut records = Vec::new();
    loop {
        let mut waiting = desk.pending();
        while waiting.records.is_empty() {
            if waiting.is_closed {
                return;
            }
            waiting = desk.wake.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        std::mem::swap(&mut waiting.records, &mut records);
        drop(waiting);
        let written = append(path, &mut book, &records);
        desk.report(path, &written);
        records.clear();
    }
}

/// Appends to the file, which is created again if it could not be opened before.
fn append(path: &Path, book: &mut Option<JournalFile>, records: &[ChargeRecord]) -> io::Result<()> {
    let open = match book.take() {
        Some(open) => open,
        None => JournalFile::create(path, &recover(path)?)?,
    };
    let open = book.insert(open);
    open.append(records)?;
    if open.len < open.compact_at {
        return Ok(());
    }
    // The new file is written beside this one, so a failure leaves this one as it is.
    let condensed = recover(path).and_then(|kept| JournalFile::create(path, &kept));
    match condensed {
        Ok(condensed) => *open = condensed,
        // Not retried at every write: it may be a long time until there is room.
        Err(_) => open.compact_at = open.len * 2,
    }
    Ok(())
}

/// The open file.
struct JournalFile {
    file: File,
    /// Bytes of whole records.
    len: u64,
    compact_at: u64,
}

impl JournalFile {
    /// Creates a journal with these records: written beside the old file, then renamed over it.
    fn create(path: &Path, records: &[ChargeRecord]) -> io::Result<Self> {
        let mut bytes = FILE_HEADER.to_vec();
        records.iter().for_each(|record| record.write(&mut bytes));
        private_file::create_parent_dir(path)?;
        let beside = path.with_extension("budgets.new");
        // The leftover of a killed process is worthless.
        let _ = fs::remove_file(&beside);
        let begun =
            private_file::open_options().write(true).create_new(true).open(&beside).and_then(|mut file| {
                file.write_all(&bytes)?;
                fs::rename(&beside, path)?;
                Ok(file)
            });
        let file = begun.inspect_err(|_| drop(fs::remove_file(&beside)))?;
        let len = bytes.len() as u64;
        Ok(Self { file, len, compact_at: (len * 4).max(COMPACT_AT) })
    }

    /// Writes all of the records or none.
    fn append(&mut self, records: &[ChargeRecord]) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(records.len() * RECORD_SIZE);
        records.iter().for_each(|record| record.write(&mut bytes));
        match self.file.write_all(&bytes) {
            Ok(()) => {
                self.len += bytes.len() as u64;
                Ok(())
            }
            Err(error) => {
                // Half a record would shift every later one.
                self.file.set_len(self.len)?;
                self.file.seek(io::SeekFrom::Start(self.len))?;
                Err(error)
            }
        }
    }
}

/// Reads the charges in the file that still count; none if there is no file, or one that is no journal.
fn recover(path: &Path) -> io::Result<Vec<ChargeRecord>> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    let len = file.metadata()?.len();
    if len > MAX_FILE {
        // Records have one size, so the newest ones begin at a record boundary.
        bytes.extend_from_slice(FILE_HEADER);
        let skipped = (len - MAX_FILE).next_multiple_of(RECORD_SIZE as u64);
        file.seek(io::SeekFrom::Start(skipped))?;
    }
    file.take(MAX_FILE).read_to_end(&mut bytes)?;
    match read_all(&bytes) {
        Some(records) => Ok(compact(records, unix_millis())),
        None => {
            tracing::warn!(path = %path.display(), "the file of charges can't be read; budgets begin anew");
            Ok(Vec::new())
        }
    }
}

/// Returns milliseconds since 1970. A clock before 1970 is wrong, and counts as 1970.
pub(super) fn unix_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(account: u64, calls: i64) -> ChargeRecord {
        let now = unix_millis();
        ChargeRecord { account, at: now, until: now + 60_000, calls }
    }

    /// Returns the charges that a next run finds.
    fn found(path: &Path) -> Vec<ChargeRecord> {
        let (journal, records) = ChargeJournal::open(path.to_owned());
        journal.close();
        records
    }

    #[test]
    fn what_was_noted_is_found_by_the_next_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/x.budgets");
        let (journal, before) = ChargeJournal::open(path.clone());
        assert_eq!(before, []);
        let records = [record(1, 1), record(2, 1)];
        records.iter().for_each(|record| journal.enqueue(*record));
        journal.close();
        assert_eq!(found(&path), records);
        assert_eq!(found(&path), records, "it is rewritten, not used up");
    }

    #[test]
    fn a_torn_end_is_ignored_and_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.budgets");
        let (journal, _) = ChargeJournal::open(path.clone());
        journal.enqueue(record(1, 1));
        journal.close();
        let mut bytes = fs::read(&path).unwrap();
        bytes.extend_from_slice(b"torn");
        fs::write(&path, bytes).unwrap();
        let (journal, records) = ChargeJournal::open(path.clone());
        assert_eq!(records.len(), 1);
        journal.enqueue(record(2, 1));
        journal.close();
        assert_eq!(found(&path).len(), 2);
    }

    #[test]
    fn a_file_that_cannot_be_written_is_said_to_be_and_blocks_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let blocked = folder.path().join("file");
        fs::write(&blocked, "").unwrap();
        let path = blocked.join("x.budgets");
        let (journal, records) = ChargeJournal::open(path);
        assert!(records.is_empty() && journal.is_failing());
        for _ in 0..MAX_PENDING * 2 {
            journal.enqueue(record(1, 1));
        }
        journal.close();
        assert!(journal.is_failing());
    }

    #[test]
    fn a_file_that_can_be_written_again_is_used_again() {
        let folder = tempfile::tempdir().unwrap();
        let blocked = folder.path().join("folder");
        fs::write(&blocked, "").unwrap();
        let path = blocked.join("x.budgets");
        let (journal, _) = ChargeJournal::open(path.clone());
        fs::remove_file(&blocked).unwrap();
        journal.enqueue(record(1, 1));
        journal.close();
        assert!(!journal.is_failing());
        assert_eq!(found(&path).len(), 1);
    }

    #[test]
    fn the_journal_does_not_grow_without_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.budgets");
        let (journal, _) = ChargeJournal::open(path.clone());
        let now = unix_millis();
        for n in 0..200_000 {
            while journal.queue.pending().records.len() >= MAX_PENDING / 2 {
                std::thread::yield_now();
            }
            journal.enqueue(ChargeRecord { account: 1, at: now + n % 10, until: now + 60_000, calls: 1 });
        }
        journal.close();
        assert!(fs::metadata(&path).unwrap().len() <= COMPACT_AT + (MAX_PENDING * RECORD_SIZE) as u64);
        let records = found(&path);
        assert_eq!((records.len(), records.iter().map(|it| it.calls).sum::<i64>()), (10, 200_000));
    }
}

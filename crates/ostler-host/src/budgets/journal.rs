//! Charges that outlive the process: a file to which one thread appends.
//!
//! ```text
//!   charge, refund ──▶ note ──▶ a bounded list ──▶ the thread ──▶ write, at once
//!                                                       └─ condensed when it has grown
//! ```
//!
//! What is written survives the process however it ends; only a power cut can
//! lose it, for nothing waits for the disk. A file that can't be written keeps
//! nobody from calling: the budgets go on in memory, one warning says that they
//! would not survive, and [`Journal::is_failing`] does as long as it is so.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use ostler_store::private;

use super::record::{MARK, Record, SIZE, condense, read_all};

/// Records that wait to be written: a second of calls at rates no budget is made for.
const MAX_WAITING: usize = 65_536;
/// The journal is condensed when it has grown to this, and again when it has
/// grown to four times what was left of it.
const CONDENSE_AT: u64 = 1 << 20;
/// The most that is read of a journal: its newest two million records.
const MAX_FILE: u64 = 64 << 20;

/// Charges that outlive the process.
pub(crate) struct Journal {
    desk: Arc<Desk>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Desk {
    waiting: Mutex<Waiting>,
    bell: Condvar,
    is_failing: AtomicBool,
}

#[derive(Default)]
struct Waiting {
    /// At most [`MAX_WAITING`].
    records: Vec<Record>,
    is_closed: bool,
}

impl Desk {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says once that charges are not kept, and once that they are again.
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

impl Journal {
    /// Opens a journal, and gives the charges of earlier runs that still count.
    pub(super) fn open(path: PathBuf) -> (Self, Vec<Record>) {
        let desk = Arc::<Desk>::default();
        let kept = recover(&path).unwrap_or_else(|error| {
            desk.report(&path, &Err(error));
            Vec::new()
        });
        let book = Book::begin(&path, &kept);
        desk.report(
            &path,
            &book.as_ref().map(drop).map_err(|error| io::Error::new(error.kind(), error.to_string())),
        );
        let at_desk = Arc::clone(&desk);
        let writing = move || run(&at_desk, &path, book.ok());
        let writer = std::thread::Builder::new().name("budgets".into()).spawn(writing);
        if let Err(error) = &writer {
            desk.is_failing.store(true, Ordering::Release);
            tracing::warn!(%error, "charges of budgets are not kept; a restart would forget them");
        }
        (Self { desk, writer: Mutex::new(writer.ok()) }, kept)
    }

    /// Has a record written. Never waits.
    pub(super) fn note(&self, record: Record) {
        let mut waiting = self.desk.waiting();
        if waiting.records.len() >= MAX_WAITING {
            drop(waiting);
            self.desk.is_failing.store(true, Ordering::Release);
            return;
        }
        waiting.records.push(record);
        let is_first = waiting.records.len() == 1;
        drop(waiting);
        if is_first {
            self.desk.bell.notify_one();
        }
    }

    /// Whether charges are not kept at the moment.
    pub(super) fn is_failing(&self) -> bool {
        self.desk.is_failing.load(Ordering::Acquire)
    }

    /// Writes what there is and ends the thread. Blocks.
    pub(crate) fn close(&self) {
        self.desk.waiting().is_closed = true;
        self.desk.bell.notify_one();
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = writer {
            let _ = writer.join();
        }
    }
}

impl Drop for Journal {
    /// The thread writes what there is and ends by itself.
    fn drop(&mut self) {
        self.desk.waiting().is_closed = true;
        self.desk.bell.notify_one();
    }
}

/// Writes until the journal is closed.
fn run(desk: &Desk, path: &Path, mut book: Option<Book>) {
    let mut records = Vec::new();
    loop {
        let mut waiting = desk.waiting();
        while waiting.records.is_empty() {
            if waiting.is_closed {
                return;
            }
            waiting = desk.bell.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        std::mem::swap(&mut waiting.records, &mut records);
        drop(waiting);
        let written = append(path, &mut book, &records);
        desk.report(path, &written);
        records.clear();
    }
}

/// Appends to the file, which is begun anew if it could not be opened before.
fn append(path: &Path, book: &mut Option<Book>, records: &[Record]) -> io::Result<()> {
    let open = match book.take() {
        Some(open) => open,
        None => Book::begin(path, &recover(path)?)?,
    };
    let open = book.insert(open);
    open.append(records)?;
    if open.len < open.condense_at {
        return Ok(());
    }
    // The next one is begun beside it, so a failure leaves this one as it is.
    let condensed = recover(path).and_then(|kept| Book::begin(path, &kept));
    match condensed {
        Ok(condensed) => *open = condensed,
        // Not at every write: it may be a long time until there is room.
        Err(_) => open.condense_at = open.len * 2,
    }
    Ok(())
}

/// The open file.
struct Book {
    file: File,
    /// Bytes that are whole records.
    len: u64,
    condense_at: u64,
}

impl Book {
    /// Begins a journal with these records: written beside, then put in place.
    fn begin(path: &Path, records: &[Record]) -> io::Result<Self> {
        let mut bytes = MARK.to_vec();
        records.iter().for_each(|record| record.write(&mut bytes));
        private::make_folder_of(path)?;
        let beside = path.with_extension("budgets.new");
        // What a killed process left there is worth nothing.
        let _ = fs::remove_file(&beside);
        let begun = private::file().write(true).create_new(true).open(&beside).and_then(|mut file| {
            file.write_all(&bytes)?;
            fs::rename(&beside, path)?;
            Ok(file)
        });
        let file = begun.inspect_err(|_| drop(fs::remove_file(&beside)))?;
        let len = bytes.len() as u64;
        Ok(Self { file, len, condense_at: (len * 4).max(CONDENSE_AT) })
    }

    /// Writes all of the records or none.
    fn append(&mut self, records: &[Record]) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(records.len() * SIZE);
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

/// What the file holds that still counts; nothing if there is no file, or one
/// that is no journal.
fn recover(path: &Path) -> io::Result<Vec<Record>> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    let len = file.metadata()?.len();
    if len > MAX_FILE {
        // Records have one size, so the newest ones begin where a whole record does.
        bytes.extend_from_slice(MARK);
        let skipped = (len - MAX_FILE).next_multiple_of(SIZE as u64);
        file.seek(io::SeekFrom::Start(skipped))?;
    }
    file.take(MAX_FILE).read_to_end(&mut bytes)?;
    match read_all(&bytes) {
        Some(records) => Ok(condense(records, wall())),
        None => {
            tracing::warn!(path = %path.display(), "the file of charges can't be read; budgets begin anew");
            Ok(Vec::new())
        }
    }
}

/// Milliseconds since 1970. A clock that is before that is wrong, and as good as any.
pub(super) fn wall() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(account: u64, calls: i64) -> Record {
        let now = wall();
        Record { account, at: now, until: now + 60_000, calls }
    }

    /// What a next run finds.
    fn found(path: &Path) -> Vec<Record> {
        let (journal, records) = Journal::open(path.to_owned());
        journal.close();
        records
    }

    #[test]
    fn what_was_noted_is_found_by_the_next_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/x.budgets");
        let (journal, before) = Journal::open(path.clone());
        assert_eq!(before, []);
        let records = [record(1, 1), record(2, 1)];
        records.iter().for_each(|record| journal.note(*record));
        journal.close();
        assert_eq!(found(&path), records);
        assert_eq!(found(&path), records, "it is rewritten, not used up");
    }

    #[test]
    fn a_torn_end_is_ignored_and_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.budgets");
        let (journal, _) = Journal::open(path.clone());
        journal.note(record(1, 1));
        journal.close();
        let mut bytes = fs::read(&path).unwrap();
        bytes.extend_from_slice(b"torn");
        fs::write(&path, bytes).unwrap();
        let (journal, records) = Journal::open(path.clone());
        assert_eq!(records.len(), 1);
        journal.note(record(2, 1));
        journal.close();
        assert_eq!(found(&path).len(), 2);
    }

    #[test]
    fn a_file_that_cannot_be_written_is_said_to_be_and_blocks_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let blocked = folder.path().join("file");
        fs::write(&blocked, "").unwrap();
        let path = blocked.join("x.budgets");
        let (journal, records) = Journal::open(path);
        assert!(records.is_empty() && journal.is_failing());
        for _ in 0..MAX_WAITING * 2 {
            journal.note(record(1, 1));
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
        let (journal, _) = Journal::open(path.clone());
        fs::remove_file(&blocked).unwrap();
        journal.note(record(1, 1));
        journal.close();
        assert!(!journal.is_failing());
        assert_eq!(found(&path).len(), 1);
    }

    #[test]
    fn the_journal_does_not_grow_without_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.budgets");
        let (journal, _) = Journal::open(path.clone());
        let now = wall();
        for n in 0..200_000 {
            while journal.desk.waiting().records.len() >= MAX_WAITING / 2 {
                std::thread::yield_now();
            }
            journal.note(Record { account: 1, at: now + n % 10, until: now + 60_000, calls: 1 });
        }
        journal.close();
        assert!(fs::metadata(&path).unwrap().len() <= CONDENSE_AT + (MAX_WAITING * SIZE) as u64);
        let records = found(&path);
        assert_eq!((records.len(), records.iter().map(|it| it.calls).sum::<i64>()), (10, 200_000));
    }
}

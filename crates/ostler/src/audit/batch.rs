//! Batches of audit rows on their way into the file. Columns that rows of a batch share are written once, and one
//! statement inserts many rows: most of the cost of a row is the call into SQLite.

use hashbrown::HashMap;
use rusqlite::types::{Null, ToSqlOutput, ValueRef};
use rusqlite::{Connection, Statement, ToSql, Transaction, params};
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::keyed_hash::{ArgumentsHash, KeyedHasher};
use super::redact::{AuditRedactor, redact};
use super::row::{QueuedRow, RowArguments, RowClass, SharedColumns, micros};

/// Rows that share their common columns. Retention scans this many rows to know which shared columns are still in use.
pub(super) const ROWS_PER_BATCH: usize = 1_024;
/// Rows per `INSERT` statement.
const ROWS_PER_STATEMENT: usize = 64;
/// Columns of an entry.
const COLUMNS: usize = 6;

const PLACEHOLDERS: &str = "(?, ?, ?, ?, ?, ?)";

/// Encoder from queued rows to columns: redacts and hashes arguments.
pub(super) struct RowEncoder {
    hasher: KeyedHasher,
    /// True if the text of arguments is kept.
    keeps_arguments: bool,
    redactor: Arc<AuditRedactor>,
}

/// One row without the columns that it shares with others.
struct AuditEntry {
    id: i64,
    late: i64,
    about: i64,
    took: Option<i64>,
    hash: StoredHash,
    text: Option<String>,
}

/// Stored hash of arguments.
enum StoredHash {
    None,
    LeftOut,
    Digest(ArgumentsHash),
}

impl ToSql for StoredHash {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::None => ValueRef::Null,
            Self::LeftOut => ValueRef::Text(b"left-out"),
            Self::Digest(hash) => ValueRef::Blob(hash),
        }))
    }
}

impl RowEncoder {
    /// Opens the encoder with the key in a file, and creates the key if there is none.
    pub(super) fn open(key: &Path, is_full: bool, veil: Arc<AuditRedactor>) -> io::Result<Self> {
        Ok(Self { hasher: KeyedHasher::open(key)?, keeps_arguments: is_full, redactor: veil })
    }

    /// Writes rows.
    pub(super) fn write(&self, writing: &Transaction<'_>, rows: &[QueuedRow]) -> rusqlite::Result<()> {
        let mut last = last_id(writing)?;
        for batch in rows.chunks(ROWS_PER_BATCH) {
            let entries = self.encode_batch(writing, batch, &mut last)?;
            for (class, entries) in RowClass::ALL.into_iter().zip(&entries) {
                insert(writing, class, entries)?;
            }
        }
        Ok(())
    }

    /// Encodes the rows of a batch by class, with ids after the last one. Inserts their shared columns.
    fn encode_batch(
        &self,
        writing: &Connection,
        batch: &[QueuedRow],
        last: &mut i64,
    ) -> rusqlite::Result<[Vec<AuditEntry>; RowClass::ALL.len()]> {
        // Rows of two classes never share columns.
        let mut abouts = HashMap::<&SharedColumns, i64>::new();
        let mut entries = [const { Vec::new() }; RowClass::ALL.len()];
        for row in batch {
            let id = row.at.max(*last + 1);
            *last = id;
            let class = row.shared.class();
            let about = match abouts.get(&*row.shared) {
                Some(about) => *about,
                None => {
                    let about = self.insert_shared(writing, class, &row.shared)?;
                    abouts.insert(&row.shared, about);
                    about
                }
            };
            let (hash, text) = match &row.arguments {
                RowArguments::None => (StoredHash::None, None),
                RowArguments::Omitted => (StoredHash::LeftOut, None),
                RowArguments::Kept(text) => {
                    let redacted =
                        self.keeps_arguments.then(|| redact(text, |text| self.redactor.redact(text)));
                    (StoredHash::Digest(self.hasher.hash_arguments(text)), redacted)
                }
            };
            let entry = AuditEntry { id, late: id - row.at, about, took: row.took.map(micros), hash, text };
            entries[class as usize].push(entry);
        }
        Ok(entries)
    }

    fn insert_shared(
        &self,
        writing: &Connection,
        class: RowClass,
        about: &SharedColumns,
    ) -> rusqlite::Result<i64> {
        let said = about.fields.unpack();
        let (subject, detail) = (self.redactor.redact(said.subject), self.redactor.redact(said.detail));
        let session = (!said.session.is_empty()).then(|| self.hasher.hash_session(said.session));
        let (_, abouts) = class.tables();
        let insert = format!("INSERT INTO {abouts} VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
        writing.prepare_cached(&insert)?.insert(params![
            about.kind.as_str(),
            none_if_empty(said.principal),
            none_if_empty(said.role),
            session,
            none_if_empty(said.server),
            said.action,
            none_if_empty(&subject),
            about.outcome,
            none_if_empty(said.rule),
            about.delivery,
            about.generation.map(u64::cast_signed),
            about.count.map(u64::cast_signed),
            none_if_empty(&detail),
        ])
    }
}

/// Returns the id of the last row of all classes.
fn last_id(writing: &Connection) -> rusqlite::Result<i64> {
    let mut last = 0;
    for class in RowClass::ALL {
        let (entries, _) = class.tables();
        let of_class = format!("SELECT coalesce(max(id), 0) FROM {entries}");
        last = last.max(writing.prepare_cached(&of_class)?.query_row([], |row| row.get(0))?);
    }
    Ok(last)
}

fn insert(writing: &Connection, class: RowClass, entries: &[AuditEntry]) -> rusqlite::Result<()> {
    let (many, rest) = entries.as_chunks::<ROWS_PER_STATEMENT>();
    if !many.is_empty() {
        let mut statement = writing.prepare_cached(&statement_for(class, ROWS_PER_STATEMENT))?;
        many.iter().try_for_each(|entries| execute(&mut statement, entries))?;
    }
    if !rest.is_empty() {
        let mut statement = writing.prepare_cached(&statement_for(class, 1))?;
        rest.chunks(1).try_for_each(|entry| execute(&mut statement, entry))?;
    }
    Ok(())
}

fn statement_for(class: RowClass, rows: usize) -> String {
    let (entries, _) = class.tables();
    format!("INSERT INTO {entries} VALUES {}", vec![PLACEHOLDERS; rows].join(","))
}

fn execute(statement: &mut Statement<'_>, entries: &[AuditEntry]) -> rusqlite::Result<()> {
    for (n, entry) in entries.iter().enumerate() {
        let first = n * COLUMNS + 1;
        statement.raw_bind_parameter(first, entry.id)?;
        statement.raw_bind_parameter(first + 1, entry.late)?;
        statement.raw_bind_parameter(first + 2, entry.about)?;
        statement.raw_bind_parameter(first + 3, entry.took)?;
        statement.raw_bind_parameter(first + 4, &entry.hash)?;
        match &entry.text {
            Some(text) => statement.raw_bind_parameter(first + 5, text)?,
            None => statement.raw_bind_parameter(first + 5, Null)?,
        }
    }
    statement.raw_execute().map(|_| ())
}

/// Returns `None` for an empty text.
fn none_if_empty(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

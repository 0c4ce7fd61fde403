//! Rows on their way into the file. What the rows of a batch have in common is
//! written once, and rows are handed to SQLite many at a time: most of what a
//! row costs is the way there.

use hashbrown::HashMap;
use rusqlite::types::{Null, ToSqlOutput, ValueRef};
use rusqlite::{Connection, Statement, ToSql, Transaction, params};
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::keyed_hash::{ArgumentsHash, KeyedHasher};
use super::redact::{AuditRedactor, redact};
use super::row::{QueuedRow, RowArguments, RowClass, SharedColumns, micros};

/// Rows that share what they have in common. Whoever deletes rows looks at so
/// many to know what is still in use.
pub(super) const ROWS_PER_BATCH: usize = 1_024;
/// Rows of one statement.
const ROWS_PER_STATEMENT: usize = 64;
/// Columns of an entry.
const COLUMNS: usize = 6;

const PLACEHOLDERS: &str = "(?, ?, ?, ?, ?, ?)";

/// What turns words into what may be written down.
pub(super) struct RowEncoder {
    hasher: KeyedHasher,
    /// Whether the text of arguments is kept.
    keeps_arguments: bool,
    redactor: Arc<AuditRedactor>,
}

/// One row, but for what it has in common with others.
struct AuditEntry {
    id: i64,
    late: i64,
    about: i64,
    took: Option<i64>,
    hash: StoredHash,
    text: Option<String>,
}

/// What is kept of arguments.
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
    /// With the key in a file, which is made if there is none.
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

    /// What is to be written of the rows of a batch, by class, behind the last
    /// number. What they are about is written here.
    fn encode_batch(
        &self,
        writing: &Connection,
        batch: &[QueuedRow],
        last: &mut i64,
    ) -> rusqlite::Result<[Vec<AuditEntry>; RowClass::ALL.len()]> {
        // What rows of two classes are about differs.
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

/// The number of the last row of all classes.
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

/// An empty word is none.
fn none_if_empty(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

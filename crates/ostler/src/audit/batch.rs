//! Rows on their way into the file. What the rows of a batch have in common is
//! written once, and rows are handed to SQLite many at a time: most of what a
//! row costs is the way there.

use hashbrown::HashMap;
use rusqlite::types::{Null, ToSqlOutput, ValueRef};
use rusqlite::{Connection, Statement, ToSql, Transaction, params};
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::fingerprint::{Fingerprint, Fingerprints};
use super::redact::{Veil, redact};
use super::row::{About, Arguments, Class, Queued, micros};

/// Rows that share what they have in common. Whoever deletes rows looks at so
/// many to know what is still in use.
pub(super) const BATCH: usize = 1_024;
/// Rows of one statement.
const MANY: usize = 64;
/// Columns of an entry.
const COLUMNS: usize = 6;

const PLACES: &str = "(?, ?, ?, ?, ?, ?)";

/// What turns words into what may be written down.
pub(super) struct Ink {
    fingerprints: Fingerprints,
    /// Whether the text of arguments is kept.
    is_full: bool,
    veil: Arc<Veil>,
}

/// One row, but for what it has in common with others.
struct Entry {
    id: i64,
    late: i64,
    about: i64,
    took: Option<i64>,
    hash: Hash,
    text: Option<String>,
}

/// What is kept of arguments.
enum Hash {
    None,
    LeftOut,
    Of(Fingerprint),
}

impl ToSql for Hash {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::None => ValueRef::Null,
            Self::LeftOut => ValueRef::Text(b"left-out"),
            Self::Of(hash) => ValueRef::Blob(hash),
        }))
    }
}

impl Ink {
    /// With the key in a file, which is made if there is none.
    pub(super) fn open(key: &Path, is_full: bool, veil: Arc<Veil>) -> io::Result<Self> {
        Ok(Self { fingerprints: Fingerprints::open(key)?, is_full, veil })
    }

    /// Writes rows.
    pub(super) fn write(&self, writing: &Transaction<'_>, rows: &[Queued]) -> rusqlite::Result<()> {
        let mut last = last_number(writing)?;
        for batch in rows.chunks(BATCH) {
            let entries = self.entries(writing, batch, &mut last)?;
            for (class, entries) in Class::ALL.into_iter().zip(&entries) {
                insert(writing, class, entries)?;
            }
        }
        Ok(())
    }

    /// What is to be written of the rows of a batch, by class, behind the last
    /// number. What they are about is written here.
    fn entries(
        &self,
        writing: &Connection,
        batch: &[Queued],
        last: &mut i64,
    ) -> rusqlite::Result<[Vec<Entry>; Class::ALL.len()]> {
        // What rows of two classes are about differs.
        let mut abouts = HashMap::<&About, i64>::new();
        let mut entries = [const { Vec::new() }; Class::ALL.len()];
        for row in batch {
            let id = row.at.max(*last + 1);
            *last = id;
            let class = row.about.class();
            let about = match abouts.get(&*row.about) {
                Some(about) => *about,
                None => {
                    let about = self.insert_about(writing, class, &row.about)?;
                    abouts.insert(&row.about, about);
                    about
                }
            };
            let (hash, text) = match &row.arguments {
                Arguments::None => (Hash::None, None),
                Arguments::LeftOut => (Hash::LeftOut, None),
                Arguments::Kept(text) => {
                    let redacted = self.is_full.then(|| redact(text, |text| self.veil.hide(text)));
                    (Hash::Of(self.fingerprints.of_arguments(text)), redacted)
                }
            };
            let entry = Entry { id, late: id - row.at, about, took: row.took.map(micros), hash, text };
            entries[class as usize].push(entry);
        }
        Ok(entries)
    }

    fn insert_about(&self, writing: &Connection, class: Class, about: &About) -> rusqlite::Result<i64> {
        let said = about.words.said();
        let (subject, detail) = (self.veil.hide(said.subject), self.veil.hide(said.detail));
        let session = (!said.session.is_empty()).then(|| self.fingerprints.of_session(said.session));
        let (_, abouts) = class.tables();
        let insert = format!("INSERT INTO {abouts} VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
        writing.prepare_cached(&insert)?.insert(params![
            about.kind.as_str(),
            word(said.principal),
            word(said.role),
            session,
            word(said.server),
            said.action,
            word(&subject),
            about.outcome,
            word(said.rule),
            about.delivery,
            about.generation.map(u64::cast_signed),
            about.count.map(u64::cast_signed),
            word(&detail),
        ])
    }
}

/// The number of the last row of all classes.
fn last_number(writing: &Connection) -> rusqlite::Result<i64> {
    let mut last = 0;
    for class in Class::ALL {
        let (entries, _) = class.tables();
        let of_class = format!("SELECT coalesce(max(id), 0) FROM {entries}");
        last = last.max(writing.prepare_cached(&of_class)?.query_row([], |row| row.get(0))?);
    }
    Ok(last)
}

fn insert(writing: &Connection, class: Class, entries: &[Entry]) -> rusqlite::Result<()> {
    let (many, rest) = entries.as_chunks::<MANY>();
    if !many.is_empty() {
        let mut statement = writing.prepare_cached(&statement_for(class, MANY))?;
        many.iter().try_for_each(|entries| execute(&mut statement, entries))?;
    }
    if !rest.is_empty() {
        let mut statement = writing.prepare_cached(&statement_for(class, 1))?;
        rest.chunks(1).try_for_each(|entry| execute(&mut statement, entry))?;
    }
    Ok(())
}

fn statement_for(class: Class, rows: usize) -> String {
    let (entries, _) = class.tables();
    format!("INSERT INTO {entries} VALUES {}", vec![PLACES; rows].join(","))
}

fn execute(statement: &mut Statement<'_>, entries: &[Entry]) -> rusqlite::Result<()> {
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
fn word(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

//! What the file looks like.
//!
//! ```text
//! entries   id, late, about, took, arguments_hash, arguments      one for each row
//! abouts    kind, principal, role, server, action, subject, …     what many rows of one batch have in common
//! events    a view of both: the rows as they are read
//! ```
//!
//! A row's number is the moment of its end in microseconds, or one more than the last number where that is
//! taken already. So numbers grow, rows are found by their time without an index, and `late` says how much
//! earlier than its number a row is: nothing, for nearly every row.

use rusqlite::{Connection, TransactionBehavior};

use super::store::StoreError;

/// What the file looks like; raised when that changes.
const VERSION: i64 = 2;
/// The version with one table for everything, numbered from one.
const ONE_TABLE: i64 = 1;

/// Rows that are later than this have an index, so that the latest is known
/// and a clock that was wrong once does not keep rows from being deleted.
/// Rows that wait to be written together are not.
pub(super) const LATE: i64 = 60_000_000;

/// Deleted pages are given back in small steps, so the file must be made for it.
const SETTINGS: &str = "
    PRAGMA auto_vacuum = INCREMENTAL;
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = NORMAL;
    PRAGMA wal_autocheckpoint = 256;
    PRAGMA journal_size_limit = 1048576;
    PRAGMA cache_size = -1024;
    PRAGMA temp_store = MEMORY;
";

const SCHEMA: &str = "
    CREATE TABLE abouts (
        id INTEGER PRIMARY KEY,
        kind TEXT NOT NULL,
        principal TEXT,
        role TEXT,
        session TEXT,
        server TEXT,
        action TEXT NOT NULL,
        subject TEXT,
        outcome TEXT NOT NULL,
        rule TEXT,
        delivery TEXT,
        generation INTEGER,
        count INTEGER,
        detail TEXT
    );
    CREATE TABLE entries (
        id INTEGER PRIMARY KEY,
        late INTEGER NOT NULL,
        about INTEGER NOT NULL,
        took INTEGER,
        arguments_hash,
        arguments TEXT
    );
    CREATE INDEX entries_late ON entries (late) WHERE late > 60000000;
    CREATE VIEW events AS
        SELECT entries.id AS id, entries.id - late AS at, kind, principal, role, session, server, action, subject,
            outcome, rule, delivery, generation, took, count,
            CASE typeof(arguments_hash) WHEN 'blob' THEN lower(hex(arguments_hash)) ELSE arguments_hash END
                AS arguments_hash,
            arguments, detail
        FROM entries CROSS JOIN abouts ON abouts.id = entries.about;
    PRAGMA user_version = 2;
";

/// Numbers are those that the rows would have got: each the least that is not
/// before its time and after the number before. They are made in order, and
/// `CROSS JOIN` keeps to it: sorting whole rows would need as much memory as they are.
const MOVE: &str = "
    CREATE TABLE numbers AS
        SELECT old, number, number + max(at - number) OVER (ORDER BY number) AS id, at
        FROM (SELECT id AS old, at, row_number() OVER (ORDER BY at, id) AS number FROM moving);
    INSERT INTO abouts
        SELECT number, kind, principal, role, session, server, action, subject, outcome, rule, delivery, generation,
            count, detail
        FROM numbers CROSS JOIN moving ON moving.id = old;
    INSERT INTO entries
        SELECT numbers.id, numbers.id - numbers.at, number, took, arguments_hash, arguments
        FROM numbers CROSS JOIN moving ON moving.id = old;
    DROP TABLE numbers;
    DROP TABLE moving;
";

/// Makes the file what it should look like, whatever it was.
pub(super) fn prepare(connection: &mut Connection) -> Result<(), StoreError> {
    connection.execute_batch(SETTINGS)?;
    if version(connection)? == VERSION {
        return Ok(());
    }
    let making = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Somebody else may have been faster.
    match version(&making)? {
        VERSION => return Ok(()),
        later if later > VERSION => return Err(StoreError::Newer),
        ONE_TABLE => {
            making.execute_batch("ALTER TABLE events RENAME TO moving")?;
            making.execute_batch(SCHEMA)?;
            making.execute_batch(MOVE)?;
        }
        _ => making.execute_batch(SCHEMA)?,
    }
    Ok(making.commit()?)
}

/// Whether rows are numbered by their time.
pub(super) fn is_timed(connection: &Connection) -> rusqlite::Result<bool> {
    Ok(version(connection)? >= VERSION)
}

fn version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

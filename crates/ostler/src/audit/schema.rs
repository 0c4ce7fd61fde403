//! Schema of the audit file, and its migrations.
//!
//! ```text
//! entries   id, late, about, took, arguments_hash, arguments      one for each row
//! abouts    kind, principal, role, server, action, subject, …     what many rows of one batch have in common
//! events    a view of all: the rows as they are read
//! ```
//!
//! Each [class](RowClass) has such a pair of tables: `entries` and `abouts` are those of calls.
//!
//! A row's id is the time of its end in microseconds, or one more than the last id where that is taken already.
//! So ids grow, and rows are found by their time without an index. `late` is the difference between a row's id and
//! its time: zero for nearly every row.

use std::time::Duration;

use ostler_store::DatabaseOptions;
use rusqlite::{Connection, OptionalExtension, Transaction};

use super::row::RowClass;

/// Version of the schema; raised with every change.
const VERSION: i64 = 3;
/// Version with the rows of all classes in the tables of calls.
const SINGLE_CLASS_VERSION: i64 = 2;
/// Version with one table for everything, with ids counted from one.
const SINGLE_TABLE_VERSION: i64 = 1;

/// Delay from which late rows have an index, so that the latest is known and a wrong clock does not keep rows from
/// being deleted. Rows that wait for a batch are less late.
pub(super) const LATE_MICROS: i64 = 60_000_000;

/// Options of the database.
pub(super) const LAYOUT: DatabaseOptions = DatabaseOptions {
    schema_version: VERSION,
    migrate,
    busy_timeout: Duration::from_secs(1),
    cache_kib: 1 << 10,
    // Some statements for each class.
    prepared_statements: 64,
    max_log_age: Duration::from_secs(10),
};

/// Returns the statements that create the tables of one class.
fn create_tables_sql(class: RowClass) -> String {
    let (entries, abouts) = class.tables();
    format!(
        "
    CREATE TABLE {abouts} (
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
    CREATE TABLE {entries} (
        id INTEGER PRIMARY KEY,
        late INTEGER NOT NULL,
        about INTEGER NOT NULL,
        took INTEGER,
        arguments_hash,
        arguments TEXT
    );
    CREATE INDEX {entries}_late ON {entries} (late) WHERE late > 60000000;"
    )
}

/// Returns the statement that creates the view of all classes.
fn create_view_sql() -> String {
    let of_class = |class: RowClass| {
        let (entries, abouts) = class.tables();
        format!(
            "
        SELECT {entries}.id AS id, {entries}.id - late AS at, kind, principal, role, session, server, action, subject,
            outcome, rule, delivery, generation, took, count,
            CASE typeof(arguments_hash) WHEN 'blob' THEN lower(hex(arguments_hash)) ELSE arguments_hash END
                AS arguments_hash,
            arguments, detail
        FROM {entries} CROSS JOIN {abouts} ON {abouts}.id = {entries}.about"
        )
    };
    format!("CREATE VIEW events AS {}", RowClass::ALL.map(of_class).join(" UNION ALL "))
}

/// Migrated rows get the ids that new ones would have: each the least that is not before its time and after the id
/// before. Ids are assigned in order, and `CROSS JOIN` keeps that order: sorting whole rows would need as much memory
/// as they take.
const MIGRATE_SINGLE_TABLE_SQL: &str = "
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

/// Moves rows that are not calls into the tables of their class. Refused calls of before stay with the calls.
const MIGRATE_SINGLE_CLASS_SQL: &str = "
    INSERT INTO operator_abouts SELECT * FROM abouts WHERE kind IN ('admin', 'gap');
    INSERT INTO operator_entries SELECT entries.* FROM entries CROSS JOIN operator_abouts ON operator_abouts.id = about;
    INSERT INTO server_abouts SELECT * FROM abouts WHERE kind = 'server';
    INSERT INTO server_entries SELECT entries.* FROM entries CROSS JOIN server_abouts ON server_abouts.id = about;
    INSERT INTO refusal_abouts SELECT * FROM abouts WHERE kind = 'refusal';
    INSERT INTO refusal_entries SELECT entries.* FROM entries CROSS JOIN refusal_abouts ON refusal_abouts.id = about;
    DELETE FROM entries WHERE about IN (SELECT id FROM abouts WHERE kind <> 'call');
    DELETE FROM abouts WHERE kind <> 'call';
";

/// Migrates a file of any earlier version to this schema.
fn migrate(making: &Transaction<'_>, found: i64) -> rusqlite::Result<()> {
    match found {
        SINGLE_CLASS_VERSION => making.execute_batch("DROP VIEW events")?,
        SINGLE_TABLE_VERSION => making.execute_batch("ALTER TABLE events RENAME TO moving")?,
        _ => {}
    }
    for class in
        RowClass::ALL.into_iter().filter(|class| found != SINGLE_CLASS_VERSION || *class != RowClass::Calls)
    {
        making.execute_batch(&create_tables_sql(class))?;
    }
    if found == SINGLE_TABLE_VERSION {
        making.execute_batch(MIGRATE_SINGLE_TABLE_SQL)?;
    }
    if matches!(found, SINGLE_TABLE_VERSION | SINGLE_CLASS_VERSION) {
        making.execute_batch(MIGRATE_SINGLE_CLASS_SQL)?;
    }
    making.execute_batch(&create_view_sql())
}

/// Returns whether a daemon has started and has not recorded its end. One whose file was moved away has started in
/// another file.
pub(super) fn lacks_end_of_daemon(connection: &Connection) -> rusqlite::Result<bool> {
    let (entries, abouts) = RowClass::Operators.tables();
    let last = format!(
        "SELECT action FROM {entries} CROSS JOIN {abouts} ON {abouts}.id = {entries}.about
        WHERE (kind = 'admin' AND action IN ('daemon-started', 'daemon-ended'))
            OR (kind = 'gap' AND action = 'file-gone')
        ORDER BY {entries}.id DESC LIMIT 1"
    );
    let last = connection.query_row(&last, [], |row| row.get::<_, String>(0)).optional()?;
    Ok(last.is_some_and(|action| action != "daemon-ended"))
}

/// Returns the classes that have tables of their own with ids by time.
pub(super) fn classes(connection: &Connection) -> rusqlite::Result<&'static [RowClass]> {
    Ok(match version(connection)? {
        ..SINGLE_CLASS_VERSION => &[],
        SINGLE_CLASS_VERSION => &[RowClass::Calls],
        _ => &RowClass::ALL,
    })
}

fn version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

//! The table of claims: made, written, and rid of old ones.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ostler_store::{Database, DatabaseOptions, StoreError};
use rusqlite::{Transaction, params};

use super::super::{CLAIM_RETENTION, ClaimOutcome};
use crate::call_id::CallId;

/// A claim that comes while another waits for the file waits twice as long, and
/// must hear the reason before its patience ends.
pub(super) const LAYOUT: DatabaseOptions = DatabaseOptions {
    schema_version: 1,
    migrate: |making, _| making.execute_batch(TABLES),
    busy_timeout: Duration::from_millis(750),
    // Calls are found all over their index.
    cache_kib: 8 << 10,
    prepared_statements: 16,
    // Claims wait while the log is written into the file.
    max_log_age: Duration::from_secs(60),
};
/// Claims that are kept at most: ten minutes of ten thousand calls a second,
/// and some more. They take about half a gigabyte.
const MOST: i64 = 8_000_000;
/// Claims that are deleted at a time: less than a millisecond of work.
const STEP: i64 = 256;
/// Pages that are given back at a time: more than a step frees.
const PAGES: u32 = 64;

/// The numbers grow with time, so the oldest claims are the first ones.
const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS claims (
        id INTEGER PRIMARY KEY,
        call BLOB NOT NULL UNIQUE,
        at INTEGER NOT NULL,
        settled INTEGER NOT NULL DEFAULT 0
    );
";

/// Claims calls at a time and notes ends.
pub(super) fn write(
    writing: &Transaction<'_>,
    calls: &[CallId],
    settled: &[CallId],
    at: i64,
) -> Result<Vec<ClaimOutcome>, StoreError> {
    // Ends come first: who claims what has just ended reads so.
    mark_answered(writing, settled)?;
    insert_claims(writing, calls, at)
}

fn mark_answered(writing: &Transaction<'_>, settled: &[CallId]) -> Result<(), StoreError> {
    let mut note = writing.prepare_cached("UPDATE claims SET settled = 1 WHERE call = ?1")?;
    for call in settled {
        note.execute([call.as_bytes()])?;
    }
    Ok(())
}

fn insert_claims(
    writing: &Transaction<'_>,
    calls: &[CallId],
    at: i64,
) -> Result<Vec<ClaimOutcome>, StoreError> {
    if calls.is_empty() {
        return Ok(Vec::new());
    }
    let held: i64 = writing
        .prepare_cached("SELECT ifnull((SELECT max(id) FROM claims) - (SELECT min(id) FROM claims) + 1, 0)")?
        .query_row([], |row| row.get(0))?;
    if held >= MOST {
        return Err(StoreError::Full(format!("it holds {MOST} calls of the last ten minutes")));
    }
    let mut insert =
        writing.prepare_cached("INSERT INTO claims (call, at) VALUES (?1, ?2) ON CONFLICT DO NOTHING")?;
    let mut look = writing.prepare_cached("SELECT settled FROM claims WHERE call = ?1")?;
    let mut claims = Vec::with_capacity(calls.len());
    for call in calls {
        claims.push(match insert.execute(params![call.as_bytes(), at])? {
            0 => ClaimOutcome::Taken { is_answered: look.query_row([call.as_bytes()], |row| row.get(0))? },
            _ => ClaimOutcome::Ours,
        });
    }
    Ok(claims)
}

/// Deletes a few of the claims that are too old. True if there may be more.
/// While another process holds the file there are none: claims that come
/// meanwhile have not the time to wait for this one's wait.
pub(super) fn trim(database: &mut Database, now: i64) -> Result<bool, StoreError> {
    database.with_zero_busy_timeout(|database| {
        let Some(connection) = database.connection() else { return Ok(false) };
        let kept = i64::try_from(CLAIM_RETENTION.as_secs()).unwrap_or(i64::MAX);
        // One from the future was made before the clock was set back.
        let deleted = connection
            .prepare_cached(
                "DELETE FROM claims WHERE id IN (SELECT id FROM claims ORDER BY id LIMIT ?1)
                    AND (at < ?2 OR at > ?3)",
            )?
            .execute(params![STEP, now - kept, now + kept])?;
        if deleted == 0 {
            database.vacuum(PAGES)?;
        }
        Ok(deleted > 0)
    })
}

/// Seconds since 1970, counted on from one look at the system's clock: one
/// that is set meanwhile makes no claim old.
pub(super) struct ClaimClock {
    base: Instant,
    base_unix: i64,
}

impl ClaimClock {
    pub(super) fn new() -> Self {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { base: Instant::now(), base_unix: seconds(unix) }
    }

    pub(super) fn now(&self) -> i64 {
        self.base_unix.saturating_add(seconds(self.base.elapsed()))
    }
}

fn seconds(time: Duration) -> i64 {
    i64::try_from(time.as_secs()).unwrap_or(i64::MAX)
}

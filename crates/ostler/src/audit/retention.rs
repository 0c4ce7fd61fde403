//! Retention: deletes rows that are too old or too many, in small steps that hold the file's lock briefly.

use std::time::{Duration, Instant};

use ostler_store::{Database, StoreError};
use rusqlite::{Connection, TransactionBehavior, params};

use super::batch::ROWS_PER_BATCH;
use super::query::time_from_micros;
use super::row::{AuditRow, RowClass, RowFields, RowKind};
use super::schema::LATE_MICROS;
use crate::time_text;

/// Rows that one step deletes.
const ROWS_PER_STEP: i64 = 1_000;
/// Pages that one step returns to the file system: more than a step frees.
const PAGES_PER_STEP: u32 = 512;

/// Widest id range of one step's rows. Beyond it, their shared columns stay until all rows of the range are deleted.
const MAX_ID_SPREAD: i64 = 16 * ROWS_PER_STEP;

/// A class with more than this fraction of the file makes room for itself; calls have the rest.
const CLASS_SHARE: u64 = 8;

/// Time for which measured class sizes are reused: measuring reads all pages of the class.
const SIZES_TTL: Duration = Duration::from_secs(1);

/// Result of one step.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct TrimResult {
    /// True if there is more to delete.
    pub(super) has_more: bool,
    /// Rows that were deleted because the file is too large.
    pub(super) for_size: Option<DeletedRows>,
}

/// Rows of one class that were deleted because the file is too large.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DeletedRows {
    pub(super) class: RowClass,
    pub(super) count: u64,
    /// Times of the first and of the last one.
    pub(super) first: i64,
    pub(super) last: i64,
}

impl DeletedRows {
    pub(super) fn add(&mut self, more: &Self) {
        self.count += more.count;
        (self.first, self.last) = (self.first.min(more.first), self.last.max(more.last));
    }

    /// Returns the gap row that stands for all of them.
    pub(super) fn gap_row(&self) -> AuditRow {
        let time = |at| time_text::rfc3339(time_from_micros(at));
        let detail = format!(
            "the file was larger than `audit.max_size`: rows from {} to {}",
            time(self.first),
            time(self.last)
        );
        let said = RowFields {
            action: "deleted",
            subject: self.class.as_str(),
            detail: &detail,
            ..RowFields::default()
        };
        AuditRow { count: Some(self.count), ..AuditRow::now(RowKind::Gap, "lost", &said) }
    }
}

/// Returns the query that tells whether an id range has more rows than a bound.
fn spread_query(entries: &str) -> String {
    format!("SELECT count(*) > ?3 FROM (SELECT 1 FROM {entries} WHERE id BETWEEN ?1 AND ?2 LIMIT ?3 + 1)")
}

/// Returns the statement that deletes unused shared columns within an id range, after rows of another id range were
/// deleted. Later batches use later ids, so only rows of these ranges, or within a batch's length of them, can refer to
/// one.
fn delete_between_query((entries, abouts): (&str, &str)) -> String {
    format!(
        "DELETE FROM {abouts} WHERE id BETWEEN ?1 AND ?2 AND id NOT IN (
    SELECT about FROM (SELECT about FROM {entries} WHERE id < ?3 ORDER BY id DESC LIMIT ?5)
    UNION ALL SELECT about FROM {entries} WHERE id BETWEEN ?3 AND ?4
    UNION ALL SELECT about FROM (SELECT about FROM {entries} WHERE id > ?4 ORDER BY id LIMIT ?5))"
    )
}

/// Retention of one file.
#[derive(Debug, Default)]
pub(super) struct Retention {
    /// Bytes of each class, and the time of the measurement.
    sizes: Option<(Instant, [u64; RowClass::ALL.len()])>,
}

impl Retention {
    /// Deletes rows older than `oldest`, and the oldest rows of a class while the file is larger than `max_size`.
    pub(super) fn trim(
        &mut self,
        database: &mut Database,
        oldest: i64,
        max_size: u64,
    ) -> Result<TrimResult, StoreError> {
        let Some(connection) = database.connection() else { return Ok(TrimResult::default()) };
        let mut has_deleted = false;
        for class in RowClass::ALL {
            let aged = delete_before(connection, class, oldest)?.is_some()
                | (delete_late(connection, class, oldest)? > 0);
            if aged {
                delete_unused(connection, class)?;
            }
            has_deleted |= aged;
        }
        let mut for_size = None;
        if !has_deleted && used_bytes(connection)? > max_size {
            let class = self.class_to_trim(connection, max_size)?;
            for_size = delete_before(connection, class, i64::MAX)?;
            delete_unused(connection, class)?;
        }
        let free = pragma(connection, "freelist_count")?;
        if free > 0 {
            database.vacuum(PAGES_PER_STEP)?;
        }
        Ok(TrimResult {
            has_more: has_deleted || for_size.is_some() || free > i64::from(PAGES_PER_STEP),
            for_size,
        })
    }

    /// Returns the class that has to make room: one above its share, else calls, and where these are few the largest of
    /// the others.
    fn class_to_trim(&mut self, connection: &Connection, max_size: u64) -> Result<RowClass, StoreError> {
        let sizes = match self.sizes.filter(|(at, _)| at.elapsed() < SIZES_TTL) {
            Some((_, sizes)) => sizes,
            None => self.measure(connection)?,
        };
        let others = RowClass::ALL.into_iter().zip(sizes).filter(|(class, _)| *class != RowClass::Calls);
        let largest = others.max_by_key(|(_, size)| *size);
        let over = largest.filter(|(_, size)| *size > max_size / CLASS_SHARE).map(|(class, _)| class);
        if over.is_some() {
            // The class is measured again before it loses more.
            self.sizes = None;
        }
        Ok(over.unwrap_or(RowClass::Calls))
    }

    /// Measures the bytes of each class.
    fn measure(&mut self, connection: &Connection) -> Result<[u64; RowClass::ALL.len()], StoreError> {
        const SIZE: &str = "SELECT coalesce(sum(pgsize), 0) FROM dbstat WHERE aggregate = TRUE AND name = ?";
        let mut sizes = [0; RowClass::ALL.len()];
        for class in RowClass::ALL.into_iter().filter(|class| *class != RowClass::Calls) {
            let (entries, abouts) = class.tables();
            for table in [entries, abouts] {
                let size: i64 = connection.prepare_cached(SIZE)?.query_row([table], |row| row.get(0))?;
                sizes[class as usize] += size.unsigned_abs();
            }
        }
        self.sizes = Some((Instant::now(), sizes));
        Ok(sizes)
    }
}

/// Deletes the first rows of a class before an id; rows of any earlier time are among them.
fn delete_before(
    connection: &Connection,
    class: RowClass,
    number: i64,
) -> rusqlite::Result<Option<DeletedRows>> {
    let (entries, _) = class.tables();
    let delete = format!(
        "DELETE FROM {entries} WHERE id < min(?1, coalesce(
        (SELECT id FROM {entries} ORDER BY id LIMIT 1 OFFSET ?2), 9223372036854775807)) RETURNING id - late"
    );
    let mut delete = connection.prepare_cached(&delete)?;
    let times = delete.query_map(params![number, ROWS_PER_STEP], |row| row.get::<_, i64>(0))?;
    let mut deleted: Option<DeletedRows> = None;
    for at in times {
        let at = at?;
        let all = deleted.get_or_insert(DeletedRows { class, count: 0, first: at, last: at });
        *all = DeletedRows { class, count: all.count + 1, first: all.first.min(at), last: all.last.max(at) };
    }
    Ok(deleted)
}

/// Deletes rows of before a time whose ids are much later, and their unused shared columns: rows with lower ids may
/// stay for long, and would keep those. The latest rows are the oldest, and most likely side by side.
fn delete_late(connection: &mut Connection, class: RowClass, oldest: i64) -> rusqlite::Result<usize> {
    let (entries, _) = class.tables();
    let delete = format!(
        "DELETE FROM {entries} WHERE id IN
            (SELECT id FROM {entries} WHERE late > {LATE_MICROS} AND id - late < ?1 ORDER BY late DESC LIMIT ?2)
        RETURNING id, about"
    );
    let deleting = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let gone: Vec<(i64, i64)> = deleting
        .prepare_cached(&delete)?
        .query_map(params![oldest, ROWS_PER_STEP], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    let (ids, abouts) = (gone.iter().map(|row| row.0), gone.iter().map(|row| row.1));
    let ids = ids.clone().min().zip(ids.max());
    let abouts = abouts.clone().min().zip(abouts.max());
    if let (Some(ids), Some(abouts)) = (ids, abouts) {
        let bounds = params![abouts.0, abouts.1, ids.0, ids.1, ROWS_PER_BATCH as i64];
        let is_far: bool = deleting
            .prepare_cached(&spread_query(entries))?
            .query_row(params![ids.0, ids.1, MAX_ID_SPREAD], |row| row.get(0))?;
        if !is_far {
            deleting.prepare_cached(&delete_between_query(class.tables()))?.execute(bounds)?;
        }
    }
    deleting.commit()?;
    Ok(gone.len())
}

/// Deletes the unused shared columns of a class. Later batches use later ids, so no row beyond a batch's length refers
/// to one before those.
fn delete_unused(connection: &Connection, class: RowClass) -> rusqlite::Result<usize> {
    let (entries, abouts) = class.tables();
    let delete = format!(
        "DELETE FROM {abouts} WHERE id < coalesce(
        (SELECT min(about) FROM (SELECT about FROM {entries} ORDER BY id LIMIT ?1)), 9223372036854775807)"
    );
    connection.prepare_cached(&delete)?.execute([ROWS_PER_BATCH as i64])
}

/// Checkpoints the write-ahead log into the file, as far as readers allow.
pub(super) fn checkpoint(connection: &Connection) {
    let _ = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
}

/// Returns the bytes of the file that are in use.
pub(super) fn used_bytes(connection: &Connection) -> Result<u64, StoreError> {
    let pages = pragma(connection, "page_count")? - pragma(connection, "freelist_count")?;
    Ok(pages.unsigned_abs() * pragma(connection, "page_size")?.unsigned_abs())
}

fn pragma(connection: &Connection, name: &str) -> Result<i64, StoreError> {
    Ok(connection.pragma_query_value(None, name, |row| row.get(0))?)
}

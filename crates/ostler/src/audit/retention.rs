//! Making room: what is too old or too much goes, in small steps, so that
//! nobody waits long for the file.

use rusqlite::{TransactionBehavior, params};

use super::batch::BATCH;
use super::layout::LATE;
use super::store::{Store, StoreError};

/// Rows that are deleted at a time.
const STEP: i64 = 1_000;
/// Pages that are given back at a time: more than a step frees.
const PAGES: i64 = 512;

/// Rows between the first and the last that are deleted in a step, beyond which
/// what they alone were about stays until all of them have gone.
const APART: i64 = 16 * STEP;

/// Whether there are more rows than that within bounds.
const IS_FAR: &str =
    "SELECT count(*) > ?3 FROM (SELECT 1 FROM entries WHERE id BETWEEN ?1 AND ?2 LIMIT ?3 + 1)";

/// Deletes what no row is about any more, within bounds, after rows within
/// other bounds were deleted. Later batches use later numbers, so only rows of
/// these bounds, or within a batch's length of them, can use one.
const DELETE_BETWEEN: &str = "DELETE FROM abouts WHERE id BETWEEN ?1 AND ?2 AND id NOT IN (
    SELECT about FROM (SELECT about FROM entries WHERE id < ?3 ORDER BY id DESC LIMIT ?5)
    UNION ALL SELECT about FROM entries WHERE id BETWEEN ?3 AND ?4
    UNION ALL SELECT about FROM (SELECT about FROM entries WHERE id > ?4 ORDER BY id LIMIT ?5))";

impl Store {
    /// Deletes rows older than `oldest`, and the oldest ones while the file is
    /// larger than `max_size`. True if there is more to do.
    pub(super) fn trim(&mut self, oldest: i64, max_size: u64) -> Result<bool, StoreError> {
        let mut deleted = self.delete_before(oldest)? + self.delete_late(oldest)?;
        if deleted == 0 && self.used()? > max_size {
            deleted = self.delete_before(i64::MAX)?;
        }
        if deleted > 0 {
            self.delete_unused()?;
        }
        let free = self.pragma("freelist_count")?;
        if free > 0 {
            // Each step of the statement gives one page back.
            let mut vacuum = self.connection.prepare(&format!("PRAGMA incremental_vacuum({PAGES})"))?;
            let mut pages = vacuum.query([])?;
            while pages.next()?.is_some() {}
        }
        Ok(deleted > 0 || free > PAGES)
    }

    /// Deletes the first rows before a number; those of any time before are among them.
    fn delete_before(&self, number: i64) -> rusqlite::Result<usize> {
        const DELETE: &str = "DELETE FROM entries WHERE id < min(?1, coalesce(
            (SELECT id FROM entries ORDER BY id LIMIT 1 OFFSET ?2), 9223372036854775807))";
        self.connection.prepare_cached(DELETE)?.execute(params![number, STEP])
    }

    /// Deletes rows of before a time that are numbered as much later ones, and
    /// what they alone were about: rows with lower numbers may stay for long, and
    /// would keep that. Those that are latest are oldest, and most likely side by side.
    fn delete_late(&mut self, oldest: i64) -> rusqlite::Result<usize> {
        let delete = format!(
            "DELETE FROM entries WHERE id IN
                (SELECT id FROM entries WHERE late > {LATE} AND id - late < ?1 ORDER BY late DESC LIMIT ?2)
            RETURNING id, about"
        );
        let deleting = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let gone: Vec<(i64, i64)> = deleting
            .prepare_cached(&delete)?
            .query_map(params![oldest, STEP], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<rusqlite::Result<_>>()?;
        let (ids, abouts) = (gone.iter().map(|row| row.0), gone.iter().map(|row| row.1));
        let ids = ids.clone().min().zip(ids.max());
        let abouts = abouts.clone().min().zip(abouts.max());
        if let (Some(ids), Some(abouts)) = (ids, abouts) {
            let bounds = params![abouts.0, abouts.1, ids.0, ids.1, BATCH as i64];
            let is_far: bool =
                deleting.prepare_cached(IS_FAR)?.query_row(params![ids.0, ids.1, APART], |row| row.get(0))?;
            if !is_far {
                deleting.prepare_cached(DELETE_BETWEEN)?.execute(bounds)?;
            }
        }
        deleting.commit()?;
        Ok(gone.len())
    }

    /// Deletes what no row is about any more. Later batches use later numbers,
    /// so no row beyond a batch's length uses one before those.
    fn delete_unused(&self) -> rusqlite::Result<usize> {
        const DELETE: &str = "DELETE FROM abouts WHERE id < coalesce(
            (SELECT min(about) FROM (SELECT about FROM entries ORDER BY id LIMIT ?1)), 9223372036854775807)";
        self.connection.prepare_cached(DELETE)?.execute([BATCH as i64])
    }

    /// Writes the log into the file, as far as readers let it.
    pub(super) fn checkpoint(&self) {
        let _ = self.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
    }

    /// Bytes of the file that are in use.
    pub(super) fn used(&self) -> Result<u64, StoreError> {
        let pages = self.pragma("page_count")? - self.pragma("freelist_count")?;
        Ok(pages.unsigned_abs() * self.pragma("page_size")?.unsigned_abs())
    }

    fn pragma(&self, name: &str) -> Result<i64, StoreError> {
        Ok(self.connection.pragma_query_value(None, name, |row| row.get(0))?)
    }
}

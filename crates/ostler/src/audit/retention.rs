//! Making room: what is too old or too much goes, in small steps, so that
//! nobody waits long for the file.

use rusqlite::params;

use super::store::{Store, StoreError};

/// Rows that are deleted at a time.
const STEP: i64 = 1_000;
/// Pages that are given back at a time: more than a step frees.
const PAGES: i64 = 512;

impl Store {
    /// Deletes rows older than `oldest`, and the oldest ones while the file is
    /// larger than `max_size`. True if there is more to do.
    pub(super) fn trim(&mut self, oldest: i64, max_size: u64) -> Result<bool, StoreError> {
        let mut deleted = self.connection.execute(
            "DELETE FROM events WHERE id IN (SELECT id FROM events WHERE at < ?1 ORDER BY at LIMIT ?2)",
            params![oldest, STEP],
        )?;
        if deleted == 0 && self.used()? > max_size {
            deleted = self.connection.execute(
                "DELETE FROM events WHERE id IN (SELECT id FROM events ORDER BY id LIMIT ?1)",
                params![STEP],
            )?;
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

//! Reader of the audit file: hands over rows one by one, in bounded memory.

use std::ops::Range;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, ErrorCode, OpenFlags, named_params};
use serde::{Deserialize, Serialize};

use super::schema::{self, LATE_MICROS};
use crate::time_text;

/// Upper bound on the wait for another process's lock.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Rows per read. No read transaction stays open in between: a slow reader must not block the writer's checkpoint.
const ROWS_PER_READ: u32 = 1_000;

/// Filter of rows. Gaps are always shown, because they say what is missing.
#[derive(Debug, Clone, Default)]
pub(crate) struct AuditFilter {
    /// Lower bound, inclusive, in microseconds since 1970.
    pub(crate) since: Option<i64>,
    /// Upper bound, exclusive, in microseconds since 1970.
    pub(crate) until: Option<i64>,
    pub(crate) role: Option<String>,
    /// A principal, with or without its source: `ada` is also `token:ada` and `jwt:ada`.
    pub(crate) caller: Option<String>,
    pub(crate) server: Option<String>,
    /// A tool, prompt or resource, by the server's own name or as `SERVER__TOOL`.
    pub(crate) tool: Option<String>,
    pub(crate) outcome: Option<String>,
    /// Only calls and requests that a rule or authentication refused.
    pub(crate) denied: bool,
    /// Only rows with a greater id.
    pub(crate) after: Option<i64>,
    /// At most this many rows, the newest ones.
    pub(crate) limit: Option<u32>,
}

/// One row, as it is shown. What it has no value for is absent.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "AuditEvent"))]
#[serde(rename_all = "camelCase")]
pub(crate) struct AuditEvent {
    /// Grows with every row.
    pub(crate) id: i64,
    /// When it ended, as RFC 3339 has it.
    #[cfg_attr(test, schemars(extend("format" = "date-time")))]
    pub(crate) at: String,
    /// `call`, `server`, `admin`, `refusal` or `gap`.
    pub(crate) kind: String,
    /// Who.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) principal: Option<String>,
    /// In which role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) role: Option<String>,
    /// A keyed hash of the client's session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) session: Option<String>,
    /// With which server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) server: Option<String>,
    /// A method, or a word for what happened.
    pub(crate) action: String,
    /// With which tool, prompt, resource or token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) subject: Option<String>,
    /// What came of it.
    pub(crate) outcome: String,
    /// The rule that refused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rule: Option<String>,
    /// What became of the request: `not-sent`, `rejected`, `unknown` or `answered`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) delivery: Option<String>,
    /// The session of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) generation: Option<i64>,
    /// How long it took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) took_ms: Option<f64>,
    /// How many things the row stands for, if not one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) count: Option<i64>,
    /// A keyed hash of the arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) arguments_hash: Option<String>,
    /// Their text without what looks like a secret, where that is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) arguments: Option<String>,
    /// What else there is to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) detail: Option<String>,
}

/// Failure to read the file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum QueryError {
    /// SQLite failed.
    #[error("{0}")]
    Sqlite(#[from] rusqlite::Error),
    /// The consumer stopped the iteration.
    #[error("nobody takes the rows")]
    Stopped,
}

impl QueryError {
    /// Returns whether there is nothing to read yet: no file, or one without a table.
    fn is_missing(&self) -> bool {
        let Self::Sqlite(rusqlite::Error::SqliteFailure(error, words)) = self else { return false };
        let has_no_table = words.as_deref().is_some_and(|words| words.contains("no such table"));
        error.code == ErrorCode::CannotOpen || has_no_table
    }
}

const COLUMNS: &str = "id, at, kind, principal, role, session, server, action, subject, outcome, rule, delivery, \
    generation, took, count, arguments_hash, arguments, detail";

const WHERE: &str = "id > :after AND id < :end AND at >= :since AND at < :until AND (kind = 'gap' OR (
    (:role IS NULL OR role = :role)
    AND (:caller IS NULL OR principal IN (:caller, 'token:' || :caller, 'jwt:' || :caller))
    AND (:server IS NULL OR server = :server)
    AND (:tool IS NULL OR subject = :tool OR server || '__' || subject = :tool)
    AND (:outcome IS NULL OR outcome = :outcome)
    AND (NOT :denied OR rule IS NOT NULL OR kind = 'refusal')))";

/// Audit file, opened read-only.
#[derive(Debug)]
pub(crate) struct AuditReader {
    connection: Connection,
}

impl AuditReader {
    /// Opens a file; `None` if there is none. Never creates one.
    pub(crate) fn open(file: &Path) -> Result<Option<Self>, QueryError> {
        if !file.exists() {
            return Ok(None);
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(file, flags)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        Ok(Some(Self { connection }))
    }

    /// Passes every matching row to `take`, oldest first, until `take` returns false.
    pub(crate) fn each(
        &self,
        filter: &AuditFilter,
        take: impl FnMut(AuditEvent) -> bool,
    ) -> Result<(), QueryError> {
        match self.each_row(filter, take) {
            Err(error) if error.is_missing() => Ok(()),
            other => other,
        }
    }

    fn each_row(
        &self,
        filter: &AuditFilter,
        mut take: impl FnMut(AuditEvent) -> bool,
    ) -> Result<(), QueryError> {
        let mut after = filter.after.unwrap_or(-1);
        loop {
            let rows = self.batch(filter, after)?;
            let is_all = filter.limit.is_some() || rows.len() < ROWS_PER_READ as usize;
            after = rows.last().map_or(after, |event| event.id);
            for event in rows {
                if !take(event) {
                    return Err(QueryError::Stopped);
                }
            }
            if is_all {
                return Ok(());
            }
        }
    }

    /// Reads rows after the last one that was read, in the order of their ids.
    fn batch(&self, filter: &AuditFilter, after: i64) -> Result<Vec<AuditEvent>, QueryError> {
        let newest = format!("SELECT {COLUMNS} FROM events WHERE {WHERE} ORDER BY id DESC LIMIT :limit");
        let text = match filter.limit {
            Some(_) => format!("SELECT * FROM ({newest}) ORDER BY id"),
            None => format!("SELECT {COLUMNS} FROM events WHERE {WHERE} ORDER BY id LIMIT :limit"),
        };
        let (since, until) = (filter.since.unwrap_or(i64::MIN), filter.until.unwrap_or(i64::MAX));
        let numbers = self.id_range(since..until)?;
        let mut statement = self.connection.prepare_cached(&text)?;
        let mut rows = statement.query(named_params! {
            // One lower bound: SQLite finds the first row by one of them only.
            ":after": after.max(numbers.start.saturating_sub(1)),
            ":end": numbers.end,
            ":since": since,
            ":until": until,
            ":role": filter.role,
            ":caller": filter.caller,
            ":server": filter.server,
            ":tool": filter.tool,
            ":outcome": filter.outcome,
            ":denied": filter.denied,
            ":limit": filter.limit.unwrap_or(ROWS_PER_READ),
        })?;
        let mut events = Vec::new();
        while let Some(row) = rows.next()? {
            events.push(AuditEvent::from_row(row)?);
        }
        Ok(events)
    }

    /// Returns the ids that rows of a time range can have. No row has an id before its time, and none is later than the
    /// latest.
    fn id_range(&self, times: Range<i64>) -> Result<Range<i64>, QueryError> {
        let classes = schema::classes(&self.connection)?;
        if classes.is_empty() {
            return Ok(i64::MIN..i64::MAX);
        }
        let mut latest = LATE_MICROS;
        for class in classes {
            let (entries, _) = class.tables();
            let of_class = format!("SELECT coalesce(max(late), 0) FROM {entries} WHERE late > {LATE_MICROS}");
            latest = latest.max(self.connection.prepare_cached(&of_class)?.query_row([], |row| row.get(0))?);
        }
        Ok(times.start..times.end.saturating_add(latest))
    }
}

impl AuditEvent {
    fn from_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
        let took: Option<i64> = row.get(13)?;
        Ok(Self {
            id: row.get(0)?,
            at: time_text::rfc3339(time_from_micros(row.get(1)?)),
            kind: row.get(2)?,
            principal: row.get(3)?,
            role: row.get(4)?,
            session: row.get(5)?,
            server: row.get(6)?,
            action: row.get(7)?,
            subject: row.get(8)?,
            outcome: row.get(9)?,
            rule: row.get(10)?,
            delivery: row.get(11)?,
            generation: row.get(12)?,
            took_ms: took.map(|micros| micros as f64 / 1_000.0),
            count: row.get(14)?,
            arguments_hash: row.get(15)?,
            arguments: row.get(16)?,
            detail: row.get(17)?,
        })
    }
}

/// Returns the time of a row.
pub(super) fn time_from_micros(micros: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(micros.max(0).unsigned_abs())
}

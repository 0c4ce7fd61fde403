//! Records of executions, which every process of a test shares. Begin and end are two lines, so a
//! process killed in between leaves a begin alone.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::response::quote;

/// The file of `--executions`; without it nothing is written.
#[derive(Debug, Default)]
pub(crate) struct ExecutionLog {
    journal: Option<Arc<AppendFile>>,
    server: String,
    /// The number of executions that this process has begun.
    begun: u64,
}

/// The facts of an execution at its begin.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExecutionStart<'a> {
    pub(crate) tool: &'a str,
    /// The caller's number of the call, where the arguments hold one.
    pub(crate) nonce: Option<u64>,
    /// The caching hint of its answer.
    pub(crate) ttl_ms: Option<i64>,
}

impl ExecutionLog {
    pub(crate) fn new(journal: Option<AppendFile>, server: &str) -> Self {
        Self { journal: journal.map(Arc::new), server: quote(server), begun: 0 }
    }

    /// Writes the begin of an execution and returns its stamp, which no other execution has.
    pub(crate) fn begin(&mut self, start: &ExecutionStart<'_>) -> String {
        self.begun += 1;
        let (at, pid) = (micros(), std::process::id());
        // The system reuses process ids; together with the time they are unique.
        let stamp = format!("{pid}-{}-{at}", self.begun);
        if let Some(journal) = &self.journal {
            journal.append(&format!(
                r#"{{"what":"begin","stamp":"{stamp}","server":{},"pid":{pid},"tool":{},"call":{},"at":{at},"ttl_ms":{}}}"#,
                self.server,
                quote(start.tool),
                or_null(start.nonce),
                or_null(start.ttl_ms),
            ));
        }
        stamp
    }

    /// Returns the record to write when the answer leaves.
    pub(crate) fn end_record(&self, stamp: &str, has_failed: bool) -> Option<ExecutionEnd> {
        let journal = self.journal.clone()?;
        Some(ExecutionEnd { journal, stamp: stamp.into(), has_failed })
    }
}

/// The end record of an execution that is not over yet.
#[derive(Debug)]
pub(crate) struct ExecutionEnd {
    journal: Arc<AppendFile>,
    stamp: Box<str>,
    has_failed: bool,
}

impl ExecutionEnd {
    /// Writes the record with the current time, before the answer leaves, so that no answer is
    /// older than its end.
    pub(crate) fn write(&self) {
        let (stamp, at, has_failed) = (&self.stamp, micros(), self.has_failed);
        self.journal
            .append(&format!(r#"{{"what":"end","stamp":"{stamp}","at":{at},"has_failed":{has_failed}}}"#));
    }
}

fn or_null(number: Option<impl ToString>) -> String {
    number.map_or_else(|| "null".into(), |number| number.to_string())
}

/// Returns microseconds since 1970.
fn micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// A file of lines. Each line is one `write` in append mode, so lines of several processes never
/// mix.
#[derive(Debug)]
pub(crate) struct AppendFile {
    file: File,
}

impl AppendFile {
    /// Opens the file, creating it if need be.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self { file })
    }

    /// Appends one line. A failure ends the process, because a test must not pass without its
    /// record.
    pub(crate) fn append(&self, line: &str) {
        let mut bytes = Vec::with_capacity(line.len() + 1);
        bytes.extend_from_slice(line.as_bytes());
        bytes.push(b'\n');
        let written = (&self.file).write(&bytes);
        if !matches!(written, Ok(count) if count == bytes.len()) {
            let _ = writeln!(io::stderr(), "fake-mcp: a journal can't be written");
            std::process::exit(3);
        }
    }
}

/// Returns the ledger's line of an executed call. Arguments come last because raw JSON may hold
/// tabs.
pub(crate) fn execution_line(tool: &str, key: &str, arguments: &str) -> String {
    format!("{}\t{tool}\t{key}\t{arguments}", std::process::id())
}

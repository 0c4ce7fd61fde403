//! What was executed, and when: begin and end are two lines, so that a process
//! that is killed in between leaves a begin alone.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::append_file::AppendFile;
use crate::response::quote;

/// The file of `--executions`, or nothing to write to.
#[derive(Debug, Default)]
pub(crate) struct ExecutionLog {
    journal: Option<Arc<AppendFile>>,
    server: String,
    /// How many executions this process has begun.
    begun: u64,
}

/// What is known of an execution when it begins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExecutionStart<'a> {
    pub(crate) tool: &'a str,
    /// The caller's number of the call, where the arguments hold one.
    pub(crate) nonce: Option<u64>,
    /// How long its answer says that it may be remembered.
    pub(crate) ttl_ms: Option<i64>,
}

impl ExecutionLog {
    pub(crate) fn new(journal: Option<AppendFile>, server: &str) -> Self {
        Self { journal: journal.map(Arc::new), server: quote(server), begun: 0 }
    }

    /// Writes that an execution begins, and gives it a stamp that no other one has.
    pub(crate) fn begin(&mut self, beginning: &ExecutionStart<'_>) -> String {
        self.begun += 1;
        let (at, pid) = (micros(), std::process::id());
        // A process id comes again one day; together with the time it does not.
        let stamp = format!("{pid}-{}-{at}", self.begun);
        if let Some(journal) = &self.journal {
            journal.append(&format!(
                r#"{{"what":"begin","stamp":"{stamp}","server":{},"pid":{pid},"tool":{},"call":{},"at":{at},"ttl_ms":{}}}"#,
                self.server,
                quote(beginning.tool),
                or_null(beginning.nonce),
                or_null(beginning.ttl_ms),
            ));
        }
        stamp
    }

    /// What is written when the answer leaves.
    pub(crate) fn end_record(&self, stamp: &str, has_failed: bool) -> Option<ExecutionEnd> {
        let journal = self.journal.clone()?;
        Some(ExecutionEnd { journal, stamp: stamp.into(), has_failed })
    }
}

/// The end of an execution that has not come yet.
#[derive(Debug)]
pub(crate) struct ExecutionEnd {
    journal: Arc<AppendFile>,
    stamp: Box<str>,
    has_failed: bool,
}

impl ExecutionEnd {
    /// Writes it, as of now. It is written before the answer leaves, so that no answer is older than its end.
    pub(crate) fn write(&self) {
        let (stamp, at, has_failed) = (&self.stamp, micros(), self.has_failed);
        self.journal
            .append(&format!(r#"{{"what":"end","stamp":"{stamp}","at":{at},"has_failed":{has_failed}}}"#));
    }
}

fn or_null(number: Option<impl ToString>) -> String {
    number.map_or_else(|| "null".into(), |number| number.to_string())
}

/// Microseconds since 1970.
fn micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

//! Readers of what servers write to stderr.

use std::collections::HashMap;
use std::sync::Arc;

use ostler_core::error::CallError;

use crate::host::Host;
use crate::server::slot::SlotKey;
use crate::upstream::StderrLine;
use crate::upstream::stdio::StderrLog;

/// Reads what one server writes to stderr, over its restarts. Each read gives
/// what has come since the one before; the first begins with what is kept, also of
/// processes that have ended.
pub struct LogReader {
    host: Host,
    name: String,
    /// How far the log of each slot of the server has been read.
    positions: HashMap<SlotKey, ReadPosition>,
}

struct ReadPosition {
    log: Arc<StderrLog>,
    position: u64,
}

impl Host {
    /// Reads along what a server writes to stderr.
    pub fn logs(&self, name: &str) -> Result<LogReader, CallError> {
        self.server(name)?;
        Ok(LogReader { host: self.clone(), name: name.to_owned(), positions: HashMap::new() })
    }
}

impl LogReader {
    /// Returns the lines since the last read, control characters escaped. An error
    /// says that the server is not there any more.
    pub fn read(&mut self) -> Result<Vec<StderrLine>, CallError> {
        let server = self.host.server(&self.name)?;
        // The last words of a slot that is gone come before those of the next.
        let mut lines: Vec<StderrLine> =
            self.positions.values_mut().flat_map(ReadPosition::read_new).collect();
        let mut open = HashMap::new();
        for slot in server.slots() {
            let log = Arc::clone(&slot.stderr_log);
            let position = match self.positions.remove(&slot.key) {
                Some(page) if Arc::ptr_eq(&page.log, &log) => page.position,
                _ => 0,
            };
            let mut page = ReadPosition { log, position };
            lines.extend(page.read_new());
            open.insert(slot.key.clone(), page);
        }
        self.positions = open;
        Ok(lines)
    }
}

impl ReadPosition {
    fn read_new(&mut self) -> Vec<StderrLine> {
        let (lines, position) = self.log.since(self.position);
        self.position = position;
        lines
    }
}

impl std::fmt::Debug for LogReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogReader").field("name", &self.name).finish_non_exhaustive()
    }
}

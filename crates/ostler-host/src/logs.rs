//! Log readers: read the stderr of servers.

use std::collections::HashMap;
use std::sync::Arc;

use ostler_core::error::CallError;

use crate::host::Host;
use crate::server::slot::SlotKey;
use crate::upstream::StderrLine;
use crate::upstream::stdio::StderrLog;

/// Reader of one server's stderr, over its restarts. Each read returns the lines since the one before; the first begins
/// with the kept lines, also of processes that have ended.
pub struct LogReader {
    host: Host,
    name: String,
    /// Read position in the log of each slot of the server.
    positions: HashMap<SlotKey, ReadPosition>,
}

struct ReadPosition {
    log: Arc<StderrLog>,
    position: u64,
}

impl Host {
    /// Opens a reader of a server's stderr.
    pub fn logs(&self, name: &str) -> Result<LogReader, CallError> {
        self.server(name)?;
        Ok(LogReader { host: self.clone(), name: name.to_owned(), positions: HashMap::new() })
    }
}

impl LogReader {
    /// Returns the lines since the last read, control characters escaped. Fails if the server does not exist any more.
    pub fn read(&mut self) -> Result<Vec<StderrLine>, CallError> {
        let server = self.host.server(&self.name)?;
        // The last lines of a removed slot come before those of the next.
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

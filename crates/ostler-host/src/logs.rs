//! Readers of what servers write to stderr.

use std::collections::HashMap;
use std::sync::Arc;

use ostler_core::error::CallError;

use crate::host::Host;
use crate::server::slot::SlotKey;
use crate::upstream::{LogLine, Startup};

/// Reads what one server writes to stderr, over its restarts. Each read gives
/// what has come since the one before; the first begins with what is kept of
/// the latest process, which may have ended.
pub struct LogReader {
    host: Host,
    name: String,
    /// How far the latest process of each place of the server has been read.
    open: HashMap<SlotKey, Page>,
}

struct Page {
    start: Arc<Startup>,
    position: u64,
}

impl Host {
    /// Reads along what a server writes to stderr.
    pub fn logs(&self, name: &str) -> Result<LogReader, CallError> {
        self.server(name)?;
        Ok(LogReader { host: self.clone(), name: name.to_owned(), open: HashMap::new() })
    }
}

impl LogReader {
    /// Returns the lines since the last read, control characters escaped. An error
    /// says that the server is not there any more.
    pub fn read(&mut self) -> Result<Vec<LogLine>, CallError> {
        let server = self.host.server(&self.name)?;
        // The last words of a process that has ended come before those of the next.
        let mut lines: Vec<LogLine> = self.open.values_mut().flat_map(Page::turn).collect();
        let mut open = HashMap::new();
        for slot in server.slots() {
            let Some(start) = slot.latest_start.load_full() else { continue };
            let position = match self.open.remove(&slot.key) {
                Some(page) if Arc::ptr_eq(&page.start, &start) => page.position,
                _ => 0,
            };
            let mut page = Page { start, position };
            lines.extend(page.turn());
            open.insert(slot.key.clone(), page);
        }
        self.open = open;
        Ok(lines)
    }
}

impl Page {
    fn turn(&mut self) -> Vec<LogLine> {
        let (lines, position) = self.start.words_since(self.position);
        self.position = position;
        lines
    }
}

impl std::fmt::Debug for LogReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogReader").field("name", &self.name).finish_non_exhaustive()
    }
}

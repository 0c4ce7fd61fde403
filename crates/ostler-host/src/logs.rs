//! Readers of what servers write to stderr.

use std::collections::HashMap;
use std::sync::Arc;

use ostler_core::error::CallError;

use crate::host::Host;
use crate::server::slot::SlotKey;

use crate::upstream::{LogLine, Session, Startup};

/// Reads what one server writes to stderr, over its restarts. Each read gives
/// what has come since the one before; the first begins with what is kept.
pub struct LogReader {
    host: Host,
    name: String,
    /// How far each session has been read; one per place of the server.
    open: HashMap<SlotKey, Page>,
    is_begun: bool,
}

struct Page {
    source: Source,
    generation: u64,
    position: u64,
}

/// A start that is under way has no session yet. Both read the same bytes.
enum Source {
    Startup(Arc<Startup>),
    Session(Arc<dyn Session>),
}

impl Host {
    /// Reads along what a server writes to stderr.
    pub fn logs(&self, name: &str) -> Result<LogReader, CallError> {
        self.server(name)?;
        Ok(LogReader { host: self.clone(), name: name.to_owned(), open: HashMap::new(), is_begun: false })
    }
}

impl LogReader {
    /// Returns the lines since the last read, control characters escaped. An error
    /// says that the server is not there any more.
    pub fn read(&mut self) -> Result<Vec<LogLine>, CallError> {
        let server = self.host.server(&self.name)?;
        // The last words of a session that has ended come before those of the next.
        let mut lines: Vec<LogLine> = self.open.values_mut().flat_map(Page::turn).collect();
        let mut open = HashMap::new();
        for slot in server.slots() {
            let (live, generation, failure) = {
                let desk = slot.desk();
                let supervisor = &desk.supervisor;
                (desk.live.clone(), supervisor.generation(), supervisor.failure().cloned())
            };
            let source = match (live, slot.startup.load_full()) {
                (Some(live), _) => Source::Session(Arc::clone(&live.session)),
                (None, Some(startup)) => Source::Startup(startup),
                (None, None) => {
                    let words = failure.filter(|_| !self.is_begun).map(|failure| failure.stderr);
                    lines
                        .extend(words.unwrap_or_default().into_iter().map(|text| LogLine { at: None, text }));
                    continue;
                }
            };
            let position = match self.open.remove(&slot.key) {
                Some(page) if page.generation == generation => page.position,
                _ => 0,
            };
            let mut page = Page { source, generation, position };
            lines.extend(page.turn());
            open.insert(slot.key.clone(), page);
        }
        (self.open, self.is_begun) = (open, true);
        Ok(lines)
    }
}

impl Page {
    fn turn(&mut self) -> Vec<LogLine> {
        let (lines, position) = match &self.source {
            Source::Startup(startup) => startup.words_since(self.position),
            Source::Session(session) => session.words_since(self.position),
        };
        self.position = position;
        lines
    }
}

impl std::fmt::Debug for LogReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogReader").field("name", &self.name).finish_non_exhaustive()
    }
}

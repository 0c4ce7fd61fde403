//! Events from a response, one by one.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::fault::FaultKind;
use ostler_wire::{SseEvent, SseParser};
use reqwest::Response;

use super::counters::HttpCounters;
use super::faults::body_fault_kind;

/// How long to wait before a stream that has ended is asked for again, unless
/// the server says otherwise.
const USUAL_RETRY: Duration = Duration::from_secs(1);
/// The shortest wait that a server may ask for: one that ends every stream at
/// once must not keep its client busy.
const MIN_RETRY: Duration = Duration::from_millis(500);
/// The longest wait that a server may ask for.
const MAX_RETRY: Duration = Duration::from_secs(60);

/// The events of one response.
pub(crate) struct EventStream {
    response: Response,
    splitter: SseParser,
    cap: usize,
    counters: Arc<HttpCounters>,
    pub(crate) position: StreamPosition,
}

/// Where a stream stands, and so where another response can go on.
#[derive(Debug, Clone)]
pub(crate) struct StreamPosition {
    /// The last event that had an id.
    pub(crate) last_id: Option<String>,
    /// How long to wait before going on.
    pub(crate) retry: Duration,
}

impl Default for StreamPosition {
    fn default() -> Self {
        Self { last_id: None, retry: USUAL_RETRY }
    }
}

impl EventStream {
    pub(crate) fn new(
        response: Response,
        cap: usize,
        counters: Arc<HttpCounters>,
        position: StreamPosition,
    ) -> Self {
        Self { response, splitter: SseParser::new(cap), cap, counters, position }
    }

    /// The next event with data; `None` at the end. Dropping the future loses
    /// nothing but what has not been read.
    pub(crate) async fn next(&mut self) -> Result<Option<SseEvent>, FaultKind> {
        loop {
            while let Some(event) = self.splitter.next_event() {
                let event = event.map_err(|_| FaultKind::Oversize(self.cap))?;
                self.position.note(&event);
                if !event.data.is_empty() {
                    return Ok(Some(event));
                }
            }
            if self.splitter.is_skipping() {
                // Whoever reads a stream waits for what is on it, and this can't be kept.
                return Err(FaultKind::Oversize(self.cap));
            }
            match self.response.chunk().await {
                Ok(Some(bytes)) => {
                    self.counters.note_read();
                    self.splitter.push(&bytes);
                }
                Ok(None) => return Ok(None),
                Err(error) => return Err(body_fault_kind(error)),
            }
        }
    }
}

impl StreamPosition {
    fn note(&mut self, event: &SseEvent) {
        if let Some(id) = &event.id {
            self.last_id = Some(id.clone()).filter(|id| !id.is_empty());
        }
        if let Some(retry) = event.retry {
            self.retry = retry.clamp(MIN_RETRY, MAX_RETRY);
        }
    }
}

//! Event stream: server-sent events of one response.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::fault::FaultKind;
use ostler_wire::{SseEvent, SseParser};
use reqwest::Response;

use super::counters::HttpCounters;
use super::faults::body_fault_kind;

/// Delay before a stream that has ended is requested again, unless the server sets one.
const USUAL_RETRY: Duration = Duration::from_secs(1);
/// Lower bound on the delay that a server may set: one that ends every stream at once must not keep its client busy.
const MIN_RETRY: Duration = Duration::from_millis(500);
/// Upper bound on the delay that a server may set.
const MAX_RETRY: Duration = Duration::from_secs(60);

/// The events of one response.
pub(crate) struct EventStream {
    response: Response,
    splitter: SseParser,
    cap: usize,
    counters: Arc<HttpCounters>,
    pub(crate) position: StreamPosition,
}

/// Position in a stream, from which another response can resume.
#[derive(Debug, Clone)]
pub(crate) struct StreamPosition {
    /// The last event that had an id.
    pub(crate) last_id: Option<String>,
    /// Delay before the stream is resumed.
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

    /// Returns the next event with data; `None` at the end. Dropping the future loses only unread bytes.
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
                // The reader waits for an event of this stream, and this one exceeds the limit.
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

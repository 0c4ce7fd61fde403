//! Events from a response, one by one.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::fault::FaultKind;
use ostler_wire::{Event, EventSplitter};
use reqwest::Response;

use super::tally::Tally;
use super::turn_down::broken;

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
    splitter: EventSplitter,
    cap: usize,
    tally: Arc<Tally>,
    pub(crate) place: Place,
}

/// Where a stream stands, and so where another response can go on.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// The last event that had an id.
    pub(crate) last_id: Option<String>,
    /// How long to wait before going on.
    pub(crate) retry: Duration,
}

impl Default for Place {
    fn default() -> Self {
        Self { last_id: None, retry: USUAL_RETRY }
    }
}

impl EventStream {
    pub(crate) fn new(response: Response, cap: usize, tally: Arc<Tally>, place: Place) -> Self {
        Self { response, splitter: EventSplitter::new(cap), cap, tally, place }
    }

    /// The next event with data; `None` at the end. Dropping the future loses
    /// nothing but what has not been read.
    pub(crate) async fn next(&mut self) -> Result<Option<Event>, FaultKind> {
        loop {
            while let Some(event) = self.splitter.next_event() {
                let event = event.map_err(|_| FaultKind::Oversize(self.cap))?;
                self.place.note(&event);
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
                    self.tally.hear();
                    self.splitter.push(&bytes);
                }
                Ok(None) => return Ok(None),
                Err(error) => return Err(broken(error)),
            }
        }
    }
}

impl Place {
    fn note(&mut self, event: &Event) {
        if let Some(id) = &event.id {
            self.last_id = Some(id.clone()).filter(|id| !id.is_empty());
        }
        if let Some(retry) = event.retry {
            self.retry = retry.clamp(MIN_RETRY, MAX_RETRY);
        }
    }
}

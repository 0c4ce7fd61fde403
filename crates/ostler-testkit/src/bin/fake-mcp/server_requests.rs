//! Questions to the client that calls wait for.

use std::collections::{HashMap, VecDeque};

use crate::era::RequestEra;

/// A call that goes on when the client has answered.
#[derive(Debug)]
pub(crate) struct FakeSuspendedCall {
    pub(crate) call_id: String,
    pub(crate) era: RequestEra,
    /// The question as it was sent, and how often it is asked again.
    pub(crate) line: String,
    pub(crate) repeats_left: u32,
}

/// Open questions by the raw id they were asked with. Two calls may ask with the same id; the first one asked is
/// answered first.
#[derive(Debug, Default)]
pub(crate) struct OpenServerRequests {
    open: HashMap<String, VecDeque<FakeSuspendedCall>>,
}

impl OpenServerRequests {
    pub(crate) fn add(&mut self, ask_id: &str, waiting: FakeSuspendedCall) {
        self.open.entry(ask_id.to_owned()).or_default().push_back(waiting);
    }

    /// The call an answer belongs to.
    pub(crate) fn take(&mut self, ask_id: &str) -> Option<FakeSuspendedCall> {
        let queue = self.open.get_mut(ask_id)?;
        let waiting = queue.pop_front();
        if queue.is_empty() {
            self.open.remove(ask_id);
        }
        waiting
    }

    /// Forgets what a cancelled call waits for.
    pub(crate) fn cancel(&mut self, call_id: &str) {
        self.open.retain(|_, queue| {
            queue.retain(|waiting| waiting.call_id != call_id);
            !queue.is_empty()
        });
    }
}

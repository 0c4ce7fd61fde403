//! Start progress: notifications for a caller whose call waits for a start.

use std::time::Duration;

use ostler_core::caller::Caller;
use ostler_wire::ProgressParams;
use serde_json::json;
use tokio::time::Instant;

use super::slot::Slot;
use crate::host::Host;
use crate::upstream::SharedCallObserver;

/// Time before the first notification: most starts are over by then.
const FIRST: Duration = Duration::from_secs(1);

/// Time between notifications: often enough for a person, and for clients that end calls which show no progress.
const EVERY: Duration = Duration::from_secs(5);

/// Keeps the numbers of notifications below those of the call itself.
const BILLION: f64 = 1e9;

/// The notifications to one caller. Their numbers are billionths of the slot's age in seconds: they rise from one
/// start to the next, and those of the call itself, which begin where it is sent, are larger.
pub(crate) struct StartProgress<'a> {
    observer: Option<&'a SharedCallObserver>,
    /// Due time of the next notification; far in the future for a caller without a progress token.
    pub(crate) next_at: Instant,
    /// True for callers that may use all of the server: their notifications include pid and stderr.
    has_details: bool,
}

impl<'a> StartProgress<'a> {
    pub(crate) fn new(slot: &Slot, caller: &Caller, voice: Option<&'a SharedCallObserver>) -> Self {
        let observer = voice.filter(|voice| voice.wants_progress());
        let is_unrestricted = |host: Host| !host.is_restricted_at(caller, slot.key.server.as_str());
        let has_details = observer.is_some() && slot.host.upgrade().is_some_and(is_unrestricted);
        let wait = if observer.is_some() { FIRST } else { Duration::from_secs(86_400) };
        Self { observer, next_at: Instant::now() + wait, has_details }
    }

    /// Sends the caller the state of the start, if that is due.
    pub(crate) fn notify_if_due(&mut self, slot: &Slot) {
        let Some(voice) = self.observer.filter(|_| Instant::now() >= self.next_at) else { return };
        self.next_at = Instant::now() + EVERY;
        let startup = slot.startup.load();
        let Some(startup) = startup.as_ref() else { return };
        let mut status = startup.status();
        if !self.has_details {
            (status.pid, status.stderr) = (None, Vec::new());
        }
        let message = format!("server `{}` {status}", slot.key.server);
        let progress = slot.created.elapsed().as_secs_f64() / BILLION;
        let params = json!({"progressToken": 0, "progress": progress, "message": message});
        if let Some(progress) = ProgressParams::parse(&params.to_string().into()) {
            voice.on_progress(&progress);
        }
    }
}

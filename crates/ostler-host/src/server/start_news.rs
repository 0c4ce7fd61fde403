//! Start news: progress notifications for a caller whose call waits for a start.

use std::time::Duration;

use ostler_wire::Progress;
use serde_json::json;
use tokio::time::Instant;

use super::slot::Slot;
use crate::upstream::SharedVoice;

/// Time before the first notification: most starts are over by then.
const FIRST: Duration = Duration::from_secs(1);

/// Time between notifications: often enough for a person, and for clients that end calls which show no progress.
const EVERY: Duration = Duration::from_secs(5);

/// Keeps the numbers of notifications below those of the call itself.
const BILLION: f64 = 1e9;

/// The notifications to one caller. Their numbers are billionths of the slot's age in seconds: they rise from one start to
/// the next, and those of the call itself, which begin where it is sent, are larger.
pub(crate) struct StartNews<'a> {
    voice: Option<&'a SharedVoice>,
    /// When the next one is due; far away for a caller that wants none.
    pub(crate) next: Instant,
}

impl<'a> StartNews<'a> {
    pub(crate) fn new(voice: Option<&'a SharedVoice>) -> Self {
        let voice = voice.filter(|voice| voice.wants_progress());
        let wait = if voice.is_some() { FIRST } else { Duration::from_secs(86_400) };
        Self { voice, next: Instant::now() + wait }
    }

    /// Tells the caller how far the start has come, if that is due.
    pub(crate) fn tell(&mut self, slot: &Slot) {
        let Some(voice) = self.voice.filter(|_| Instant::now() >= self.next) else { return };
        self.next = Instant::now() + EVERY;
        let startup = slot.startup.load();
        let Some(startup) = startup.as_ref() else { return };
        let message = format!("server `{}` {}", slot.key.server, startup.status());
        let progress = slot.created.elapsed().as_secs_f64() / BILLION;
        let params = json!({"progressToken": 0, "progress": progress, "message": message});
        if let Some(progress) = Progress::parse(&params.to_string().into()) {
            voice.progress(&progress);
        }
    }
}

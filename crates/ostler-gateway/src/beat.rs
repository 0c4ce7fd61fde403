//! A short timer that runs while requests come, so that theirs are cheap.
//!
//! A timer that is due before all others makes the runtime wake its driver,
//! which is a system call. Requests set timers that almost never fire, and on
//! a quiet daemon each of them would be the first that is due. With one that
//! is due even sooner they only go into a list.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Shorter than any time a request waits for something that usually comes.
const PERIOD: Duration = Duration::from_millis(10);

/// The timer. It stops by itself when a period passes without a request, so a
/// daemon that nobody uses is not woken.
#[derive(Debug, Default)]
pub(crate) struct Beat {
    is_running: AtomicBool,
    was_used: AtomicBool,
}

impl Beat {
    /// A request is about to set a timer.
    pub(crate) fn keep(self: &Arc<Self>) {
        self.was_used.store(true, Ordering::Relaxed);
        if !self.is_running.load(Ordering::Relaxed) && !self.is_running.swap(true, Ordering::Relaxed) {
            tokio::spawn(Arc::clone(self).run());
        }
    }

    async fn run(self: Arc<Self>) {
        while self.was_used.swap(false, Ordering::Relaxed) {
            tokio::time::sleep(PERIOD).await;
        }
        self.is_running.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_timer_runs_while_it_is_used_and_not_longer() {
        let beat = Arc::new(Beat::default());
        beat.keep();
        beat.keep();
        assert_eq!(Arc::strong_count(&beat), 2, "one timer for all");
        tokio::time::sleep(PERIOD / 2).await;
        beat.keep();
        tokio::time::sleep(PERIOD).await;
        assert_eq!(Arc::strong_count(&beat), 2, "it was used again");
        tokio::time::sleep(PERIOD).await;
        assert_eq!(Arc::strong_count(&beat), 1);
        beat.keep();
        assert_eq!(Arc::strong_count(&beat), 2);
    }
}

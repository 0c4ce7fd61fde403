//! Activity: counts requests in flight and the time since the last one, for programs that end when they are idle.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// Counter of requests in flight. It reads no clock and wakes no task, unless [`Activity::idle_for`] is awaited.
#[derive(Debug)]
pub struct Activity {
    in_flight: AtomicUsize,
    /// True while [`Activity::idle_for`] is awaited.
    is_awaited: AtomicBool,
    /// End of the last activity, recorded only while idleness is awaited.
    last_end: Mutex<Instant>,
    idle: Notify,
}

/// Guard of an activity in progress. Dropping it ends the activity.
#[derive(Debug)]
pub struct ActivityGuard(Arc<Activity>);

impl Activity {
    /// Makes a counter at zero.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            in_flight: AtomicUsize::new(0),
            is_awaited: AtomicBool::new(false),
            last_end: Mutex::new(Instant::now()),
            idle: Notify::new(),
        })
    }

    /// Begins an activity.
    pub fn begin(self: &Arc<Self>) -> ActivityGuard {
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        ActivityGuard(Arc::clone(self))
    }

    /// Waits until no activity has been in progress for that long.
    pub async fn idle_for(&self, period: Duration) {
        self.set_last_end();
        self.is_awaited.store(true, Ordering::SeqCst);
        loop {
            while self.in_flight.load(Ordering::SeqCst) > 0 {
                self.idle.notified().await;
            }
            let due = *self.last_end.lock().unwrap_or_else(PoisonError::into_inner) + period;
            if Instant::now() >= due {
                return;
            }
            tokio::time::sleep_until(due).await;
        }
    }

    fn set_last_end(&self) {
        *self.last_end.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }
}

impl Drop for ActivityGuard {
    fn drop(&mut self) {
        let is_awaited = self.0.is_awaited.load(Ordering::SeqCst);
        if is_awaited {
            // Before the count: once that is zero, the time must be right.
            self.0.set_last_end();
        }
        if self.0.in_flight.fetch_sub(1, Ordering::SeqCst) == 1 && is_awaited {
            self.0.idle.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn idleness_lasts_from_the_end_of_the_last() {
        let activity = Activity::new();
        let period = Duration::from_secs(600);
        let began = Instant::now();
        let first = activity.begin();
        let stay = async {
            tokio::time::sleep(Duration::from_secs(1_000)).await;
            let second = activity.begin();
            drop(first);
            tokio::time::sleep(Duration::from_secs(1_000)).await;
            drop(second);
        };
        tokio::join!(activity.idle_for(period), stay);
        assert_eq!(began.elapsed(), Duration::from_secs(2_600));
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_and_goes_meanwhile_begins_the_period_anew() {
        let activity = Activity::new();
        let period = Duration::from_secs(600);
        let began = Instant::now();
        let visits = async {
            for _ in 0..10 {
                tokio::time::sleep(Duration::from_secs(500)).await;
                drop(activity.begin());
            }
        };
        tokio::join!(activity.idle_for(period), visits);
        assert_eq!(began.elapsed(), Duration::from_secs(5_600));
    }

    #[tokio::test(start_paused = true)]
    async fn what_begins_before_idleness_is_awaited_counts() {
        let activity = Activity::new();
        let before = activity.begin();
        let began = Instant::now();
        let end = async {
            tokio::time::sleep(Duration::from_secs(50)).await;
            drop(before);
        };
        tokio::join!(activity.idle_for(Duration::from_secs(10)), end);
        assert_eq!(began.elapsed(), Duration::from_secs(60));
    }
}

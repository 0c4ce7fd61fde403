//! Time that two machines can speak about.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// Milliseconds since 1970, counted on from one look at the system's clock: a
/// clock that is set meanwhile moves no deadline.
#[derive(Debug, Clone, Copy)]
pub struct WallClock {
    base: Instant,
    base_unix: u64,
}

impl WallClock {
    /// A clock that agrees with the system's now.
    pub fn new() -> Self {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::starting_at(u64::try_from(unix.as_millis()).unwrap_or(u64::MAX))
    }

    /// A clock that shows this many milliseconds now.
    pub fn starting_at(unix: u64) -> Self {
        Self { base: Instant::now(), base_unix: unix }
    }

    /// What it shows now.
    pub fn now(&self) -> u64 {
        self.at(Instant::now())
    }

    /// What it shows at a moment.
    pub fn at(&self, moment: Instant) -> u64 {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        match moment.checked_duration_since(self.base) {
            Some(later) => self.base_unix.saturating_add(millis(later)),
            None => self.base_unix.saturating_sub(millis(self.base - moment)),
        }
    }

    /// How long until it shows `unix`; `None` if it has shown it.
    pub fn until(&self, unix: u64) -> Option<Duration> {
        let left = unix.checked_sub(self.now()).filter(|left| *left > 0)?;
        Some(Duration::from_millis(left))
    }
}

impl Default for WallClock {
    fn default() -> Self {
        Self::new()
    }
}

//! Wall clock: deadlines that two machines can exchange.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// Milliseconds since 1970, advanced monotonically from one reading of the system clock. Setting
/// the system clock later moves no deadline.
#[derive(Debug, Clone, Copy)]
pub struct WallClock {
    base: Instant,
    base_unix: u64,
}

impl WallClock {
    /// Returns a clock that starts at the system time.
    pub fn new() -> Self {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::starting_at(u64::try_from(unix.as_millis()).unwrap_or(u64::MAX))
    }

    /// Returns a clock that shows `unix` milliseconds now.
    pub fn starting_at(unix: u64) -> Self {
        Self { base: Instant::now(), base_unix: unix }
    }

    /// Returns the current time in milliseconds since 1970.
    pub fn now(&self) -> u64 {
        self.at(Instant::now())
    }

    /// Returns the time at `moment`, in milliseconds since 1970.
    pub fn at(&self, moment: Instant) -> u64 {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        match moment.checked_duration_since(self.base) {
            Some(later) => self.base_unix.saturating_add(millis(later)),
            None => self.base_unix.saturating_sub(millis(self.base - moment)),
        }
    }

    /// Returns the time left until `unix`; `None` if it has passed.
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

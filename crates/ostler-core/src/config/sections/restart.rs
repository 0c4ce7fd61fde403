//! `restart` and `breaker`: handling of a failing server.

use std::time::Duration;

use serde::Serialize;

use crate::config::keys::section::section;
use crate::config::read::SectionReader;
use crate::fault::HumanDuration;

section! {
    /// Number and delays of a failing server's restarts.
    #[derive(Debug, Clone, Copy, PartialEq, Serialize)]
    pub struct RestartSettings("restart", default, written) check check_delays {
        /// Restarts allowed in the window; the failure after the last one ejects the server.
        max: u32 = count(0..=0xffff_ffff, 5);
        /// The sliding window in which restarts are counted.
        window: Duration = duration(1.., "5m");
        /// The first delay before a restart, five times that before the server has come up; doubles from there.
        first_delay: Duration = duration(1.., "100ms");
        /// The longest delay before a restart.
        max_delay: Duration = duration(1.., "5s");
        /// Time an ejected server stays out before it is tried once; doubles up to ten times that. With
        /// "never", until it is reloaded.
        readmit_after: Option<Duration> = duration_or_never("60s") => SectionReader::duration_or_never;
    }
}

section! {
    /// Limits after which a failing server receives no calls.
    #[derive(Debug, Clone, Copy, PartialEq, Serialize)]
    pub struct BreakerSettings("breaker", default, written) {
        /// Consecutive failures that open the breaker; 0 switches it off.
        failures: u32 = count(0..=0xffff_ffff, 5);
        /// Time it stays open at first; doubles with each failed probe.
        reset: Duration = duration(1.., "30s");
    }
}

/// Checks that the first delay is not longer than the longest.
fn check_delays(settings: &mut RestartSettings, reader: &SectionReader<'_>) {
    if settings.first_delay > settings.max_delay {
        let key = if reader.has("first_delay") { "first_delay" } else { "max_delay" };
        let message = format!(
            "the first delay ({}) of `{}` is longer than its longest ({})",
            HumanDuration(settings.first_delay),
            reader.path,
            HumanDuration(settings.max_delay)
        );
        reader.context.error(reader.key_span(key), &reader.key_path(key), message, "raise `max_delay`");
    }
}

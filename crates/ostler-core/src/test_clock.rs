//! Clock of the tests: milliseconds after one fixed instant, so that tables and models can be written in
//! numbers.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

#[expect(clippy::disallowed_methods, reason = "an instant can't be made any other way; only offsets matter")]
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Returns the instant `millis` after the beginning.
pub(crate) fn at(millis: u64) -> Instant {
    *START + ms(millis)
}

/// Returns a duration in milliseconds.
pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

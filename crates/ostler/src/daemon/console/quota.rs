//! Share of the console that one server gets: a number of lines in a minute, the rest summed up in one.

use std::time::Duration;

use tokio::time::Instant;

use super::MOST_LINES;
use crate::output::Tint;

const MINUTE: Duration = Duration::from_secs(60);

/// The lines of one server in the current minute.
#[derive(Debug, Default)]
pub(super) struct Quota {
    began: Option<Instant>,
    said: u32,
    held: Option<(Tint, Held)>,
}

/// Lines that were not said.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) number: u32,
    /// The last of them.
    pub(super) last: String,
}

/// What becomes of a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ruling {
    /// It is said, after the sum of those that were held in the minute before.
    Say { before: Option<(Tint, Held)> },
    /// It is held; the first one has the sum said at a time.
    Hold { until: Option<Instant> },
}

impl Quota {
    /// Decides about a line.
    pub(super) fn ask(&mut self, now: Instant, (tint, text): (Tint, &str)) -> Ruling {
        let began = *self.began.get_or_insert(now);
        if now.duration_since(began) >= MINUTE {
            (self.began, self.said) = (Some(now), 0);
        }
        if self.said < MOST_LINES {
            self.said += 1;
            return Ruling::Say { before: self.held.take() };
        }
        let number = self.held.as_ref().map_or(0, |(_, held)| held.number) + 1;
        self.held = Some((tint, Held { number, last: text.to_owned() }));
        Ruling::Hold { until: (number == 1).then(|| began + MINUTE) }
    }

    /// Takes the lines that were held, at the end of the minute.
    pub(super) fn sum_up(&mut self) -> Option<(Tint, Held)> {
        self.held.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_has_ten_lines_and_one_that_sums_up() {
        let mut quota = Quota::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        for second in 0..10 {
            assert_eq!(quota.ask(at(second), (Tint::Bad, "x")), Ruling::Say { before: None });
        }
        assert_eq!(quota.ask(at(11), (Tint::Bad, "x")), Ruling::Hold { until: Some(at(60)) });
        assert_eq!(quota.ask(at(12), (Tint::Good, "y")), Ruling::Hold { until: None });
        let held = Some((Tint::Good, Held { number: 2, last: "y".into() }));
        assert_eq!(quota.sum_up(), held);
        assert_eq!(quota.ask(at(60), (Tint::Bad, "x")), Ruling::Say { before: None });
    }

    #[test]
    fn a_sum_that_was_not_said_comes_before_the_next_line() {
        let mut quota = Quota::default();
        let start = Instant::now();
        for _ in 0..11 {
            quota.ask(start, (Tint::Bad, "x"));
        }
        let before = Some((Tint::Bad, Held { number: 1, last: "x".into() }));
        assert_eq!(quota.ask(start + MINUTE, (Tint::Bad, "z")), Ruling::Say { before });
    }
}

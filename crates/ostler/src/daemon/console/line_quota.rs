//! Quota of one server's console lines: a number of lines in a minute, the rest summed up in one.

use std::time::Duration;

use tokio::time::Instant;

use super::MAX_LINES_PER_MINUTE;
use crate::output::Tint;

const MINUTE: Duration = Duration::from_secs(60);

/// Lines of one server in the current minute.
#[derive(Debug, Default)]
pub(super) struct LineQuota {
    began: Option<Instant>,
    printed: u32,
    held: Option<(Tint, HeldLines)>,
}

/// Lines that were held.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct HeldLines {
    pub(super) number: u32,
    /// Text of the last of them.
    pub(super) last: String,
}

/// Decision about a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LineDecision {
    /// Print it, after the summary of the lines that were held in the minute before.
    Print { before: Option<(Tint, HeldLines)> },
    /// Hold it; the first held line sets the time of the summary.
    Hold { until: Option<Instant> },
}

impl LineQuota {
    /// Decides whether a line is printed or held.
    pub(super) fn check(&mut self, now: Instant, (tint, text): (Tint, &str)) -> LineDecision {
        let began = *self.began.get_or_insert(now);
        if now.duration_since(began) >= MINUTE {
            (self.began, self.printed) = (Some(now), 0);
        }
        if self.printed < MAX_LINES_PER_MINUTE {
            self.printed += 1;
            return LineDecision::Print { before: self.held.take() };
        }
        let number = self.held.as_ref().map_or(0, |(_, held)| held.number) + 1;
        self.held = Some((tint, HeldLines { number, last: text.to_owned() }));
        LineDecision::Hold { until: (number == 1).then(|| began + MINUTE) }
    }

    /// Takes the held lines, at the end of the minute.
    pub(super) fn take_held(&mut self) -> Option<(Tint, HeldLines)> {
        self.held.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_has_ten_lines_and_one_that_sums_up() {
        let mut quota = LineQuota::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        for second in 0..10 {
            assert_eq!(quota.check(at(second), (Tint::Error, "x")), LineDecision::Print { before: None });
        }
        assert_eq!(quota.check(at(11), (Tint::Error, "x")), LineDecision::Hold { until: Some(at(60)) });
        assert_eq!(quota.check(at(12), (Tint::Success, "y")), LineDecision::Hold { until: None });
        let held = Some((Tint::Success, HeldLines { number: 2, last: "y".into() }));
        assert_eq!(quota.take_held(), held);
        assert_eq!(quota.check(at(60), (Tint::Error, "x")), LineDecision::Print { before: None });
    }

    #[test]
    fn a_sum_that_was_not_said_comes_before_the_next_line() {
        let mut quota = LineQuota::default();
        let start = Instant::now();
        for _ in 0..11 {
            quota.check(start, (Tint::Error, "x"));
        }
        let before = Some((Tint::Error, HeldLines { number: 1, last: "x".into() }));
        assert_eq!(quota.check(start + MINUTE, (Tint::Error, "z")), LineDecision::Print { before });
    }
}

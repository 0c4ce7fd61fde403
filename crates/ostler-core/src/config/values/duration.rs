//! Durations: `"100ms"`, `"30s"`, `"5m"`, `"1h30m"`, `"2d"`.

use std::time::Duration;

/// Longest duration: far beyond any use, and far from overflowing a clock.
pub(crate) const MAX_DURATION: Duration = Duration::from_secs(366 * 24 * 3600);

/// Units, largest first: the order in which they may be combined.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Reason why a text is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// An empty text.
    #[error("a duration can't be empty")]
    Empty,
    /// A number without a unit.
    #[error("a duration needs a unit")]
    NoUnit,
    /// A unit without a number, a fraction, a sign, or another character.
    #[error("a duration is made of whole numbers with units")]
    BadNumber,
    /// An unknown unit.
    #[error("a duration's units are d, h, m, s and ms")]
    BadUnit,
    /// Units repeated or not in falling order.
    #[error("a duration's units go from large to small, each once")]
    Order,
    /// Longer than a year.
    #[error("a duration is at most 366d")]
    TooLong,
}

/// Parses a duration.
pub fn parse(text: &str) -> Result<Duration, DurationError> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(DurationError::Empty);
    }
    let (mut total, mut next_unit) = (0_u64, 0);
    while !rest.is_empty() {
        let (digits, tail) = split_while(rest, |c| c.is_ascii_digit());
        let (unit, tail) = split_while(tail.trim_start(), |c| c.is_ascii_alphabetic());
        if digits.is_empty() {
            return Err(DurationError::BadNumber);
        }
        if unit.is_empty() {
            return Err(if tail.is_empty() { DurationError::NoUnit } else { DurationError::BadNumber });
        }
        let place = UNITS.iter().position(|(name, _)| *name == unit).ok_or(DurationError::BadUnit)?;
        if place < next_unit {
            return Err(DurationError::Order);
        }
        next_unit = place + 1;
        let amount = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(UNITS[place].1));
        total = amount.and_then(|ms| total.checked_add(ms)).ok_or(DurationError::TooLong)?;
        rest = tail.trim_start();
    }
    let total = Duration::from_millis(total);
    if total > MAX_DURATION { Err(DurationError::TooLong) } else { Ok(total) }
}

fn split_while(text: &str, keep: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !keep(c)).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fault::HumanDuration;

    #[test]
    fn durations_are_read_as_people_write_them() {
        let table = [
            ("100ms", 100),
            ("30s", 30_000),
            ("5m", 300_000),
            ("1h", 3_600_000),
            ("1h30m", 5_400_000),
            ("1h 30m", 5_400_000),
            ("1s500ms", 1_500),
            (" 2 d ", 172_800_000),
            ("0s", 0),
        ];
        for (text, ms) in table {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text:?}");
        }
    }

    #[test]
    fn everything_else_says_why_not() {
        use DurationError::*;
        let table = [
            ("", Empty),
            ("30", NoUnit),
            ("1h30", NoUnit),
            ("-1s", BadNumber),
            ("1.5s", BadNumber),
            ("s", BadNumber),
            ("1s,", BadNumber),
            ("5 minutes", BadUnit),
            ("5M", BadUnit),
            ("30s5m", Order),
            ("1s1s", Order),
            ("367d", TooLong),
            ("99999999999999999999s", TooLong),
            ("18446744073709551615h", TooLong),
        ];
        for (text, why) in table {
            assert_eq!(parse(text), Err(why), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_can_be_read_again(seconds in 0_u64..1_000_000) {
            let duration = Duration::from_secs(seconds);
            prop_assert_eq!(parse(&HumanDuration(duration).to_string()), Ok(duration));
        }

        #[test]
        fn no_text_panics(text in "\\PC*") {
            let _ = parse(&text);
        }
    }
}

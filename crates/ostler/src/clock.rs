//! The time of day, written down.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SECONDS_PER_DAY: u64 = 86_400;

/// A moment as RFC 3339 has it, in UTC: `2026-07-28T12:00:00.250Z`.
pub(crate) fn rfc3339(moment: SystemTime) -> String {
    // A clock before 1970 is wrong anyway.
    let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, rest) = (since.as_secs() / SECONDS_PER_DAY, since.as_secs() % SECONDS_PER_DAY);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", since.subsec_millis())
}

/// A moment that somebody wrote: `2026-07-28`, `2026-07-28T12:00` or with
/// seconds, in UTC whether or not a `Z` says so.
pub(crate) fn parse(text: &str) -> Option<SystemTime> {
    let text = text.trim().trim_end_matches(['Z', 'z']);
    let (date, time) = text.split_once(['T', 't', ' ']).unwrap_or((text, "0:0"));
    let [year, month, day] = numbers(date, '-')?;
    let (time, _) = time.split_once('.').unwrap_or((time, ""));
    let [hour, minute, second] = numbers(time, ':').or_else(|| {
        let [hour, minute] = numbers(time, ':')?;
        Some([hour, minute, 0])
    })?;
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let seconds = days_to(year, month, day)? * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second;
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

fn numbers<const N: usize>(text: &str, between: char) -> Option<[u64; N]> {
    let numbers: Option<Vec<u64>> = text.split(between).map(|part| part.parse().ok()).collect();
    numbers?.try_into().ok()
}

/// Days from 1970-01-01 to a day that there is.
fn days_to(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1970..10_000).contains(&year) || !(1..=12).contains(&month) {
        return None;
    }
    let from_march = year - u64::from(month <= 2);
    let (era, year_of_era) = (from_march / 400, from_march % 400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day.checked_sub(1)?;
    let days = era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    days.checked_sub(719_468).filter(|days| civil(*days) == (year, month, day))
}

/// Year, month and day of a number of days since 1970-01-01.
///
/// Years are counted from March, so that the leap day is the last day of one;
/// then months have 30.6 days on average, and 400 years 146,097.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_calendars_have_them() {
        let table = [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_799_999, "2000-02-29T23:59:59.999Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_785_240_000_250, "2026-07-28T12:00:00.250Z"),
            (4_107_542_399_000, "2100-02-28T23:59:59.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ];
        for (ms, text) in table {
            assert_eq!(rfc3339(UNIX_EPOCH + Duration::from_millis(ms)), text);
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let at = |seconds| Some(UNIX_EPOCH + Duration::from_secs(seconds));
        let table = [
            ("1970-01-01", at(0)),
            ("2000-02-29T23:59:59Z", at(951_868_799)),
            ("2026-07-28T12:00:00.250Z", at(1_785_240_000)),
            ("2026-07-28 12:00", at(1_785_240_000)),
            ("2100-03-01", at(4_107_542_400)),
            ("2100-02-29", None),
            ("2026-13-01", None),
            ("2026-01-00", None),
            ("2026-07-28T24:00", None),
            ("1969-12-31", None),
            ("1970-01", None),
            ("soon", None),
        ];
        for (text, moment) in table {
            assert_eq!(parse(text), moment, "{text}");
        }
    }
}

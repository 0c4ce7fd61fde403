//! Times as text: RFC 3339 in UTC for programs, the local time of day for people.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chrono::{DateTime, Local, NaiveDate, NaiveDateTime, NaiveTime, SecondsFormat, TimeDelta, TimeZone, Utc};
use ostler_core::config::duration;

/// Formats of dates and times without a zone, as people type them.
const CIVIL_FORMATS: [&str; 4] =
    ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M"];

/// Returns a moment in UTC as RFC 3339: `2026-07-28T12:00:00.250Z`.
pub(crate) fn rfc3339(moment: SystemTime) -> String {
    timestamp(moment).to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// Returns the time at the start of a log line, in UTC: `2026-07-28T12:00:00Z`, or `12:00:00Z` on a terminal.
pub(crate) fn log_time(moment: SystemTime, is_terminal: bool) -> String {
    let text = rfc3339(moment);
    let begin = if is_terminal { 11 } else { 0 };
    format!("{}Z", &text[begin..19])
}

/// Returns the moment this many seconds after 1970 began; 1970 for one beyond the clock's range.
pub(crate) fn from_seconds(seconds: u64) -> SystemTime {
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds)).unwrap_or(UNIX_EPOCH)
}

fn timestamp(moment: SystemTime) -> DateTime<Utc> {
    // A clock before 1970 is wrong anyway, and so is one beyond the calendar's range.
    let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    DateTime::from_timestamp(seconds, since.subsec_nanos()).unwrap_or(DateTime::UNIX_EPOCH)
}

/// Time zone in which people read and write times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Zone {
    Utc,
    /// Zone of `TZ` or of the machine.
    Local,
}

impl Zone {
    /// Returns `2026-07-28 12:00`.
    pub(crate) fn format_minute(self, moment: SystemTime) -> String {
        self.civil(moment).format("%Y-%m-%d %H:%M").to_string()
    }

    /// Returns `2026-07-28 12:00:00`.
    pub(crate) fn format_second(self, moment: SystemTime) -> String {
        self.civil(moment).format("%Y-%m-%d %H:%M:%S").to_string()
    }

    /// Returns the heading of a column of times, which names the zone where it is not the local one.
    pub(crate) fn heading(self) -> &'static str {
        match self {
            Self::Utc => "TIME (UTC)",
            Self::Local => "TIME",
        }
    }

    fn civil(self, moment: SystemTime) -> NaiveDateTime {
        let moment = timestamp(moment);
        match self {
            Self::Utc => moment.naive_utc(),
            Self::Local => moment.with_timezone(&Local).naive_local(),
        }
    }

    /// Returns the moment of a local time. One that a change of clocks skips is an hour later; of one that it repeats
    /// the first is taken.
    fn to_system_time(self, civil: NaiveDateTime) -> SystemTime {
        let local = |civil: &NaiveDateTime| Local.from_local_datetime(civil).earliest().map(SystemTime::from);
        match self {
            Self::Utc => civil.and_utc().into(),
            Self::Local => local(&civil)
                .or_else(|| local(&(civil + TimeDelta::hours(1))))
                .unwrap_or_else(|| civil.and_utc().into()),
        }
    }
}

/// Time argument of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeArg {
    /// Moment: how long ago, or written with its zone.
    At(SystemTime),
    /// Date, or time of day, without a zone.
    Civil(NaiveDateTime),
}

impl TimeArg {
    /// Parses how long ago, such as `1h`, or a date with or without a time of day and a zone.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let ago = || SystemTime::now().checked_sub(duration::parse(text).ok()?).map(Self::At);
        let zoned = || DateTime::parse_from_rfc3339(text).ok().map(|moment| Self::At(moment.into()));
        let found = ago().or_else(zoned).or_else(|| match text.strip_suffix(['Z', 'z']) {
            Some(text) => read_civil(text).map(|civil| Self::At(Zone::Utc.to_system_time(civil))),
            None => read_civil(text).map(Self::Civil),
        });
        found.filter(|when| when.to_system_time(Zone::Utc) >= UNIX_EPOCH).ok_or_else(|| {
            "it is neither how long ago, such as 1h, nor a date, such as 2026-07-28T12:00".into()
        })
    }

    /// Returns the moment that the argument means in this zone.
    pub(crate) fn to_system_time(self, zone: Zone) -> SystemTime {
        match self {
            Self::At(moment) => moment,
            Self::Civil(civil) => zone.to_system_time(civil),
        }
    }
}

fn read_civil(text: &str) -> Option<NaiveDateTime> {
    let date = || Some(NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()?.and_time(NaiveTime::MIN));
    CIVIL_FORMATS.iter().find_map(|format| NaiveDateTime::parse_from_str(text, format).ok()).or_else(date)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

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
            let moment = UNIX_EPOCH + Duration::from_millis(ms);
            assert_eq!(rfc3339(moment), text);
            assert_eq!(TimeArg::parse(text), Ok(TimeArg::At(moment)));
        }
        assert_eq!(rfc3339(UNIX_EPOCH - Duration::from_secs(1)), "1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn people_read_times_without_letters_in_between() {
        let moment = at(1_785_240_007);
        assert_eq!(Zone::Utc.format_minute(moment), "2026-07-28 12:00");
        assert_eq!(Zone::Utc.format_second(moment), "2026-07-28 12:00:07");
        assert_eq!(Zone::Utc.format_second(from_seconds(u64::MAX)), "1970-01-01 00:00:00");
    }

    #[test]
    fn times_are_read_as_people_write_them() {
        let table = [
            ("1970-01-01", 0),
            ("2000-02-29T23:59:59Z", 951_868_799),
            ("2026-07-28T12:00Z", 1_785_240_000),
            ("2026-07-28T14:00:00+02:00", 1_785_240_000),
            ("2026-07-28T12:00:00", 1_785_240_000),
            ("2026-07-28 12:00", 1_785_240_000),
            ("2100-03-01", 4_107_542_400),
        ];
        for (text, seconds) in table {
            assert_eq!(
                TimeArg::parse(text).map(|when| when.to_system_time(Zone::Utc)),
                Ok(at(seconds)),
                "{text}"
            );
        }
        let ago = TimeArg::parse("1h").unwrap().to_system_time(Zone::Utc);
        assert!(ago < SystemTime::now() - Duration::from_secs(3_599));
    }

    #[test]
    fn no_time_is_read_from_what_is_none() {
        let wrong = "2100-02-29 2026-13-01 2026-01-00 2026-07-28T24:00 1969-12-31 1970-01 soon Z";
        for text in wrong.split(' ').chain([""]) {
            assert!(TimeArg::parse(text).is_err(), "{text}");
        }
    }
}

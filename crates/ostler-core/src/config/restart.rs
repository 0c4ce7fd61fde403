//! `restart` and `breaker`: how a failing server is treated.

use super::field::{Field, Kind, Preset, Section};
use super::reader::Reader;
use crate::fault::Span;
use crate::spec::{BreakerSettings, RestartSettings};

const MOST: u64 = u32::MAX as u64;

pub(crate) static RESTART: Section = Section {
    name: "restart",
    doc: "How often and how fast a failing server is started again.",
    fields: &[
        Field {
            key: "max",
            kind: Kind::Count(0, MOST),
            preset: Preset::Count(5),
            doc: "Restarts allowed in the window; the failure after the last one ejects the server.",
        },
        Field {
            key: "window",
            kind: Kind::Duration(1),
            preset: Preset::Text("5m"),
            doc: "The sliding window over which restarts are counted.",
        },
        Field {
            key: "first_delay",
            kind: Kind::Duration(1),
            preset: Preset::Text("100ms"),
            doc: "The first delay before a restart, five times that before the server has come up; doubles from there.",
        },
        Field {
            key: "max_delay",
            kind: Kind::Duration(1),
            preset: Preset::Text("5s"),
            doc: "The longest delay before a restart.",
        },
        Field {
            key: "readmit_after",
            kind: Kind::DurationOrNever,
            preset: Preset::Text("60s"),
            doc: "How long an ejected server stays out before it is tried once; doubles up to ten times that. With \"never\", until it is reloaded.",
        },
    ],
};

pub(crate) static BREAKER: Section = Section {
    name: "breaker",
    doc: "When calls stop being sent to a failing server.",
    fields: &[
        Field {
            key: "failures",
            kind: Kind::Count(0, MOST),
            preset: Preset::Count(5),
            doc: "Consecutive failures that open the breaker; 0 switches it off.",
        },
        Field {
            key: "reset",
            kind: Kind::Duration(1),
            preset: Preset::Text("30s"),
            doc: "How long it stays open the first time; doubles with each failed probe.",
        },
    ],
};

pub(crate) fn read(reader: Reader<'_>) -> RestartSettings {
    let default = RestartSettings::default();
    let settings = RestartSettings {
        max: small(reader.count("max")).unwrap_or(default.max),
        window: reader.duration("window").unwrap_or(default.window),
        first_delay: reader.duration("first_delay").unwrap_or(default.first_delay),
        max_delay: reader.duration("max_delay").unwrap_or(default.max_delay),
        readmit_after: reader.duration_or_never("readmit_after").unwrap_or(default.readmit_after),
    };
    if settings.first_delay > settings.max_delay {
        let key = if reader.has("first_delay") { "first_delay" } else { "max_delay" };
        let message = format!(
            "the first delay ({}) of `{}` is longer than its longest ({})",
            Span(settings.first_delay),
            reader.path,
            Span(settings.max_delay)
        );
        reader.scope.error(reader.at_of(key), &reader.path_of(key), message, "raise `max_delay`");
    }
    reader.finish();
    settings
}

pub(crate) fn read_breaker(reader: Reader<'_>) -> BreakerSettings {
    let default = BreakerSettings::default();
    let settings = BreakerSettings {
        failures: small(reader.count("failures")).unwrap_or(default.failures),
        reset: reader.duration("reset").unwrap_or(default.reset),
    };
    reader.finish();
    settings
}

/// The tables allow no number that does not fit.
fn small(number: Option<u64>) -> Option<u32> {
    number.and_then(|number| u32::try_from(number).ok())
}

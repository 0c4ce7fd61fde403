//! `[pool]` and `[cache]`: limits of the whole host.

use std::time::Duration;

use super::field::{Field, Kind, Preset, Section};
use super::reader::Reader;

/// Limits on what runs at once, over all servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool {
    /// Live processes, above zero.
    pub max_processes: usize,
    /// Calls at all servers at once, above zero.
    pub max_in_flight: usize,
    /// Those of one caller among them, above zero.
    pub max_per_caller: usize,
}

impl Default for Pool {
    fn default() -> Self {
        Self { max_processes: 64, max_in_flight: 4096, max_per_caller: 2048 }
    }
}

/// Limits on what is remembered, over all servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheBounds {
    /// Bytes in all; 0 remembers nothing.
    pub max_bytes: usize,
    /// Entries per tool; 0 remembers nothing.
    pub per_tool: usize,
    /// The longest time anything is remembered, whoever says so.
    pub max_ttl: Duration,
}

impl Default for CacheBounds {
    fn default() -> Self {
        Self { max_bytes: 64 << 20, per_tool: 64, max_ttl: Duration::from_secs(24 * 3600) }
    }
}

pub(crate) static POOL: Section = Section {
    name: "pool",
    doc: "Limits on what runs at once, over all servers.",
    fields: &[
        Field {
            key: "max_processes",
            kind: Kind::Count(1, u64::MAX),
            preset: Preset::Count(64),
            doc: "Live processes; the least recently used idle one makes room.",
        },
        Field {
            key: "max_in_flight",
            kind: Kind::Count(1, u64::MAX),
            preset: Preset::Count(4096),
            doc: "Calls at all servers at once.",
        },
        Field {
            key: "max_per_caller",
            kind: Kind::Count(1, u64::MAX),
            preset: Preset::Nothing,
            doc: "Those of one caller among them; half of max_in_flight unless set.",
        },
    ],
};

pub(crate) static CACHE: Section = Section {
    name: "cache",
    doc: "Limits on what is remembered, over all servers.",
    fields: &[
        Field { key: "max_bytes", kind: Kind::Size(0), preset: Preset::Text("64MiB"), doc: "Bytes in all." },
        Field {
            key: "per_tool",
            kind: Kind::Count(0, u64::MAX),
            preset: Preset::Count(64),
            doc: "Entries per tool.",
        },
        Field {
            key: "max_ttl",
            kind: Kind::Duration(0),
            preset: Preset::Text("24h"),
            doc: "The longest time anything is remembered.",
        },
    ],
};

pub(crate) fn read_pool(reader: Reader<'_>) -> Pool {
    let default = Pool::default();
    let max_in_flight = reader.size_count("max_in_flight").unwrap_or(default.max_in_flight);
    let pool = Pool {
        max_processes: reader.size_count("max_processes").unwrap_or(default.max_processes),
        max_in_flight,
        max_per_caller: reader.size_count("max_per_caller").unwrap_or(max_in_flight.div_ceil(2)),
    };
    reader.finish();
    pool
}

pub(crate) fn read_cache(reader: Reader<'_>) -> CacheBounds {
    let default = CacheBounds::default();
    let bounds = CacheBounds {
        max_bytes: reader.size("max_bytes").unwrap_or(default.max_bytes),
        per_tool: reader.size_count("per_tool").unwrap_or(default.per_tool),
        max_ttl: reader.duration("max_ttl").unwrap_or(default.max_ttl),
    };
    reader.finish();
    bounds
}

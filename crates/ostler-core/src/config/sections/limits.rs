//! `[pool]` and `[cache]`: limits of the whole host.

use std::time::Duration;

use crate::config::keys::section::section;
use crate::config::read::SectionReader;

section! {
    /// Limits on running processes and calls, over all servers.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct PoolConfig("pool", default) check default_max_per_caller {
        /// Live processes; the least recently used idle one is evicted.
        max_processes: usize = count(1.., 64);
        /// Calls at all servers at once.
        max_in_flight: usize = count(1.., 4096);
        /// Calls of one caller at once; half of max_in_flight unless set.
        max_per_caller: usize = count(1.., else 2048);
    }
}

section! {
    /// Limits on cached answers, over all servers.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct CacheConfig("cache", default) {
        /// Bytes in all.
        max_bytes: usize = size(0.., "64MiB");
        /// Entries per tool.
        per_tool: usize = count(0.., 64);
        /// Longest time an answer is cached.
        max_ttl: Duration = duration(0.., "24h");
    }
}

fn default_max_per_caller(pool: &mut PoolConfig, reader: &SectionReader<'_>) {
    if !reader.has("max_per_caller") {
        pool.max_per_caller = pool.max_in_flight.div_ceil(2);
    }
}

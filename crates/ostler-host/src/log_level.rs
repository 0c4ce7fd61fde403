//! Log levels of servers.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Severity of log lines, the most verbose level first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LogLevel {
    /// `debug`
    Debug,
    /// `info`
    Info,
    /// `notice`
    Notice,
    /// `warning`
    Warning,
    /// `error`
    Error,
    /// `critical`
    Critical,
    /// `alert`
    Alert,
    /// `emergency`
    Emergency,
}

impl LogLevel {
    /// All levels, the most verbose first.
    pub const ALL: [Self; 8] = [
        Self::Debug,
        Self::Info,
        Self::Notice,
        Self::Warning,
        Self::Error,
        Self::Critical,
        Self::Alert,
        Self::Emergency,
    ];

    /// Returns its name in the protocol.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Critical => "critical",
            Self::Alert => "alert",
            Self::Emergency => "emergency",
        }
    }

    /// Parses the protocol's name of a level.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.as_str() == name)
    }

    /// Parses the JSON text of a level's name.
    pub fn from_json(raw: &[u8]) -> Option<Self> {
        Self::parse(&serde_json::from_slice::<String>(raw).ok()?)
    }
}

/// Most verbose level that any caller has requested of one server.
#[derive(Debug)]
pub(crate) struct RequestedLogLevel(AtomicUsize);

impl Default for RequestedLogLevel {
    fn default() -> Self {
        Self(AtomicUsize::new(LogLevel::ALL.len()))
    }
}

impl RequestedLogLevel {
    /// Requests a level; returns whether it is more verbose than all before.
    pub(crate) fn request(&self, level: LogLevel) -> bool {
        self.0.fetch_min(level as usize, Ordering::AcqRel) > level as usize
    }

    /// Returns the requested level; `None` if no caller has requested one.
    pub(crate) fn get(&self) -> Option<LogLevel> {
        LogLevel::ALL.get(self.0.load(Ordering::Acquire)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_verbose_wish_counts() {
        let level = RequestedLogLevel::default();
        assert_eq!(level.get(), None);
        assert!(level.request(LogLevel::Error));
        assert!(level.request(LogLevel::Info));
        assert!(!level.request(LogLevel::Warning));
        assert!(!level.request(LogLevel::Info));
        assert_eq!(level.get(), Some(LogLevel::Info));
    }

    #[test]
    fn every_level_is_found_by_its_name() {
        for level in LogLevel::ALL {
            assert_eq!(LogLevel::parse(level.as_str()), Some(level));
        }
        assert_eq!(LogLevel::parse("verbose"), None);
    }
}

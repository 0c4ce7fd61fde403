//! Description of a daemon, for `ostler daemons`, `ostler down` and `ostler status`.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::instance::{DaemonKind, DaemonRecord};
use crate::output::escape_line;
use crate::xdg;

/// One daemon. The JSON of commands and of the admin API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Daemon"))]
pub(crate) struct DaemonInfo {
    /// Where it is reached, without a path.
    pub(crate) url: String,
    /// Its process.
    pub(crate) pid: u32,
    pub(crate) version: String,
    /// Its config; none for the built-in server.
    pub(crate) config: Option<PathBuf>,
    pub(crate) kind: DaemonKind,
    pub(crate) uptime_ms: u64,
    /// Clients that are attached through `ostler stdio`; none if it does not answer.
    pub(crate) clients: Option<usize>,
}

impl DaemonInfo {
    /// Returns the description from a daemon's record, without a request to the daemon.
    pub(crate) fn from_record(note: DaemonRecord) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let uptime_ms = now.saturating_sub(note.started) * 1_000;
        Self { uptime_ms, ..Self::new(&note, Duration::ZERO, None) }
    }

    /// Returns a daemon's description of itself.
    pub(crate) fn new(note: &DaemonRecord, uptime: Duration, clients: Option<usize>) -> Self {
        let DaemonRecord { url, pid, version, config, kind, .. } = note.clone();
        let uptime_ms = u64::try_from(uptime.as_millis()).unwrap_or(u64::MAX);
        Self { url, pid, version, config, kind, uptime_ms, clients }
    }

    /// Returns the config as people write it.
    pub(crate) fn config(&self) -> String {
        self.config
            .as_deref()
            .map_or("none (built-in server)".into(), |file| escape_line(&xdg::abbreviate_home(file)))
    }

    /// Returns how long it has been up, in one unit.
    pub(crate) fn uptime(&self) -> String {
        format_age(Duration::from_millis(self.uptime_ms))
    }

    /// Returns the command that started it.
    pub(crate) fn started_by(&self) -> &'static str {
        match self.kind {
            DaemonKind::Served => "ostler serve",
            DaemonKind::Lingering => "ostler stdio",
        }
    }
}

/// Formats a long time in one unit: `42s`, `17m`, `3h`, `12d`.
pub(crate) fn format_age(time: Duration) -> String {
    match time.as_secs() {
        s @ 0..60 => format!("{s}s"),
        s @ 60..3_600 => format!("{}m", s / 60),
        s @ 3_600..86_400 => format!("{}h", s / 3_600),
        s => format!("{}d", s / 86_400),
    }
}

//! Samples of the daemon's memory, descriptors and processes.

use serde::Serialize;

use crate::run::environment::daemon_processes::DaemonProcesses;

/// Measurements of a daemon from outside.
#[derive(Debug, Default, Clone, Copy, Serialize)]
pub(crate) struct DaemonSample {
    pub(super) rss_kib: u64,
    pub(super) descriptors: usize,
    pub(super) processes: usize,
    pub(super) zombies: usize,
}

/// The samples at the begin and the end, with mishaps that no record shows.
#[derive(Debug, Default, Serialize)]
pub(crate) struct DaemonSamples {
    pub(super) at_begin: DaemonSample,
    pub(super) at_end: DaemonSample,
    /// The report adds them to its own.
    #[serde(skip)]
    pub(crate) mishaps: Vec<String>,
}

impl DaemonSamples {
    pub(crate) fn sample_begin(&mut self, family: &DaemonProcesses) {
        self.at_begin = DaemonSample::measure(family);
    }

    pub(crate) fn sample_end(&mut self, family: &DaemonProcesses) {
        self.at_end = DaemonSample::measure(family);
    }
}

impl DaemonSample {
    fn measure(family: &DaemonProcesses) -> Self {
        let head = family.daemon();
        Self {
            rss_kib: head.rss_kib(),
            descriptors: head.descriptors(),
            processes: head.descendants().len(),
            zombies: head.zombies().len(),
        }
    }
}

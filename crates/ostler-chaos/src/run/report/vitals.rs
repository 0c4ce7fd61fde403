//! How the daemon itself has fared.

use serde::Serialize;

use crate::run::world::family::Family;

/// What is measured of a daemon from outside.
#[derive(Debug, Default, Clone, Copy, Serialize)]
pub(crate) struct Sample {
    pub(super) rss_kib: u64,
    pub(super) descriptors: usize,
    pub(super) processes: usize,
    pub(super) zombies: usize,
}

/// At the beginning and at the end, and what went wrong that no record shows.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Vitals {
    pub(super) at_begin: Sample,
    pub(super) at_end: Sample,
    /// The report tells them beside its own.
    #[serde(skip)]
    pub(crate) mishaps: Vec<String>,
}

impl Vitals {
    pub(crate) fn begin(&mut self, family: &Family) {
        self.at_begin = Sample::of(family);
    }

    pub(crate) fn end(&mut self, family: &Family) {
        self.at_end = Sample::of(family);
    }
}

impl Sample {
    fn of(family: &Family) -> Self {
        let head = family.head();
        Self {
            rss_kib: head.rss_kib(),
            descriptors: head.descriptors(),
            processes: head.descendants().len(),
            zombies: head.zombies().len(),
        }
    }
}

//! History writer: records events in the order in which it gets them.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use ostler_chaos::history::{CallEnd, HistoryEvent, Micros};

/// Writer of the history of a run.
#[derive(Debug)]
pub(crate) struct HistoryWriter {
    file: Mutex<BufWriter<File>>,
    /// Set when a line could not be written, which makes the run worthless.
    is_broken: AtomicBool,
    pub(crate) counts: ProgressCounts,
}

/// Counters shown while the run is under way.
#[derive(Debug, Default)]
pub(crate) struct ProgressCounts {
    pub(crate) calls: AtomicU64,
    pub(crate) good: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) unknown: AtomicU64,
    pub(crate) acts: AtomicU64,
}

impl HistoryWriter {
    pub(crate) fn create(file: &Path) -> std::io::Result<Self> {
        let file = Mutex::new(BufWriter::new(File::create(file)?));
        Ok(Self { file, is_broken: AtomicBool::new(false), counts: ProgressCounts::default() })
    }

    pub(crate) fn record(&self, event: &HistoryEvent) {
        self.counts.count(event);
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let written = serde_json::to_writer(&mut *file, event).is_ok() && file.write_all(b"\n").is_ok();
        if !written {
            self.is_broken.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn record_act(&self, act: &str, target: &str, begins: bool) {
        self.record(&HistoryEvent::Nemesis { at: now(), act: act.into(), target: target.into(), begins });
    }

    /// Flushes the history to disk; fails if a line was lost.
    pub(crate) fn finish(&self) -> anyhow::Result<()> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner).flush()?;
        anyhow::ensure!(!self.is_broken.load(Ordering::Relaxed), "the history could not be written");
        Ok(())
    }
}

impl ProgressCounts {
    fn count(&self, event: &HistoryEvent) {
        let count = match event {
            HistoryEvent::Invoke(_) => &self.calls,
            HistoryEvent::End { end: CallEnd::Ok { .. }, .. } => &self.good,
            HistoryEvent::End { end: CallEnd::Fail { .. }, .. } => &self.failed,
            HistoryEvent::End { end: CallEnd::Unknown { .. }, .. } => &self.unknown,
            HistoryEvent::Nemesis { begins: true, .. } => &self.acts,
            _ => return,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn summary(&self) -> String {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        format!(
            "{} calls: {} good, {} failed, {} unknown; {} acts",
            of(&self.calls),
            of(&self.good),
            of(&self.failed),
            of(&self.unknown),
            of(&self.acts)
        )
    }
}

/// Returns microseconds since 1970.
pub(crate) fn now() -> Micros {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

//! Lines that leave later: one thread and a sorted map, however many calls are asleep.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::executions::ExecutionEnd;
use crate::output::LineSink;

/// When a line is due; the counter keeps lines of one instant in order.
type DueTime = (Instant, u64);

/// A line that leaves later.
#[derive(Debug)]
pub(crate) struct DelayedLine {
    /// The call it belongs to.
    pub(crate) id: Box<str>,
    pub(crate) line: Vec<u8>,
    /// What is written down first.
    pub(crate) end_record: Option<ExecutionEnd>,
}

/// The lines that are asleep, by time and by the call they belong to.
#[derive(Debug, Default)]
struct DelayedLines {
    lines: BTreeMap<DueTime, DelayedLine>,
    /// Every entry of `lines` is here under its call's id, and nothing else is.
    calls: HashMap<Box<str>, BTreeSet<DueTime>>,
    count: u64,
}

/// A handle on the clock's thread.
#[derive(Debug, Clone)]
pub(crate) struct DelayQueue {
    shared: Arc<(Mutex<DelayedLines>, Condvar)>,
}

impl DelayQueue {
    /// Starts the thread, which sends due lines through `exit`.
    pub(crate) fn start(exit: LineSink) -> Self {
        let clock = Self { shared: Arc::default() };
        let ticking = clock.clone();
        std::thread::spawn(move || ticking.run(&exit));
        clock
    }

    /// Sends the line after `delay` unless its call is cancelled before.
    pub(crate) fn schedule(&self, delay: Duration, late: DelayedLine) {
        let mut sleepers = self.lock();
        sleepers.count += 1;
        let due = (Instant::now() + delay, sleepers.count);
        let is_next = sleepers.lines.first_key_value().is_none_or(|(first, _)| due < *first);
        sleepers.calls.entry(late.id.clone()).or_default().insert(due);
        sleepers.lines.insert(due, late);
        drop(sleepers);
        if is_next {
            self.shared.1.notify_one();
        }
    }

    /// Forgets every line of the call.
    pub(crate) fn cancel(&self, id: &str) {
        let mut sleepers = self.lock();
        for due in sleepers.calls.remove(id).unwrap_or_default() {
            sleepers.lines.remove(&due);
        }
    }

    fn lock(&self) -> MutexGuard<'_, DelayedLines> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, exit: &LineSink) {
        let mut sleepers = self.lock();
        loop {
            let now = Instant::now();
            let due = sleepers.take_due(now);
            if !due.is_empty() {
                // Writing may block on a full pipe; new sleepers must not wait for that.
                drop(sleepers);
                due.into_iter().for_each(|late| late.send(exit));
                exit.flush();
                sleepers = self.lock();
                continue;
            }
            let next = sleepers.lines.first_key_value().map(|((instant, _), _)| *instant);
            let (_, alarm) = &*self.shared;
            sleepers = match next {
                None => alarm.wait(sleepers).unwrap_or_else(PoisonError::into_inner),
                Some(next) => {
                    let wait = next.saturating_duration_since(now);
                    alarm.wait_timeout(sleepers, wait).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

impl DelayedLine {
    fn send(self, exit: &LineSink) {
        if let Some(ending) = &self.end_record {
            ending.write();
        }
        exit.send(self.line);
    }
}

impl DelayedLines {
    fn take_due(&mut self, now: Instant) -> Vec<DelayedLine> {
        let mut due = Vec::new();
        while let Some(entry) = self.lines.first_entry() {
            let key = *entry.key();
            if key.0 > now {
                break;
            }
            let late = entry.remove();
            if let Some(rest) = self.calls.get_mut(&late.id) {
                rest.remove(&key);
                if rest.is_empty() {
                    self.calls.remove(&late.id);
                }
            }
            due.push(late);
        }
        due
    }
}

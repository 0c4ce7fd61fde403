//! Delay queue: one thread and a sorted map send lines later, however many calls are asleep.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::executions::ExecutionEnd;
use crate::output::LineSink;

/// The time at which a line is due; the counter keeps lines of one instant in order.
type DueTime = (Instant, u64);

/// A line that is sent later.
#[derive(Debug)]
pub(crate) struct DelayedLine {
    /// The call it belongs to.
    pub(crate) id: Box<str>,
    pub(crate) line: Vec<u8>,
    /// The record that is written before the line.
    pub(crate) end_record: Option<ExecutionEnd>,
}

/// The delayed lines, by time and by call.
#[derive(Debug, Default)]
struct DelayedLines {
    lines: BTreeMap<DueTime, DelayedLine>,
    /// Holds every key of `lines` under its call's id, and nothing else.
    calls: HashMap<Box<str>, BTreeSet<DueTime>>,
    count: u64,
}

/// A handle on the queue's thread.
#[derive(Debug, Clone)]
pub(crate) struct DelayQueue {
    shared: Arc<(Mutex<DelayedLines>, Condvar)>,
}

impl DelayQueue {
    /// Starts the thread, which sends due lines to `sink`.
    pub(crate) fn start(sink: LineSink) -> Self {
        let handle = Self { shared: Arc::default() };
        let worker = handle.clone();
        std::thread::spawn(move || worker.run(&sink));
        handle
    }

    /// Sends the line after `delay`, unless its call is cancelled before.
    pub(crate) fn schedule(&self, delay: Duration, line: DelayedLine) {
        let mut queue = self.lock();
        queue.count += 1;
        let due = (Instant::now() + delay, queue.count);
        let is_next = queue.lines.first_key_value().is_none_or(|(first, _)| due < *first);
        queue.calls.entry(line.id.clone()).or_default().insert(due);
        queue.lines.insert(due, line);
        drop(queue);
        if is_next {
            self.shared.1.notify_one();
        }
    }

    /// Drops every line of the call.
    pub(crate) fn cancel(&self, id: &str) {
        let mut queue = self.lock();
        for due in queue.calls.remove(id).unwrap_or_default() {
            queue.lines.remove(&due);
        }
    }

    fn lock(&self) -> MutexGuard<'_, DelayedLines> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, sink: &LineSink) {
        let mut queue = self.lock();
        loop {
            let now = Instant::now();
            let due = queue.take_due(now);
            if !due.is_empty() {
                // Writing may block on a full pipe; `schedule` must not wait for that.
                drop(queue);
                due.into_iter().for_each(|line| line.send(sink));
                sink.flush();
                queue = self.lock();
                continue;
            }
            let next = queue.lines.first_key_value().map(|((instant, _), _)| *instant);
            let (_, wakeup) = &*self.shared;
            queue = match next {
                None => wakeup.wait(queue).unwrap_or_else(PoisonError::into_inner),
                Some(next) => {
                    let wait = next.saturating_duration_since(now);
                    wakeup.wait_timeout(queue, wait).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

impl DelayedLine {
    fn send(self, sink: &LineSink) {
        if let Some(end_record) = &self.end_record {
            end_record.write();
        }
        sink.send(self.line);
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
            let line = entry.remove();
            if let Some(rest) = self.calls.get_mut(&line.id) {
                rest.remove(&key);
                if rest.is_empty() {
                    self.calls.remove(&line.id);
                }
            }
            due.push(line);
        }
        due
    }
}

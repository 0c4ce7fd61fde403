//! Output of the server: sends lines at once, after a delay, or shuffled.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use crate::delay_queue::{DelayQueue, DelayedLine};
use crate::executions::ExecutionEnd;
use crate::options::FakeOptions;
use crate::stdout_buffer::StdoutBuffer;

/// Answers are shuffled in groups of this size.
const GROUP: usize = 8;
/// A group that does not fill up is sent this long after its first answer.
const GROUP_TIMEOUT: Duration = Duration::from_millis(20);

/// Sink of complete lines: stdout, or the thread that shuffles.
#[derive(Debug, Clone)]
pub(crate) enum LineSink {
    Direct(Arc<StdoutBuffer>),
    Shuffled(Sender<Vec<u8>>),
}

impl LineSink {
    pub(crate) fn send(&self, line: Vec<u8>) {
        match self {
            Self::Direct(stdout) => stdout.push(&line),
            // The receiver lives as long as the process.
            Self::Shuffled(group) => drop(group.send(line)),
        }
    }

    /// Flushes direct lines. The shuffling thread flushes its own.
    pub(crate) fn flush(&self) {
        if let Self::Direct(stdout) = self {
            stdout.flush();
        }
    }
}

/// Everything that leaves the server goes through here.
#[derive(Debug)]
pub(crate) struct FakeOutput {
    pub(crate) stdout: Arc<StdoutBuffer>,
    delays: DelayQueue,
    /// Takes the answers to `tools/call`.
    answers: LineSink,
    call_delay: Option<Duration>,
}

impl FakeOutput {
    pub(crate) fn new(options: &FakeOptions) -> Self {
        let stdout = Arc::new(StdoutBuffer::new(options.ignores_stdin_close));
        let answers = if options.is_shuffled {
            LineSink::Shuffled(shuffle(&stdout))
        } else {
            LineSink::Direct(stdout.clone())
        };
        Self { delays: DelayQueue::start(answers.clone()), stdout, answers, call_delay: options.slow }
    }

    /// Sends the answer to a call, after the delay of `--slow`.
    pub(crate) fn send_answer(&self, id: &str, line: Vec<u8>) {
        match self.call_delay {
            None => self.answers.send(line),
            Some(_) => self.send_after(Duration::ZERO, id, line),
        }
    }

    /// Sends a line of a call after a delay, in addition to that of `--slow`.
    pub(crate) fn send_after(&self, delay: Duration, id: &str, line: Vec<u8>) {
        self.send_recorded(delay, id, line, None);
    }

    /// Sends the answer of an execution after a delay; the end record is written first.
    pub(crate) fn send_recorded(
        &self,
        delay: Duration,
        id: &str,
        line: Vec<u8>,
        end_record: Option<ExecutionEnd>,
    ) {
        let delayed = DelayedLine { id: id.into(), line, end_record };
        self.delays.schedule(delay + self.call_delay.unwrap_or_default(), delayed);
    }

    /// Sends a line that is not the answer to a call.
    pub(crate) fn send(&self, line: &[u8]) {
        self.stdout.push(line);
    }

    /// Drops the delayed lines of a call.
    pub(crate) fn cancel(&self, id: &str) {
        self.delays.cancel(id);
    }

    pub(crate) fn flush(&self) {
        self.stdout.flush();
    }

    /// Closes stdout. A failure ends the process, because no test must pass without the fault.
    pub(crate) fn close_stdout(&self) {
        if self.stdout.close().is_err() {
            std::process::exit(3);
        }
    }
}

fn shuffle(stdout: &Arc<StdoutBuffer>) -> Sender<Vec<u8>> {
    let (sender, receiver) = channel();
    let stdout = stdout.clone();
    std::thread::spawn(move || {
        while let Some(group) = next_group(&receiver) {
            group.iter().rev().for_each(|line| stdout.push(line));
            stdout.flush();
        }
    });
    sender
}

fn next_group(receiver: &Receiver<Vec<u8>>) -> Option<Vec<Vec<u8>>> {
    let mut group = vec![receiver.recv().ok()?];
    let end = Instant::now() + GROUP_TIMEOUT;
    while group.len() < GROUP {
        let Ok(line) = receiver.recv_timeout(end.saturating_duration_since(Instant::now())) else { break };
        group.push(line);
    }
    Some(group)
}

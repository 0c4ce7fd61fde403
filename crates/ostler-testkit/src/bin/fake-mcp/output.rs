//! How answers travel: at once, after a delay, or shuffled.

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

/// The last stretch of a line's way.
#[derive(Debug, Clone)]
pub(crate) enum LineSink {
    Direct(Arc<StdoutBuffer>),
    Shuffled(Sender<Vec<u8>>),
}

impl LineSink {
    pub(crate) fn send(&self, line: Vec<u8>) {
        match self {
            Self::Direct(outlet) => outlet.push(&line),
            // The receiver lives as long as the process.
            Self::Shuffled(group) => drop(group.send(line)),
        }
    }

    /// Shuffled lines are flushed by their own thread.
    pub(crate) fn flush(&self) {
        if let Self::Direct(outlet) = self {
            outlet.flush();
        }
    }
}

/// Everything that leaves the server goes through here.
#[derive(Debug)]
pub(crate) struct FakeOutput {
    pub(crate) stdout: Arc<StdoutBuffer>,
    delays: DelayQueue,
    /// Where answers to `tools/call` go.
    answers: LineSink,
    call_delay: Option<Duration>,
}

impl FakeOutput {
    pub(crate) fn new(script: &FakeOptions) -> Self {
        let stdout = Arc::new(StdoutBuffer::new(script.ignores_stdin_close));
        let answers = if script.is_shuffled {
            LineSink::Shuffled(shuffle(&stdout))
        } else {
            LineSink::Direct(stdout.clone())
        };
        Self { delays: DelayQueue::start(answers.clone()), stdout, answers, call_delay: script.slow }
    }

    /// Sends the answer to a call the way the script wants it.
    pub(crate) fn send_answer(&self, id: &str, line: Vec<u8>) {
        match self.call_delay {
            None => self.answers.send(line),
            Some(_) => self.send_after(Duration::ZERO, id, line),
        }
    }

    /// Sends a line of a call later, on top of the script's own delay.
    pub(crate) fn send_after(&self, delay: Duration, id: &str, line: Vec<u8>) {
        self.send_recorded(delay, id, line, None);
    }

    /// The same for the answer of an execution whose end is written down first.
    pub(crate) fn send_recorded(
        &self,
        delay: Duration,
        id: &str,
        line: Vec<u8>,
        ending: Option<ExecutionEnd>,
    ) {
        let late = DelayedLine { id: id.into(), line, end_record: ending };
        self.delays.schedule(delay + self.call_delay.unwrap_or_default(), late);
    }

    /// Sends a line that is not the answer to a call.
    pub(crate) fn send(&self, line: &[u8]) {
        self.stdout.push(line);
    }

    /// Stops whatever is still asleep for a call.
    pub(crate) fn cancel(&self, id: &str) {
        self.delays.cancel(id);
    }

    pub(crate) fn flush(&self) {
        self.stdout.flush();
    }

    /// Closes stdout. A fault that can't be staged ends the process, so that no test passes without it.
    pub(crate) fn close_stdout(&self) {
        if self.stdout.close().is_err() {
            std::process::exit(3);
        }
    }
}

fn shuffle(outlet: &Arc<StdoutBuffer>) -> Sender<Vec<u8>> {
    let (sender, receiver) = channel();
    let outlet = outlet.clone();
    std::thread::spawn(move || {
        while let Some(group) = next_group(&receiver) {
            group.iter().rev().for_each(|line| outlet.push(line));
            outlet.flush();
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

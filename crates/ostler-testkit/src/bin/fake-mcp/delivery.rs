//! How answers travel: at once, after a delay, or shuffled.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use crate::clock::{Clock, Late};
use crate::executions::Ending;
use crate::outlet::Outlet;
use crate::script::Script;

/// Answers are shuffled in groups of this size.
const GROUP: usize = 8;
/// A group that does not fill up is sent this long after its first answer.
const PATIENCE: Duration = Duration::from_millis(20);

/// The last stretch of a line's way.
#[derive(Debug, Clone)]
pub(crate) enum Exit {
    Direct(Arc<Outlet>),
    Shuffled(Sender<Vec<u8>>),
}

impl Exit {
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
pub(crate) struct Delivery {
    pub(crate) outlet: Arc<Outlet>,
    clock: Clock,
    /// Where answers to `tools/call` go.
    answers: Exit,
    slow: Option<Duration>,
}

impl Delivery {
    pub(crate) fn new(script: &Script) -> Self {
        let outlet = Arc::new(Outlet::new(script.ignores_stdin_close));
        let answers =
            if script.is_shuffled { Exit::Shuffled(shuffle(&outlet)) } else { Exit::Direct(outlet.clone()) };
        Self { clock: Clock::start(answers.clone()), outlet, answers, slow: script.slow }
    }

    /// Sends the answer to a call the way the script wants it.
    pub(crate) fn answer(&self, id: &str, line: Vec<u8>) {
        match self.slow {
            None => self.answers.send(line),
            Some(_) => self.after(Duration::ZERO, id, line),
        }
    }

    /// Sends a line of a call later, on top of the script's own delay.
    pub(crate) fn after(&self, delay: Duration, id: &str, line: Vec<u8>) {
        self.finish(delay, id, line, None);
    }

    /// The same for the answer of an execution whose end is written down first.
    pub(crate) fn finish(&self, delay: Duration, id: &str, line: Vec<u8>, ending: Option<Ending>) {
        let late = Late { id: id.into(), line, ending };
        self.clock.after(delay + self.slow.unwrap_or_default(), late);
    }

    /// Sends a line that is not the answer to a call.
    pub(crate) fn send(&self, line: &[u8]) {
        self.outlet.push(line);
    }

    /// Stops whatever is still asleep for a call.
    pub(crate) fn cancel(&self, id: &str) {
        self.clock.cancel(id);
    }

    pub(crate) fn flush(&self) {
        self.outlet.flush();
    }

    /// Closes stdout. A fault that can't be staged ends the process, so that no test passes without it.
    pub(crate) fn close_stdout(&self) {
        if self.outlet.close().is_err() {
            std::process::exit(3);
        }
    }
}

fn shuffle(outlet: &Arc<Outlet>) -> Sender<Vec<u8>> {
    let (sender, receiver) = channel();
    let outlet = outlet.clone();
    std::thread::spawn(move || {
        while let Some(group) = gather(&receiver) {
            group.iter().rev().for_each(|line| outlet.push(line));
            outlet.flush();
        }
    });
    sender
}

fn gather(receiver: &Receiver<Vec<u8>>) -> Option<Vec<Vec<u8>>> {
    let mut group = vec![receiver.recv().ok()?];
    let end = Instant::now() + PATIENCE;
    while group.len() < GROUP {
        let Ok(line) = receiver.recv_timeout(end.saturating_duration_since(Instant::now())) else { break };
        group.push(line);
    }
    Some(group)
}
